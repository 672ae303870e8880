//! Schema changes. The expected results are those of Cassandra 5.0.8.

use query::{ChangeKind, ErrorKind, Node, QueryOptions, ResponseBody, SchemaTarget};

use crate::node::TestNode;

#[test]
fn a_change_without_effect_has_an_empty_answer() {
    let node = TestNode::with(&["CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))", "CREATE TYPE u (a int)"]);
    for statement in [
        "ALTER TABLE t WITH comment = ''",
        "ALTER TABLE t ADD IF NOT EXISTS v int",
        "ALTER TABLE t DROP IF EXISTS nosuch",
        "ALTER TABLE IF EXISTS nosuch ADD x int",
        "ALTER TYPE u RENAME IF EXISTS x TO y",
        "ALTER KEYSPACE ks WITH durable_writes = true",
        "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
        "DROP TYPE IF EXISTS nosuch",
    ] {
        assert_eq!(node.run(statement).body, ResponseBody::Void, "{statement}");
    }
    let ResponseBody::SchemaChange { change, .. } = node.run("ALTER TABLE t WITH comment = 'x'").body else {
        panic!("the table was changed")
    };
    assert_eq!((change.kind, change.target), (ChangeKind::Updated, SchemaTarget::Table("t".into())));
    assert_eq!(node.failure("ALTER TABLE t RENAME IF EXISTS x TO y"), "Undefined column name x in table ks.t");
}

#[test]
fn options_of_compression_that_cassandra_refuses_are_refused() {
    let node = TestNode::with(&[]);
    let failure = |options: &str| {
        node.failure(&format!(
            "CREATE TABLE t (k int PRIMARY KEY) WITH compression = {{'class': 'LZ4Compressor', {options}}}"
        ))
    };
    // Names from before 4.0 are unknown now.
    for old in ["crc_check_chance", "chunk_length_kb", "sstable_compression"] {
        assert_eq!(failure(&format!("'{old}': 1")), format!("Unknown compression options {old}"));
    }
    assert_eq!(failure("'chunk_length_in_kb': 2097152"), "Value of chunk_length_in_kb is too large (2097152)");
    assert_eq!(
        failure("'lz4_compressor_type': 'bad'"),
        "Invalid compressor type 'bad' specified for LZ4 parameter 'lz4_compressor_type'. Valid options are [high, fast]."
    );
    for level in ["0", "18", "'x'"] {
        let reported = level.trim_matches('\'');
        let range = "for parameter 'lz4_high_compressor_level'. Value must be between 1 and 17.";
        assert_eq!(
            failure(&format!("'lz4_high_compressor_level': {level}")),
            format!("Invalid value [{reported}] {range}")
        );
    }
    for (level, thrown) in [
        ("23", "IllegalArgumentException compression_level=23 is invalid"),
        ("-131073", "IllegalArgumentException compression_level=-131073 is invalid"),
        ("1.5", "NumberFormatException For input string: \"1.5\""),
        ("''", "NumberFormatException For input string: \"\""),
    ] {
        let zstd = format!("{{'class': 'ZstdCompressor', 'compression_level': {level}}}");
        let refused = node.failure(&format!("CREATE TABLE t (k int PRIMARY KEY) WITH compression = {zstd}"));
        assert_eq!(refused, format!("ZstdCompressor.create() threw an error: java.lang.{thrown}"));
    }
    node.run("CREATE TABLE low (k int PRIMARY KEY) WITH compression = {'class': 'ZstdCompressor', 'compression_level': -131072}");
    assert_eq!(failure("'min_compress_ratio': -1"), "Invalid negative min_compress_ratio");
    assert_eq!(
        failure("'min_compress_ratio': 0.5"),
        "min_compress_ratio can either be 0 or greater than or equal to 1"
    );
    let old = "CREATE TABLE t (k int PRIMARY KEY) WITH compression = {'sstable_compression': 'LZ4Compressor'}";
    assert_eq!(node.failure(old), "Missing sub-option 'class' for the 'compression' option.");
}

#[test]
fn policies_of_speculative_retry_that_cassandra_refuses_are_refused() {
    let node = TestNode::with(&[]);
    let percentile = "for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)";
    let option = "for option 'speculative_retry'";
    let both =
        |kind| format!("{option}: MIN()/MAX() arguments should be of different types, but both are of type {kind}");
    for (policy, reported) in [
        ("0p", percentile),
        ("101PERCENTILE", percentile),
        ("MIN(101p,5ms)", option),
        ("MIN(99p,50p)", both("PERCENTILE").as_str()),
        ("MAX(5ms,6ms)", both("FIXED").as_str()),
        ("-5p", option),
        ("1.2.3p", option),
        ("99 p", option),
        ("MIN (99p,5ms)", option),
        ("custom", option),
    ] {
        for name in ["speculative_retry", "additional_write_policy"] {
            let refused = node.failure(&format!("CREATE TABLE t (k int PRIMARY KEY) WITH {name} = '{policy}'"));
            assert_eq!(refused, format!("Invalid value {policy} {reported}"));
        }
    }
    node.run("CREATE TABLE t (k int PRIMARY KEY) WITH speculative_retry = 'max(99PERCENTILE, 5ms)'");
}

