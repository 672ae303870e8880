//! The permissions that a statement needs.

use std::sync::Arc;

use cql::ast::{Permission, QualifiedName, Statement};
use engine::Engine;
use model::Table;

use super::resource::Resource;
use crate::QueryError;
use crate::ddl::table_of_index;
use crate::modify::ModificationPlan;
use crate::names::keyspace_of;
use crate::prepared::{Plan, Work};
use crate::select::SelectPlan;

/// The permission that a statement needs.
pub(super) enum Need {
    On(Permission, Resource),
    /// To ask for the values of these masked columns of a table.
    MaskedColumns(Arc<Table>, Vec<Arc<str>>),
    /// Only superusers may carry out this kind of statement; others get this text.
    Superuser(&'static str),
}

/// All permissions that a plan needs, in Cassandra's order. Statements about roles check theirs themselves.
pub(super) fn of(plan: &Plan, keyspace: Option<&str>, engine: &Engine) -> Result<Vec<Need>, QueryError> {
    Ok(match &plan.work {
        Work::Select(select) => of_select(select, &plan.tables),
        Work::Modification(modification) | Work::Derived(modification) => of_modification(modification),
        Work::Batch(batch) => batch.statements().iter().flat_map(of_modification).collect(),
        Work::Truncate(table) => vec![on_table(Permission::Modify, table)],
        Work::Use(_) | Work::Describe(_) => Vec::new(),
        Work::Schema(statement) => of_schema(statement, keyspace, engine)?.into_iter().collect(),
    })
}

fn of_select(select: &SelectPlan, tables: &[Arc<Table>]) -> Vec<Need> {
    let mut needs: Vec<Need> = tables.iter().map(|table| on_table(Permission::Select, table)).collect();
    let columns = select.masked_restrictions();
    if !columns.is_empty() {
        needs.extend(tables.iter().map(|table| Need::MaskedColumns(table.clone(), columns.to_vec())));
    }
    needs
}

fn of_modification(modification: &ModificationPlan) -> Vec<Need> {
    let table = modification.table();
    let mut needs = vec![on_table(Permission::Modify, table)];
    if modification.is_conditional() {
        // The answer to a condition reveals what is in the table.
        needs.push(on_table(Permission::Select, table));
    }
    needs
}

fn on_table(permission: Permission, table: &Table) -> Need {
    Need::On(permission, Resource::Table(table.keyspace.to_string(), table.name.to_string()))
}

fn of_schema(statement: &Statement, keyspace: Option<&str>, engine: &Engine) -> Result<Option<Need>, QueryError> {
    use Permission::{Alter, Create, Drop};
    let in_keyspace = |name: &QualifiedName| keyspace_of(name.keyspace.as_ref(), keyspace).map(str::to_owned);
    let all_tables = |name: &QualifiedName| in_keyspace(name).map(Resource::AllTables);
    let table = |name: &QualifiedName| Ok(Resource::Table(in_keyspace(name)?, name.name.as_str().to_owned()));
    let types_of = |written| keyspace_of(written, keyspace).map(|keyspace| Resource::AllTables(keyspace.to_owned()));
    let functions = |name: &cql::ast::FunctionName| {
        keyspace_of(name.keyspace.as_ref(), keyspace).map(|keyspace| Resource::FunctionsIn(keyspace.to_owned()))
    };
    let (permission, resource): (Permission, Result<Resource, QueryError>) = match statement {
        Statement::CreateKeyspace(_) => (Create, Ok(Resource::AllKeyspaces)),
        Statement::AlterKeyspace(alter) => (Alter, Ok(Resource::Keyspace(alter.keyspace.as_str().to_owned()))),
        Statement::DropKeyspace(drop) => (Drop, Ok(Resource::Keyspace(drop.keyspace.as_str().to_owned()))),
        Statement::CreateTable(create) => (Create, all_tables(&create.table)),
        Statement::AlterTable(alter) => (Alter, table(&alter.table)),
        Statement::DropTable(drop) => (Drop, table(&drop.table)),
        Statement::Truncate(name) => (Permission::Modify, table(name)),
        Statement::CreateType(create) => (Create, types_of(create.name.keyspace.as_ref())),
        Statement::AlterType(alter) => (Alter, types_of(alter.name.keyspace.as_ref())),
        Statement::DropType(drop) => (Drop, types_of(drop.name.keyspace.as_ref())),
        Statement::CreateIndex(create) => (Alter, table(&create.table)),
        Statement::DropIndex(drop) => {
            let (keyspace, schema) = (in_keyspace(&drop.index)?, engine.borrow_schema());
            let known = schema.keyspace(&keyspace);
            // Dropping an index that does not exist needs no permission.
            let Some(table) = known.and_then(|known| table_of_index(known, drop.index.name.as_str())) else {
                return Ok(None);
            };
            (Alter, Ok(Resource::Table(keyspace, table.name.to_string())))
        }
        Statement::CreateView(create) => (Alter, table(&create.base_table)),
        Statement::CreateFunction(create) => (Create, functions(&create.name)),
        Statement::CreateAggregate(create) => (Create, functions(&create.name)),
        Statement::CreateTrigger(_) => {
            return Ok(Some(Need::Superuser("Only superusers are allowed to perform CREATE TRIGGER queries")));
        }
        // The text has Cassandra's mistake.
        Statement::DropTrigger(_) => {
            return Ok(Some(Need::Superuser("Only superusers are allowed to perfrom DROP TRIGGER queries")));
        }
        _ => return Ok(None),
    };
    Ok(Some(Need::On(permission, resource?)))
}
