//! Terms.

use std::ops::ControlFlow;

use super::{Parsed, Parser, sets};
use crate::ast::{ArithmeticOperator, BindMarker, Constant, ConstantKind, Term};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

/// The kind of a simple term.
enum SimpleTerm {
    Value,
    Function,
    TypeHint,
    Cast,
}

impl Parser<'_> {
    pub(super) fn term(&mut self) -> Parsed<Term> {
        self.nested(Self::addition)
    }

    fn addition(&mut self) -> Parsed<Term> {
        self.chain(Self::multiplication, |p, left| {
            let Some(operator) = p.addition_operator()? else { return Ok(ControlFlow::Break(left)) };
            p.advance();
            let right = p.multiplication()?;
            let operation = Term::Operation { operator, left: Box::new(left), right: Box::new(right) };
            Ok(ControlFlow::Continue(operation))
        })
    }

    /// The current operator if there is one. The plus of `SET c = 1 + c` belongs to the assignment.
    fn addition_operator(&mut self) -> Parsed<Option<ArithmeticOperator>> {
        match self.kind() {
            Minus => {
                self.decided(1);
                return Ok(Some(ArithmeticOperator::Subtract));
            }
            Plus => {}
            _ => {
                self.decide(1, sets::AFTER_TERM)?;
                return Ok(None);
            }
        }
        let next = self.kind_at(2);
        let ends_assignment = TokenSet::of(&[Comma, KWhere]);
        let continues = if next == EmptyQuotedName || sets::TERM_ONLY.contains(next) {
            self.decided(2);
            next != EmptyQuotedName
        } else if sets::FUNCTION_OR_CAST.contains(next) {
            let after = self.decide(3, ends_assignment.and(TokenSet::of(&[OpenParen, Dot])))?;
            !ends_assignment.contains(after)
        } else if sets::NO_FUNCTION_NO_CAST.contains(next) {
            self.decide(3, ends_assignment.and(TokenSet::of(&[Dot])))? == Dot
        } else {
            return self.no_alternative(2);
        };
        Ok(continues.then_some(ArithmeticOperator::Add))
    }

    fn multiplication(&mut self) -> Parsed<Term> {
        self.chain(Self::signed_term, |p, left| {
            let Some(operator) = multiplication_operator(p.kind()) else { return Ok(ControlFlow::Break(left)) };
            p.advance();
            let right = p.signed_term()?;
            let operation = Term::Operation { operator, left: Box::new(left), right: Box::new(right) };
            Ok(ControlFlow::Continue(operation))
        })
    }

    fn signed_term(&mut self) -> Parsed<Term> {
        self.require(1, sets::TERM)?;
        if self.accept(Minus) {
            return Ok(Term::Negation(Box::new(self.simple_term()?)));
        }
        self.simple_term()
    }

    fn simple_term(&mut self) -> Parsed<Term> {
        match self.simple_term_kind()? {
            SimpleTerm::Value => self.value(),
            SimpleTerm::Function => self.function(),
            SimpleTerm::TypeHint => self.nested(|p| {
                p.expect(OpenParen)?;
                let type_name = p.type_name()?;
                p.expect(CloseParen)?;
                Ok(Term::TypeHint { type_name, term: Box::new(p.simple_term()?) })
            }),
            SimpleTerm::Cast => self.nested(|p| {
                p.expect_all(&[KCast, OpenParen])?;
                let term = Box::new(p.simple_term()?);
                p.expect(KAs)?;
                let type_name = p.native_type()?;
                p.expect(CloseParen)?;
                Ok(Term::Cast { term, type_name })
            }),
        }
    }

    fn simple_term_kind(&mut self) -> Parsed<SimpleTerm> {
        match self.kind() {
            OpenParen => self.parenthesis_kind(),
            QMark => match self.decide(2, sets::AFTER_SIMPLE_TERM.and(TokenSet::of(&[Dot])))? {
                Dot => Ok(SimpleTerm::Function),
                _ => Ok(SimpleTerm::Value),
            },
            KCast => match self.decide(2, TokenSet::of(&[Dot, OpenParen]))? {
                Dot => Ok(SimpleTerm::Function),
                _ => Ok(SimpleTerm::Cast),
            },
            _ => {
                let kind = self.decide(1, sets::TERM.without(TokenSet::of(&[Minus])))?;
                let function = kind == KToken || sets::IDENTIFIER.contains(kind);
                Ok(if function { SimpleTerm::Function } else { SimpleTerm::Value })
            }
        }
    }

    /// Whether a parenthesis opens a tuple or a type hint.
    fn parenthesis_kind(&mut self) -> Parsed<SimpleTerm> {
        const DOT: TokenSet = TokenSet::of(&[Dot]);
        const CALL: TokenSet = TokenSet::of(&[OpenParen]);
        const CLOSE: TokenSet = TokenSet::of(&[CloseParen]);
        let kind = self.kind_at(2);
        let after = match kind {
            KSet => {
                self.decided(2);
                return Ok(SimpleTerm::TypeHint);
            }
            StringLiteral => return self.parenthesized_string_kind(),
            KFrozen | KList | KMap | KTuple | KVector => CALL.and(DOT).and(CLOSE).and(TokenSet::of(&[Less])),
            KCast | KCount => CALL.and(DOT),
            KKey => CLOSE.and(DOT),
            _ if sets::TERM_ONLY.contains(kind) => {
                self.decided(2);
                return Ok(SimpleTerm::Value);
            }
            _ if sets::OTHER_UNRESERVED.contains(kind) => DOT,
            _ if sets::IDENTIFIER.contains(kind) => CALL.and(DOT).and(CLOSE),
            _ => return self.no_alternative(2),
        };
        let decision = self.require(3, after)?;
        if decision == Dot {
            return self.parenthesized_qualified_kind();
        }
        self.decided(3);
        Ok(if decision == OpenParen { SimpleTerm::Value } else { SimpleTerm::TypeHint })
    }

    /// After `(keyspace.`: a function or a user type.
    fn parenthesized_qualified_kind(&mut self) -> Parsed<SimpleTerm> {
        let kind = self.kind_at(4);
        if sets::NATIVE_TYPE.contains(kind) || matches!(kind, KCount | KToken) {
            self.decided(4);
            return Ok(SimpleTerm::Value);
        }
        if kind == KKey {
            self.decided(4);
            return Ok(SimpleTerm::TypeHint);
        }
        self.require(4, sets::BASIC.and(TokenSet::of(&[Ident, QuotedName])))?;
        match self.decide(5, TokenSet::of(&[OpenParen, CloseParen]))? {
            OpenParen => Ok(SimpleTerm::Value),
            _ => Ok(SimpleTerm::TypeHint),
        }
    }

    /// After `('`: a tuple of a string, or a custom type before a term.
    fn parenthesized_string_kind(&mut self) -> Parsed<SimpleTerm> {
        const NAMED: TokenSet = TokenSet::of(&[OpenParen, Dot]);
        if self.require(3, TokenSet::of(&[Percent, Plus, Comma, Minus, Slash, Star, CloseParen]))? != CloseParen {
            self.decided(3);
            return Ok(SimpleTerm::Value);
        }
        let kind = self.kind_at(4);
        let hint = match kind {
            KPer => self.decide(5, NAMED.and(TokenSet::of(&[KPartition])))? != KPartition,
            KGroup => self.decide(5, NAMED.and(TokenSet::of(&[KBy])))? != KBy,
            KAs => NAMED.contains(self.decide(5, NAMED.and(sets::NATIVE_TYPE))?),
            Colon => self.colon_starts_marker()?,
            _ => {
                self.decide(4, sets::AFTER_STRING_TUPLE.and(sets::AFTER_CUSTOM_TYPE_HINT))?;
                sets::AFTER_CUSTOM_TYPE_HINT.contains(kind)
            }
        };
        Ok(if hint { SimpleTerm::TypeHint } else { SimpleTerm::Value })
    }

    /// After `('string') :`, whether the colon begins a named marker rather than belonging to a map.
    fn colon_starts_marker(&mut self) -> Parsed<bool> {
        let kind = self.kind_at(5);
        if sets::TERM_ONLY.contains(kind) {
            self.decided(5);
            return Ok(false);
        }
        let call = if sets::FUNCTION_OR_CAST.contains(kind) {
            TokenSet::of(&[OpenParen, Dot])
        } else if sets::NO_FUNCTION_NO_CAST.contains(kind) {
            TokenSet::of(&[Dot])
        } else {
            return self.no_alternative(5);
        };
        let after = self.decide(6, call.and(sets::AFTER_SIMPLE_TERM))?;
        Ok(!call.contains(after))
    }

    fn value(&mut self) -> Parsed<Term> {
        let kind = self.kind();
        if kind != OpenBrace {
            self.decided(1);
        }
        match kind {
            OpenBracket => self.list_literal(),
            OpenBrace => self.braces(),
            OpenParen => self.tuple_literal(),
            KNull => {
                self.advance();
                Ok(Term::Null)
            }
            Colon | QMark => Ok(Term::Marker(self.marker()?)),
            _ => Ok(Term::Constant(self.constant()?)),
        }
    }

    fn list_literal(&mut self) -> Parsed<Term> {
        self.expect(OpenBracket)?;
        let elements = self.optional_list(sets::TERM, Self::term)?;
        self.expect(CloseBracket)?;
        Ok(Term::List(elements))
    }

    /// `(term, ...)`
    pub(super) fn tuple_literal(&mut self) -> Parsed<Term> {
        self.expect(OpenParen)?;
        let elements = self.list(Self::term)?;
        self.expect(CloseParen)?;
        Ok(Term::Tuple(elements))
    }

    /// A set, a map or a user type.
    fn braces(&mut self) -> Parsed<Term> {
        let kind = self.kind_at(2);
        let user_type = if kind == CloseBrace || sets::TERM_ONLY.contains(kind) {
            self.decided(2);
            false
        } else if sets::FUNCTION_OR_CAST.contains(kind) {
            self.decide(3, TokenSet::of(&[OpenParen, Dot, Colon]))? == Colon
        } else if sets::NO_FUNCTION_NO_CAST.contains(kind) {
            self.decide(3, TokenSet::of(&[Dot, Colon]))? == Colon
        } else {
            return self.no_alternative(2);
        };
        self.expect(OpenBrace)?;
        let value = if user_type { self.user_type_fields()? } else { self.set_or_map()? };
        self.expect(CloseBrace)?;
        Ok(value)
    }

    fn user_type_fields(&mut self) -> Parsed<Term> {
        Ok(Term::UserType(self.list(|p| {
            let field = p.identifier()?;
            p.expect(Colon)?;
            Ok((field, p.term()?))
        })?))
    }

    fn set_or_map(&mut self) -> Parsed<Term> {
        if self.kind() == CloseBrace {
            return Ok(Term::Set(Vec::new()));
        }
        let first = self.term()?;
        if self.require(1, TokenSet::of(&[Colon, Comma, CloseBrace]))? == Colon {
            return self.map_entries(first);
        }
        let mut elements = vec![first];
        while self.accept(Comma) {
            elements.push(self.term()?);
        }
        Ok(Term::Set(elements))
    }

    fn map_entries(&mut self, first_key: Term) -> Parsed<Term> {
        self.expect(Colon)?;
        let mut entries = vec![(first_key, self.term()?)];
        while self.accept(Comma) {
            let key = self.term()?;
            self.expect(Colon)?;
            entries.push((key, self.term()?));
        }
        Ok(Term::Map(entries))
    }

    /// `?` or `:name`.
    pub(super) fn marker(&mut self) -> Parsed<BindMarker> {
        let name = match self.require(1, TokenSet::of(&[QMark, Colon]))? {
            Colon => {
                self.advance();
                Some(self.identifier()?)
            }
            _ => {
                self.advance();
                None
            }
        };
        Ok(self.new_marker(name))
    }

    pub(super) fn constant(&mut self) -> Parsed<Constant> {
        let token = self.require(1, sets::CONSTANT)?;
        let text = self.take_text().into_owned();
        let (kind, text) = match token {
            StringLiteral => (ConstantKind::String, text),
            Integer => (ConstantKind::Integer, text),
            Float => (ConstantKind::Float, text),
            Boolean => (ConstantKind::Boolean, text),
            Duration => (ConstantKind::Duration, text),
            Uuid => (ConstantKind::Uuid, text),
            HexNumber => (ConstantKind::Hex, text),
            KPositiveInfinity => (ConstantKind::Float, "Infinity".to_string()),
            KNegativeInfinity => (ConstantKind::Float, "-Infinity".to_string()),
            _ => (ConstantKind::Float, "NaN".to_string()),
        };
        Ok(Constant { kind, text })
    }

    /// An integer constant or a marker.
    pub(super) fn int_value(&mut self) -> Parsed<Term> {
        match self.require(1, TokenSet::of(&[Integer, Colon, QMark]))? {
            Integer => Ok(Term::Constant(self.constant()?)),
            _ => Ok(Term::Marker(self.marker()?)),
        }
    }

    fn function(&mut self) -> Parsed<Term> {
        let kind = self.kind();
        let open = if kind == KToken {
            2
        } else {
            let bare = sets::FUNCTION_NAME.contains(kind);
            let after = if bare { TokenSet::of(&[Dot, OpenParen]) } else { TokenSet::of(&[Dot]) };
            if self.require(2, after)? == Dot {
                self.require(3, sets::FUNCTION_NAME.and(TokenSet::of(&[KToken])))?;
                4
            } else {
                2
            }
        };
        self.require(open, TokenSet::of(&[OpenParen]))?;
        self.decide(open + 1, sets::TERM.and(TokenSet::of(&[CloseParen])))?;
        let name = self.function_name()?;
        self.expect(OpenParen)?;
        let arguments = self.optional_list(sets::TERM, Self::term)?;
        self.expect(CloseParen)?;
        Ok(Term::Function { name, arguments })
    }
}

/// The operator of a token, if it is a multiplication, division or remainder.
pub(super) fn multiplication_operator(kind: TokenKind) -> Option<ArithmeticOperator> {
    match kind {
        Star => Some(ArithmeticOperator::Multiply),
        Slash => Some(ArithmeticOperator::Divide),
        Percent => Some(ArithmeticOperator::Modulo),
        _ => None,
    }
}
