//! Identifiers and qualified names.

use super::{Parsed, Parser, sets};
use crate::ast::{FunctionName, Identifier, QualifiedName, UserTypeName};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

/// Unquoted type names kept for later versions of Cassandra.
const RESERVED_TYPE_NAMES: [&str; 7] = ["byte", "complex", "enum", "date", "interval", "macaddr", "bitstring"];

impl Parser<'_> {
    /// The current token as an identifier; goes past it.
    fn take_identifier(&mut self) -> Identifier {
        let kind = self.kind();
        let text = self.take_text();
        match kind {
            QuotedName | StringLiteral => Identifier::quoted(text),
            EmptyQuotedName => Identifier::quoted(""),
            _ => Identifier::unquoted(&text),
        }
    }

    fn identifier_of(&mut self, set: TokenSet) -> Parsed<Identifier> {
        self.require(1, set)?;
        Ok(self.take_identifier())
    }

    /// Name of a column in DDL, a field, an alias or a marker.
    pub(super) fn identifier(&mut self) -> Parsed<Identifier> {
        self.identifier_of(sets::IDENTIFIER)
    }

    /// Name of a column in a query: may be the empty name.
    pub(super) fn column(&mut self) -> Parsed<Identifier> {
        self.identifier_of(sets::COLUMN)
    }

    pub(super) fn keyspace_name(&mut self) -> Parsed<Identifier> {
        self.name_or_marker("keyspace")
    }

    pub(super) fn index_name(&mut self) -> Parsed<Identifier> {
        self.name_or_marker("index")
    }

    /// A name. A marker is recognised and refused.
    fn name_or_marker(&mut self, what: &str) -> Parsed<Identifier> {
        if self.require(1, sets::TABLE_NAME)? == QMark {
            self.complain(format!("Bind variables cannot be used for {what} names"));
        }
        Ok(self.take_identifier())
    }

    /// Name of a table or view.
    pub(super) fn table_name(&mut self) -> Parsed<QualifiedName> {
        self.qualified_name("table", sets::AFTER_TABLE_NAME)
    }

    /// Name of an index with its keyspace.
    pub(super) fn qualified_index_name(&mut self) -> Parsed<QualifiedName> {
        self.qualified_name("index", TokenSet::of(&[Eof, Semicolon]))
    }

    fn qualified_name(&mut self, what: &str, follow: TokenSet) -> Parsed<QualifiedName> {
        self.require(1, sets::TABLE_NAME)?;
        let mut keyspace = None;
        if self.decide(2, follow.and(TokenSet::of(&[Dot])))? == Dot {
            keyspace = Some(self.keyspace_name()?);
            self.expect(Dot)?;
        }
        let name = self.name_or_marker(what)?;
        Ok(QualifiedName { keyspace, name })
    }

    pub(super) fn user_type_name(&mut self) -> Parsed<UserTypeName> {
        let kind = self.kind();
        let may_be_type = sets::BASIC.contains(kind) || matches!(kind, Ident | QuotedName | KKey);
        let qualified = sets::IDENTIFIER.contains(kind) && (!may_be_type || self.kind_at(2) == Dot);
        let mut keyspace = None;
        if qualified {
            keyspace = Some(self.identifier()?);
            self.expect(Dot)?;
        }
        let name = self.type_identifier()?;
        Ok(UserTypeName { keyspace, name })
    }

    fn type_identifier(&mut self) -> Parsed<Identifier> {
        let kind = self.require(1, sets::BASIC.and(TokenSet::of(&[Ident, QuotedName, KKey])))?;
        let token = self.peek(1);
        let text = token.text(self.text);
        if kind == Ident && RESERVED_TYPE_NAMES.contains(&&*text) {
            self.complain(format!("Invalid (reserved) user type name {text}"));
        }
        Ok(self.take_identifier())
    }

    /// Name of a function or aggregate, with or without keyspace.
    pub(super) fn function_name(&mut self) -> Parsed<FunctionName> {
        let kind = self.kind();
        let qualified = if sets::FUNCTION_NAME.contains(kind) {
            self.decide(2, TokenSet::of(&[Dot, OpenParen, Semicolon, KWith, Eof]))? == Dot
        } else {
            self.decide(1, sets::NO_FUNCTION_NAME.and(TokenSet::of(&[QMark, KToken])))? != KToken
        };
        let mut keyspace = None;
        if qualified {
            keyspace = Some(self.keyspace_name()?);
            self.expect(Dot)?;
        }
        let name = self.function_identifier()?;
        Ok(FunctionName { keyspace, name })
    }

    /// The name of a function inside its keyspace. Keywords keep their case, except native types.
    pub(super) fn function_identifier(&mut self) -> Parsed<Identifier> {
        let kind = self.require(1, sets::FUNCTION_NAME.and(TokenSet::of(&[KToken])))?;
        let text = self.take_text();
        Ok(match kind {
            QuotedName => Identifier::quoted(text),
            _ if sets::BASIC.contains(kind) => Identifier::quoted(text),
            _ => Identifier::unquoted(&text),
        })
    }

    /// The name of a role. A marker is recognised and refused.
    pub(super) fn role_name(&mut self) -> Parsed<String> {
        if self.require(1, sets::ROLE_NAME)? == QMark {
            self.complain("Bind variables cannot be used for role names");
        }
        Ok(self.take_identifier().into_string())
    }

    /// Name of a user or identity.
    pub(super) fn user_name(&mut self, complaint: &str) -> Parsed<(TokenKind, String)> {
        let kind = self.require(1, TokenSet::of(&[Ident, StringLiteral, QuotedName]))?;
        if kind == QuotedName {
            self.complain(complaint);
        }
        Ok((kind, self.take_text().into_owned()))
    }
}
