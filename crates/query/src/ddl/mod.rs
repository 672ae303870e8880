//! Statements that change the schema, and those about roles.

use cql::ast::Statement;

use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::{QueryError, ResponseBody};

/// What can be checked without carrying the statement out.
pub(crate) fn prepare(_statement: &Statement, _preparing: &mut Preparing<'_>) -> Result<(), QueryError> {
    Ok(())
}

/// Changes the schema.
pub(crate) async fn execute(_statement: &Statement, _execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    Err(QueryError::not_supported("a change of the schema"))
}
