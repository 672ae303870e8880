//! Statements that change the schema.

use super::names::{FunctionName, Identifier, QualifiedName, UserTypeName};
use super::properties::Properties;
use super::relations::WhereClause;
use super::select::Direction;
use super::selectors::SelectClause;
use super::terms::Term;
use super::types::TypeName;

/// `CREATE KEYSPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKeyspace {
    pub keyspace: Identifier,
    pub if_not_exists: bool,
    pub properties: Properties,
}

/// `ALTER KEYSPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterKeyspace {
    pub keyspace: Identifier,
    pub if_exists: bool,
    pub properties: Properties,
}

/// `DROP KEYSPACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropKeyspace {
    pub keyspace: Identifier,
    pub if_exists: bool,
}

/// `MASKED WITH function(arguments)`; `MASKED WITH DEFAULT` is `mask_default()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMask {
    pub function: FunctionName,
    pub arguments: Vec<Term>,
}

/// A column of CREATE TABLE or ALTER TABLE ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    pub name: Identifier,
    pub type_name: TypeName,
    pub is_static: bool,
    pub mask: Option<ColumnMask>,
}

/// A PRIMARY KEY clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryKey {
    pub partition_key: Vec<Identifier>,
    pub clustering: Vec<Identifier>,
}

/// `CREATE TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTable {
    pub table: QualifiedName,
    pub if_not_exists: bool,
    /// In the order written; duplicates are checked later.
    pub columns: Vec<ColumnDefinition>,
    /// Every PRIMARY KEY written, including those beside a column. Exactly one is valid.
    pub primary_keys: Vec<PrimaryKey>,
    pub compact_storage: bool,
    /// All CLUSTERING ORDER BY entries in the order written.
    pub clustering_order: Vec<(Identifier, Direction)>,
    pub properties: Properties,
}

/// The action of ALTER TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterTableAction {
    /// `ALTER column TYPE type`.
    AlterType {
        column: Identifier,
        type_name: TypeName,
    },
    /// `ALTER column MASKED WITH ...`, or `DROP MASKED` (no mask).
    Mask {
        column: Identifier,
        mask: Option<ColumnMask>,
        if_column_exists: bool,
    },
    Add {
        columns: Vec<ColumnDefinition>,
        if_column_not_exists: bool,
    },
    /// The timestamp is in microseconds.
    Drop {
        columns: Vec<Identifier>,
        if_column_exists: bool,
        timestamp: Option<i64>,
    },
    /// Pairs of old and new name.
    Rename {
        renames: Vec<(Identifier, Identifier)>,
        if_column_exists: bool,
    },
    DropCompactStorage,
    With(Properties),
}

/// `ALTER TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterTable {
    pub table: QualifiedName,
    pub if_exists: bool,
    pub action: AlterTableAction,
}

/// `DROP TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTable {
    pub table: QualifiedName,
    pub if_exists: bool,
}

/// `CREATE TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateType {
    pub name: UserTypeName,
    pub if_not_exists: bool,
    pub fields: Vec<(Identifier, TypeName)>,
}

/// The action of ALTER TYPE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterTypeAction {
    /// `ALTER field TYPE type`.
    AlterField {
        field: Identifier,
        type_name: TypeName,
    },
    Add {
        field: Identifier,
        type_name: TypeName,
        if_field_not_exists: bool,
    },
    /// Pairs of old and new name.
    Rename {
        renames: Vec<(Identifier, Identifier)>,
        if_field_exists: bool,
    },
}

/// `ALTER TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterType {
    pub name: UserTypeName,
    pub if_exists: bool,
    pub action: AlterTypeAction,
}

/// `DROP TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropType {
    pub name: UserTypeName,
    pub if_exists: bool,
}

/// The part of a column that an index covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexTargetKind {
    /// `column`.
    Simple,
    Values,
    Keys,
    Entries,
    Full,
}

/// One target of CREATE INDEX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexTarget {
    pub kind: IndexTargetKind,
    pub column: Identifier,
}

/// `CREATE INDEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateIndex {
    pub table: QualifiedName,
    pub name: Option<Identifier>,
    pub if_not_exists: bool,
    /// `CREATE CUSTOM INDEX`.
    pub is_custom: bool,
    /// May be empty.
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`.
    pub class: Option<String>,
    pub properties: Properties,
}

/// `DROP INDEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIndex {
    pub index: QualifiedName,
    pub if_exists: bool,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateView {
    pub view: QualifiedName,
    pub base_table: QualifiedName,
    pub if_not_exists: bool,
    pub selection: SelectClause,
    pub where_clause: WhereClause,
    pub primary_key: PrimaryKey,
    pub clustering_order: Vec<(Identifier, Direction)>,
    pub properties: Properties,
}

/// `ALTER MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterView {
    pub view: QualifiedName,
    pub if_exists: bool,
    pub properties: Properties,
}

/// `DROP MATERIALIZED VIEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropView {
    pub view: QualifiedName,
    pub if_exists: bool,
}

/// `CREATE FUNCTION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateFunction {
    pub name: FunctionName,
    pub or_replace: bool,
    pub if_not_exists: bool,
    pub arguments: Vec<(Identifier, TypeName)>,
    pub called_on_null_input: bool,
    pub return_type: TypeName,
    /// In lower case.
    pub language: String,
    pub body: String,
}

/// `CREATE AGGREGATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateAggregate {
    pub name: FunctionName,
    pub or_replace: bool,
    pub if_not_exists: bool,
    pub arguments: Vec<TypeName>,
    pub state_function: Identifier,
    pub state_type: TypeName,
    pub final_function: Option<Identifier>,
    pub initial_value: Option<Term>,
}

/// `DROP FUNCTION` or `DROP AGGREGATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropFunction {
    pub name: FunctionName,
    pub if_exists: bool,
    /// Absent when no parentheses were written.
    pub arguments: Option<Vec<TypeName>>,
}

/// `CREATE TRIGGER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTrigger {
    pub name: Identifier,
    pub table: QualifiedName,
    pub if_not_exists: bool,
    pub class: String,
}

/// `DROP TRIGGER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTrigger {
    pub name: Identifier,
    pub table: QualifiedName,
    pub if_exists: bool,
}