#[test]
fn a_strategy_that_another_one_executes_causes_a_warning() {
    let node = TestNode::with(&[]);
    let warnings = |name: &str, compaction: &str| {
        node.run(&format!("CREATE TABLE {name} (k int PRIMARY KEY) WITH compaction = {compaction}")).warnings
    };
    assert_eq!(
        warnings("a", "{'class': 'SizeTieredCompactionStrategy', 'min_threshold': 6}"),
        [
            "SizeTieredCompactionStrategy is carried out as UnifiedCompactionStrategy with scaling_parameters T6, base_shard_count 1, max_sstables_to_compact 32"
        ]
    );
    assert_eq!(
        warnings("b", "{'class': 'LeveledCompactionStrategy'}"),
        [
            "LeveledCompactionStrategy is carried out as UnifiedCompactionStrategy with scaling_parameters L10, target_sstable_size 160MiB, sstable_growth 0"
        ]
    );
    // These warnings are about other options of small SSTables.
    assert_eq!(
        warnings("c", "{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 5, 'fanout_size': 4}"),
        [
            "LeveledCompactionStrategy is carried out as UnifiedCompactionStrategy with scaling_parameters L4, target_sstable_size 5MiB, min_sstable_size 2560KiB, sstable_growth 0"
        ]
    );
    let same = "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L4', 'target_sstable_size': '5MiB', 'min_sstable_size': '2560KiB', 'sstable_growth': 0}";
    assert_eq!(warnings("d", same), Vec::<String>::new());
    assert_eq!(warnings("e", "{'class': 'UnifiedCompactionStrategy'}"), Vec::<String>::new());
    assert_eq!(warnings("f", "{'class': 'TimeWindowCompactionStrategy'}"), Vec::<String>::new());
    let without_effect = |name: &str, options: &str| {
        let warnings = warnings(name, &format!("{{'class': '{options}}}"));
        let last = warnings.last().map_or("", String::as_str);
        last.strip_prefix("compaction sub-options that are stored but have no effect on this node: ")
            .unwrap_or("")
            .to_owned()
    };
    assert_eq!(
        without_effect(
            "u",
            "UnifiedCompactionStrategy', 'log_all': true, 'provide_overlapping_tombstones': 'row', 'flush_size_override': '10MiB', \
             'overlap_inclusion_method': 'single', 'expired_sstable_check_frequency_seconds': 60"
        ),
        "log_all, provide_overlapping_tombstones, expired_sstable_check_frequency_seconds, overlap_inclusion_method"
    );
    assert_eq!(
        without_effect(
            "w",
            "TimeWindowCompactionStrategy', 'bucket_low': 0.3, 'bucket_high': 2, 'min_sstable_size': 1, 'max_threshold': 8, \
             'expired_sstable_check_frequency_seconds': 60"
        ),
        "expired_sstable_check_frequency_seconds"
    );
    assert_eq!(
        without_effect(
            "s",
            "SizeTieredCompactionStrategy', 'max_threshold': 16, 'min_sstable_size': 1, 'bucket_low': 0.3"
        ),
        "bucket_low, min_sstable_size"
    );
    assert_eq!(without_effect("l", "LeveledCompactionStrategy', 'min_threshold': 8"), "min_threshold");
    let inert = "UnifiedCompactionStrategy', 'log_all': false, 'overlap_inclusion_method': 'TRANSITIVE', 'only_purge_repaired_tombstones': true";
    assert_eq!(without_effect("i", inert), "", "what changes nothing, and what is carried out");
    assert_eq!(node.run("ALTER TABLE a WITH compaction = {'class': 'LeveledCompactionStrategy'}").warnings.len(), 1);
    assert_eq!(node.run("ALTER TABLE a WITH comment = 'x'").warnings, Vec::<String>::new());
}

