//! Guardrails that warn and that refuse.

use query::{Flags, Guardrail, Guardrails, ProcessorOptions, QueryOptions};

use crate::node::TestNode;

fn with_guardrails(guardrails: Guardrails) -> ProcessorOptions {
    ProcessorOptions { guardrails, ..ProcessorOptions::default() }
}

#[test]
fn many_partitions_and_many_combinations_warn_and_then_fail() {
    let guardrail = Guardrail { warn: Some(1), fail: Some(2) };
    let options = with_guardrails(Guardrails { partition_keys_in_select: guardrail, ..Guardrails::default() });
    let mut node = TestNode::with_options(options);
    node.create_keyspace();
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

    let options = with_guardrails(Guardrails { in_select_cartesian_product: guardrail, ..Guardrails::default() });
    let mut node = TestNode::with_options(options);
    node.create_keyspace();
    node.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))");
    assert_eq!(
        node.failure("SELECT * FROM t WHERE k = 1 AND c IN (1, 2, 3)"),
        "Guardrail in_select_cartesian_product violated: Aborting query because the cartesian product of the IN restrictions on clustering key produces 3 values, this exceeds fail threshold of 2."
    );
}

#[test]
fn sizes_of_the_schema_and_of_pages_warn_and_then_fail() {
    let limit = |warn, fail| Guardrail { warn: Some(warn), fail: Some(fail) };
    let mut node = TestNode::with_options(with_guardrails(Guardrails {
        keyspaces: limit(1, 2),
        tables: limit(1, 2),
        columns_per_table: limit(2, 3),
        fields_per_udt: limit(1, 2),
        page_size: limit(10, 20),
        ..Guardrails::default()
    }));
    node.create_keyspace();
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
    };
    let mut node = TestNode::with_options(with_guardrails(Guardrails { flags: none, ..Guardrails::default() }));
    node.create_keyspace();
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
