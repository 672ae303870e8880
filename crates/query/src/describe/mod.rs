//! DESCRIBE.

use std::sync::Arc;

use cql::ast::Describe;

use crate::execution::Execution;
use crate::{QueryError, ResponseBody, ResultMetadata};

/// The columns of the answer.
pub(crate) fn result_metadata(_statement: &Describe) -> Arc<ResultMetadata> {
    Arc::new(ResultMetadata::default())
}

/// Answers what is described.
pub(crate) fn execute(_statement: &Describe, _execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    Err(QueryError::not_supported("DESCRIBE"))
}
