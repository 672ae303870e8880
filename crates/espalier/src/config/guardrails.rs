//! Options of guardrails, which limit what requests may use.

use std::ops::RangeInclusive;
use std::time::Duration;

use query::{CONSISTENCY_LEVELS, TABLE_PROPERTIES, ValueSet};
use serde_json::Value;

use super::options::Honoured;
use super::units::{boolean, duration, number, set, size_bytes, size_in, text};

/// A guardrail's threshold; -1 means none.
fn threshold(value: &Value) -> Result<Option<u64>, String> {
    Ok(u64::try_from(number::<i64>(value)?).ok())
}

/// A threshold from 1 to 100.
fn percentage(value: &Value) -> Result<Option<u64>, String> {
    match threshold(value)? {
        Some(0 | 101..) => Err(format!("expected a number from 1 to 100, or -1 for never, got {value}")),
        percentage => Ok(percentage),
    }
}

/// A duration in microseconds, as a threshold.
fn micros(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_micros()).ok()
}

/// The accepted size of a page of rows.
const PAGE_BYTES: RangeInclusive<u64> = 1 << 10..=256 << 20;

/// The accepted memory of a statement.
const STATEMENT_BYTES: RangeInclusive<u64> = 1 << 20..=u64::MAX;

/// The set of the values that a list names, out of `all`. `fold` gives a name the form that it has there.
fn values(value: &Value, all: &[&str], what: &str, fold: impl Fn(&str) -> String) -> Result<ValueSet, String> {
    let names = value.as_array().ok_or_else(|| format!("expected a list, got {value}"))?;
    let names: Vec<String> = names.iter().map(|name| text(name).map(|name| fold(&name))).collect::<Result<_, _>>()?;
    ValueSet::of(all, names.iter().map(String::as_str)).map_err(|unknown| format!("`{unknown}` is no {what}"))
}

fn levels(value: &Value) -> Result<ValueSet, String> {
    values(value, CONSISTENCY_LEVELS, "consistency level", str::to_ascii_uppercase)
}

fn properties(value: &Value) -> Result<ValueSet, String> {
    values(value, TABLE_PROPERTIES, "table property", str::to_ascii_lowercase)
}

