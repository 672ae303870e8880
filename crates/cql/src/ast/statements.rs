//! The root of the tree: a statement of any kind.

use super::modification::{Batch, Delete, Insert, InsertJson, Update};
use super::names::{FunctionName, Identifier, QualifiedName, UserTypeName};
use super::roles::{
    AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, ListPermissions, ListRoles, PermissionsChange,
    RoleChange,
};
use super::schema::*;
use super::select::Select;

/// A statement and the names of its bind markers, by marker number (`None` for `?`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedStatement {
    pub statement: Statement,
    pub markers: Vec<Option<Identifier>>,
    /// The number of tokens of the text. The memory of everything that is made from the text is proportional to it.
    pub tokens: usize,
}

/// Any CQL statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    Select(Box<Select>),
    Insert(Insert),
    InsertJson(InsertJson),
    Update(Update),
    Delete(Delete),
    Batch(Batch),
    Use(Identifier),
    Truncate(QualifiedName),
    Describe(Describe),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace(DropKeyspace),
    CreateTable(CreateTable),
    AlterTable(AlterTable),
    DropTable(DropTable),
    CreateType(CreateType),
    AlterType(AlterType),
    DropType(DropType),
    CreateIndex(CreateIndex),
    DropIndex(DropIndex),
    CreateView(Box<CreateView>),
    AlterView(AlterView),
    DropView(DropView),
    CreateFunction(Box<CreateFunction>),
    DropFunction(DropFunction),
    CreateAggregate(Box<CreateAggregate>),
    DropAggregate(DropFunction),
    CreateTrigger(CreateTrigger),
    DropTrigger(DropTrigger),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    AddIdentity(AddIdentity),
    DropIdentity(DropIdentity),
    GrantPermissions(PermissionsChange),
    RevokePermissions(PermissionsChange),
    GrantRole(RoleChange),
    RevokeRole(RoleChange),
    ListPermissions(ListPermissions),
    ListRoles(ListRoles),
    ListUsers,
}

/// The objects that DESCRIBE shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribeTarget {
    Cluster,
    /// `full` includes system keyspaces.
    Schema {
        full: bool,
    },
    Keyspaces,
    /// The current keyspace if no name is given; with `only` its contents are left out.
    Keyspace {
        keyspace: Option<Identifier>,
        only: bool,
    },
    Tables,
    Table(QualifiedName),
    Index(QualifiedName),
    View(QualifiedName),
    Types,
    Type(UserTypeName),
    Functions,
    Function(FunctionName),
    Aggregates,
    Aggregate(FunctionName),
    /// Anything of that name.
    Generic(QualifiedName),
}

/// `DESCRIBE ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Describe {
    pub target: DescribeTarget,
    pub with_internals: bool,
}
