//! Keys whose effect a client sees in the answer to a statement.

use super::Case;

const INSERT: &str = "INSERT INTO ks.t (k, c, v, l) VALUES (1, 1, 'xxxxx', [1, 2, 3])";
const KEYSPACE: &str = "CREATE KEYSPACE b WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}";
const TWCS: &str = "CREATE TABLE ks.w (k int PRIMARY KEY) WITH compaction = {'class': 'TimeWindowCompactionStrategy'}";
const INDEXED: [&str; 2] = ["CREATE INDEX ON ks.t (c)", "CREATE INDEX ON ks.t (v)"];
const FUTURE: &str = "INSERT INTO ks.t (k, c) VALUES (1, 1) USING TIMESTAMP 4102444800000000";
const PAST: &str = "INSERT INTO ks.t (k, c) VALUES (1, 1) USING TIMESTAMP 1";
const TWO_ROWS: [&str; 3] =
    ["INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{300}')", "INSERT INTO ks.t (k, c, v) VALUES (1, 2, '{300}')", READ];
const READ: &str = "SELECT * FROM ks.t WHERE k = 1";
const TOMBSTONES: [&str; 3] =
    ["DELETE FROM ks.t WHERE k = 1 AND c = 1", "DELETE FROM ks.t WHERE k = 1 AND c = 2", READ];
const BATCH: &str = "BEGIN UNLOGGED BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{300}'); \
                     INSERT INTO ks.t (k, c) VALUES (2, 1); APPLY BATCH";
const ATTACHED: &str = "CREATE INDEX ON ks.t (v) USING 'sai'";
const FROZEN: [&str; 2] =
    ["CREATE INDEX ON ks.u (full(f)) USING 'sai'", "INSERT INTO ks.u (k, f) VALUES (1, ['xxxxx'])"];
const VECTOR: [&str; 2] = ["CREATE INDEX ON ks.u (e) USING 'sai'", "INSERT INTO ks.u (k, e) VALUES (1, [1, 2, 3])"];
const TWO_FILES: [&str; 6] = [ATTACHED, INSERT, "FLUSH", INSERT, "FLUSH", "SELECT k FROM ks.t WHERE v = 'xxxxx'"];
const COMMENTED: &str = "CREATE TABLE ks.w (k int PRIMARY KEY) WITH comment = 'x'";
const READS_ON: &[(&str, &str)] = &[("read_thresholds_enabled", "true")];

