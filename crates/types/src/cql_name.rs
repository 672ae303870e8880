//! Reading types back from the names that `system_schema` stores.

use std::sync::Arc;

use crate::{CqlType, UserType};

/// How deep types may nest; deeper text is refused.
const DEPTH_MAX: usize = 64;

impl CqlType {
    /// The type that [`CqlType`]'s `Display` printed as `text`; user types are looked up by name with `resolve`.
    /// `None` where the text is no type or names an unknown one.
    pub fn parse_name(text: &str, resolve: &dyn Fn(&str) -> Option<Arc<UserType>>) -> Option<CqlType> {
        let mut parser = Parser { rest: text, resolve };
        let parsed = parser.ty(0)?;
        if parser.rest.trim().is_empty() { Some(parsed) } else { None }
    }
}

struct Parser<'a> {
    rest: &'a str,
    resolve: &'a dyn Fn(&str) -> Option<Arc<UserType>>,
}

impl Parser<'_> {
    fn ty(&mut self, depth: usize) -> Option<CqlType> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (name, quoted) = self.name()?;
        if quoted {
            return self.user_type(&name);
        }
        match name.as_str() {
            "frozen" => {
                self.expect('<')?;
                let inner = self.ty(depth + 1)?;
                self.expect('>')?;
                Some(inner.freeze())
            }
            "list" | "set" => {
                self.expect('<')?;
                let element = self.ty(depth + 1)?;
                self.expect('>')?;
                Some(if name == "list" { CqlType::list(element) } else { CqlType::set(element) })
            }
            "map" => {
                self.expect('<')?;
                let key = self.ty(depth + 1)?;
                self.expect(',')?;
                let value = self.ty(depth + 1)?;
                self.expect('>')?;
                Some(CqlType::map(key, value))
            }
            "tuple" => self.tuple(depth),
            "vector" => {
                self.expect('<')?;
                let element = self.ty(depth + 1)?;
                self.expect(',')?;
                let (dimension, _) = self.name()?;
                self.expect('>')?;
                Some(CqlType::vector(element, dimension.parse().ok()?))
            }
            "empty" => Some(CqlType::Empty),
            _ => CqlType::native(&name).or_else(|| self.user_type(&name)),
        }
    }

    fn tuple(&mut self, depth: usize) -> Option<CqlType> {
        self.expect('<')?;
        let mut elements = vec![self.ty(depth + 1)?];
        while self.expect(',').is_some() {
            elements.push(self.ty(depth + 1)?);
        }
        self.expect('>')?;
        Some(CqlType::tuple(elements))
    }

    fn user_type(&self, name: &str) -> Option<CqlType> {
        (self.resolve)(name).map(|definition| CqlType::Udt { definition, frozen: false })
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(wanted)?;
        Some(())
    }

    /// A name, and whether it was quoted; a class name in single quotes is no name.
    fn name(&mut self) -> Option<(String, bool)> {
        let text = self.rest.trim_start();
        if let Some(quoted) = text.strip_prefix('"') {
            let mut name = String::new();
            let mut rest = quoted;
            loop {
                let (part, after) = rest.split_once('"')?;
                name.push_str(part);
                match after.strip_prefix('"') {
                    Some(after) => {
                        name.push('"');
                        rest = after;
                    }
                    None => {
                        self.rest = after;
                        return Some((name, true));
                    }
                }
            }
        }
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        self.rest = rest;
        if name.is_empty() { None } else { Some((name.to_string(), false)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let phone = Arc::new(UserType {
            keyspace: "k".into(),
            name: "Phone \"x\"".into(),
            fields: vec![("n".into(), CqlType::map(CqlType::Text, CqlType::Int))],
        });
        let resolve = |name: &str| if *name == *phone.name { Some(phone.clone()) } else { None };
        let types = [
            CqlType::Text,
            CqlType::map(CqlType::Text, CqlType::list(CqlType::set(CqlType::Int)).freeze()),
            CqlType::tuple([CqlType::Int, CqlType::Text, CqlType::list(CqlType::Int)]),
            CqlType::Udt { definition: phone.clone(), frozen: false },
            CqlType::list(CqlType::Udt { definition: phone.clone(), frozen: false }.freeze()).freeze(),
            CqlType::vector(CqlType::Float, 3),
            CqlType::vector(CqlType::vector(CqlType::Text, 2), 2),
        ];
        for ty in types {
            assert_eq!(CqlType::parse_name(&ty.to_string(), &resolve), Some(ty.clone()), "{ty}");
        }
        for bad in ["", "list<", "list<int", "nosuch", "int int", "\"open", &"frozen<".repeat(1000)] {
            assert_eq!(CqlType::parse_name(bad, &resolve), None, "{bad}");
        }
    }
}
