//! Guardrails: limits of what a request may use. Names and texts are Cassandra's.

mod disk_usage;
mod flags;
mod sizes;
mod values;
mod vectors;

use protocol::QueryOptions;

use crate::QueryError;
use crate::execution::Execution;

pub use disk_usage::{DiskUsage, DiskUsageState};
pub use flags::Flags;
pub use sizes::Violation;
pub use values::{CONSISTENCY_LEVELS, ValueGuardrail, ValueSet};

pub(crate) use values::TABLE_PROPERTIES_KIND;
pub(crate) use vectors::check as check_vectors;

use values::{READ_LEVELS, WRITE_LEVELS};

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
    /// Secondary indexes of a table.
    pub secondary_indexes_per_table: Guardrail,
    /// Bytes of a term of a storage-attached index: of a value that is no vector and no frozen collection.
    pub sai_string_term_size: Guardrail,
    /// Bytes of a frozen collection, tuple or user type that has a storage-attached index.
    pub sai_frozen_term_size: Guardrail,
    /// Bytes of a vector that has a storage-attached index.
    pub sai_vector_term_size: Guardrail,
    /// Index files of one storage-attached index that a SELECT reads.
    pub sai_sstable_indexes_per_query: Guardrail,
    /// Fields of a user type.
    pub fields_per_udt: Guardrail,
    /// Rows of a page that a client asks for.
    pub page_size: Guardrail,
    /// Partitions that an IN of a SELECT names.
    pub partition_keys_in_select: Guardrail,
    /// Combinations that the INs of a key make.
    pub in_select_cartesian_product: Guardrail,
    /// Bytes of a value that is written, and of the key of an entry.
    pub column_value_size: Guardrail,
    /// Bytes of a partition in an SSTable that is written.
    pub partition_size: Guardrail,
    /// Tombstones of a partition in an SSTable that is written.
    pub partition_tombstones: Guardrail,
    /// Bytes of the cells that a write adds to a collection, and of a collection in an SSTable that is written.
    pub collection_size: Guardrail,
    /// Elements that a write adds to a collection, and of a collection in an SSTable that is written.
    pub items_per_collection: Guardrail,
    /// Microseconds that a timestamp may be ahead of the clock.
    pub maximum_timestamp: Guardrail,
    /// Microseconds that a timestamp may be behind the clock.
    pub minimum_timestamp: Guardrail,
    /// Replicas of a keyspace that names no number; one if there is none.
    pub default_keyspace_rf: Option<i32>,
    /// Replicas of a keyspace, at least.
    pub minimum_replication_factor: Guardrail,
    /// Replicas of a keyspace, at most.
    pub maximum_replication_factor: Guardrail,
    /// Dimensions of a vector, in the type of a new column or field.
    pub vector_dimensions: Guardrail,
    /// Consistency levels of reads.
    pub read_consistency_levels: ValueGuardrail,
    /// Consistency levels of writes, and their serial consistency levels.
    pub write_consistency_levels: ValueGuardrail,
    /// Properties in CREATE TABLE and ALTER TABLE.
    pub table_properties: ValueGuardrail,
    /// The sizes of reads and answers; not in force unless `read_thresholds_enabled` is set.
    pub read_thresholds: ReadThresholds,
    /// Features that statements may use.
    pub flags: Flags,
}

impl Guardrails {
    /// Whether written values are warned of or refused by their size.
    pub(crate) fn watches_values(&self) -> bool {
        [&self.column_value_size, &self.collection_size, &self.items_per_collection].into_iter().any(Guardrail::is_set)
    }

    /// Whether terms of storage-attached indexes are warned of or refused by their size.
    pub(crate) fn watches_terms(&self) -> bool {
        [&self.sai_string_term_size, &self.sai_frozen_term_size, &self.sai_vector_term_size]
            .into_iter()
            .any(Guardrail::is_set)
    }

    /// Refuses the consistency level of a read, or warns about it.
    pub(crate) fn check_read_level(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        let levels = ValueSet::of_levels([execution.options.consistency]);
        self.read_consistency_levels.check(&READ_LEVELS, levels, execution).map(|_| ())
    }

    /// Refuses the consistency levels of a write, or warns about them. As in Cassandra, the serial one counts even
    /// where there is no condition.
    pub(crate) fn check_write_levels(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        let QueryOptions { consistency, serial_consistency, .. } = *execution.options;
        let levels = ValueSet::of_levels([consistency, serial_consistency]);
        self.write_consistency_levels.check(&WRITE_LEVELS, levels, execution).map(|_| ())
    }

