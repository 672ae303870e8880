//! Statements that change the schema, and those about roles.

mod alter_table;
mod compact;
mod compression;
mod create_table;
mod drop_table;
mod index;
mod keyspace;
mod masks;
mod options;
mod properties;
mod readd;
mod replication;
mod user_type;

use std::sync::Arc;

use cql::ast::{Identifier, QualifiedName, Statement};
use engine::Engine;
use engine::Keyspaces;
use model::{Keyspace, Schema, Table};
use types::identifier::Quoted;

pub(crate) use drop_table::snapshot;
pub(crate) use index::table_of as table_of_index;
pub use options::TABLE_PROPERTIES;

use crate::execution::Execution;
use crate::modify::truncate;
use crate::names::{find_table, keyspace_of};
use crate::preparing::Preparing;
use crate::{ChangeKind, QueryError, ResponseBody, SchemaChange, SchemaTarget};

/// Checks everything that does not need an execution. Unqualified names belong to the keyspace that is current now,
/// even if the client changes it later.
pub(crate) fn prepare(statement: &Statement, preparing: &mut Preparing<'_>) -> Result<(), QueryError> {
    if let Some(written) = keyspace_written(statement) {
        keyspace_of(written, preparing.keyspace)?;
    }
    match statement {
        Statement::CreateTable(create) => create_table::check(create),
        Statement::CreateIndex(create) => index::check(create),
        _ => Ok(()),
    }
}

/// The keyspace that the changed object's name contains, if any; `None` for objects outside of keyspaces.
fn keyspace_written(statement: &Statement) -> Option<Option<&Identifier>> {
    let keyspace = match statement {
        Statement::CreateTable(create) => &create.table.keyspace,
        Statement::AlterTable(alter) => &alter.table.keyspace,
        Statement::DropTable(drop) => &drop.table.keyspace,
        Statement::Truncate(table) => &table.keyspace,
        Statement::CreateType(create) => &create.name.keyspace,
        Statement::AlterType(alter) => &alter.name.keyspace,
        Statement::DropType(drop) => &drop.name.keyspace,
        Statement::CreateIndex(create) => &create.table.keyspace,
        Statement::DropIndex(drop) => &drop.index.keyspace,
        Statement::CreateView(create) => &create.view.keyspace,
        Statement::AlterView(alter) => &alter.view.keyspace,
        Statement::DropView(drop) => &drop.view.keyspace,
        Statement::CreateFunction(create) => &create.name.keyspace,
        Statement::DropFunction(drop) => &drop.name.keyspace,
        Statement::CreateAggregate(create) => &create.name.keyspace,
        Statement::CreateTrigger(create) => &create.table.keyspace,
        Statement::DropTrigger(drop) => &drop.table.keyspace,
        _ => return None,
    };
    Some(keyspace.as_ref())
}

/// Changes the schema.
pub(crate) fn execute(statement: &Statement, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let change = match statement {
        // The table did not exist when the statement was prepared.
        Statement::Truncate(name) => {
            let (schema, virtual_tables) = (execution.processor.schema(), execution.processor.virtual_tables());
            return truncate(&find_table(&schema, virtual_tables, name, execution.keyspace)?, execution);
        }
        Statement::CreateKeyspace(create) => keyspace::create(create, execution),
        Statement::AlterKeyspace(alter) => keyspace::alter(alter, execution),
        Statement::DropKeyspace(drop) => keyspace::drop(drop, execution),
        Statement::CreateTable(create) => create_table::execute(create, execution),
        Statement::AlterTable(alter) => alter_table::execute(alter, execution),
        Statement::DropTable(drop) => drop_table::execute(drop, execution),
        Statement::CreateIndex(create) => index::create(create, execution),
        Statement::DropIndex(drop) => index::drop(drop, execution),
        Statement::CreateType(create) => user_type::create(create, execution),
        Statement::AlterType(alter) => user_type::alter(alter, execution),
        Statement::DropType(drop) => user_type::drop(drop, execution),
        other => Err(refuse(other, execution)),
    }?;
    Ok(match change {
        Some(Changed { change, contained }) => ResponseBody::SchemaChange { change, contained },
        None => ResponseBody::Void,
    })
}

