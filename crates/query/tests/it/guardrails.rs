//! Guardrails that warn and that refuse.

use query::{
    CONSISTENCY_LEVELS, Consistency, Flags, Guardrail, Guardrails, ProcessorOptions, QueryOptions, TABLE_PROPERTIES,
    ValueGuardrail, ValueSet,
};

use crate::node::TestNode;

fn with_guardrails(guardrails: Guardrails) -> ProcessorOptions {
    ProcessorOptions { guardrails, ..ProcessorOptions::default() }
}

/// A node with these guardrails and the keyspace `ks`.
fn node_with(guardrails: Guardrails) -> TestNode {
    TestNode::with_options(with_guardrails(guardrails)).with_keyspace()
}

#[test]
fn many_partitions_and_many_combinations_warn_and_then_fail() {
    let guardrail = Guardrail { warn: Some(1), fail: Some(2) };
    let node = node_with(Guardrails { partition_keys_in_select: guardrail, ..Guardrails::default() });
    node.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))");
    let warnings = |statement: &str| node.try_run(statement, &QueryOptions::default()).unwrap().warnings;
    assert_eq!(warnings("SELECT * FROM t WHERE k = 1"), Vec::<String>::new());
    assert_eq!(
        warnings("SELECT * FROM t WHERE k IN (1, 2)"),
        [
            "Guardrail partition_keys_in_select violated: Query with partition keys in IN clause on table t, with number of partition keys 2 exceeds warning threshold of 1."
        ]
    );
    assert_eq!(
        node.failure("SELECT * FROM t WHERE k IN (1, 2, 3)"),
        "Guardrail partition_keys_in_select violated: Aborting query with partition keys in IN clause on table t, number of partition keys 3 exceeds fail threshold of 2."
    );

    let node = node_with(Guardrails { in_select_cartesian_product: guardrail, ..Guardrails::default() });
    node.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))");
    assert_eq!(
        node.failure("SELECT * FROM t WHERE k = 1 AND c IN (1, 2, 3)"),
        "Guardrail in_select_cartesian_product violated: Aborting query because the cartesian product of the IN restrictions on clustering key produces 3 values, this exceeds fail threshold of 2."
    );
}

