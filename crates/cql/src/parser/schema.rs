//! Keyspaces, types, indexes, functions, aggregates and triggers. Each function starts after CREATE, ALTER or DROP.

use super::{Parsed, Parser, sets};
use crate::ast::{
    AlterKeyspace, AlterType, AlterTypeAction, CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace,
    CreateTrigger, CreateType, DropFunction, DropIndex, DropKeyspace, DropTrigger, DropType, Identifier, IndexTarget,
    IndexTargetKind, Properties, TypeName,
};
use crate::token::TokenKind::*;
use crate::token::TokenSet;

/// First tokens of a type.
const TYPE: TokenSet = sets::IDENTIFIER.and(TokenSet::of(&[KSet, StringLiteral]));

impl Parser<'_> {
    pub(super) fn create_keyspace(&mut self) -> Parsed<CreateKeyspace> {
        self.expect(KKeyspace)?;
        let if_not_exists = self.if_not_exists()?;
        let keyspace = self.keyspace_name()?;
        self.expect(KWith)?;
        Ok(CreateKeyspace { keyspace, if_not_exists, properties: self.properties()? })
    }

    pub(super) fn alter_keyspace(&mut self) -> Parsed<AlterKeyspace> {
        self.expect(KKeyspace)?;
        let if_exists = self.if_exists()?;
        let keyspace = self.keyspace_name()?;
        self.expect(KWith)?;
        Ok(AlterKeyspace { keyspace, if_exists, properties: self.properties()? })
    }

    pub(super) fn drop_keyspace(&mut self) -> Parsed<DropKeyspace> {
        self.expect(KKeyspace)?;
        let if_exists = self.if_exists()?;
        Ok(DropKeyspace { keyspace: self.keyspace_name()?, if_exists })
    }

    pub(super) fn create_type(&mut self) -> Parsed<CreateType> {
        self.expect(KType)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_type_name()?;
        self.expect(OpenParen)?;
        let mut fields = vec![self.type_field()?];
        while self.accept(Comma) {
            if self.is(sets::IDENTIFIER) {
                fields.push(self.type_field()?);
            }
        }
        self.expect(CloseParen)?;
        Ok(CreateType { name, if_not_exists, fields })
    }

    fn type_field(&mut self) -> Parsed<(Identifier, TypeName)> {
        Ok((self.identifier()?, self.type_name()?))
    }

    pub(super) fn alter_type(&mut self) -> Parsed<AlterType> {
        self.expect(KType)?;
        let if_exists = self.if_exists()?;
        let name = self.user_type_name()?;
        let first = self.require(1, TokenSet::of(&[KAlter, KAdd, KRename]))?;
        self.advance();
        let action = match first {
            KAlter => {
                let field = self.identifier()?;
                self.expect(KType)?;
                AlterTypeAction::AlterField { field, type_name: self.type_name()? }
            }
            KAdd => {
                let if_field_not_exists = self.if_not_exists()?;
                let (field, type_name) = self.type_field()?;
                AlterTypeAction::Add { field, type_name, if_field_not_exists }
            }
            _ => {
                let if_field_exists = self.if_exists()?;
                AlterTypeAction::Rename { renames: self.renames()?, if_field_exists }
            }
        };
        Ok(AlterType { name, if_exists, action })
    }

    pub(super) fn drop_type(&mut self) -> Parsed<DropType> {
        self.expect(KType)?;
        let if_exists = self.if_exists()?;
        Ok(DropType { name: self.user_type_name()?, if_exists })
    }

    pub(super) fn create_index(&mut self) -> Parsed<CreateIndex> {
        let is_custom = self.accept(KCustom);
        self.expect(KIndex)?;
        let if_not_exists = self.if_not_exists()?;
        let name = if self.is(sets::TABLE_NAME) { Some(self.index_name()?) } else { None };
        self.expect(KOn)?;
        let table = self.table_name()?;
        self.expect(OpenParen)?;
        let first = sets::COLUMN.and(TokenSet::of(&[KEntries, KFull]));
        let targets = self.optional_list(first, Self::index_target)?;
        self.expect(CloseParen)?;
        let class = if self.accept(KUsing) { Some(self.expect_text(StringLiteral)?) } else { None };
        let properties = if self.accept(KWith) { self.properties()? } else { Properties::default() };
        Ok(CreateIndex { table, name, if_not_exists, is_custom, targets, class, properties })
    }

    fn index_target(&mut self) -> Parsed<IndexTarget> {
        const NAME_OR_CALL: TokenSet = TokenSet::of(&[OpenParen, CloseParen, Comma]);
        let kind = match self.require(1, sets::COLUMN.and(TokenSet::of(&[KEntries, KFull])))? {
            KValues if self.require(2, NAME_OR_CALL)? == OpenParen => IndexTargetKind::Values,
            KKeys if self.require(2, NAME_OR_CALL)? == OpenParen => IndexTargetKind::Keys,
            KEntries => IndexTargetKind::Entries,
            KFull => IndexTargetKind::Full,
            _ => return Ok(IndexTarget { kind: IndexTargetKind::Simple, column: self.column()? }),
        };
        self.advance();
        self.expect(OpenParen)?;
        let column = self.column()?;
        self.expect(CloseParen)?;
        Ok(IndexTarget { kind, column })
    }

    pub(super) fn drop_index(&mut self) -> Parsed<DropIndex> {
        self.expect(KIndex)?;
        let if_exists = self.if_exists()?;
        Ok(DropIndex { index: self.qualified_index_name()?, if_exists })
    }

    /// `OR REPLACE`, if present.
    fn or_replace(&mut self) -> Parsed<bool> {
        let found = self.accept(KOr);
        if found {
            self.expect(KReplace)?;
        }
        Ok(found)
    }

    pub(super) fn create_function(&mut self) -> Parsed<CreateFunction> {
        let or_replace = self.or_replace()?;
        self.expect(KFunction)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        self.expect(OpenParen)?;
        let arguments = self.optional_list(sets::IDENTIFIER, Self::type_field)?;
        self.expect(CloseParen)?;
        let called_on_null_input = self.require(1, TokenSet::of(&[KReturns, KCalled]))? == KCalled;
        self.advance();
        if !called_on_null_input {
            self.expect(KNull)?;
        }
        self.expect_all(&[KOn, KNull, KInput, KReturns])?;
        let return_type = self.type_name()?;
        self.expect(KLanguage)?;
        let language = self.expect_text(Ident)?.to_ascii_lowercase();
        self.expect(KAs)?;
        let body = self.expect_text(StringLiteral)?;
        Ok(CreateFunction {
            name,
            or_replace,
            if_not_exists,
            arguments,
            called_on_null_input,
            return_type,
            language,
            body,
        })
    }

    pub(super) fn create_aggregate(&mut self) -> Parsed<CreateAggregate> {
        let or_replace = self.or_replace()?;
        self.expect(KAggregate)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let arguments = self.argument_types()?;
        self.expect(KSfunc)?;
        let state_function = self.function_identifier()?;
        self.expect(KStype)?;
        let state_type = self.type_name()?;
        let final_function = if self.accept(KFinalfunc) { Some(self.function_identifier()?) } else { None };
        let initial_value = if self.accept(KInitcond) { Some(self.term()?) } else { None };
        Ok(CreateAggregate {
            name,
            or_replace,
            if_not_exists,
            arguments,
            state_function,
            state_type,
            final_function,
            initial_value,
        })
    }

    /// `(type, ...)`, possibly empty.
    pub(super) fn argument_types(&mut self) -> Parsed<Vec<TypeName>> {
        self.expect(OpenParen)?;
        let types = self.optional_list(TYPE, Self::type_name)?;
        self.expect(CloseParen)?;
        Ok(types)
    }

    /// A function or an aggregate.
    pub(super) fn drop_function(&mut self) -> Parsed<DropFunction> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.function_name()?;
        let arguments = if self.kind() == OpenParen { Some(self.argument_types()?) } else { None };
        Ok(DropFunction { name, if_exists, arguments })
    }

    pub(super) fn create_trigger(&mut self) -> Parsed<CreateTrigger> {
        self.expect(KTrigger)?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.identifier()?;
        self.expect(KOn)?;
        let table = self.table_name()?;
        self.expect(KUsing)?;
        let class = self.expect_text(StringLiteral)?;
        Ok(CreateTrigger { name, table, if_not_exists, class })
    }

    pub(super) fn drop_trigger(&mut self) -> Parsed<DropTrigger> {
        self.expect(KTrigger)?;
        let if_exists = self.if_exists()?;
        let name = self.identifier()?;
        self.expect(KOn)?;
        Ok(DropTrigger { name, table: self.table_name()?, if_exists })
    }
}