/// The error for statements about features that this server does not have. Dropping such an object reports that it does
/// not exist.
fn refuse(statement: &Statement, execution: &Execution<'_>) -> QueryError {
    let qualified = |name: &QualifiedName| match keyspace_of(name.keyspace.as_ref(), execution.keyspace) {
        Ok(keyspace) => format!("{keyspace}.{}", name.name.as_str()),
        Err(error) => error.message,
    };
    let what = match statement {
        Statement::DropView(drop) => {
            return QueryError::invalid(format!("Materialized view '{}' doesn't exist", qualified(&drop.view)));
        }
        Statement::AlterView(alter) => {
            return QueryError::invalid(format!("Materialized view '{}' doesn't exist", qualified(&alter.view)));
        }
        Statement::DropTrigger(drop) => {
            let table = qualified(&drop.table);
            return QueryError::invalid(format!("Trigger '{}' on '{table}' doesn't exist", drop.name.as_str()));
        }
        Statement::CreateView(_) => "CREATE MATERIALIZED VIEW (materialized views)",
        Statement::CreateFunction(_) => "CREATE FUNCTION (user-defined functions)",
        Statement::CreateAggregate(_) => "CREATE AGGREGATE (user-defined aggregates)",
        Statement::DropFunction(_) => "DROP FUNCTION (user-defined functions)",
        Statement::DropAggregate(_) => "DROP AGGREGATE (user-defined aggregates)",
        Statement::CreateTrigger(_) => "CREATE TRIGGER (triggers)",
        _ => "a statement about identities",
    };
    QueryError::not_supported(what)
}

/// A change of the schema, and the objects that changed with it.
struct Changed {
    change: SchemaChange,
    /// A dropped keyspace's tables and types.
    contained: Vec<SchemaChange>,
}

/// A change of a keyspace, or of something in it.
fn changed(kind: ChangeKind, keyspace: &str, target: SchemaTarget) -> Changed {
    Changed { change: SchemaChange { kind, keyspace: keyspace.into(), target }, contained: Vec::new() }
}

/// A change of a table.
fn table_changed(kind: ChangeKind, keyspace: &str, table: &str) -> Changed {
    changed(kind, keyspace, SchemaTarget::Table(table.into()))
}

/// The effect of a statement on a keyspace, as Cassandra's permissions name it.
#[derive(Clone, Copy)]
enum Access {
    Create,
    Alter,
    Drop,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Create => "CREATE",
            Access::Alter => "ALTER",
            Access::Drop => "DROP",
        }
    }
}

/// Refuses changes to the node's own keyspaces. `table` is `None` if the keyspace itself is changed.
fn check_modifiable(
    execution: &Execution<'_>,
    keyspace: &str,
    table: Option<&str>,
    access: Access,
) -> Result<(), QueryError> {
    if engine::system::is_local_system_keyspace(keyspace) {
        return Err(QueryError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    if engine::system::is_system_keyspace(keyspace) && !matches!((access, table), (Access::Alter, None)) {
        let resource = match table {
            Some(table) => format!("<table {keyspace}.{table}>"),
            None => format!("<keyspace {keyspace}>"),
        };
        return Err(QueryError::unauthorized(format!("Cannot {} {resource}", access.name())));
    }
    if execution.processor.virtual_tables().has_keyspace(keyspace) {
        return Err(QueryError::invalid(format!("Virtual keyspace '{keyspace}' is not user-modifiable")));
    }
    let unreadable = table.and_then(|table| Engine::unreadable_table(execution.schema, keyspace, table));
    match (access, unreadable) {
        (Access::Create | Access::Alter, Some(quarantined)) => Err(quarantined.into()),
        _ => Ok(()),
    }
}

/// The keyspace and name of a statement's table.
fn qualify<'n>(name: &'n QualifiedName, execution: &'n Execution<'_>) -> Result<(&'n str, &'n str), QueryError> {
    Ok((keyspace_of(name.keyspace.as_ref(), execution.keyspace)?, name.name.as_str()))
}

/// The keyspace of a change, to be edited in place.
fn edit_keyspace<'k>(keyspaces: &'k mut Keyspaces, name: &str) -> Option<&'k mut Keyspace> {
    keyspaces.get_mut(name).map(Arc::make_mut)
}

fn no_keyspace(name: &str) -> QueryError {
    QueryError::invalid(format!("Keyspace '{name}' doesn't exist"))
}

fn no_table(keyspace: &str, table: &str) -> QueryError {
    QueryError::invalid(format!("Table '{keyspace}.{table}' doesn't exist"))
}

/// A change without any effect has an empty answer, and no client receives an event.
fn unless_unchanged((change, schema): (Option<Changed>, Arc<Schema>), execution: &Execution<'_>) -> Option<Changed> {
    change.filter(|_| schema.version != execution.schema.version)
}

/// `keyspace.table` as Cassandra prints a table's metadata.
fn table_name(table: &Table) -> String {
    format!("{}.{}", Quoted(&table.keyspace), Quoted(&table.name))
}

/// Whether a keyspace or table may have this name.
fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn undefined_column(column: &Identifier, table: &Table) -> QueryError {
    QueryError::invalid(format!("Undefined column name {column} in table {}", table_name(table)))
}