#[test]
fn compaction_options_that_make_no_sense_are_refused() {
    let node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let refused = |options: &str, message: &str| {
        let refusal = node.try_run(&format!("ALTER TABLE t WITH compaction = {options}"), &QueryOptions::default());
        let refusal = refusal.unwrap_err();
        assert_eq!((crate::errors::code(&refusal), refusal.message.as_str()), ("0x2300", message), "{options}");
    };
    refused(
        "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'X3'}",
        "Scaling parameter X3 must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+",
    );
    for class in ["UnifiedCompactionStrategy", "TimeWindowCompactionStrategy", "LeveledCompactionStrategy"] {
        refused(
            &format!("{{'class': '{class}', 'tombstone_threshold': 'abc'}}"),
            "abc is not a parsable int (base10) for tombstone_threshold",
        );
    }
    // Cassandra accepts this, although it cannot execute it.
    refused(
        "{'class': 'UnifiedCompactionStrategy', 'sstable_growth': 'NaN'}",
        "sstable_growth NaN must be between 0 and 1",
    );
    node.run("ALTER TABLE t WITH compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L4, N'}");
}

#[test]
fn a_dropped_column_is_added_again_only_with_its_old_type() {
    let node = TestNode::with(&[
        "CREATE TYPE u (a int)",
        "CREATE TABLE t (k int, c int, a int, l list<int>, s text static, f frozen<u>, PRIMARY KEY (k, c))",
        "INSERT INTO t (k, c, a) VALUES (1, 1, 5) USING TIMESTAMP 10",
        "ALTER TABLE t DROP a USING TIMESTAMP 20",
        "ALTER TABLE t DROP l",
        "ALTER TABLE t DROP s",
        "ALTER TABLE t DROP f",
    ]);
    let refused = |column: &str, ty: &str, was: &str| {
        assert_eq!(
            node.failure(&format!("ALTER TABLE t ADD {column} {ty}")),
            format!(
                "Cannot add a column '{column}' of type {ty}, incompatible with previously dropped column '{column}' of type {was}"
            )
        );
    };
    refused("a", "text", "int");
    refused("a", "blob", "int");
    refused("l", "set<int>", "list<int>");
    refused("l", "frozen<list<int>>", "list<int>");
    refused("f", "frozen<u>", "frozen<tuple<int>>");
    assert_eq!(
        node.failure("ALTER TABLE t ADD s text"),
        "Cannot re-add previously dropped column 's' of kind REGULAR, incompatible with previous kind STATIC"
    );
    // A user type was recorded as a tuple. It can be added again as a tuple, or as a blob of its bytes.
    node.run("ALTER TABLE t ADD f blob");
    node.run("ALTER TABLE t ADD a int");
    assert_eq!(node.rows("SELECT a FROM t"), ["null"], "what was written before the drop stays gone");
    node.run("UPDATE t USING TIMESTAMP 21 SET a = 6 WHERE k = 1 AND c = 1");
    assert_eq!(node.rows("SELECT a FROM t"), ["6"]);
}

#[test]
fn fields_of_user_types_are_added_renamed_selected_and_written_one_by_one() {
    let node = TestNode::with(&[
        "CREATE TYPE u (a int, b text)",
        "CREATE TABLE t (k int PRIMARY KEY, f frozen<u>, n u)",
        "INSERT INTO t (k, f, n) VALUES (1, {a: 1, b: 'x'}, {a: 2, b: 'y'})",
        "ALTER TYPE u ADD c int",
    ]);
    assert_eq!(node.rows("SELECT f.a, f.b, f.c, n.a, n.b, n.c FROM t"), ["1 'x' null 2 'y' null"]);
    node.run("ALTER TYPE u RENAME b TO label");
    node.run("UPDATE t SET n.c = 3, n.a = null WHERE k = 1");
    assert_eq!(node.rows("SELECT f.label, f.c, n.a, n.label, n.c FROM t"), ["'x' null null 'y' 3"]);
    node.run("UPDATE t SET f = {a: 4, label: 'z', c: 5} WHERE k = 1");
    assert_eq!(node.rows("SELECT f.a, f.label, f.c FROM t"), ["4 'z' 5"]);
    for (refused, message) in [
        ("UPDATE t SET f.a = 9 WHERE k = 1", "Invalid operation (f.a = 9) for frozen UDT column f"),
        ("DELETE f.a FROM t WHERE k = 1", "Frozen UDT column f does not support field deletions"),
    ] {
        let error = node.try_run(refused, &QueryOptions::default()).unwrap_err();
        assert_eq!((error.message.as_str(), error.kind), (message, ErrorKind::Invalid), "{refused}");
    }
}