pub(super) const CASES: &[Case] = &[
    // Keys of requests.
    Case::answer(
        "partition_keys_in_select_warn_threshold",
        "1",
        &["SELECT * FROM ks.t WHERE k IN (1, 2)"],
        "with number of partition keys 2 exceeds warning threshold of 1",
    ),
    Case::answer(
        "partition_keys_in_select_fail_threshold",
        "1",
        &["SELECT * FROM ks.t WHERE k IN (1, 2)"],
        "number of partition keys 2 exceeds fail threshold of 1",
    ),
    Case::answer(
        "in_select_cartesian_product_warn_threshold",
        "1",
        &["SELECT * FROM ks.t WHERE k = 1 AND c IN (1, 2)"],
        "produces 2 values, this exceeds warning threshold of 1",
    ),
    Case::answer(
        "in_select_cartesian_product_fail_threshold",
        "1",
        &["SELECT * FROM ks.t WHERE k = 1 AND c IN (1, 2)"],
        "produces 2 values, this exceeds fail threshold of 1",
    ),
    Case::answer("page_size_warn_threshold", "10", &[READ], "with page size 20 exceeds warning threshold of 10"),
    Case::answer("page_size_fail_threshold", "10", &[READ], "page size 20 exceeds fail threshold of 10"),
    Case::answer("user_timestamps_enabled", "false", &[PAST], "(USING TIMESTAMP) is not allowed"),
    Case::answer("group_by_enabled", "false", &["SELECT k FROM ks.t GROUP BY k"], "GROUP BY functionality is not"),
    Case::answer("allow_filtering_enabled", "false", &["SELECT * FROM ks.t WHERE v = '' ALLOW FILTERING"], "error: G"),
    Case::answer("use_statements_enabled", "false", &["USE ks"], "USE statements prohibited"),
    Case::answer(
        "read_before_write_list_operations_enabled",
        "false",
        &[INSERT, "UPDATE ks.t SET l[0] = 1 WHERE k = 1 AND c = 1"],
        "List operation requiring read before write is not allowed",
    ),
    Case::answer(
        "read_consistency_levels_warned",
        "[ONE]",
        &[READ],
        "[ONE] are not recommended for read consistency levels",
    ),
    Case::answer(
        "read_consistency_levels_disallowed",
        "[ONE]",
        &[READ],
        "[ONE] are not allowed for read consistency levels",
    ),
    Case::answer(
        "write_consistency_levels_warned",
        "[ONE]",
        &[INSERT],
        "[ONE] are not recommended for write consistency levels",
    ),
    Case::answer(
        "write_consistency_levels_disallowed",
        "[ONE]",
        &[INSERT],
        "[ONE] are not allowed for write consistency levels",
    ),
    // Keys of the schema.
    Case::answer("keyspaces_warn_threshold", "1", &[KEYSPACE], "number of keyspaces 2 exceeds warning threshold of 1"),
    Case::answer("keyspaces_fail_threshold", "1", &[KEYSPACE], "Cannot have more than 1 keyspaces"),
    Case::answer("tables_warn_threshold", "2", &[COMMENTED], "number of tables 3 exceeds warning threshold of 2"),
    Case::answer("tables_fail_threshold", "2", &[COMMENTED], "Cannot have more than 2 tables"),
    Case::answer(
        "columns_per_table_warn_threshold",
        "4",
        &["ALTER TABLE ks.t ADD x int"],
        "the warning threshold of 4",
    ),
    Case::answer(
        "columns_per_table_fail_threshold",
        "4",
        &["ALTER TABLE ks.t ADD x int"],
        "more than 4 columns, but 5",
    ),
    Case::answer(
        "secondary_indexes_per_table_warn_threshold",
        "1",
        &INDEXED,
        "indexes 2 exceeds warning threshold of 1",
    ),
    Case::answer("secondary_indexes_per_table_fail_threshold", "1", &INDEXED, "more than 1 secondary indexes"),
    Case::answer("fields_per_udt_warn_threshold", "1", &["CREATE TYPE ks.w (a int, b int)"], "warning threshold of 1"),
    Case::answer(
        "fields_per_udt_fail_threshold",
        "1",
        &["CREATE TYPE ks.w (a int, b int)"],
        "more than 1 columns, but 2",
    ),
    Case::answer("minimum_replication_factor_warn_threshold", "3", &[KEYSPACE], "below the warning threshold of 3"),
    Case::answer("minimum_replication_factor_fail_threshold", "3", &[KEYSPACE], "below the failure threshold of 3")
        .with(&[("default_keyspace_rf", "3")]),
    Case::answer("maximum_replication_factor_warn_threshold", "1", &[KEYSPACE], "above the warning threshold of 1"),
    Case::answer("maximum_replication_factor_fail_threshold", "1", &[KEYSPACE], "above the failure threshold of 1"),
    Case::answer(
        "default_keyspace_rf",
        "3",
        &["CREATE KEYSPACE b WITH replication = {'class': 'SimpleStrategy'}"],
        "Your replication factor 3",
    ),
    Case::answer("simplestrategy_enabled", "false", &[KEYSPACE], "SimpleStrategy is not allowed"),
    Case::answer(
        "uncompressed_tables_enabled",
        "false",
        &["CREATE TABLE ks.w (k int PRIMARY KEY) WITH compression = {'enabled': false}"],
        "Uncompressed table is not allowed",
    ),
    Case::answer("zero_ttl_on_twcs_enabled", "false", &[TWCS], "is not allowed. It is suspicious"),
    Case::answer("zero_ttl_on_twcs_warned", "true", &[TWCS], "is not recommended. It is suspicious"),
    Case::answer("alter_table_enabled", "false", &["ALTER TABLE ks.t ADD x int"], "column mutation is not allowed"),
    Case::answer("drop_truncate_table_enabled", "false", &["TRUNCATE ks.t"], "TRUNCATE TABLE functionality is not"),
    Case::answer("drop_keyspace_enabled", "false", &["DROP KEYSPACE ks"], "DROP KEYSPACE functionality is not"),
    Case::answer("secondary_indexes_enabled", "false", &INDEXED, "Creating secondary indexes is not allowed"),
    Case::answer(
        "compact_tables_enabled",
        "false",
        &["CREATE TABLE ks.w (k int PRIMARY KEY, v int) WITH COMPACT STORAGE"],
        "Creation of new COMPACT STORAGE tables is not allowed",
    ),
    Case::answer(
        "vector_type_enabled",
        "false",
        &["ALTER TABLE ks.t ADD x vector<float, 3>"],
        "Column x is not allowed",
    ),
    Case::answer(
        "vector_dimensions_warn_threshold",
        "2",
        &["ALTER TABLE ks.t ADD x vector<float, 3>"],
        "3 dimensions, this exceeds the warning threshold of 2",
    ),
    Case::answer(
        "vector_dimensions_fail_threshold",
        "2",
        &["ALTER TABLE ks.t ADD x vector<float, 3>"],
        "3 dimensions, this exceeds the failure threshold of 2",
    ),
    Case::answer("table_properties_warned", "[comment]", &[COMMENTED], "[comment] are not recommended"),
    Case::answer("table_properties_ignored", "[comment]", &[COMMENTED], "Ignoring provided values [comment]"),
    Case::answer("table_properties_disallowed", "[comment]", &[COMMENTED], "[comment] are not allowed"),
    Case::answer("default_secondary_index_enabled", "false", &INDEXED, "error: "),
    Case::answer(
        "default_secondary_index",
        "sai",
        &[INDEXED[0], "SELECT options FROM system_schema.indexes WHERE keyspace_name = 'ks'"],
        "sai",
    ),
    Case::answer(
        "sasi_indexes_enabled",
        "true",
        &["CREATE INDEX ON ks.t (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'"],
        "SchemaChange",
    ),
    Case::answer(
        "dynamic_data_masking_enabled",
        "true",
        &["CREATE TABLE ks.w (k int PRIMARY KEY, v text MASKED WITH mask_default())"],
        "SchemaChange",
    ),
    Case::answer(
        "drop_compact_storage_enabled",
        "true",
        &["CREATE TABLE ks.w (k int PRIMARY KEY, v int) WITH COMPACT STORAGE", "ALTER TABLE ks.w DROP COMPACT STORAGE"],
        "SchemaChange",
    ),
    Case::answer(
        "memtable",
        "{configurations: {default: {class_name: SkipListMemtable}}}",
        &["CREATE TABLE ks.w (k int PRIMARY KEY) WITH memtable = 'skiplist'"],
        "error: ",
    ),
    // Keys of writes.
    Case::answer(
        "column_value_size_warn_threshold",
        "4B",
        &[INSERT],
        "size 5, this exceeds the warning threshold of 4",
    ),
    Case::answer(
        "column_value_size_fail_threshold",
        "4B",
        &[INSERT],
        "size 5, this exceeds the failure threshold of 4",
    ),
    Case::answer("collection_size_warn_threshold", "1B", &[INSERT], "collection l of size"),
    Case::answer("collection_size_fail_threshold", "1B", &[INSERT], "error: Guardrail collection_size"),
    Case::answer("items_per_collection_warn_threshold", "2", &[INSERT], "3 items, this exceeds the warning threshold"),
    Case::answer("items_per_collection_fail_threshold", "2", &[INSERT], "3 items, this exceeds the failure threshold"),
    Case::answer("maximum_timestamp_warn_threshold", "1h", &[FUTURE], "after the maximum allowable warning threshold"),
    Case::answer("maximum_timestamp_fail_threshold", "1h", &[FUTURE], "after the maximum allowable failure threshold"),
    Case::answer("minimum_timestamp_warn_threshold", "1h", &[PAST], "before the minimum allowable warning threshold"),
    Case::answer("minimum_timestamp_fail_threshold", "1h", &[PAST], "before the minimum allowable failure threshold"),
    Case::answer("batch_size_warn_threshold", "200B", &[BATCH], "exceeding specified threshold of 200"),
    Case::answer("batch_size_fail_threshold", "200B", &[BATCH], "error: Batch too large")
        .with(&[("batch_size_warn_threshold", "100B")]),
    Case::answer(
        "unlogged_batch_across_partitions_warn_threshold",
        "1",
        &[BATCH],
        "Unlogged batch covering 2 partitions",
    ),
    Case::answer("sai_string_term_size_warn_threshold", "4B", &[ATTACHED, INSERT], "the warning threshold of 4"),
    Case::answer("sai_string_term_size_fail_threshold", "4B", &[ATTACHED, INSERT], "the failure threshold of 4"),
    Case::answer("sai_frozen_term_size_warn_threshold", "4B", &FROZEN, "the warning threshold of 4"),
    Case::answer("sai_frozen_term_size_fail_threshold", "4B", &FROZEN, "the failure threshold of 4"),
    Case::answer("sai_vector_term_size_warn_threshold", "4B", &VECTOR, "the warning threshold of 4"),
    Case::answer("sai_vector_term_size_fail_threshold", "4B", &VECTOR, "the failure threshold of 4"),
    // Keys of reads.
    Case::answer("sai_sstable_indexes_per_query_warn_threshold", "1", &TWO_FILES, "sai_sstable_indexes_per_query"),
    Case::answer("sai_sstable_indexes_per_query_fail_threshold", "1", &TWO_FILES, "error: "),
    Case::answer(
        "non_partition_restricted_index_query_enabled",
        "false",
        &[ATTACHED, "SELECT k FROM ks.t WHERE v = ''"],
        "Non-partition key restricted query is not allowed",
    ),
    Case::answer("statement_memory_limit", "1MiB", &LARGE, "statement_memory_limit"),
    Case::answer("page_size_limit", "1KiB", &PAGED, "and more"),
    Case::answer("coordinator_read_size_warn_threshold", "1B", &TWO_ROWS, "the size warning threshold").with(READS_ON),
    Case::answer("coordinator_read_size_fail_threshold", "1B", &TWO_ROWS, "error: ").with(READS_ON),
    Case::answer("local_read_size_warn_threshold", "1B", &TWO_ROWS, "local_read_size").with(READS_ON),
    Case::answer("local_read_size_fail_threshold", "1B", &TWO_ROWS, "error: ").with(READS_ON),
    Case::answer("read_thresholds_enabled", "true", &TWO_ROWS, "the size warning threshold")
        .with(&[("coordinator_read_size_warn_threshold", "1B")]),
    Case::answer("tombstone_warn_threshold", "1", &TOMBSTONES, "2 tombstone cells"),
    Case::answer("tombstone_failure_threshold", "1", &TOMBSTONES, "error: "),
    Case::answer("sai_options.prioritize_over_legacy_index", "true", &BOTH, "2 rows"),
];

const LARGE: [&str; 6] = [
    "INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{300k}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 2, '{300k}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 3, '{300k}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 4, '{300k}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 5, '{300k}')",
    READ,
];

const PAGED: [&str; 6] = [
    "INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{300}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 2, '{300}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 3, '{300}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 4, '{300}')",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 5, '{300}')",
    READ,
];

/// A storage-attached index that does not tell case apart, beside a plain one of the same column.
const BOTH: [&str; 5] = [
    "CREATE INDEX ON ks.t (v)",
    "CREATE INDEX ON ks.t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 1, 'a')",
    "INSERT INTO ks.t (k, c, v) VALUES (2, 1, 'A')",
    "SELECT * FROM ks.t WHERE v = 'a'",
];
