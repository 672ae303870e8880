//! Guardrails: numbers that a request should not exceed. Names and texts are Cassandra's.

use crate::QueryError;
use crate::execution::Execution;

/// A threshold that warns and one that refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guardrail {
    /// Warn above this; `None` never does.
    pub warn: Option<u64>,
    /// Refuse above this; `None` never does.
    pub fail: Option<u64>,
}

impl Guardrail {
    /// Checks `value`; `warning` and `failure` make the texts of the threshold that was passed.
    fn check(
        &self,
        name: &str,
        value: usize,
        warning: impl Fn(u64) -> String,
        failure: impl Fn(u64) -> String,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let passed = |threshold: Option<u64>| threshold.filter(|threshold| value as u64 > *threshold);
        if let Some(threshold) = passed(self.fail) {
            return Err(QueryError::invalid(format!("Guardrail {name} violated: {}", failure(threshold))));
        }
        if let Some(threshold) = passed(self.warn) {
            execution.warn(format!("Guardrail {name} violated: {}", warning(threshold)));
        }
        Ok(())
    }

    /// `partition_keys_in_select`: how many partitions an IN of a SELECT names.
    pub(crate) fn partition_keys_in_select(
        &self,
        table: &str,
        keys: usize,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let warning = |threshold| {
            format!(
                "Query with partition keys in IN clause on table {table}, with number of partition keys {keys} exceeds warning threshold of {threshold}."
            )
        };
        let failure = |threshold| {
            format!(
                "Aborting query with partition keys in IN clause on table {table}, number of partition keys {keys} exceeds fail threshold of {threshold}."
            )
        };
        self.check("partition_keys_in_select", keys, warning, failure, execution)
    }

    /// `in_select_cartesian_product`: how many combinations the INs of a key ("partition key", "clustering key") make.
    pub(crate) fn in_select_cartesian_product(
        &self,
        key: &str,
        combinations: usize,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let warning = |threshold| {
            format!(
                "The cartesian product of the IN restrictions on {key} produces {combinations} values, this exceeds warning threshold of {threshold}."
            )
        };
        let failure = |threshold| {
            format!(
                "Aborting query because the cartesian product of the IN restrictions on {key} produces {combinations} values, this exceeds fail threshold of {threshold}."
            )
        };
        self.check("in_select_cartesian_product", combinations, warning, failure, execution)
    }
}