#[test]
fn sizes_of_the_schema_and_of_pages_warn_and_then_fail() {
    let limit = |warn, fail| Guardrail { warn: Some(warn), fail: Some(fail) };
    let node = node_with(Guardrails {
        keyspaces: limit(1, 2),
        tables: limit(1, 2),
        columns_per_table: limit(2, 3),
        fields_per_udt: limit(1, 2),
        page_size: limit(10, 20),
        ..Guardrails::default()
    });
    let keyspace = |name: &str| {
        format!("CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    };
    let warned = |statement: &str, warning: &str| {
        assert_eq!(node.run(statement).warnings, [format!("Guardrail {warning}")], "{statement}");
    };
    let failed = |statement: &str, failure: &str| {
        assert_eq!(node.failure(statement), format!("Guardrail {failure}"), "{statement}");
    };
    warned(
        &keyspace("b"),
        "keyspaces violated: Creating keyspace b, current number of keyspaces 2 exceeds warning threshold of 1.",
    );
    failed(
        &keyspace("c"),
        "keyspaces violated: Cannot have more than 2 keyspaces, aborting the creation of keyspace c",
    );
    node.run("CREATE TABLE t (k int PRIMARY KEY, a int)");
    warned(
        "CREATE TABLE b.u (k int PRIMARY KEY, a int)",
        "tables violated: Creating table u, current number of tables 2 exceeds warning threshold of 1.",
    );
    failed(
        "CREATE TABLE v (k int PRIMARY KEY, a int)",
        "tables violated: Cannot have more than 2 tables, aborting the creation of table v",
    );
    warned(
        "ALTER TABLE t ADD b int",
        "columns_per_table violated: The table t has 3 columns, this exceeds the warning threshold of 2.",
    );
    failed(
        "ALTER TABLE t ADD c int",
        "columns_per_table violated: Tables cannot have more than 3 columns, but 4 provided for table t",
    );
    warned(
        "CREATE TYPE w (a int, b int)",
        "fields_per_udt violated: The user type w has 2 columns, this exceeds the warning threshold of 1.",
    );
    failed(
        "ALTER TYPE w ADD c int",
        "fields_per_udt violated: User types cannot have more than 2 columns, but 3 provided for user type w.",
    );
    let paged =
        |size| node.try_run("SELECT * FROM t", &QueryOptions { page_size: Some(size), ..QueryOptions::default() });
    assert_eq!(paged(10).unwrap().warnings, Vec::<String>::new());
    assert_eq!(
        paged(11).unwrap().warnings,
        ["Guardrail page_size violated: Query for table t with page size 11 exceeds warning threshold of 10."]
    );
    assert_eq!(
        paged(21).unwrap_err().message,
        "Guardrail page_size violated: Aborting query for table t, page size 21 exceeds fail threshold of 20."
    );
}

#[test]
fn an_index_without_a_partition_is_not_used_where_that_is_not_allowed() {
    let flags = Flags { non_partition_restricted_index_query_enabled: false, ..Flags::default() };
    let node = node_with(Guardrails { flags, ..Guardrails::default() });
    node.run("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))");
    node.run("CREATE INDEX ON t (v)");
    node.run("SELECT * FROM t WHERE v = 1 AND k = 1");
    node.run("SELECT * FROM t WHERE c = 1 ALLOW FILTERING");
    let refused = "Guardrail non_partition_restricted_index_query_enabled violated: Non-partition key restricted query is not allowed";
    assert_eq!(node.failure("SELECT * FROM t WHERE v = 1"), refused);
    assert_eq!(node.failure("SELECT * FROM t WHERE v = 1 AND token(k) > 0"), refused);
}

#[test]
fn a_keyspace_that_names_no_number_of_replicas_has_that_of_the_configuration() {
    let node =
        TestNode::with_options(with_guardrails(Guardrails { default_keyspace_rf: Some(3), ..Guardrails::default() }));
    for (name, class) in [("a", "SimpleStrategy"), ("b", "NetworkTopologyStrategy")] {
        let response = node.run(&format!("CREATE KEYSPACE {name} WITH replication = {{'class': '{class}'}}"));
        assert!(response.warnings[0].contains("Your replication factor 3"), "{:?}", response.warnings);
    }
    let rows =
        node.rows("SELECT keyspace_name, replication FROM system_schema.keyspaces WHERE keyspace_name IN ('a', 'b')");
    assert!(rows.iter().all(|row| row.contains("'3'")), "{rows:?}");
}

#[test]
fn statements_that_are_not_allowed_are_refused() {
    let none = Flags {
        user_timestamps_enabled: false,
        alter_table_enabled: false,
        group_by_enabled: false,
        drop_truncate_table_enabled: false,
        drop_keyspace_enabled: false,
        read_before_write_list_operations_enabled: false,
        allow_filtering_enabled: false,
        simplestrategy_enabled: true,
        use_statements_enabled: false,
        ..Flags::default()
    };
    let node = node_with(Guardrails { flags: none, ..Guardrails::default() });
    node.run("CREATE TABLE t (k int, c int, v int, l list<int>, PRIMARY KEY (k, c))");
    let timestamps = "Guardrail user_timestamps violated: User provided timestamps (USING TIMESTAMP) is not allowed";
    let drops = "Guardrail drop_truncate_table_enabled violated: DROP and TRUNCATE TABLE functionality is not allowed";
    for (statement, failure) in [
        ("INSERT INTO t (k, c) VALUES (1, 1) USING TIMESTAMP 1", timestamps),
        ("BEGIN BATCH DELETE FROM t USING TIMESTAMP 1 WHERE k = 1; APPLY BATCH", timestamps),
        (
            "ALTER TABLE t ADD x int",
            "Guardrail alter_table violated: User access to ALTER TABLE statement for column mutation is not allowed",
        ),
        ("SELECT k FROM t GROUP BY k", "Guardrail group_by violated: GROUP BY functionality is not allowed"),
        ("DROP TABLE t", drops),
        ("TRUNCATE t", drops),
        ("DROP KEYSPACE ks", "Guardrail drop_keyspace_enabled violated: DROP KEYSPACE functionality is not allowed"),
        (
            "UPDATE t SET l[0] = 1 WHERE k = 1 AND c = 1",
            "Guardrail read_before_write_list_operations violated: List operation requiring read before write is not allowed",
        ),
        (
            "SELECT * FROM t WHERE v = 1 ALLOW FILTERING",
            "Guardrail allow_filtering violated: Querying with ALLOW FILTERING is not allowed. ALLOW FILTERING can potentially visit all the data in the table and have unpredictable performance.",
        ),
        ("USE ks", "USE statements prohibited. (see use_statements_enabled in cassandra.yaml)"),
    ] {
        assert_eq!(node.failure(statement), failure, "{statement}");
    }
    node.run("INSERT INTO t (k, c) VALUES (1, 1)");
    node.run("ALTER TABLE t WITH comment = 'x'");
    node.run("SELECT * FROM t");
    node.run("SELECT * FROM system.local WHERE cluster_name = 'x' ALLOW FILTERING");

    let no_simple = Flags { simplestrategy_enabled: false, ..Flags::default() };
    let node = TestNode::with_options(with_guardrails(Guardrails { flags: no_simple, ..Guardrails::default() }));
    assert_eq!(
        node.failure("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"),
        "Guardrail simplestrategy violated: SimpleStrategy is not allowed"
    );
}

#[test]
fn written_values_and_collections_warn_and_then_fail() {
    let limit = |warn, fail| Guardrail { warn: Some(warn), fail: Some(fail) };
    let node = node_with(Guardrails {
        column_value_size: limit(20, 30),
        collection_size: limit(80, 140),
        items_per_collection: limit(2, 3),
        ..Guardrails::default()
    });
    node.run("CREATE TABLE t (k int PRIMARY KEY, v text, l list<int>, m map<text, int>, f frozen<set<int>>)");
    let warned = |statement: &str, warning: &str| {
        assert_eq!(node.run(statement).warnings, [format!("Guardrail {warning}")], "{statement}");
    };
    let failed = |statement: &str, failure: &str| {
        assert_eq!(node.failure(statement), format!("Guardrail {failure}"), "{statement}");
    };
    let text = |length: usize| "x".repeat(length);
    assert_eq!(
        node.run(&format!("INSERT INTO t (k, v, l) VALUES (1, '{}', [1, 2])", text(20))).warnings,
        Vec::<String>::new()
    );
    warned(
        &format!("INSERT INTO t (k, v) VALUES (1, '{}')", text(21)),
        "column_value_size violated: Value of column 'v' has size 21, this exceeds the warning threshold of 20.",
    );
    failed(
        &format!("UPDATE t SET v = '{}' WHERE k = 1", text(31)),
        "column_value_size violated: Value of column 'v' has size 31, this exceeds the failure threshold of 30.",
    );
    failed(
        &format!("UPDATE t SET m['{}'] = 1 WHERE k = 1", text(31)),
        "column_value_size violated: Value of column 'm' has size 31, this exceeds the failure threshold of 30.",
    );
    failed(
        &format!("INSERT INTO t JSON '{{\"k\": 1, \"v\": \"{}\"}}'", text(31)),
        "column_value_size violated: Value of column 'v' has size 31, this exceeds the failure threshold of 30.",
    );
    failed(
        "UPDATE t SET l = l + [1, 2, 3, 4] WHERE k = 1",
        "items_per_collection violated: Detected collection l with 4 items, this exceeds the failure threshold of 3.",
    );
    failed(
        "INSERT INTO t (k, f) VALUES (1, {1, 2, 3, 4})",
        "items_per_collection violated: Detected collection f with 4 items, this exceeds the failure threshold of 3.",
    );
    // Each entry is a cell of 20 bytes, its key and its value.
    warned(
        &format!("UPDATE t SET m = m + {{'{}': 1, '{}': 2}} WHERE k = 1", text(20), "y".repeat(20)),
        "collection_size violated: Detected collection m of size 88, this exceeds the warning threshold of 80.",
    );
}

#[test]
fn timestamps_far_from_the_clock_warn_and_then_fail() {
    const HOUR: u64 = 3_600_000_000;
    let limit = Guardrail { warn: Some(HOUR), fail: Some(2 * HOUR) };
    let node = node_with(Guardrails { maximum_timestamp: limit, minimum_timestamp: limit, ..Guardrails::default() });
    node.run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    let insert = |timestamp: i64| format!("INSERT INTO t (k, v) VALUES (1, 1) USING TIMESTAMP {timestamp}");
    let failure = node.failure(&insert(i64::MAX));
    assert!(
        failure.starts_with(&format!(
            "Guardrail maximum_timestamp violated: The modification to table t has a timestamp {} after the maximum allowable failure threshold ",
            i64::MAX
        )),
        "{failure}"
    );
    assert!(failure.ends_with(". Timestamps too far in the future can lead to data that can't be easily overwritten"));
    let failure = node.failure(&insert(1));
    assert!(
        failure.starts_with(
            "Guardrail minimum_timestamp violated: The modification to table t has a timestamp 1 before the minimum allowable failure threshold "
        ),
        "{failure}"
    );
    assert_eq!(node.run("INSERT INTO t (k, v) VALUES (1, 1)").warnings, Vec::<String>::new());
}

#[test]
fn replicas_compression_and_missing_ttls_warn_and_fail() {
    let limit = |warn, fail| Guardrail { warn: Some(warn), fail: Some(fail) };
    let flags = Flags { uncompressed_tables_enabled: false, zero_ttl_on_twcs_warned: true, ..Flags::default() };
    let node = node_with(Guardrails {
        minimum_replication_factor: limit(1, 1),
        maximum_replication_factor: limit(2, 3),
        flags,
        ..Guardrails::default()
    });
    let keyspace = |factor: u32| {
        format!(
            "CREATE KEYSPACE r{factor} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
        )
    };
    assert_eq!(
        node.failure(&keyspace(4)),
        "Guardrail maximum_replication_factor violated: The keyspace r4 has a replication factor of 4, above the failure threshold of 3."
    );
    assert_eq!(
        node.failure("CREATE TABLE t (k int PRIMARY KEY) WITH compression = {'enabled': false}"),
        "Guardrail uncompressed_tables_enabled violated: Uncompressed table is not allowed"
    );
    let windowed = "compaction = {'class': 'TimeWindowCompactionStrategy'}";
    let warnings = node.run(&format!("CREATE TABLE t (k int PRIMARY KEY) WITH {windowed}")).warnings;
    assert!(
        warnings[0].starts_with(
            "Guardrail zero_ttl_on_twcs violated: 0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy is not recommended. It is suspicious"
        ),
        "{warnings:?}"
    );
    let with_ttl = format!("CREATE TABLE u (k int PRIMARY KEY) WITH {windowed} AND default_time_to_live = 60");
    assert_eq!(node.run(&with_ttl).warnings, Vec::<String>::new());
}

fn levels(names: &[&'static str]) -> ValueSet {
    ValueSet::of(CONSISTENCY_LEVELS, names.iter().copied()).unwrap()
}

#[test]
fn consistency_levels_warn_or_are_refused_in_every_kind_of_statement() {
    let read_consistency_levels =
        ValueGuardrail { warned: levels(&["ONE"]), disallowed: levels(&["ANY", "SERIAL"]), ..Default::default() };
    let write_consistency_levels = ValueGuardrail {
        warned: levels(&["ONE", "SERIAL"]),
        disallowed: levels(&["LOCAL_SERIAL"]),
        ..Default::default()
    };
    let guardrails = Guardrails { read_consistency_levels, write_consistency_levels, ..Guardrails::default() };
    let node = node_with(guardrails);
    node.run("CREATE TABLE t (p int, c int, v text, PRIMARY KEY (p, c))");
    let at = |consistency| QueryOptions { consistency, ..QueryOptions::default() };
    let warnings = |statement: &str| node.try_run(statement, &at(Consistency::One)).unwrap().warnings;
    let read = "Guardrail read_consistency_levels violated: Provided values [ONE] are not recommended for read consistency levels (warned values are: [ONE])";
    let write = "Guardrail write_consistency_levels violated: Provided values [ONE, SERIAL] are not recommended for write consistency levels (warned values are: [ONE, SERIAL])";
    assert_eq!(warnings("SELECT * FROM t WHERE p = 1"), [read]);
    assert_eq!(warnings("SELECT * FROM t WHERE p = 1 AND c = 1"), [read]);
    for write_statement in [
        "INSERT INTO t (p, c, v) VALUES (1, 1, 'a')",
        "INSERT INTO t (p, c, v) VALUES (1, 1, 'a') IF NOT EXISTS",
        "BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 1, 'a'); DELETE FROM t WHERE p = 1 AND c = 2; APPLY BATCH",
        "BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 1, 'a') IF NOT EXISTS; DELETE FROM t WHERE p = 1 AND c = 2; APPLY BATCH",
    ] {
        assert_eq!(warnings(write_statement), [write], "{write_statement}");
    }
    let refused = |statement: &str, options: &QueryOptions<'_>| node.try_run(statement, options).unwrap_err().message;
    assert_eq!(
        refused("SELECT * FROM t WHERE p = 1 AND c = 1", &at(Consistency::Serial)),
        "Guardrail read_consistency_levels violated: Provided values [SERIAL] are not allowed for read consistency levels (disallowed values are: [ANY, SERIAL])"
    );
    assert_eq!(refused("SELECT * FROM t", &at(Consistency::Any)), "ANY ConsistencyLevel is only supported for writes");
    let local = QueryOptions { serial_consistency: Consistency::LocalSerial, ..QueryOptions::default() };
    for statement in
        ["UPDATE t SET v = 'b' WHERE p = 1 AND c = 1", "UPDATE t SET v = 'b' WHERE p = 1 AND c = 1 IF EXISTS"]
    {
        assert_eq!(
            refused(statement, &local),
            "Guardrail write_consistency_levels violated: Provided values [LOCAL_SERIAL] are not allowed for write consistency levels (disallowed values are: [LOCAL_SERIAL])"
        );
    }
    assert_eq!(node.rows("SELECT v FROM t WHERE p = 1 AND c = 1"), ["'a'"], "nothing was written");
}

#[test]
fn properties_of_tables_warn_are_ignored_or_are_refused() {
    let properties = |names: &[&'static str]| ValueSet::of(TABLE_PROPERTIES, names.iter().copied()).unwrap();
    let table_properties = ValueGuardrail {
        warned: properties(&["comment", "gc_grace_seconds"]),
        ignored: properties(&["bloom_filter_fp_chance", "speculative_retry"]),
        disallowed: properties(&["crc_check_chance", "read_repair"]),
    };
    let node = node_with(Guardrails { table_properties, ..Guardrails::default() });
    assert_eq!(node.run("CREATE TABLE t (p int PRIMARY KEY)").warnings, Vec::<String>::new());
    assert_eq!(
        node.run("CREATE TABLE t1 (p int PRIMARY KEY) WITH comment = 'x' AND gc_grace_seconds = 5").warnings,
        [
            "Guardrail table_properties violated: Provided values [comment, gc_grace_seconds] are not recommended for Table Properties (warned values are: [comment, gc_grace_seconds])"
        ]
    );
    assert_eq!(
        node.failure(
            "CREATE TABLE t2 (p int PRIMARY KEY) WITH crc_check_chance = 0.5 AND nonsense = 'x' AND comment = 'x'"
        ),
        "Guardrail table_properties violated: Provided values [crc_check_chance] are not allowed for Table Properties (disallowed values are: [crc_check_chance, read_repair])"
    );
    assert_eq!(
        node.run("ALTER TABLE t WITH bloom_filter_fp_chance = 0.3").warnings,
        [
            "Guardrail table_properties violated: Ignoring provided values [bloom_filter_fp_chance] as they are not supported for Table Properties (ignored values are: [bloom_filter_fp_chance, speculative_retry])"
        ]
    );
    let chance =
        "SELECT bloom_filter_fp_chance FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'";
    assert_eq!(node.rows(chance), ["0.01"]);
    assert_eq!(
        node.failure("ALTER TABLE t WITH read_repair = 'NONE'"),
        "Guardrail table_properties violated: Provided values [read_repair] are not allowed for Table Properties (disallowed values are: [crc_check_chance, read_repair])"
    );
}

#[test]
fn vectors_in_new_columns_and_fields_warn_and_then_fail() {
    let vector_dimensions = Guardrail { warn: Some(3), fail: Some(5) };
    let node = node_with(Guardrails { vector_dimensions, ..Guardrails::default() });
    let warning = |what: &str, dimensions: u32| {
        format!(
            "Guardrail vector_dimensions violated: {what} has a vector of {dimensions} dimensions, this exceeds the warning threshold of 3."
        )
    };
    let failure = |what: &str| {
        format!(
            "Guardrail vector_dimensions violated: {what} has a vector of 6 dimensions, this exceeds the failure threshold of 5."
        )
    };
    assert_eq!(node.run("CREATE TABLE v1 (p int PRIMARY KEY, v vector<float, 3>)").warnings, Vec::<String>::new());
    assert_eq!(
        node.run("CREATE TABLE v2 (p int PRIMARY KEY, v vector<float, 4>, w vector<int, 5>)").warnings,
        [warning("Column v", 4), warning("Column w", 5)]
    );
    for ty in ["vector<float, 6>", "frozen<list<frozen<vector<float, 6>>>>", "tuple<int, vector<float, 6>>"] {
        assert_eq!(node.failure(&format!("CREATE TABLE v3 (p int PRIMARY KEY, v {ty})")), failure("Column v"), "{ty}");
    }
    node.run("CREATE TABLE v4 (p int PRIMARY KEY, v vector<vector<float, 6>, 2>)");
    assert_eq!(node.failure("CREATE TYPE u (v vector<float, 6>)"), failure("Field v"));
    assert_eq!(node.run("CREATE TYPE u (v vector<float, 4>)").warnings, [warning("Field v", 4)]);
    assert_eq!(node.failure("ALTER TYPE u ADD x vector<float, 6>"), failure("Field x"));
    assert_eq!(node.failure("ALTER TABLE v1 ADD x vector<float, 6>"), failure("Column x"));

    let flags = Flags { vector_type_enabled: false, ..Flags::default() };
    let node = node_with(Guardrails { flags, ..Guardrails::default() });
    let refused = "Guardrail vector_type_enabled violated: Column p is not allowed";
    assert_eq!(node.failure("CREATE TABLE t (p vector<int, 2> PRIMARY KEY)"), refused);
}
