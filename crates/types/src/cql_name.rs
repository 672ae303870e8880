//! Parsing types from the names that `system_schema` stores.

use std::sync::Arc;

use crate::identifier::EMPTY_TYPE;
use crate::user_type::TYPE_DEPTH_MAX;
use crate::{CqlType, UserType};

impl CqlType {
    /// The type that [`CqlType`]'s `Display` printed as `text`; user types are looked up by name with `resolve`. `None`
    /// if the text is not a type, names an unknown one, or is nested more than [`TYPE_DEPTH_MAX`] deep.
    ///
    /// A name in double quotes is always a user type's. So is the name of a generic type without parameters.
    pub fn parse_name(text: &str, resolve: &dyn Fn(&str) -> Option<Arc<UserType>>) -> Option<CqlType> {
        let mut parser = Parser { rest: text, resolve };
        let parsed = parser.ty(1)?;
        if parser.rest.trim().is_empty() { Some(parsed) } else { None }
    }
}

struct Parser<'a> {
    rest: &'a str,
    resolve: &'a dyn Fn(&str) -> Option<Arc<UserType>>,
}

impl<'a> Parser<'a> {
    fn ty(&mut self, depth: u16) -> Option<CqlType> {
        if depth > TYPE_DEPTH_MAX {
            return None;
        }
        if let Some(class) = self.quoted('\'') {
            return CqlType::parse_marshal_class(&class?).ok();
        }
        if let Some(name) = self.quoted('"') {
            return self.user_type(&name?);
        }
        let name = self.word()?;
        if !self.rest.trim_start().starts_with('<') {
            return CqlType::native(name)
                .or_else(|| (name == EMPTY_TYPE).then_some(CqlType::Empty))
                .or_else(|| self.user_type(name));
        }
        self.expect('<')?;
        let generic = match name {
            // This does not count as a level of nesting, but each one still consumes some of the text.
            "frozen" => self.frozen(depth)?.freeze(),
            "list" => CqlType::list(self.ty(depth + 1)?),
            "set" => CqlType::set(self.ty(depth + 1)?),
            "map" => {
                let key = self.ty(depth + 1)?;
                self.expect(',')?;
                CqlType::map(key, self.ty(depth + 1)?)
            }
            "tuple" => self.tuple(depth)?,
            "vector" => {
                let element = self.ty(depth + 1)?;
                self.expect(',')?;
                CqlType::vector(element, self.word()?.parse().ok()?)
            }
            _ => return None,
        };
        self.expect('>')?;
        Some(generic)
    }

    /// The contents of `frozen<...>`: another `frozen` is not allowed, which bounds their number.
    fn frozen(&mut self, depth: u16) -> Option<CqlType> {
        let after = self.rest.trim_start().strip_prefix("frozen");
        let is_frozen_again = after.is_some_and(|after| after.trim_start().starts_with('<'));
        if is_frozen_again { None } else { self.ty(depth) }
    }

    fn tuple(&mut self, depth: u16) -> Option<CqlType> {
        let mut elements = vec![self.ty(depth + 1)?];
        while self.expect(',').is_some() {
            elements.push(self.ty(depth + 1)?);
        }
        Some(CqlType::tuple(elements))
    }

    fn user_type(&self, name: &str) -> Option<CqlType> {
        (self.resolve)(name).map(|definition| CqlType::Udt { definition, frozen: false })
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(wanted)?;
        Some(())
    }

    /// A text between quotes, in which a doubled quote stands for one. `None` if no quote comes next, `Some(None)` if
    /// none ends it.
    fn quoted(&mut self, quote: char) -> Option<Option<String>> {
        let mut rest = self.rest.trim_start().strip_prefix(quote)?;
        let mut text = String::new();
        loop {
            let Some((part, after)) = rest.split_once(quote) else { return Some(None) };
            text.push_str(part);
            let Some(after_both) = after.strip_prefix(quote) else {
                self.rest = after;
                return Some(Some(text));
            };
            text.push(quote);
            rest = after_both;
        }
    }

    /// Letters, digits and underscores, at least one.
    fn word(&mut self) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        if word.is_empty() { None } else { Some(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let field = ("n".into(), CqlType::map(CqlType::Text, CqlType::Int));
        let user = |name: &str| Arc::new(UserType::new("k".into(), name.into(), vec![field.clone()]));
        let udt = |name: &str| CqlType::Udt { definition: user(name), frozen: false };
        let resolve = |name: &str| if name == "nosuch" { None } else { Some(user(name)) };
        let deep = (2..TYPE_DEPTH_MAX).fold(CqlType::list(CqlType::Int), |inner, _| CqlType::list(inner)).freeze();
        let custom = |class: &str| CqlType::parse_marshal_class(class).expect("a class");
        let mut types = vec![
            CqlType::Text,
            CqlType::Empty,
            CqlType::map(CqlType::Text, CqlType::list(CqlType::set(CqlType::Int)).freeze()),
            CqlType::tuple([CqlType::Int, CqlType::Text, CqlType::list(CqlType::Int)]),
            CqlType::list(udt("Phone \"x\"").freeze()).freeze(),
            CqlType::vector(CqlType::Float, 3),
            CqlType::vector(CqlType::vector(CqlType::list(CqlType::Text), 2), 2),
            CqlType::list(CqlType::vector(CqlType::list(CqlType::Text), 2)).freeze(),
            CqlType::tuple([CqlType::vector(udt("vector"), 2)]),
            CqlType::set(custom("LexicalUUIDType")),
            custom("CompositeType(UTF8Type,ReversedType(Int32Type))"),
            custom("DynamicCompositeType(s => UTF8Type, i=>ListType(Int32Type))"),
            custom("com.example.Odd('a',(\"b\"))"),
            deep,
        ];
        let natives = "ascii bigint blob boolean counter date decimal double duration empty float inet int smallint text \
                       time timestamp timeuuid tinyint uuid varchar varint";
        let generics = "list set map tuple vector frozen";
        for name in natives.split_whitespace().chain(generics.split_whitespace()).chain(["table", "A", "'", "<", ""]) {
            types.extend([udt(name), udt(name).freeze(), CqlType::map(udt(name).freeze(), udt(name).freeze())]);
        }
        for ty in types {
            assert_eq!(CqlType::parse_name(&ty.to_string(), &resolve), Some(ty.clone()), "{ty}");
        }
        let too_deep = format!("{}int{}", "list<".repeat(64), ">".repeat(64));
        for bad in [
            "",
            "list<",
            "list<int",
            "nosuch",
            "int int",
            "\"open",
            "'open",
            "frozen<frozen<list<int>>>",
            &"frozen<".repeat(1000),
            &too_deep,
        ] {
            assert_eq!(CqlType::parse_name(bad, &resolve), None, "{bad}");
        }
    }
}
