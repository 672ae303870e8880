//! SELECT.

use std::sync::Arc;

use cql::ast::Select;

use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::{QueryError, ResponseBody, ResultMetadata};

/// A SELECT ready to be carried out.
#[derive(Debug)]
pub(crate) struct SelectPlan {
    metadata: Arc<ResultMetadata>,
}

impl SelectPlan {
    /// The columns of the answer.
    pub fn result_metadata(&self) -> Arc<ResultMetadata> {
        self.metadata.clone()
    }

    /// Reads a page.
    pub fn execute(&self, _execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
        Err(QueryError::not_supported("SELECT"))
    }
}

/// Prepares a SELECT.
pub(crate) fn prepare(_select: &Select, _preparing: &mut Preparing<'_>) -> Result<SelectPlan, QueryError> {
    Err(QueryError::not_supported("SELECT"))
}
