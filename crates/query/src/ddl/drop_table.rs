//! DROP TABLE, and the snapshot taken before data is deleted.

use cql::ast::DropTable;
use engine::{Engine, EngineError};
use model::Table;

use super::{Access, Changed, check_modifiable, edit_keyspace, no_table, qualify, table_changed};
use crate::execution::Execution;
use crate::{ChangeKind, QueryError};

pub(super) fn execute(drop: &DropTable, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = qualify(&drop.table, execution)?;
    check_modifiable(execution, keyspace, Some(name), Access::Drop)?;
    if let Some(table) = execution.schema.table(keyspace, name) {
        snapshot(table, "dropped", execution)?;
    }
    if let Some(quarantined) = Engine::unreadable_table(execution.schema, keyspace, name) {
        execution.warn(format!("No snapshot was taken. {quarantined}"));
    }
    let (dropped, _) = execution.processor.engine().change_schema(|_, keyspaces| {
        let is_removed = edit_keyspace(keyspaces, keyspace)
            .is_some_and(|edited| edited.tables.remove(name).is_some() || edited.unreadable.remove(name).is_some());
        match is_removed {
            true => Ok(Some(table_changed(ChangeKind::Dropped, keyspace, name))),
            false if drop.if_exists => Ok(None),
            false => Err(no_table(keyspace, name)),
        }
    })?;
    Ok(dropped)
}

/// With `auto_snapshot`, keeps a table's data under `snapshots/<why>-<milliseconds>-<table>` before it is deleted. The
/// second of two snapshots within a millisecond has the next millisecond's name.
pub(crate) fn snapshot(table: &Table, why: &str, execution: &Execution<'_>) -> Result<(), QueryError> {
    let processor = execution.processor;
    if !processor.options().auto_snapshot || !table.options.allow_auto_snapshot {
        return Ok(());
    }
    let names = (execution.now_micros / 1000..).map(|millis| format!("{why}-{millis}-{}", table.name));
    let schema_cql = crate::describe::snapshot_schema(execution.schema, table);
    match processor.engine().snapshot_as_first_of(table, names, &schema_cql, processor.options().auto_snapshot_lifetime)
    {
        // Its content cannot be read, and a table must be droppable.
        Err(quarantined @ EngineError::Quarantined { .. }) => {
            execution.warn(format!("No snapshot was taken. {quarantined}"))
        }
        taken => drop(taken?),
    }
    Ok(())
}