    /// Whether reads can cause a warning or an error, by their size or by their consistency level.
    pub(crate) fn watches_reads(&self) -> bool {
        let ReadThresholds { coordinator, local } = &self.read_thresholds;
        self.read_consistency_levels.is_set()
            || [&self.page_size, coordinator, local].into_iter().any(Guardrail::is_set)
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

pub(crate) const SECONDARY_INDEXES_PER_TABLE: Texts = Texts {
    name: "secondary_indexes_per_table",
    warning: "Creating secondary index {what}, current number of indexes {value} exceeds warning threshold of {threshold}.",
    failure: "Tables cannot have more than {threshold} secondary indexes, aborting the creation of secondary index {what}",
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

pub(crate) const COLUMN_VALUE_SIZE: Texts = Texts::with_level(
    "column_value_size",
    "Value of column '{what}' has size {value}, this exceeds the {level} threshold of {threshold}.",
);

const TERM_SIZE: &str = "Value of column '{what}' has size {value}, this exceeds the {level} threshold of {threshold}.";

pub(crate) const SAI_STRING_TERM_SIZE: Texts = Texts::with_level("sai_string_term_size", TERM_SIZE);

pub(crate) const SAI_FROZEN_TERM_SIZE: Texts = Texts::with_level("sai_frozen_term_size", TERM_SIZE);

pub(crate) const SAI_VECTOR_TERM_SIZE: Texts = Texts::with_level("sai_vector_term_size", TERM_SIZE);

pub(crate) const COLLECTION_SIZE: Texts = Texts::with_level(
    "collection_size",
    "Detected collection {what} of size {value}, this exceeds the {level} threshold of {threshold}.",
);

pub(crate) const ITEMS_PER_COLLECTION: Texts = Texts::with_level(
    "items_per_collection",
    "Detected collection {what} with {value} items, this exceeds the {level} threshold of {threshold}.",
);

const PARTITION_SIZE: Texts = Texts::with_level(
    "partition_size",
    "Partition {what} has size {value}, this exceeds the {level} threshold of {threshold}. Too large partitions can cause performance problems.",
);

const PARTITION_TOMBSTONES: Texts = Texts::with_level(
    "partition_tombstones",
    "Partition {what} has {value} tombstones, this exceeds the {level} threshold of {threshold}. Partitions with too many tombstones can cause performance problems.",
);

const MAXIMUM_TIMESTAMP: Texts = Texts::with_level(
    "maximum_timestamp",
    "The modification to table {what} has a timestamp {value} after the maximum allowable {level} threshold {threshold}. Timestamps too far in the future can lead to data that can't be easily overwritten",
);

const MINIMUM_TIMESTAMP: Texts = Texts::with_level(
    "minimum_timestamp",
    "The modification to table {what} has a timestamp {value} before the minimum allowable {level} threshold {threshold}. Timestamps too far in the past can cause writes can be unexpectedly lost",
);

const MINIMUM_REPLICATION_FACTOR: Texts = Texts::with_level(
    "minimum_replication_factor",
    "The keyspace {what} has a replication factor of {value}, below the {level} threshold of {threshold}.",
);

const MAXIMUM_REPLICATION_FACTOR: Texts = Texts::with_level(
    "maximum_replication_factor",
    "The keyspace {what} has a replication factor of {value}, above the {level} threshold of {threshold}.",
);

impl Texts {
    /// Texts that differ in one word: `{level}` is `warning` or `failure`.
    const fn with_level(name: &'static str, text: &'static str) -> Texts {
        Texts { name, warning: text, failure: text }
    }

    /// The message that the value of `what` is beyond the bound that refuses.
    fn failed(&self, what: &str, value: impl ToString, bound: impl ToString) -> String {
        self.violated(self.failure, "failure", what, &value.to_string(), &bound.to_string())
    }

    /// The message that the value of `what` is beyond the bound that warns.
    fn warned(&self, what: &str, value: impl ToString, bound: impl ToString) -> String {
        self.violated(self.warning, "warning", what, &value.to_string(), &bound.to_string())
    }

    fn violated(&self, pattern: &str, level: &str, what: &str, value: &str, bound: &str) -> String {
        let text = pattern.replace("{value}", value).replace("{threshold}", bound).replace("{level}", level);
        format!("Guardrail {} violated: {}", self.name, text.replace("{what}", what))
    }

    /// The guardrail's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

impl Guardrails {
    /// Checks the timestamp that a statement about a table gives, microseconds.
    pub(crate) fn check_timestamp(
        &self,
        table: &str,
        timestamp: i64,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let now = execution.now_micros;
        let distance = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        let latest = |micros: u64| now.saturating_add(distance(micros));
        let earliest = |micros: u64| now.saturating_sub(distance(micros));
        self.maximum_timestamp.check_bound(&MAXIMUM_TIMESTAMP, table, timestamp, latest, i64::gt, execution)?;
        self.minimum_timestamp.check_bound(&MINIMUM_TIMESTAMP, table, timestamp, earliest, i64::lt, execution)
    }

    /// Checks the number of replicas that a keyspace is to have, in one data center.
    pub(crate) fn check_replication_factor(
        &self,
        keyspace: &str,
        factor: i64,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let bound = |factor: u64| i64::try_from(factor).unwrap_or(i64::MAX);
        let (least, most) = (&self.minimum_replication_factor, &self.maximum_replication_factor);
        least.check_bound(&MINIMUM_REPLICATION_FACTOR, keyspace, factor, bound, i64::lt, execution)?;
        most.check_bound(&MAXIMUM_REPLICATION_FACTOR, keyspace, factor, bound, i64::gt, execution)
    }
}

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
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let bound = |threshold: u64| i64::try_from(threshold).unwrap_or(i64::MAX);
        self.check_bound(texts, what, value, bound, i64::gt, execution)
    }

    /// Warns about a value that is `beyond` the bound of one threshold, and refuses one that is beyond the other.
    fn check_bound(
        &self,
        texts: &Texts,
        what: &str,
        value: i64,
        bound: impl Fn(u64) -> i64,
        beyond: impl Fn(&i64, &i64) -> bool,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let passed = |threshold: Option<u64>| threshold.map(&bound).filter(|bound| beyond(&value, bound));
        let (failed, warned) = (passed(self.fail), passed(self.warn));
        if failed.or(warned).is_none() || !execution.is_guarded() {
            return Ok(());
        }
        if let Some(bound) = failed {
            return Err(QueryError::invalid(texts.failed(what, value, bound)));
        }
        if let Some(bound) = warned {
            execution.warn(texts.warned(what, value, bound));
        }
        Ok(())
    }
}
