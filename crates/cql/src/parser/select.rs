//! SELECT.

use std::mem;
use std::ops::ControlFlow;

use super::term::multiplication_operator;
use super::{Parsed, Parser, Stop, sets};
use crate::ast::{
    ArithmeticOperator, Direction, FunctionName, Identifier, Ordering, Select, SelectClause, Selectable, Selector,
    Term, WritetimeOrTtl,
};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

/// The most columns of a result, which is also the most bind markers of a statement.
const SELECTORS_MAX: usize = 65_535;

/// The kind of a selected expression without parentheses.
enum SimpleSelectable {
    Column,
    Literal,
    Function,
}

/// A field or element selected from an expression.
enum Modifier {
    Field(Identifier),
    Element(Term),
    Slice { from: Option<Term>, to: Option<Term> },
}

impl Modifier {
    fn of(self, receiver: Selectable) -> Selectable {
        let receiver = Box::new(receiver);
        match self {
            Modifier::Field(field) => Selectable::Field { receiver, field },
            Modifier::Element(element) => Selectable::Element { receiver, element: Box::new(element) },
            Modifier::Slice { from, to } => {
                Selectable::Slice { receiver, from: from.map(Box::new), to: to.map(Box::new) }
            }
        }
    }
}

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Parsed<Select> {
        self.expect(KSelect)?;
        let (is_json, (is_distinct, selection)) = self.json_select_clause()?;
        self.expect(KFrom)?;
        let table = self.table_name()?;
        let where_clause = if self.accept(KWhere) { self.where_clause()? } else { Default::default() };
        let group_by = self.by_list(KGroup, Self::selectable)?;
        let order_by = self.by_list(KOrder, Self::ordering)?;
        let mut per_partition_limit = None;
        if self.accept(KPer) {
            self.expect_all(&[KPartition, KLimit])?;
            per_partition_limit = Some(self.int_value()?);
        }
        let limit = if self.accept(KLimit) { Some(self.int_value()?) } else { None };
        let allow_filtering = self.accept(KAllow);
        if allow_filtering {
            self.expect(KFiltering)?;
        }
        Ok(Select {
            table,
            is_json,
            is_distinct,
            selection,
            where_clause,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            allow_filtering,
        })
    }

    /// `keyword BY element, ...`, if the keyword is present.
    fn by_list<T>(&mut self, keyword: TokenKind, element: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        if !self.accept(keyword) {
            return Ok(Vec::new());
        }
        self.expect(KBy)?;
        self.list(element)
    }

    /// JSON may also be the name of a column.
    fn json_select_clause(&mut self) -> Parsed<(bool, (bool, SelectClause))> {
        if self.require(1, sets::SELECTABLE.and(TokenSet::of(&[Star])))? == KJson {
            self.decided(2);
            let json = self.attempt(|p| {
                p.advance();
                p.select_clause()
            })?;
            if let Some(clause) = json {
                return Ok((true, clause));
            }
        }
        Ok((false, self.select_clause()?))
    }

    /// The selection and whether it is DISTINCT, which may also be the name of a column.
    fn select_clause(&mut self) -> Parsed<(bool, SelectClause)> {
        if self.require(1, sets::SELECTABLE.and(TokenSet::of(&[Star])))? == KDistinct {
            self.decided(2);
            let distinct = self.attempt(|p| {
                p.advance();
                p.selectors()
            })?;
            if let Some(selectors) = distinct {
                return Ok((true, selectors));
            }
        }
        Ok((false, self.selectors()?))
    }

    /// `*` or a list of selectors.
    pub(super) fn selectors(&mut self) -> Parsed<SelectClause> {
        if self.require(1, sets::SELECTABLE.and(TokenSet::of(&[Star])))? == Star {
            self.advance();
            return Ok(SelectClause::Wildcard);
        }
        let mut count = 0;
        let selectors = self.list(|p| {
            count += 1;
            if count > SELECTORS_MAX {
                let message = format!("SELECT has too many selectors: more than {SELECTORS_MAX}");
                return Err(Stop::Thrown(message.into()));
            }
            p.selector()
        })?;
        Ok(SelectClause::Selectors(selectors))
    }

    fn selector(&mut self) -> Parsed<Selector> {
        let selectable = self.selectable()?;
        let alias = if self.accept(KAs) { Some(self.identifier()?) } else { None };
        Ok(Selector { selectable, alias })
    }

    pub(super) fn ordering(&mut self) -> Parsed<Ordering> {
        let column = self.column()?;
        let mut ann_of = None;
        if self.accept(KAnn) {
            self.expect(KOf)?;
            ann_of = Some(self.term()?);
        }
        let direction = if self.accept(KDesc) {
            Direction::Desc
        } else {
            self.accept(KAsc);
            Direction::Asc
        };
        Ok(Ordering { column, ann_of, direction })
    }

    /// An expression without alias.
    pub(super) fn selectable(&mut self) -> Parsed<Selectable> {
        self.nested(Self::selected_addition)
    }

    fn selected_addition(&mut self) -> Parsed<Selectable> {
        self.chain(Self::selected_multiplication, |p, left| {
            let operator = match p.kind() {
                Plus => ArithmeticOperator::Add,
                Minus => ArithmeticOperator::Subtract,
                _ => return Ok(ControlFlow::Break(left)),
            };
            p.advance();
            let right = p.selected_multiplication()?;
            let operation = Selectable::Operation { operator, left: Box::new(left), right: Box::new(right) };
            Ok(ControlFlow::Continue(operation))
        })
    }

    fn selected_multiplication(&mut self) -> Parsed<Selectable> {
        self.chain(Self::selected_group, |p, left| {
            let Some(operator) = multiplication_operator(p.kind()) else { return Ok(ControlFlow::Break(left)) };
            p.advance();
            let right = p.selected_group()?;
            let operation = Selectable::Operation { operator, left: Box::new(left), right: Box::new(right) };
            Ok(ControlFlow::Continue(operation))
        })
    }

    /// An operand, possibly with a sign, and possibly with fields or elements selected from it.
    fn selected_group(&mut self) -> Parsed<Selectable> {
        if self.require(1, sets::SELECTABLE)? == Minus {
            self.decided(1);
            self.advance();
            return Ok(Selectable::Negation(Box::new(self.nested(Self::selected_group)?)));
        }
        self.decided(2);
        let around = mem::replace(&mut self.deepest, self.nesting);
        let mut selected = self.selected_bare()?;
        // If an apparent modifier is none, the error is at its first token.
        if matches!(self.kind(), Dot | OpenBracket)
            && let Some(modifiers) = self.attempt(Self::modifiers)?
        {
            selected = self.modified(selected, modifiers)?;
        }
        self.deepest = self.deepest.max(around);
        Ok(selected)
    }

    /// `.field`, `[element]` and `[from..to]`, any number of them.
    fn modifiers(&mut self) -> Parsed<Vec<Modifier>> {
        let mut modifiers = Vec::new();
        loop {
            modifiers.push(match self.require(1, sets::AFTER_SELECTABLE.and(TokenSet::of(&[Dot])))? {
                Dot => {
                    self.advance();
                    Modifier::Field(self.identifier()?)
                }
                OpenBracket => self.sub_selection()?,
                _ => return Ok(modifiers),
            });
            self.check_depth(modifiers.len())?;
        }
    }

    /// Applies the modifiers to an expression: each makes the tree one level deeper.
    fn modified(&mut self, selected: Selectable, modifiers: Vec<Modifier>) -> Parsed<Selectable> {
        self.check_depth(modifiers.len())?;
        self.deepest += modifiers.len();
        Ok(modifiers.into_iter().fold(selected, |receiver, modifier| modifier.of(receiver)))
    }

    fn sub_selection(&mut self) -> Parsed<Modifier> {
        self.expect(OpenBracket)?;
        let selected = if self.require(1, sets::TERM.and(TokenSet::of(&[Range])))? == Range {
            self.advance();
            Modifier::Slice { from: None, to: Some(self.term()?) }
        } else {
            let first = self.term()?;
            if self.accept(Range) {
                let to = if self.is(sets::TERM) { Some(self.term()?) } else { None };
                Modifier::Slice { from: Some(first), to }
            } else {
                Modifier::Element(first)
            }
        };
        self.expect(CloseBracket)?;
        Ok(selected)
    }

    fn selected_bare(&mut self) -> Parsed<Selectable> {
        match self.kind() {
            OpenParen => match self.attempt(|p| p.nested(Self::selected_type_hint))? {
                Some(hinted) => Ok(hinted),
                None => self.selected_tuple(),
            },
            OpenBracket => self.selected_list(),
            OpenBrace => self.selected_braces(),
            Minus => self.no_alternative(1),
            _ => self.selected_simple(),
        }
    }

    fn selected_type_hint(&mut self) -> Parsed<Selectable> {
        self.expect(OpenParen)?;
        let type_name = self.type_name()?;
        self.expect(CloseParen)?;
        Ok(Selectable::TypeHint { type_name, selectable: Box::new(self.selected_bare()?) })
    }

    fn selected_tuple(&mut self) -> Parsed<Selectable> {
        self.expect(OpenParen)?;
        let elements = self.list(Self::selectable)?;
        self.expect(CloseParen)?;
        Ok(Selectable::BetweenParenthesesOrTuple(elements))
    }

    fn selected_list(&mut self) -> Parsed<Selectable> {
        self.expect(OpenBracket)?;
        let elements = self.optional_list(sets::SELECTABLE, Self::selectable)?;
        self.expect(CloseBracket)?;
        Ok(Selectable::List(elements))
    }

    fn selected_braces(&mut self) -> Parsed<Selectable> {
        let empty = self.require(2, sets::SELECTABLE.and(TokenSet::of(&[CloseBrace])))? == CloseBrace;
        self.expect(OpenBrace)?;
        if empty {
            self.expect(CloseBrace)?;
            return Ok(Selectable::Set(Vec::new()));
        }
        let first = self.selectable()?;
        let selected = if self.require(1, TokenSet::of(&[Colon, Comma, CloseBrace]))? == Colon {
            self.advance();
            let mut entries = vec![(first, self.selectable()?)];
            while self.accept(Comma) {
                let key = self.selectable()?;
                self.expect(Colon)?;
                entries.push((key, self.selectable()?));
            }
            Selectable::MapOrUdt(entries)
        } else {
            let mut elements = vec![first];
            while self.accept(Comma) {
                elements.push(self.selectable()?);
            }
            Selectable::Set(elements)
        };
        self.expect(CloseBrace)?;
        Ok(selected)
    }

    fn selected_simple(&mut self) -> Parsed<Selectable> {
        match self.selected_simple_kind()? {
            SimpleSelectable::Column => Ok(Selectable::Column(self.identifier()?)),
            SimpleSelectable::Function => self.selected_function(),
            SimpleSelectable::Literal => Ok(Selectable::Term(match self.kind() {
                KNull => {
                    self.advance();
                    Term::Null
                }
                Colon | QMark => Term::Marker(self.marker()?),
                _ => Term::Constant(self.constant()?),
            })),
        }
    }

    fn selected_simple_kind(&mut self) -> Parsed<SimpleSelectable> {
        let kind = self.kind();
        let (call, without_call) = match kind {
            KToken => {
                self.decided(1);
                return Ok(SimpleSelectable::Function);
            }
            Colon | KNull => {
                self.decided(1);
                return Ok(SimpleSelectable::Literal);
            }
            QMark => (TokenSet::of(&[]), SimpleSelectable::Literal),
            KDistinct | KJson | KKey => (TokenSet::of(&[]), SimpleSelectable::Column),
            _ if sets::CONSTANT.contains(kind) => {
                self.decided(1);
                return Ok(SimpleSelectable::Literal);
            }
            _ if sets::IDENTIFIER.contains(kind) => (TokenSet::of(&[OpenParen]), SimpleSelectable::Column),
            _ => return self.no_alternative(1),
        };
        let next = self.require(2, sets::AFTER_SELECTABLE.and(TokenSet::of(&[Dot])).and(call))?;
        if next == Dot {
            return self.qualified_simple_kind(without_call);
        }
        self.decided(2);
        Ok(if next == OpenParen { SimpleSelectable::Function } else { without_call })
    }

    /// After `name.`: a function of that keyspace, or a field.
    fn qualified_simple_kind(&mut self, without_call: SimpleSelectable) -> Parsed<SimpleSelectable> {
        let name = self.kind_at(3);
        if name == KToken || sets::NO_FUNCTION_NAME.contains(name) {
            self.decided(3);
            return Ok(if name == KToken { SimpleSelectable::Function } else { without_call });
        }
        self.require(3, sets::FUNCTION_NAME)?;
        match self.decide(4, sets::AFTER_SELECTABLE.and(TokenSet::of(&[Dot, OpenParen])))? {
            OpenParen => Ok(SimpleSelectable::Function),
            _ => Ok(without_call),
        }
    }

    fn selected_function(&mut self) -> Parsed<Selectable> {
        const CALL_OR_DOT: TokenSet = TokenSet::of(&[OpenParen, Dot]);
        let kind = self.kind();
        let special = matches!(kind, KCount | KMaxwritetime | KWritetime | KTtl | KCast);
        if !special || self.require(2, CALL_OR_DOT)? == Dot {
            self.decided(if special { 2 } else { 1 });
            return self.selected_call();
        }
        if kind != KCount {
            self.decided(2);
        }
        match kind {
            KCount => {
                let arguments = sets::SELECTABLE.and(TokenSet::of(&[Star, CloseParen]));
                if self.decide(3, arguments)? != Star {
                    return self.selected_call();
                }
                self.expect_all(&[KCount, OpenParen, Star, CloseParen])?;
                Ok(Selectable::CountRows)
            }
            KCast => {
                self.expect_all(&[KCast, OpenParen])?;
                let argument = Box::new(self.selectable()?);
                self.expect(KAs)?;
                let type_name = self.native_type()?;
                self.expect(CloseParen)?;
                Ok(Selectable::Cast { argument, type_name })
            }
            KMaxwritetime => self.writetime_or_ttl(WritetimeOrTtl::MaxWritetime),
            KWritetime => self.writetime_or_ttl(WritetimeOrTtl::Writetime),
            _ => self.writetime_or_ttl(WritetimeOrTtl::Ttl),
        }
    }

    fn writetime_or_ttl(&mut self, kind: WritetimeOrTtl) -> Parsed<Selectable> {
        self.advance();
        self.expect(OpenParen)?;
        let column = self.identifier()?;
        let modifiers = self.modifiers()?;
        let selected = Box::new(self.modified(Selectable::Column(column.clone()), modifiers)?);
        self.expect(CloseParen)?;
        Ok(Selectable::WritetimeOrTtl { kind, column, selected })
    }

    fn selected_call(&mut self) -> Parsed<Selectable> {
        let name: FunctionName = self.function_name()?;
        self.expect(OpenParen)?;
        let arguments = self.optional_list(sets::SELECTABLE, Self::selectable)?;
        self.expect(CloseParen)?;
        Ok(Selectable::Function { name, arguments })
    }
}
