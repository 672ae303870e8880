//! Guardrails: limits of what a request may use. Names and texts are Cassandra's.

mod flags;

use crate::QueryError;
use crate::execution::Execution;

pub use flags::Flags;

/// A threshold that warns and one that refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guardrail {
    /// Warn above this; `None` never does.
    pub warn: Option<u64>,
    /// Refuse above this; `None` never does.
    pub fail: Option<u64>,
}

/// The guardrails of a node. All are off unless they are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guardrails {
    /// Keyspaces of users.
    pub keyspaces: Guardrail,
    /// Tables of users, in all keyspaces.
    pub tables: Guardrail,
    /// Columns of a table.
    pub columns_per_table: Guardrail,
    /// Fields of a user type.
    pub fields_per_udt: Guardrail,
    /// Rows of a page that a client asks for.
    pub page_size: Guardrail,
    /// Partitions that an IN of a SELECT names.
    pub partition_keys_in_select: Guardrail,
    /// Combinations that the INs of a key make.
    pub in_select_cartesian_product: Guardrail,
    /// The sizes of reads and answers; not in force unless `read_thresholds_enabled` is set.
    pub read_thresholds: ReadThresholds,
    /// Features that statements may use.
    pub flags: Flags,
}

impl Guardrails {
    /// Whether the size of reads can cause a warning or an error.
    pub(crate) fn watches_reads(&self) -> bool {
        let ReadThresholds { coordinator, local } = &self.read_thresholds;
        [&self.page_size, coordinator, local].into_iter().any(Guardrail::is_set)
    }
}

/// Sizes of reads, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadThresholds {
    /// The size of a statement's answer.
    pub coordinator: Guardrail,
    /// The size of the data that one read takes from memtables and SSTables.
    pub local: Guardrail,
}

/// The name and texts of a guardrail. The texts contain the placeholders `{what}`, `{value}` and `{threshold}`.
pub(crate) struct Texts {
    name: &'static str,
    warning: &'static str,
    failure: &'static str,
}

pub(crate) const KEYSPACES: Texts = Texts {
    name: "keyspaces",
    warning: "Creating keyspace {what}, current number of keyspaces {value} exceeds warning threshold of {threshold}.",
    failure: "Cannot have more than {threshold} keyspaces, aborting the creation of keyspace {what}",
};

pub(crate) const TABLES: Texts = Texts {
    name: "tables",
    warning: "Creating table {what}, current number of tables {value} exceeds warning threshold of {threshold}.",
    failure: "Cannot have more than {threshold} tables, aborting the creation of table {what}",
};

pub(crate) const COLUMNS_PER_TABLE: Texts = Texts {
    name: "columns_per_table",
    warning: "The table {what} has {value} columns, this exceeds the warning threshold of {threshold}.",
    failure: "Tables cannot have more than {threshold} columns, but {value} provided for table {what}",
};

pub(crate) const FIELDS_PER_UDT: Texts = Texts {
    name: "fields_per_udt",
    warning: "The user type {what} has {value} columns, this exceeds the warning threshold of {threshold}.",
    failure: "User types cannot have more than {threshold} columns, but {value} provided for user type {what}.",
};

pub(crate) const PAGE_SIZE: Texts = Texts {
    name: "page_size",
    warning: "Query for table {what} with page size {value} exceeds warning threshold of {threshold}.",
    failure: "Aborting query for table {what}, page size {value} exceeds fail threshold of {threshold}.",
};

pub(crate) const PARTITION_KEYS_IN_SELECT: Texts = Texts {
    name: "partition_keys_in_select",
    warning: "Query with partition keys in IN clause on table {what}, with number of partition keys {value} exceeds warning threshold of {threshold}.",
    failure: "Aborting query with partition keys in IN clause on table {what}, number of partition keys {value} exceeds fail threshold of {threshold}.",
};

pub(crate) const IN_SELECT_CARTESIAN_PRODUCT: Texts = Texts {
    name: "in_select_cartesian_product",
    warning: "The cartesian product of the IN restrictions on {what} produces {value} values, this exceeds warning threshold of {threshold}.",
    failure: "Aborting query because the cartesian product of the IN restrictions on {what} produces {value} values, this exceeds fail threshold of {threshold}.",
};

impl Guardrail {
    /// Whether a threshold is set.
    pub(crate) fn is_set(&self) -> bool {
        self.warn.is_some() || self.fail.is_some()
    }

    /// Warns if the value of `what` is above one threshold, and refuses it if it is above the other one.
    pub(crate) fn check(
        &self,
        texts: &Texts,
        what: &str,
        value: usize,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let passed = |threshold: Option<u64>| threshold.filter(|threshold| value as u64 > *threshold);
        let text = |pattern: &str, threshold: u64| {
            let text = pattern.replace("{value}", &value.to_string()).replace("{threshold}", &threshold.to_string());
            format!("Guardrail {} violated: {}", texts.name, text.replace("{what}", what))
        };
        if let Some(threshold) = passed(self.fail) {
            return Err(QueryError::invalid(text(texts.failure, threshold)));
        }
        if let Some(threshold) = passed(self.warn) {
            execution.warn(text(texts.warning, threshold));
        }
        Ok(())
    }
}
