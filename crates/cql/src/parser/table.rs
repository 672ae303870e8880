//! CREATE TABLE, ALTER TABLE and materialized views.

use super::{Parsed, Parser, Stop, sets};
use crate::ast::{
    AlterTable, AlterTableAction, AlterView, ColumnDefinition, ColumnMask, CreateTable, CreateView, Direction,
    DropTable, DropView, FunctionName, Identifier, PrimaryKey, Properties,
};
use crate::token::TokenKind::*;
use crate::token::TokenSet;

/// The tokens that may follow a column mask.
const AFTER_MASK: TokenSet = TokenSet::of(&[Eof, CloseParen, Comma, Semicolon, KPrimary]);

impl Parser<'_> {
    /// `CREATE TABLE`, from TABLE on.
    pub(super) fn create_table(&mut self) -> Parsed<CreateTable> {
        self.expect(KColumnfamily)?;
        let if_not_exists = self.if_not_exists()?;
        let table = self.table_name()?;
        let mut create = CreateTable {
            table,
            if_not_exists,
            columns: Vec::new(),
            primary_keys: Vec::new(),
            compact_storage: false,
            clustering_order: Vec::new(),
            properties: Properties::default(),
        };
        self.expect(OpenParen)?;
        self.table_column(&mut create)?;
        while self.accept(Comma) {
            if self.is(sets::IDENTIFIER.and(TokenSet::of(&[KPrimary]))) {
                self.table_column(&mut create)?;
            }
        }
        self.expect(CloseParen)?;
        if self.accept(KWith) {
            self.table_property(&mut create)?;
            while self.accept(KAnd) {
                self.table_property(&mut create)?;
            }
        }
        Ok(create)
    }

    fn table_column(&mut self, create: &mut CreateTable) -> Parsed<()> {
        if self.require(1, sets::IDENTIFIER.and(TokenSet::of(&[KPrimary])))? == KPrimary {
            let key = self.primary_key()?;
            create.primary_keys.push(key);
            return Ok(());
        }
        let column = self.column_definition()?;
        if self.accept(KPrimary) {
            self.expect(KKey)?;
            create.primary_keys.push(PrimaryKey { partition_key: vec![column.name.clone()], clustering: Vec::new() });
        }
        create.columns.push(column);
        Ok(())
    }

    /// Name, type, STATIC and mask.
    fn column_definition(&mut self) -> Parsed<ColumnDefinition> {
        let name = self.identifier()?;
        let type_name = self.type_name()?;
        let is_static = self.accept(KStatic);
        let mask = if self.kind() == KMasked { Some(self.column_mask()?) } else { None };
        Ok(ColumnDefinition { name, type_name, is_static, mask })
    }

    fn column_mask(&mut self) -> Parsed<ColumnMask> {
        self.require(1, TokenSet::of(&[KMasked]))?;
        self.require(2, TokenSet::of(&[KWith]))?;
        let function = sets::IDENTIFIER.and(TokenSet::of(&[KToken, QMark]));
        let default = self.require(3, function)? == KDefault
            && AFTER_MASK.contains(self.require(4, AFTER_MASK.and(TokenSet::of(&[OpenParen, Dot])))?);
        self.expect_all(&[KMasked, KWith])?;
        if default {
            self.advance();
            let function =
                FunctionName { keyspace: Some(Identifier::quoted("system")), name: Identifier::quoted("mask_default") };
            return Ok(ColumnMask { function, arguments: Vec::new() });
        }
        let function = self.function_name()?;
        self.require(1, TokenSet::of(&[OpenParen]))?;
        self.require(2, sets::TERM.and(TokenSet::of(&[CloseParen])))?;
        self.expect(OpenParen)?;
        let arguments = self.optional_list(sets::TERM, Self::term)?;
        self.expect(CloseParen)?;
        Ok(ColumnMask { function, arguments })
    }

    fn primary_key(&mut self) -> Parsed<PrimaryKey> {
        self.expect_all(&[KPrimary, KKey, OpenParen])?;
        let partition_key = match self.require(1, sets::IDENTIFIER.and(TokenSet::of(&[OpenParen])))? {
            OpenParen => self.identifiers_in_parentheses()?,
            _ => vec![self.identifier()?],
        };
        let mut clustering = Vec::new();
        while self.accept(Comma) {
            clustering.push(self.identifier()?);
        }
        self.expect(CloseParen)?;
        Ok(PrimaryKey { partition_key, clustering })
    }

    fn identifiers_in_parentheses(&mut self) -> Parsed<Vec<Identifier>> {
        self.expect(OpenParen)?;
        let names = self.list(Self::identifier)?;
        self.expect(CloseParen)?;
        Ok(names)
    }

    /// Whether a property follows, rather than one of the two clauses that look like one.
    fn is_plain_property(&mut self) -> Parsed<bool> {
        let clause = match self.require(1, sets::IDENTIFIER)? {
            KCompact => self.require(2, TokenSet::of(&[Equal, KStorage]))?,
            KClustering => self.require(2, TokenSet::of(&[Equal, KOrder]))?,
            _ => Equal,
        };
        Ok(clause == Equal)
    }

    fn table_property(&mut self, create: &mut CreateTable) -> Parsed<()> {
        if self.is_plain_property()? {
            return self.property(&mut create.properties);
        }
        if self.accept(KCompact) {
            self.expect(KStorage)?;
            create.compact_storage = true;
            return Ok(());
        }
        let order = self.clustering_order()?;
        create.clustering_order.extend(order);
        Ok(())
    }

    fn clustering_order(&mut self) -> Parsed<Vec<(Identifier, Direction)>> {
        self.expect_all(&[KClustering, KOrder, KBy, OpenParen])?;
        let order = self.list(|p| {
            let column = p.identifier()?;
            let direction = match p.require(1, TokenSet::of(&[KAsc, KDesc]))? {
                KAsc => Direction::Asc,
                _ => Direction::Desc,
            };
            p.advance();
            Ok((column, direction))
        })?;
        self.expect(CloseParen)?;
        Ok(order)
    }

    /// `ALTER TABLE`, from TABLE on.
    pub(super) fn alter_table(&mut self) -> Parsed<AlterTable> {
        self.expect(KColumnfamily)?;
        let if_exists = self.if_exists()?;
        let table = self.table_name()?;
        let action = self.alter_table_action()?;
        Ok(AlterTable { table, if_exists, action })
    }

    fn alter_table_action(&mut self) -> Parsed<AlterTableAction> {
        match self.require(1, TokenSet::of(&[KAlter, KAdd, KDrop, KRename, KWith]))? {
            KAlter => self.alter_column(),
            KAdd => self.add_columns(),
            KDrop => self.drop_columns(),
            KRename => self.rename_columns(),
            _ => {
                self.decided(1);
                self.advance();
                Ok(AlterTableAction::With(self.properties()?))
            }
        }
    }

    fn alter_column(&mut self) -> Parsed<AlterTableAction> {
        let changes_type = self.require(2, sets::COLUMN.and(TokenSet::of(&[KIf])))? != KIf
            && self.decide(3, TokenSet::of(&[KType, KDrop, KMasked]))? == KType;
        self.decided(2);
        self.expect(KAlter)?;
        if changes_type {
            let column = self.column()?;
            self.expect(KType)?;
            return Ok(AlterTableAction::AlterType { column, type_name: self.type_name()? });
        }
        let if_column_exists = self.if_exists()?;
        let column = self.column()?;
        let mask = match self.require(1, TokenSet::of(&[KMasked, KDrop]))? {
            KMasked => Some(self.column_mask()?),
            _ => {
                self.expect_all(&[KDrop, KMasked])?;
                None
            }
        };
        Ok(AlterTableAction::Mask { column, mask, if_column_exists })
    }

    fn add_columns(&mut self) -> Parsed<AlterTableAction> {
        self.decided(1);
        self.expect(KAdd)?;
        let if_column_not_exists = self.if_not_exists()?;
        let columns = match self.require(1, sets::IDENTIFIER.and(TokenSet::of(&[OpenParen])))? {
            OpenParen => {
                self.advance();
                let columns = self.list(Self::column_definition)?;
                self.expect(CloseParen)?;
                columns
            }
            _ => vec![self.column_definition()?],
        };
        Ok(AlterTableAction::Add { columns, if_column_not_exists })
    }

    fn drop_columns(&mut self) -> Parsed<AlterTableAction> {
        let next = self.require(2, sets::IDENTIFIER.and(TokenSet::of(&[OpenParen, KIf])))?;
        let end = TokenSet::of(&[Eof, Semicolon, KUsing]);
        self.decided(2);
        if next == KCompact && self.decide(3, end.and(TokenSet::of(&[KStorage])))? == KStorage {
            self.expect_all(&[KDrop, KCompact, KStorage])?;
            return Ok(AlterTableAction::DropCompactStorage);
        }
        self.expect(KDrop)?;
        let if_column_exists = self.if_exists()?;
        let columns = match self.require(1, sets::IDENTIFIER.and(TokenSet::of(&[OpenParen])))? {
            OpenParen => self.identifiers_in_parentheses()?,
            _ => vec![self.identifier()?],
        };
        let mut timestamp = None;
        if self.accept(KUsing) {
            self.expect(KTimestamp)?;
            let text = self.expect_text(Integer)?;
            timestamp = Some(self.java_long(&text)?);
        }
        Ok(AlterTableAction::Drop { columns, if_column_exists, timestamp })
    }

    fn rename_columns(&mut self) -> Parsed<AlterTableAction> {
        self.decided(1);
        self.expect(KRename)?;
        let if_column_exists = self.if_exists()?;
        let renames = self.renames()?;
        Ok(AlterTableAction::Rename { renames, if_column_exists })
    }

    /// `a TO b AND ...`
    pub(super) fn renames(&mut self) -> Parsed<Vec<(Identifier, Identifier)>> {
        let mut renames = Vec::new();
        loop {
            let from = self.identifier()?;
            self.expect(KTo)?;
            renames.push((from, self.identifier()?));
            if !self.accept(KAnd) {
                return Ok(renames);
            }
        }
    }

    /// `DROP TABLE`, from TABLE on.
    pub(super) fn drop_table(&mut self) -> Parsed<DropTable> {
        self.expect(KColumnfamily)?;
        let if_exists = self.if_exists()?;
        Ok(DropTable { table: self.table_name()?, if_exists })
    }

    /// `CREATE MATERIALIZED VIEW`, from MATERIALIZED on.
    pub(super) fn create_view(&mut self) -> Parsed<CreateView> {
        self.expect_all(&[KMaterialized, KView])?;
        let if_not_exists = self.if_not_exists()?;
        let view = self.table_name()?;
        self.expect_all(&[KAs, KSelect])?;
        let selection = self.selectors()?;
        self.expect(KFrom)?;
        let base_table = self.table_name()?;
        let where_clause = if self.accept(KWhere) { self.where_clause()? } else { Default::default() };
        let primary_key = self.primary_key()?;
        let mut create = CreateView {
            view,
            base_table,
            if_not_exists,
            selection,
            where_clause,
            primary_key,
            clustering_order: Vec::new(),
            properties: Properties::default(),
        };
        if self.accept(KWith) {
            self.view_property(&mut create)?;
            while self.accept(KAnd) {
                self.view_property(&mut create)?;
            }
        }
        Ok(create)
    }

    fn view_property(&mut self, create: &mut CreateView) -> Parsed<()> {
        if self.is_plain_property()? {
            return self.property(&mut create.properties);
        }
        if self.kind() == KCompact {
            self.expect_all(&[KCompact, KStorage])?;
            return Err(Stop::Thrown("COMPACT STORAGE tables are not allowed starting with version 4.0".into()));
        }
        let order = self.clustering_order()?;
        create.clustering_order.extend(order);
        Ok(())
    }

    /// `ALTER MATERIALIZED VIEW`, from MATERIALIZED on.
    pub(super) fn alter_view(&mut self) -> Parsed<AlterView> {
        self.expect_all(&[KMaterialized, KView])?;
        let if_exists = self.if_exists()?;
        let view = self.table_name()?;
        self.expect(KWith)?;
        Ok(AlterView { view, if_exists, properties: self.properties()? })
    }

    /// `DROP MATERIALIZED VIEW`, from MATERIALIZED on.
    pub(super) fn drop_view(&mut self) -> Parsed<DropView> {
        self.expect_all(&[KMaterialized, KView])?;
        let if_exists = self.if_exists()?;
        Ok(DropView { view: self.table_name()?, if_exists })
    }
}