/// The options, in the order of `docs/options.md`.
pub(super) const GUARDRAILS: &[Honoured] = &[
    Honoured {
        name: "partition_keys_in_select_warn_threshold",
        default: "-1",
        note: "a SELECT whose IN names more partitions causes a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.partition_keys_in_select.warn, threshold(value)),
    },
    Honoured {
        name: "partition_keys_in_select_fail_threshold",
        default: "-1",
        note: "a SELECT whose IN names more partitions is refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.partition_keys_in_select.fail, threshold(value)),
    },
    Honoured {
        name: "in_select_cartesian_product_warn_threshold",
        default: "-1",
        note: "INs of a key with more combinations cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.in_select_cartesian_product.warn, threshold(value)),
    },
    Honoured {
        name: "in_select_cartesian_product_fail_threshold",
        default: "-1",
        note: "INs of a key with more combinations are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.in_select_cartesian_product.fail, threshold(value)),
    },
    Honoured {
        name: "keyspaces_warn_threshold",
        default: "-1",
        note: "more keyspaces of users than this cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.keyspaces.warn, threshold(value)),
    },
    Honoured {
        name: "keyspaces_fail_threshold",
        default: "-1",
        note: "more keyspaces of users than this are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.keyspaces.fail, threshold(value)),
    },
    Honoured {
        name: "tables_warn_threshold",
        default: "-1",
        note: "more tables of users than this cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.tables.warn, threshold(value)),
    },
    Honoured {
        name: "tables_fail_threshold",
        default: "-1",
        note: "more tables of users than this are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.tables.fail, threshold(value)),
    },
    Honoured {
        name: "columns_per_table_warn_threshold",
        default: "-1",
        note: "more columns of a table than this cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.columns_per_table.warn, threshold(value)),
    },
    Honoured {
        name: "columns_per_table_fail_threshold",
        default: "-1",
        note: "more columns of a table than this are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.columns_per_table.fail, threshold(value)),
    },
    Honoured {
        name: "secondary_indexes_per_table_warn_threshold",
        default: "-1",
        note: "more secondary indexes of a table than this cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.secondary_indexes_per_table.warn, threshold(value)),
    },
    Honoured {
        name: "secondary_indexes_per_table_fail_threshold",
        default: "-1",
        note: "more secondary indexes of a table than this are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.secondary_indexes_per_table.fail, threshold(value)),
    },
    Honoured {
        name: "fields_per_udt_warn_threshold",
        default: "-1",
        note: "more fields of a user type than this cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.fields_per_udt.warn, threshold(value)),
    },
    Honoured {
        name: "fields_per_udt_fail_threshold",
        default: "-1",
        note: "more fields of a user type than this are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.fields_per_udt.fail, threshold(value)),
    },
    Honoured {
        name: "page_size_warn_threshold",
        default: "-1",
        note: "more rows of a page than this cause a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.page_size.warn, threshold(value)),
    },
    Honoured {
        name: "page_size_fail_threshold",
        default: "-1",
        note: "more rows of a page than this are refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.page_size.fail, threshold(value)),
    },
    Honoured {
        name: "column_value_size_warn_threshold",
        default: "",
        note: "a written value, or key of an entry, of more bytes causes a warning; by default never",
        apply: |config, value| set(&mut config.guardrails.column_value_size.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "column_value_size_fail_threshold",
        default: "",
        note: "a written value, or key of an entry, of more bytes is refused; by default never",
        apply: |config, value| set(&mut config.guardrails.column_value_size.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "partition_size_warn_threshold",
        default: "",
        note: "a flush or compaction that writes a partition of more bytes logs a warning; by default never",
        apply: |config, value| set(&mut config.guardrails.partition_size.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "partition_size_fail_threshold",
        default: "",
        note: "a flush or compaction that writes a partition of more bytes logs an error; by default never",
        apply: |config, value| set(&mut config.guardrails.partition_size.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "partition_tombstones_warn_threshold",
        default: "-1",
        note: "a flush or compaction that writes a partition with more tombstones logs a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.partition_tombstones.warn, threshold(value)),
    },
    Honoured {
        name: "partition_tombstones_fail_threshold",
        default: "-1",
        note: "a flush or compaction that writes a partition with more tombstones logs an error; -1 means never",
        apply: |config, value| set(&mut config.guardrails.partition_tombstones.fail, threshold(value)),
    },
    Honoured {
        name: "collection_size_warn_threshold",
        default: "",
        note: "a write that adds cells of more bytes to a collection causes a warning, and \
               an SSTable with a larger collection is logged; by default never",
        apply: |config, value| set(&mut config.guardrails.collection_size.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "collection_size_fail_threshold",
        default: "",
        note: "a write that adds cells of more bytes to a collection is refused, and \
               an SSTable with a larger collection is logged as an error; by default never",
        apply: |config, value| set(&mut config.guardrails.collection_size.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "items_per_collection_warn_threshold",
        default: "-1",
        note: "a write that adds more elements to a collection causes a warning, and \
               an SSTable with a longer collection is logged; -1 means never",
        apply: |config, value| set(&mut config.guardrails.items_per_collection.warn, threshold(value)),
    },
    Honoured {
        name: "items_per_collection_fail_threshold",
        default: "-1",
        note: "a write that adds more elements to a collection is refused, and \
               an SSTable with a longer collection is logged as an error; -1 means never",
        apply: |config, value| set(&mut config.guardrails.items_per_collection.fail, threshold(value)),
    },
    Honoured {
        name: "maximum_timestamp_warn_threshold",
        default: "",
        note: "a USING TIMESTAMP that is further ahead of the clock causes a warning; by default never",
        apply: |config, value| set(&mut config.guardrails.maximum_timestamp.warn, duration(value).map(micros)),
    },
    Honoured {
        name: "maximum_timestamp_fail_threshold",
        default: "",
        note: "a USING TIMESTAMP that is further ahead of the clock is refused; by default never",
        apply: |config, value| set(&mut config.guardrails.maximum_timestamp.fail, duration(value).map(micros)),
    },
    Honoured {
        name: "minimum_timestamp_warn_threshold",
        default: "",
        note: "a USING TIMESTAMP that is further behind the clock causes a warning; by default never",
        apply: |config, value| set(&mut config.guardrails.minimum_timestamp.warn, duration(value).map(micros)),
    },
    Honoured {
        name: "minimum_timestamp_fail_threshold",
        default: "",
        note: "a USING TIMESTAMP that is further behind the clock is refused; by default never",
        apply: |config, value| set(&mut config.guardrails.minimum_timestamp.fail, duration(value).map(micros)),
    },
    Honoured {
        name: "minimum_replication_factor_warn_threshold",
        default: "-1",
        note: "a keyspace of fewer replicas causes a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.minimum_replication_factor.warn, threshold(value)),
    },
    Honoured {
        name: "minimum_replication_factor_fail_threshold",
        default: "-1",
        note: "a keyspace of fewer replicas is refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.minimum_replication_factor.fail, threshold(value)),
    },
    Honoured {
        name: "maximum_replication_factor_warn_threshold",
        default: "-1",
        note: "a keyspace of more replicas causes a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.maximum_replication_factor.warn, threshold(value)),
    },
    Honoured {
        name: "maximum_replication_factor_fail_threshold",
        default: "-1",
        note: "a keyspace of more replicas is refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.maximum_replication_factor.fail, threshold(value)),
    },
    Honoured {
        name: "uncompressed_tables_enabled",
        default: "true",
        note: "whether tables may be without compression",
        apply: |config, value| set(&mut config.guardrails.flags.uncompressed_tables_enabled, boolean(value)),
    },
    Honoured {
        name: "zero_ttl_on_twcs_enabled",
        default: "true",
        note: "whether a table with TimeWindowCompactionStrategy may have no default TTL",
        apply: |config, value| set(&mut config.guardrails.flags.zero_ttl_on_twcs_enabled, boolean(value)),
    },
    Honoured {
        name: "zero_ttl_on_twcs_warned",
        default: "false",
        note: "whether such a table causes a warning (`true` in Cassandra, which applies no guardrail without authentication)",
        apply: |config, value| set(&mut config.guardrails.flags.zero_ttl_on_twcs_warned, boolean(value)),
    },
    Honoured {
        name: "data_disk_usage_percentage_warn_threshold",
        default: "-1",
        note: "writes cause a warning while the data takes more percent of the disk; -1 means never",
        apply: |config, value| set(&mut config.disk_usage_warn_percentage, percentage(value)),
    },
    Honoured {
        name: "data_disk_usage_percentage_fail_threshold",
        default: "-1",
        note: "writes are refused while the data takes more percent of the disk; -1 means never",
        apply: |config, value| set(&mut config.disk_usage_fail_percentage, percentage(value)),
    },
    Honoured {
        name: "data_disk_usage_max_disk_size",
        default: "",
        note: "the size of the disk for these thresholds, if it is less than the data and the free space together",
        apply: |config, value| set(&mut config.disk_usage_max_bytes, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "user_timestamps_enabled",
        default: "true",
        note: "whether USING TIMESTAMP is allowed",
        apply: |config, value| set(&mut config.guardrails.flags.user_timestamps_enabled, boolean(value)),
    },
    Honoured {
        name: "alter_table_enabled",
        default: "true",
        note: "whether ALTER TABLE may add, drop and rename columns",
        apply: |config, value| set(&mut config.guardrails.flags.alter_table_enabled, boolean(value)),
    },
    Honoured {
        name: "group_by_enabled",
        default: "true",
        note: "whether GROUP BY is allowed",
        apply: |config, value| set(&mut config.guardrails.flags.group_by_enabled, boolean(value)),
    },
    Honoured {
        name: "drop_truncate_table_enabled",
        default: "true",
        note: "whether DROP TABLE and TRUNCATE are allowed",
        apply: |config, value| set(&mut config.guardrails.flags.drop_truncate_table_enabled, boolean(value)),
    },
    Honoured {
        name: "drop_keyspace_enabled",
        default: "true",
        note: "whether DROP KEYSPACE is allowed",
        apply: |config, value| set(&mut config.guardrails.flags.drop_keyspace_enabled, boolean(value)),
    },
    Honoured {
        name: "read_before_write_list_operations_enabled",
        default: "true",
        note: "whether list elements may be set or deleted by position, or deleted by value",
        apply: |config, value| {
            set(&mut config.guardrails.flags.read_before_write_list_operations_enabled, boolean(value))
        },
    },
    Honoured {
        name: "allow_filtering_enabled",
        default: "true",
        note: "whether ALLOW FILTERING is allowed for tables of users",
        apply: |config, value| set(&mut config.guardrails.flags.allow_filtering_enabled, boolean(value)),
    },
    Honoured {
        name: "simplestrategy_enabled",
        default: "true",
        note: "whether keyspaces may use SimpleStrategy",
        apply: |config, value| set(&mut config.guardrails.flags.simplestrategy_enabled, boolean(value)),
    },
    Honoured {
        name: "use_statements_enabled",
        default: "true",
        note: "whether USE is allowed",
        apply: |config, value| set(&mut config.guardrails.flags.use_statements_enabled, boolean(value)),
    },
    Honoured {
        name: "statement_memory_limit",
        default: "256MiB",
        note: "Espalier's own: the memory that one statement may use at a time, 1MiB or more, for rows of its \
               answer, rows to be sorted, and values of groups. A statement that would use more fails",
        apply: |config, value| {
            set(&mut config.statement_memory_max_bytes, size_in(value, STATEMENT_BYTES, "of 1MiB or more"))
        },
    },
    Honoured {
        name: "page_size_limit",
        default: "16MiB",
        note: "Espalier's own: a page ends with the row that makes it reach this size, 1KiB to 256MiB, however many \
               rows the client asked for",
        apply: |config, value| set(&mut config.page_max_bytes, size_in(value, PAGE_BYTES, "of 1KiB to 256MiB")),
    },
    Honoured {
        name: "read_thresholds_enabled",
        default: "false",
        note: "whether the following four thresholds of reads are in force",
        apply: |config, value| set(&mut config.read_thresholds_enabled, boolean(value)),
    },
    Honoured {
        name: "coordinator_read_size_warn_threshold",
        default: "",
        note: "a statement that returns more bytes of values causes a warning",
        apply: |config, value| {
            set(&mut config.guardrails.read_thresholds.coordinator.warn, size_bytes(value).map(Some))
        },
    },
    Honoured {
        name: "coordinator_read_size_fail_threshold",
        default: "",
        note: "a statement that would return more bytes of values fails",
        apply: |config, value| {
            set(&mut config.guardrails.read_thresholds.coordinator.fail, size_bytes(value).map(Some))
        },
    },
    Honoured {
        name: "local_read_size_warn_threshold",
        default: "",
        note: "a read that takes more bytes of stored keys and rows from memtables and SSTables causes a warning",
        apply: |config, value| set(&mut config.guardrails.read_thresholds.local.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "local_read_size_fail_threshold",
        default: "",
        note: "a read that takes more of these bytes fails",
        apply: |config, value| set(&mut config.guardrails.read_thresholds.local.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "tombstone_warn_threshold",
        default: "1000",
        note: "a read that finds more tombstones causes a warning",
        apply: |config, value| set(&mut config.tombstone_warn_threshold, number(value)),
    },
    Honoured {
        name: "tombstone_failure_threshold",
        default: "100000",
        note: "a read that finds more tombstones fails",
        apply: |config, value| set(&mut config.tombstone_failure_threshold, number(value)),
    },
    Honoured {
        name: "batch_size_warn_threshold",
        default: "5KiB",
        note: "a larger batch causes a warning",
        apply: |config, value| set(&mut config.batch_size_warn_threshold_bytes, size_bytes(value)),
    },
    Honoured {
        name: "batch_size_fail_threshold",
        default: "50KiB",
        note: "a larger batch is refused",
        apply: |config, value| set(&mut config.batch_size_fail_threshold_bytes, size_bytes(value)),
    },
    Honoured {
        name: "unlogged_batch_across_partitions_warn_threshold",
        default: "10",
        note: "an unlogged batch over more partitions causes a warning",
        apply: |config, value| set(&mut config.unlogged_batch_across_partitions_warn_threshold, number(value)),
    },
    Honoured {
        name: "secondary_indexes_enabled",
        default: "true",
        note: "whether CREATE INDEX is allowed",
        apply: |config, value| set(&mut config.guardrails.flags.secondary_indexes_enabled, boolean(value)),
    },
    Honoured {
        name: "sai_string_term_size_warn_threshold",
        default: "",
        note: "a written value with a storage-attached index that has more bytes causes a warning (`1KiB` in Cassandra, \
               which applies no guardrail without authentication). Vectors, frozen collections, tuples and user types \
               have thresholds of their own",
        apply: |config, value| set(&mut config.guardrails.sai_string_term_size.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "sai_string_term_size_fail_threshold",
        default: "",
        note: "such a value with more bytes is refused (`8KiB` in Cassandra)",
        apply: |config, value| set(&mut config.guardrails.sai_string_term_size.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "sai_frozen_term_size_warn_threshold",
        default: "",
        note: "the same warning for frozen collections, tuples and user types (`1KiB` in Cassandra)",
        apply: |config, value| set(&mut config.guardrails.sai_frozen_term_size.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "sai_frozen_term_size_fail_threshold",
        default: "",
        note: "such a value with more bytes is refused (`8KiB` in Cassandra)",
        apply: |config, value| set(&mut config.guardrails.sai_frozen_term_size.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "sai_vector_term_size_warn_threshold",
        default: "",
        note: "the same warning for vectors (`16KiB` in Cassandra)",
        apply: |config, value| set(&mut config.guardrails.sai_vector_term_size.warn, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "sai_vector_term_size_fail_threshold",
        default: "",
        note: "a vector with more bytes is refused (`32KiB` in Cassandra)",
        apply: |config, value| set(&mut config.guardrails.sai_vector_term_size.fail, size_bytes(value).map(Some)),
    },
    Honoured {
        name: "sai_sstable_indexes_per_query_warn_threshold",
        default: "32",
        note: "a SELECT without a partition that reads the files of a storage-attached index of more SSTables causes a \
               warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.sai_sstable_indexes_per_query.warn, threshold(value)),
    },
    Honoured {
        name: "sai_sstable_indexes_per_query_fail_threshold",
        default: "-1",
        note: "a SELECT that would read more of them fails; -1 means never",
        apply: |config, value| set(&mut config.guardrails.sai_sstable_indexes_per_query.fail, threshold(value)),
    },
    Honoured {
        name: "compact_tables_enabled",
        default: "true",
        note: "whether CREATE TABLE with COMPACT STORAGE is allowed",
        apply: |config, value| set(&mut config.guardrails.flags.compact_tables_enabled, boolean(value)),
    },
    Honoured {
        name: "non_partition_restricted_index_query_enabled",
        default: "true",
        note: "whether a SELECT that uses an index may do without the partition key",
        apply: |config, value| {
            set(&mut config.guardrails.flags.non_partition_restricted_index_query_enabled, boolean(value))
        },
    },
    Honoured {
        name: "default_keyspace_rf",
        default: "1",
        note: "the replicas of a keyspace whose options name no number",
        apply: |config, value| set(&mut config.guardrails.default_keyspace_rf, number(value).map(Some)),
    },
    Honoured {
        name: "vector_type_enabled",
        default: "true",
        note: "whether new columns and fields may be vectors",
        apply: |config, value| set(&mut config.guardrails.flags.vector_type_enabled, boolean(value)),
    },
    Honoured {
        name: "vector_dimensions_warn_threshold",
        default: "-1",
        note: "a vector of more dimensions in a new column or field causes a warning; -1 means never",
        apply: |config, value| set(&mut config.guardrails.vector_dimensions.warn, threshold(value)),
    },
    Honoured {
        name: "vector_dimensions_fail_threshold",
        default: "-1",
        note: "a vector of more dimensions in a new column or field is refused; -1 means never",
        apply: |config, value| set(&mut config.guardrails.vector_dimensions.fail, threshold(value)),
    },
    Honoured {
        name: "table_properties_warned",
        default: "[]",
        note: "the properties of CREATE TABLE and ALTER TABLE that cause a warning",
        apply: |config, value| set(&mut config.guardrails.table_properties.warned, properties(value)),
    },
    Honoured {
        name: "table_properties_ignored",
        default: "[]",
        note: "the properties of CREATE TABLE and ALTER TABLE that are ignored with a warning",
        apply: |config, value| set(&mut config.guardrails.table_properties.ignored, properties(value)),
    },
    Honoured {
        name: "table_properties_disallowed",
        default: "[]",
        note: "the properties of CREATE TABLE and ALTER TABLE that are refused",
        apply: |config, value| set(&mut config.guardrails.table_properties.disallowed, properties(value)),
    },
    Honoured {
        name: "read_consistency_levels_warned",
        default: "[]",
        note: "the consistency levels of reads that cause a warning",
        apply: |config, value| set(&mut config.guardrails.read_consistency_levels.warned, levels(value)),
    },
    Honoured {
        name: "read_consistency_levels_disallowed",
        default: "[]",
        note: "the consistency levels of reads that are refused",
        apply: |config, value| set(&mut config.guardrails.read_consistency_levels.disallowed, levels(value)),
    },
    Honoured {
        name: "write_consistency_levels_warned",
        default: "[]",
        note: "the consistency levels of writes that cause a warning; the serial level of each write counts, with or without a condition",
        apply: |config, value| set(&mut config.guardrails.write_consistency_levels.warned, levels(value)),
    },
    Honoured {
        name: "write_consistency_levels_disallowed",
        default: "[]",
        note: "the consistency levels of writes that are refused; the serial level of each write counts, with or without a condition",
        apply: |config, value| set(&mut config.guardrails.write_consistency_levels.disallowed, levels(value)),
    },
];
