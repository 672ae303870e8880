//! WHERE and IF clauses.

use super::{Parsed, Parser, sets};
use crate::ast::{
    Condition, ConditionTarget, ConditionValue, Conditions, CustomIndexExpression, Identifier, InValues, Operator,
    QualifiedName, Relation, Term, WhereClause,
};
use crate::token::TokenKind::*;
use crate::token::TokenSet;

const MARKER: TokenSet = TokenSet::of(&[QMark, Colon]);

impl Parser<'_> {
    pub(super) fn where_clause(&mut self) -> Parsed<WhereClause> {
        let mut clause = WhereClause::default();
        self.relation_or_expression(&mut clause)?;
        while self.accept(KAnd) {
            self.relation_or_expression(&mut clause)?;
        }
        Ok(clause)
    }

    fn relation_or_expression(&mut self, clause: &mut WhereClause) -> Parsed<()> {
        let first = sets::COLUMN.and(TokenSet::of(&[Expr, KToken, OpenParen]));
        if self.require(1, first)? == Expr {
            self.advance();
            let index = QualifiedName { keyspace: None, name: self.index_name()? };
            self.expect(Comma)?;
            let value = self.term()?;
            self.expect(CloseParen)?;
            clause.expressions.push(CustomIndexExpression { index, value });
        } else {
            let relation = self.relation()?;
            clause.relations.push(relation);
        }
        Ok(())
    }

    fn relation(&mut self) -> Parsed<Relation> {
        const AFTER_COLUMN: TokenSet = sets::RELATION.and(TokenSet::of(&[KLike, KIs, KIn, KContains, OpenBracket]));
        match self.kind() {
            KToken => {
                self.decided(1);
                self.advance();
                let columns = self.columns()?;
                let operator = self.operator()?;
                Ok(Relation::Token { columns, operator, value: self.term()? })
            }
            OpenParen => {
                let inner = self.require(2, sets::COLUMN.and(TokenSet::of(&[KToken, OpenParen])))?;
                let list_end = TokenSet::of(&[Comma, CloseParen]);
                if !sets::COLUMN.contains(inner) {
                    self.decided(2);
                } else if list_end.contains(self.decide(3, AFTER_COLUMN.and(list_end))?) {
                    return self.multi_column_relation();
                }
                self.nested(|p| {
                    p.expect(OpenParen)?;
                    let relation = p.relation()?;
                    p.expect(CloseParen)?;
                    Ok(relation)
                })
            }
            kind if sets::COLUMN.contains(kind) => {
                if self.require(2, AFTER_COLUMN)? == KIn {
                    self.decide(3, MARKER.and(TokenSet::of(&[OpenParen])))?;
                } else {
                    self.decided(2);
                }
                self.single_column_relation()
            }
            _ => self.no_alternative(1),
        }
    }

    fn single_column_relation(&mut self) -> Parsed<Relation> {
        let column = self.column()?;
        let operator = match self.kind() {
            KLike => {
                self.advance();
                Operator::Like
            }
            KIs => {
                self.expect_all(&[KIs, KNot, KNull])?;
                return Ok(Relation::SingleColumn { column, operator: Operator::IsNot, value: Term::Null });
            }
            KIn => {
                self.advance();
                return Ok(Relation::SingleColumnIn { column, values: self.in_values()? });
            }
            KContains => self.contains()?,
            OpenBracket => {
                self.advance();
                let key = self.term()?;
                self.expect(CloseBracket)?;
                let operator = self.operator()?;
                return Ok(Relation::MapElement { column, key, operator, value: self.term()? });
            }
            _ => self.operator()?,
        };
        Ok(Relation::SingleColumn { column, operator, value: self.term()? })
    }

    fn multi_column_relation(&mut self) -> Parsed<Relation> {
        let columns = self.columns()?;
        if self.require(1, sets::RELATION.and(TokenSet::of(&[KIn])))? == KIn {
            self.decided(1);
            self.advance();
            return Ok(Relation::MultiColumnIn { columns, values: self.multi_column_in_values()? });
        }
        self.decide(2, MARKER.and(TokenSet::of(&[OpenParen])))?;
        let operator = self.operator()?;
        let value = if self.kind() == OpenParen { self.tuple_literal()? } else { Term::Marker(self.marker()?) };
        Ok(Relation::MultiColumn { columns, operator, value })
    }

    fn multi_column_in_values(&mut self) -> Parsed<InValues> {
        if self.require(1, MARKER.and(TokenSet::of(&[OpenParen])))? != OpenParen {
            return Ok(InValues::Marker(self.marker()?));
        }
        let first = self.require(2, MARKER.and(TokenSet::of(&[OpenParen, CloseParen])))?;
        self.expect(OpenParen)?;
        let terms = match first {
            CloseParen => Vec::new(),
            OpenParen => self.list(Self::tuple_literal)?,
            _ => self.list(|p| Ok(Term::Marker(p.marker()?)))?,
        };
        self.expect(CloseParen)?;
        Ok(InValues::Terms(terms))
    }

    /// `(column, ...)`
    fn columns(&mut self) -> Parsed<Vec<Identifier>> {
        self.expect(OpenParen)?;
        let columns = self.list(Self::column)?;
        self.expect(CloseParen)?;
        Ok(columns)
    }

    /// `(term, ...)` or a marker for all of them.
    fn in_values(&mut self) -> Parsed<InValues> {
        if self.require(1, MARKER.and(TokenSet::of(&[OpenParen])))? != OpenParen {
            return Ok(InValues::Marker(self.marker()?));
        }
        self.expect(OpenParen)?;
        let terms = self.optional_list(sets::TERM, Self::term)?;
        self.expect(CloseParen)?;
        Ok(InValues::Terms(terms))
    }

    fn operator(&mut self) -> Parsed<Operator> {
        let operator = match self.kind() {
            Equal => Operator::Eq,
            Less => Operator::Lt,
            LessEq => Operator::Lte,
            Greater => Operator::Gt,
            GreaterEq => Operator::Gte,
            NotEqual => Operator::Neq,
            _ => return self.no_alternative(1),
        };
        self.advance();
        Ok(operator)
    }

    fn contains(&mut self) -> Parsed<Operator> {
        self.expect(KContains)?;
        // KEY may also be the keyspace of a function.
        if self.kind() == KKey && sets::TERM.contains(self.kind_at(2)) {
            self.advance();
            return Ok(Operator::ContainsKey);
        }
        Ok(Operator::Contains)
    }

    /// The conditions after IF in UPDATE and DELETE. EXISTS may also be the name of a column.
    pub(super) fn conditions(&mut self) -> Parsed<Conditions> {
        const AFTER_COLUMN: TokenSet = sets::RELATION.and(TokenSet::of(&[KIn, KContains, OpenBracket, Dot]));
        const AFTER_STATEMENT: TokenSet = TokenSet::of(&[Eof, Semicolon, KApply, KInsert, KUpdate, KDelete]);
        if self.require(1, sets::COLUMN)? == KExists
            && AFTER_STATEMENT.contains(self.require(2, AFTER_COLUMN.and(AFTER_STATEMENT))?)
        {
            self.advance();
            return Ok(Conditions::Exists);
        }
        let mut conditions = vec![self.condition()?];
        while self.accept(KAnd) {
            conditions.push(self.condition()?);
        }
        Ok(Conditions::Columns(conditions))
    }

    fn condition(&mut self) -> Parsed<Condition> {
        let column = self.column()?;
        let mut comparisons = sets::RELATION.and(TokenSet::of(&[KIn]));
        let all = comparisons.and(TokenSet::of(&[KContains, OpenBracket, Dot]));
        let target = match self.require(1, all)? {
            OpenBracket => {
                self.advance();
                let element = self.term()?;
                self.expect(CloseBracket)?;
                ConditionTarget::Element(element)
            }
            Dot => {
                self.advance();
                ConditionTarget::Field(self.identifier()?)
            }
            _ => {
                comparisons = comparisons.and(TokenSet::of(&[KContains]));
                ConditionTarget::Column
            }
        };
        let (operator, value) = match self.require(1, comparisons)? {
            KIn => {
                self.advance();
                (Operator::In, ConditionValue::In(self.in_values()?))
            }
            KContains => (self.contains()?, ConditionValue::Term(self.term()?)),
            _ => (self.operator()?, ConditionValue::Term(self.term()?)),
        };
        Ok(Condition { column, target, operator, value })
    }
}
