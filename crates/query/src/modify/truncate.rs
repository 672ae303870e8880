//! TRUNCATE.

use std::sync::Arc;

use model::Table;

use crate::ddl::snapshot;
use crate::execution::Execution;
use crate::{ErrorKind, QueryError, ResponseBody, consistency};

/// Deletes all rows of a table. If so configured, a snapshot keeps them.
pub(crate) fn truncate(table: &Arc<Table>, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let (keyspace, processor) = (&table.keyspace, execution.processor);
    if engine::system::is_local_system_keyspace(keyspace) {
        return Err(QueryError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    if processor.virtual_tables().contains(table) {
        let message = format!("Truncation is not supported by table {keyspace}.{}", table.name);
        return Err(QueryError::invalid(message));
    }
    consistency::refuse_node_local(execution.options.consistency)?;
    snapshot(table, "truncated", execution)?;
    let failed =
        |error: engine::EngineError| QueryError::new(ErrorKind::Truncate, format!("Error during truncate: {error}"));
    processor.engine().truncate(table).map_err(failed)?;
    Ok(ResponseBody::Void)
}
