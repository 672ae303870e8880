//! INSERT, UPDATE, DELETE and BATCH.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{Parsed, Parser, sets};
use crate::ast::{
    Attributes, Batch, BatchKind, Conditions, Constant, ConstantKind, Delete, Deletion, Identifier, Insert, InsertJson,
    JsonValue, Modification, Operation, QualifiedName, Term, Update,
};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

impl Parser<'_> {
    pub(super) fn insert(&mut self) -> Parsed<Modification> {
        self.expect_all(&[KInsert, KInto])?;
        let table = self.table_name()?;
        if self.require(1, TokenSet::of(&[OpenParen, KJson]))? == OpenParen {
            return Ok(Modification::Insert(self.insert_values(table)?));
        }
        Ok(Modification::InsertJson(self.insert_json(table)?))
    }

    fn insert_values(&mut self, table: QualifiedName) -> Parsed<Insert> {
        self.expect(OpenParen)?;
        let columns = self.list(Self::column)?;
        self.expect_all(&[CloseParen, KValues, OpenParen])?;
        let values = self.list(Self::term)?;
        self.expect(CloseParen)?;
        let if_not_exists = self.if_not_exists()?;
        let attributes = self.using()?;
        Ok(Insert { table, columns, values, if_not_exists, attributes })
    }

    fn insert_json(&mut self, table: QualifiedName) -> Parsed<InsertJson> {
        self.expect(KJson)?;
        let value = match self.require(1, TokenSet::of(&[StringLiteral, Colon, QMark]))? {
            StringLiteral => JsonValue::Literal(self.take_text().into_owned()),
            _ => JsonValue::Marker(self.marker()?),
        };
        let mut default_unset = false;
        if self.accept(KDefault) {
            default_unset = self.require(1, TokenSet::of(&[KNull, KUnset]))? == KUnset;
            self.advance();
        }
        let if_not_exists = self.if_not_exists()?;
        let attributes = self.using()?;
        Ok(InsertJson { table, value, default_unset, if_not_exists, attributes })
    }

    /// `USING TIMESTAMP t AND TTL t`, if present. If one is written twice, the last value counts.
    fn using(&mut self) -> Parsed<Attributes> {
        let mut attributes = Attributes::default();
        if !self.accept(KUsing) {
            return Ok(attributes);
        }
        loop {
            let objective = self.require(1, TokenSet::of(&[KTimestamp, KTtl]))?;
            self.advance();
            let value = Some(self.int_value()?);
            match objective {
                KTtl => attributes.time_to_live = value,
                _ => attributes.timestamp = value,
            }
            if !self.accept(KAnd) {
                return Ok(attributes);
            }
        }
    }

    pub(super) fn update(&mut self) -> Parsed<Update> {
        self.expect(KUpdate)?;
        let table = self.table_name()?;
        let attributes = self.using()?;
        self.expect(KSet)?;
        let (mut operations, mut changed) = (Vec::new(), Changed::default());
        loop {
            let (column, operation) = self.assignment()?;
            if !changed.add(&column, &operation) {
                self.complain(format!("Multiple incompatible setting of column {}", column.as_str()));
            }
            operations.push((column, operation));
            if !self.accept(Comma) {
                break;
            }
        }
        self.expect(KWhere)?;
        let where_clause = self.where_clause()?;
        let conditions = self.if_conditions()?;
        Ok(Update { table, attributes, operations, where_clause, conditions })
    }

    fn if_conditions(&mut self) -> Parsed<Conditions> {
        if self.accept(KIf) { self.conditions() } else { Ok(Conditions::None) }
    }

    fn assignment(&mut self) -> Parsed<(Identifier, Operation)> {
        let column = self.column()?;
        let first = self.require(1, TokenSet::of(&[Equal, PlusEq, MinusEq, OpenBracket, Dot]))?;
        self.advance();
        let operation = match first {
            Equal => self.assigned(&column)?,
            PlusEq => Operation::Addition(self.term()?),
            MinusEq => Operation::Subtraction(self.term()?),
            OpenBracket => {
                let element = self.term()?;
                self.expect_all(&[CloseBracket, Equal])?;
                Operation::SetElement { element, value: self.term()? }
            }
            _ => {
                let field = self.identifier()?;
                self.expect(Equal)?;
                Operation::SetField { field, value: self.term()? }
            }
        };
        Ok((column, operation))
    }

    /// The operation after `column =`.
    fn assigned(&mut self, column: &Identifier) -> Parsed<Operation> {
        match self.column_operand()? {
            None => self.assigned_term(column),
            Some(Integer) => {
                let other = self.column()?;
                let text = self.expect_text(Integer)?;
                if other != *column {
                    let sign = if text.starts_with('-') { '-' } else { '+' };
                    self.complain(format!("Only expressions of the form X = X {sign} <value> are supported."));
                }
                Ok(Operation::Addition(Term::Constant(Constant { kind: ConstantKind::Integer, text })))
            }
            Some(sign) => {
                let other = self.column()?;
                self.advance();
                let value = self.term()?;
                let (sign, operation) = match sign {
                    Minus => ('-', Operation::Subtraction(value)),
                    _ => ('+', Operation::Addition(value)),
                };
                if other != *column {
                    self.complain(format!("Only expressions of the form X = X {sign}<value> are supported."));
                }
                Ok(operation)
            }
        }
    }

    /// The token after a column that is an operand (a sign, or a number with its sign); `None` if a term follows.
    fn column_operand(&mut self) -> Parsed<Option<TokenKind>> {
        const OPERAND: TokenSet = TokenSet::of(&[Plus, Minus, Integer]);
        let kind = self.require(1, sets::TERM.and(sets::COLUMN))?;
        if sets::TERM_ONLY.contains(kind) {
            self.decided(1);
            return Ok(None);
        }
        let term = if sets::FUNCTION_OR_CAST.contains(kind) {
            TokenSet::of(&[OpenParen, Dot])
        } else if kind == EmptyQuotedName {
            TokenSet::of(&[])
        } else {
            TokenSet::of(&[Dot])
        };
        let next = self.decide(2, OPERAND.and(term))?;
        Ok(OPERAND.contains(next).then_some(next))
    }

    fn assigned_term(&mut self, column: &Identifier) -> Parsed<Operation> {
        let value = self.term()?;
        if !self.accept(Plus) {
            return Ok(Operation::SetValue(value));
        }
        if self.column()? != *column {
            self.complain("Only expressions of the form X = <value> + X are supported.");
        }
        Ok(Operation::Prepend(value))
    }

    pub(super) fn delete(&mut self) -> Parsed<Delete> {
        self.expect(KDelete)?;
        let deletions = self.optional_list(sets::COLUMN, Self::deletion)?;
        self.expect(KFrom)?;
        let table = self.table_name()?;
        let mut attributes = Attributes::default();
        if self.accept(KUsing) {
            self.expect(KTimestamp)?;
            attributes.timestamp = Some(self.int_value()?);
        }
        self.expect(KWhere)?;
        let where_clause = self.where_clause()?;
        let conditions = self.if_conditions()?;
        Ok(Delete { table, attributes, deletions, where_clause, conditions })
    }

    fn deletion(&mut self) -> Parsed<Deletion> {
        self.require(1, sets::COLUMN)?;
        let next = self.decide(2, TokenSet::of(&[Comma, KFrom, OpenBracket, Dot]))?;
        let column = self.column()?;
        match next {
            OpenBracket => {
                self.expect(OpenBracket)?;
                let element = self.term()?;
                self.expect(CloseBracket)?;
                Ok(Deletion::Element { column, element })
            }
            Dot => {
                self.expect(Dot)?;
                Ok(Deletion::Field { column, field: self.identifier()? })
            }
            _ => Ok(Deletion::Column(column)),
        }
    }

    pub(super) fn batch(&mut self) -> Parsed<Batch> {
        self.expect(KBegin)?;
        let kind = if self.accept(KUnlogged) {
            BatchKind::Unlogged
        } else if self.accept(KCounter) {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect(KBatch)?;
        let attributes = self.using()?;
        let mut statements = Vec::new();
        loop {
            let statement = match self.kind() {
                KInsert => self.insert()?,
                KUpdate => Modification::Update(self.update()?),
                KDelete => Modification::Delete(self.delete()?),
                _ => break,
            };
            statements.push(statement);
            self.accept(Semicolon);
        }
        self.expect_all(&[KApply, KBatch])?;
        Ok(Batch { kind, attributes, statements })
    }
}

/// The changes by the assignments of one statement so far.
#[derive(Default)]
struct Changed {
    /// Of each column, whether it got a value as a whole.
    columns: HashMap<String, bool>,
    fields: HashSet<(String, String)>,
}

impl Changed {
    /// Adds a change. Returns false if an earlier one excludes it: a value for a whole column excludes every other
    /// change of the column, and a field has one value.
    fn add(&mut self, column: &Identifier, operation: &Operation) -> bool {
        let name = || column.as_str().to_owned();
        let is_whole = matches!(operation, Operation::SetValue(_));
        let is_new_field = match operation {
            Operation::SetField { field, .. } => self.fields.insert((name(), field.as_str().to_owned())),
            _ => true,
        };
        match self.columns.entry(name()) {
            Entry::Vacant(new) => {
                new.insert(is_whole);
                true
            }
            Entry::Occupied(mut earlier) => {
                let was_whole = *earlier.get();
                *earlier.get_mut() |= is_whole;
                !was_whole && !is_whole && is_new_field
            }
        }
    }
}
