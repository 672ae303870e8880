//! INSERT, UPDATE, DELETE, BATCH and TRUNCATE.

use std::sync::Arc;

use cql::ast::{Batch, BatchKind, Statement};
use model::Table;

use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::{QueryError, ResponseBody, Value};

/// A modification ready to be carried out.
#[derive(Debug)]
pub(crate) struct ModificationPlan {}

impl ModificationPlan {
    /// Carries out the modification.
    pub async fn execute(&self, _execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
        Err(QueryError::not_supported("a modification"))
    }
}

/// A CQL batch ready to be carried out.
#[derive(Debug)]
pub(crate) struct BatchPlan {}

impl BatchPlan {
    /// Carries out the batch.
    pub async fn execute(&self, _execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
        Err(QueryError::not_supported("BATCH"))
    }
}

/// Prepares an INSERT, UPDATE or DELETE.
pub(crate) fn prepare(_statement: Statement, _preparing: &mut Preparing<'_>) -> Result<ModificationPlan, QueryError> {
    Err(QueryError::not_supported("a modification"))
}

/// Prepares a CQL batch.
pub(crate) fn prepare_batch(_batch: Batch, _preparing: &mut Preparing<'_>) -> Result<BatchPlan, QueryError> {
    Err(QueryError::not_supported("BATCH"))
}

/// Carries out a protocol batch: modifications, each with its own values.
pub(crate) async fn execute_batch(
    _kind: BatchKind,
    _statements: &[(&ModificationPlan, &[Value<'_>])],
    _execution: &Execution<'_>,
) -> Result<ResponseBody, QueryError> {
    Err(QueryError::not_supported("BATCH"))
}

/// Carries out TRUNCATE.
pub(crate) async fn truncate(_table: &Arc<Table>, _execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    Err(QueryError::not_supported("TRUNCATE"))
}