#[test]
fn the_schema_of_a_snapshot_creates_the_table_and_its_types() {
    // The types are in an order in which a used type comes, by name, after its user.
    let node = TestNode::with(&[
        "CREATE TYPE b (x int)",
        "CREATE TYPE a (inside frozen<b>)",
        "CREATE TYPE unused (x int)",
        "CREATE TABLE t (k int PRIMARY KEY, v frozen<list<frozen<a>>>, d int, e text)",
        "ALTER TABLE t DROP d USING TIMESTAMP 5",
        "ALTER TABLE t DROP e USING TIMESTAMP 6",
        "ALTER TABLE t ADD e text",
    ]);
    let schema_of = |node: &TestNode| {
        let schema = node.processor.engine().schema();
        query::snapshot_schema(&schema, schema.table("ks", "t").unwrap())
    };
    let text = schema_of(&node);
    assert!(!text.contains("unused"), "{text}");
    let other = TestNode::with(&[]);
    let statements = || text.split_terminator(";\n");
    statements().for_each(|statement| drop(other.run(statement)));
    assert_eq!(schema_of(&other), text);
    // Objects that exist already stay unchanged.
    let create: Vec<&str> = statements().filter(|statement| statement.starts_with("CREATE")).collect();
    assert_eq!(create.len(), 3, "{text}");
    create.into_iter().for_each(|statement| drop(other.run(statement)));
    assert_eq!(schema_of(&other), text);
}

#[test]
fn options_that_a_flush_could_not_use_are_refused() {
    let node = TestNode::with(&["CREATE TABLE kept (k int PRIMARY KEY)"]);
    let options = "WITH compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 1048576}";
    for statement in [format!("CREATE TABLE t (k int PRIMARY KEY) {options}"), format!("ALTER TABLE kept {options}")] {
        let refused = node.failure(&statement);
        assert!(refused.contains("chunk_length_in_kb 1048576"), "{refused}");
    }
    node.run("INSERT INTO kept (k) VALUES (1)");
    node.processor.engine().flush_all().unwrap();
    assert_eq!(node.rows("SELECT k FROM kept"), ["1"]);
}

#[test]
fn table_options_of_old_cassandra_are_accepted_with_a_warning() {
    let node = TestNode::with(&[]);
    for (word, keys, rows) in [("KEYS_ONLY", "ALL", "NONE"), ("all", "ALL", "ALL"), ("ROWS_ONLY", "NONE", "ALL")] {
        let response = node.run(&format!("CREATE TABLE t (k int PRIMARY KEY) WITH caching = '{word}'"));
        assert!(response.warnings.iter().any(|warning| warning.starts_with("caching = '")), "{:?}", response.warnings);
        let caching =
            node.rows("SELECT caching FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'");
        assert_eq!(caching, [format!("{{'keys': '{keys}', 'rows_per_partition': '{rows}'}}")]);
        node.run("DROP TABLE t");
    }
    for name in ["read_repair_chance", "dclocal_read_repair_chance"] {
        let response = node.run(&format!("CREATE TABLE t (k int PRIMARY KEY) WITH {name} = 0.1"));
        assert!(response.warnings.iter().any(|warning| warning.contains(name)), "{:?}", response.warnings);
        assert!(node.failure(&format!("ALTER TABLE t WITH {name} = 2")).contains("smaller than or equal to 1.0"));
        node.run("DROP TABLE t");
    }
}

#[test]
fn many_columns_are_added_and_dropped_at_once() {
    let node = TestNode::new().with_keyspace();
    let columns = |count: usize| (0..count).map(|n| format!("c{n} int")).collect::<Vec<_>>().join(", ");
    assert_eq!(
        node.failure(&format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns(40_000))),
        "A table may have at most 32767 columns, not 40001"
    );
    node.run(&format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns(700)));
    let names = (0..700).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ");
    node.run(&format!("ALTER TABLE t DROP ({names})"));
    node.run(&format!("ALTER TABLE t ADD ({})", columns(700)));
    node.run("INSERT INTO t (k, c699) VALUES (1, 2)");
    assert_eq!(node.rows("SELECT k, c699 FROM t"), ["1 2"]);
}

#[test]
fn a_type_of_another_keyspace_is_refused_by_name() {
    let node = TestNode::with(&["CREATE TYPE u (a int)"]);
    node.run("CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    for statement in
        ["CREATE TABLE other.t (k int PRIMARY KEY, v frozen<ks.u>)", "CREATE TYPE other.t (v frozen<list<ks.u>>)"]
    {
        assert_eq!(
            node.failure(statement),
            "Statement on keyspace other cannot refer to a user type in keyspace ks; \
             user types can only be used in the keyspace they are defined in",
            "{statement}"
        );
    }
}

#[test]
fn the_row_of_the_node_has_all_its_tokens() {
    let node = TestNode::new();
    let tokens = Node::evenly_spaced_tokens(16);
    Node { tokens: tokens.clone(), ..Node::default() }.write_local(node.processor.engine(), 1).unwrap();
    let mut texts: Vec<String> = tokens.iter().map(|token| format!("'{token}'")).collect();
    texts.sort_unstable();
    assert_eq!(node.rows("SELECT tokens FROM system.local"), [format!("{{{}}}", texts.join(", "))]);
}
