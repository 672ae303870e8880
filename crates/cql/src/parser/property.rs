//! `WITH` clauses.

use std::collections::HashSet;

use super::{Parsed, Parser, sets};
use crate::ast::{Properties, PropertyValue, Term};
use crate::token::TokenKind::*;
use crate::token::TokenSet;

impl Parser<'_> {
    /// `name = value AND ...`
    pub(super) fn properties(&mut self) -> Parsed<Properties> {
        let mut properties = Properties::default();
        loop {
            self.property(&mut properties)?;
            if !self.accept(KAnd) {
                return Ok(properties);
            }
        }
    }

    /// `name = value`
    pub(super) fn property(&mut self, properties: &mut Properties) -> Parsed<()> {
        self.require(1, sets::IDENTIFIER)?;
        self.require(2, TokenSet::of(&[Equal]))?;
        let value = self.decide(3, sets::UNRESERVED.and(sets::CONSTANT).and(TokenSet::of(&[OpenBrace])))?;
        let name = self.identifier()?.into_string();
        self.expect(Equal)?;
        let value = if value == OpenBrace {
            PropertyValue::Map(self.property_map()?)
        } else if sets::CONSTANT.contains(value) {
            PropertyValue::Text(self.constant()?.text)
        } else if sets::NATIVE_TYPE.contains(value) {
            PropertyValue::Text(self.native_type()?.to_string())
        } else {
            PropertyValue::Text(self.take_text().into_owned())
        };
        if properties.get(&name).is_some() {
            self.complain(format!("Multiple definitions for property '{name}'"));
        } else {
            properties.entries.push((name, value));
        }
        Ok(())
    }

    /// A map of constants.
    pub(super) fn property_map(&mut self) -> Parsed<Vec<(String, String)>> {
        self.expect(OpenBrace)?;
        let entries = self.optional_list(sets::TERM, |p| {
            let key = p.term()?;
            p.expect(Colon)?;
            Ok((key, p.term()?))
        })?;
        self.expect(CloseBrace)?;
        let mut map: Vec<(String, String)> = Vec::with_capacity(entries.len());
        let mut names = HashSet::with_capacity(entries.len());
        for (key, value) in entries {
            let Term::Constant(name) = &key else {
                self.complain(format!("Invalid property name: {key}{}", marker_hint(&key)));
                break;
            };
            let Term::Constant(text) = &value else {
                let hint = marker_hint(&value);
                self.complain(format!("Invalid property value: {value} for property: {key}{hint}"));
                break;
            };
            if !names.insert(name.text.clone()) {
                self.complain(format!("Multiple definition for property {}", name.text));
            }
            map.push((name.text.clone(), text.text.clone()));
        }
        Ok(map)
    }
}

fn marker_hint(term: &Term) -> &'static str {
    match term {
        Term::Marker(_) => " (bind variables are not supported in DDL queries)",
        _ => "",
    }
}
