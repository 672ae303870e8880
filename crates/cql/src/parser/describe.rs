//! DESCRIBE.

use super::{Parsed, Parser, sets};
use crate::ast::{Describe, DescribeTarget, QualifiedName};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

/// The tokens that follow a name, when a word is not the keyword that it looks like.
const AFTER_NAME: TokenSet = TokenSet::of(&[Eof, Dot, Semicolon, KWith]);

impl Parser<'_> {
    pub(super) fn describe(&mut self) -> Parsed<Describe> {
        self.advance();
        let alternatives =
            sets::IDENTIFIER.and(TokenSet::of(&[KFull, KSchema, KKeyspace, KColumnfamily, KIndex, KMaterialized]));
        if !matches!(self.kind(), KOnly | KType | KFunction | KAggregate) {
            self.decide(1, alternatives)?;
        }
        let target = self.describe_target()?;
        let with_internals = self.accept(KWith);
        if with_internals {
            self.expect(KInternals)?;
        }
        Ok(Describe { target, with_internals })
    }

    fn describe_target(&mut self) -> Parsed<DescribeTarget> {
        let names = sets::TABLE_NAME.without(TokenSet::of(&[QMark]));
        let functions = sets::TABLE_NAME.and(TokenSet::of(&[KToken]));
        match self.kind() {
            KCluster => self.word(DescribeTarget::Cluster),
            KKeyspaces => self.word(DescribeTarget::Keyspaces),
            KTables => self.word(DescribeTarget::Tables),
            KTypes => self.word(DescribeTarget::Types),
            KFunctions => self.word(DescribeTarget::Functions),
            KAggregates => self.word(DescribeTarget::Aggregates),
            KFull | KSchema => {
                let full = self.accept(KFull);
                self.expect(KSchema)?;
                Ok(DescribeTarget::Schema { full })
            }
            KKeyspace => self.describe_keyspace(false),
            KOnly if self.is_keyword_before(TokenSet::of(&[KKeyspace]))? => {
                self.advance();
                self.describe_keyspace(true)
            }
            KColumnfamily => {
                self.advance();
                Ok(DescribeTarget::Table(self.table_name()?))
            }
            KIndex => {
                self.advance();
                Ok(DescribeTarget::Index(self.table_name()?))
            }
            KMaterialized => {
                self.expect_all(&[KMaterialized, KView])?;
                Ok(DescribeTarget::View(self.table_name()?))
            }
            KType if self.is_keyword_before(names)? => {
                self.advance();
                Ok(DescribeTarget::Type(self.user_type_name()?))
            }
            KFunction if self.is_keyword_before(functions)? => {
                self.advance();
                Ok(DescribeTarget::Function(self.function_name()?))
            }
            KAggregate if self.is_keyword_before(functions)? => {
                self.advance();
                Ok(DescribeTarget::Aggregate(self.function_name()?))
            }
            kind if names.contains(kind) => self.describe_generic(),
            _ => self.no_alternative(1),
        }
    }

    fn word(&mut self, target: DescribeTarget) -> Parsed<DescribeTarget> {
        self.decided(2);
        self.advance();
        Ok(target)
    }

    /// Whether the current word is a keyword: a token of the set follows, and none that follows a name.
    fn is_keyword_before(&mut self, set: TokenSet) -> Parsed<bool> {
        let next: TokenKind = self.decide(2, AFTER_NAME.and(set))?;
        Ok(!AFTER_NAME.contains(next))
    }

    fn describe_keyspace(&mut self, only: bool) -> Parsed<DescribeTarget> {
        self.expect(KKeyspace)?;
        let keyspace = if self.is(sets::TABLE_NAME) { Some(self.keyspace_name()?) } else { None };
        Ok(DescribeTarget::Keyspace { keyspace, only })
    }

    fn describe_generic(&mut self) -> Parsed<DescribeTarget> {
        let mut keyspace = None;
        if self.decide(2, AFTER_NAME)? == Dot {
            keyspace = Some(self.identifier()?);
            self.expect(Dot)?;
        }
        Ok(DescribeTarget::Generic(QualifiedName { keyspace, name: self.identifier()? }))
    }
}
