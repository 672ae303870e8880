//! What DDL accepts survives: every type that a statement can contain is the same after a restart, and so are its
//! values.

use std::collections::BTreeMap;

use blockio::SimulatedDisk;
use query::{QueryOptions, Value, Values};
use testkit::{Random, seeds};
use types::{CqlType, collection, vint};

use crate::node::{TestNode, rows_of};

const NATIVES: &str = "ascii bigint blob boolean date decimal double duration float inet int smallint text time \
                       timestamp timeuuid tinyint uuid varint varchar counter empty";
const CLASSES: [&str; 14] = [
    "LexicalUUIDType",
    "LegacyTimeUUIDType",
    "DateType",
    "EmptyType",
    "DynamicCompositeType(s => UTF8Type, i => Int32Type)",
    "CompositeType(UTF8Type,ReversedType(Int32Type))",
    "ReversedType(Int32Type)",
    "FrozenType(ListType(Int32Type))",
    "ListType(MapType(Int32Type,SetType(UTF8Type)))",
    "VectorType(ListType(FloatType) , 2)",
    "TupleType(Int32Type,ListType(Int32Type))",
    "UserType(ks,696e74,61:Int32Type)",
    "FrozenType(UserType(ks,696e74,61:Int32Type))",
    "ListType(LexicalUUIDType)",
];
/// Names of user types; those of CQL's own types come first.
const NAMES: &str = "int text empty varchar map set list tuple frozen vector table A a\" plain counter";

fn node_on(disk: &SimulatedDisk) -> TestNode {
    let mut node = TestNode::on_disk(disk);
    node.use_keyspace("ks");
    node
}

/// Stops the node, in an orderly way or abruptly, and starts it again.
fn restarted(node: TestNode, disk: &SimulatedDisk, in_order: bool) -> TestNode {
    if in_order {
        node.processor.engine().shutdown().unwrap();
    }
    drop(node);
    node_on(disk)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn any_of<'w>(random: &mut Random, words: &'w str) -> &'w str {
    let words: Vec<&str> = words.split_whitespace().collect();
    words[random.below(words.len())]
}

/// A type that DDL can contain. Not all of these types are accepted.
fn random_type(random: &mut Random, depth: usize) -> String {
    let choices = if depth > 4 { 5 } else { 12 };
    match random.below(choices) {
        0..=2 => any_of(random, NATIVES).to_owned(),
        3 => format!("'{}'", CLASSES[random.below(CLASSES.len())]),
        4 => {
            let name = quoted(any_of(random, NAMES));
            frozen(random, name)
        }
        5 => format!("tuple<{}, {}>", random_type(random, depth + 1), random_type(random, depth + 1)),
        6 => format!("vector<{}, {}>", random_type(random, depth + 1), 1 + random.below(3)),
        7 => format!("frozen<{}>", random_type(random, depth + 1)),
        8 => format!("list<{}>", frozen_type(random, depth)),
        9 => format!("set<{}>", frozen_type(random, depth)),
        _ => format!("map<{}, {}>", frozen_type(random, depth), frozen_type(random, depth)),
    }
}

fn frozen(random: &mut Random, ty: String) -> String {
    if random.one_in(4) { ty } else { format!("frozen<{ty}>") }
}

fn frozen_type(random: &mut Random, depth: usize) -> String {
    let ty = random_type(random, depth + 1);
    let can_freeze = ["list<", "set<", "map<", "\""].iter().any(|start| ty.starts_with(start));
    if can_freeze { frozen(random, ty) } else { ty }
}

/// A value of the type that a statement may send. Sets and maps are sorted when they are written.
fn random_value(random: &mut Random, ty: &CqlType) -> Vec<u8> {
    let bytes = |random: &mut Random, count: usize| (0..count).map(|_| random.number() as u8).collect::<Vec<u8>>();
    let parts = |random: &mut Random, types: &[&CqlType]| {
        let mut out = Vec::new();
        types.iter().for_each(|ty| collection::write_part(Some(&random_value(random, ty)), &mut out));
        out
    };
    match ty {
        CqlType::Ascii | CqlType::Text => any_of(random, NAMES).as_bytes().to_vec(),
        CqlType::Boolean => vec![random.below(2) as u8],
        CqlType::Tinyint => bytes(random, 1),
        CqlType::Smallint => bytes(random, 2),
        CqlType::Int | CqlType::Float | CqlType::Inet | CqlType::Date => bytes(random, 4),
        CqlType::Bigint | CqlType::Double | CqlType::Timestamp | CqlType::Counter => bytes(random, 8),
        CqlType::Time => (random.below(1_000_000) as i64).to_be_bytes().to_vec(),
        CqlType::Uuid => bytes(random, 16),
        CqlType::Timeuuid => timeuuid(random),
        CqlType::Custom(class) if class.ends_with("LegacyTimeUUIDType") => timeuuid(random),
        CqlType::Custom(class) if class.ends_with("LexicalUUIDType") => bytes(random, 16),
        CqlType::Varint | CqlType::Blob | CqlType::Custom(_) => {
            let length = 1 + random.below(5);
            bytes(random, length)
        }
        CqlType::Decimal => [vec![0, 0, 0, random.below(9) as u8], bytes(random, 3)].concat(),
        CqlType::Duration => vec![2, 4, 6],
        CqlType::Empty => Vec::new(),
        CqlType::List { element, .. } => {
            let count = random.below(3);
            let elements: Vec<Vec<u8>> = (0..count).map(|_| random_value(random, element)).collect();
            collection::list(elements.iter().map(Vec::as_slice))
        }
        CqlType::Set { element, .. } => collection::list([random_value(random, element).as_slice()].into_iter()),
        CqlType::Map { key, value, .. } => {
            let entry = (random_value(random, key), random_value(random, value));
            collection::map([(entry.0.as_slice(), entry.1.as_slice())].into_iter())
        }
        CqlType::Tuple(elements) => parts(random, &elements.iter().collect::<Vec<_>>()),
        CqlType::Udt { definition, .. } => {
            parts(random, &definition.fields().iter().map(|(_, ty)| ty).collect::<Vec<_>>())
        }
        CqlType::Vector { element, dimension } => {
            let mut out = Vec::new();
            for _ in 0..*dimension {
                let value = random_value(random, element);
                if element.fixed_length().is_none() {
                    vint::write_uvint(value.len() as u64, &mut out);
                }
                out.extend_from_slice(&value);
            }
            out
        }
    }
}

fn timeuuid(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..16).map(|_| random.number() as u8).collect();
    bytes[6] = 0x10 | bytes[6] & 0x0f;
    bytes
}

/// A possible name of a column, in double quotes.
fn column_name(random: &mut Random, number: usize) -> String {
    let names = ["v", "V", "select", " ", "a.b", "a/b", "it's", "\"", "ü€𝄞", "'org.apache'", "list<int>", "%", "\\n"];
    quoted(&format!("{}{number}", names[random.below(names.len())]))
}

/// A statement that creates a table of random types, sometimes with such types in its key.
fn random_table(random: &mut Random, name: &str) -> String {
    let mut columns: Vec<String> =
        (0..1 + random.below(3)).map(|i| format!("{} {}", column_name(random, i), random_type(random, 0))).collect();
    columns.push(match random.below(3) {
        0 => "k int PRIMARY KEY".into(),
        1 => format!("k int, c {}, PRIMARY KEY (k, c)", frozen_type(random, 2)),
        _ => format!(
            "k int, p {}, c {}, d int, PRIMARY KEY ((k, p), c, d)",
            frozen_type(random, 2),
            frozen_type(random, 2)
        ),
    });
    let order = if columns.iter().any(|column| column.contains("(k, c)")) && random.one_in(2) {
        " AND CLUSTERING ORDER BY (c DESC)"
    } else {
        ""
    };
    let option = [
        "comment = 'it''s \"x\" ü'",
        "gc_grace_seconds = 0",
        "compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}",
        "compression = {'enabled': false}",
        "caching = {'keys': 'NONE', 'rows_per_partition': '10'}",
        "bloom_filter_fp_chance = 1.0",
        "speculative_retry = 'NONE'",
        "extensions = {'a': 0x00ff}",
        "default_time_to_live = 1000000",
        "default_time_to_live = 630720000",
        "gc_grace_seconds = 2147483647",
        "bloom_filter_fp_chance = 0.0001",
        "min_index_interval = 2147483647 AND max_index_interval = 2147483647",
        "memtable_flush_period_in_ms = 2147483647",
        "crc_check_chance = 0.0 AND cdc = true AND incremental_backups = true AND allow_auto_snapshot = false",
        "compression = {'class': 'ZstdCompressor', 'compression_level': 22, 'min_compress_ratio': 1.5}",
        "compression = {'class': 'DeflateCompressor', 'chunk_length_in_kb': 1}",
        "compression = {'class': 'NoopCompressor'}",
        "compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4, L10, N', 'base_shard_count': 9}",
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': 3}",
        "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 1}",
        "compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': false}",
        "compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 8}",
        "memtable = 'skiplist' AND read_repair = 'NONE' AND additional_write_policy = '3ms'",
    ];
    format!("CREATE TABLE {name} ({}) WITH {}{order}", columns.join(", "), option[random.below(option.len())])
}

/// Writes some rows, and returns how many were accepted. Some types have no values, as `vector<empty, 2>`.
fn insert(node: &TestNode, random: &mut Random, name: &str) -> usize {
    let schema = node.processor.engine().schema();
    let table = schema.table("ks", name).unwrap();
    let columns = table.columns_in_select_order();
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    let statement = format!("INSERT INTO {name} ({}) VALUES ({})", names.join(", "), vec!["?"; names.len()].join(", "));
    let is_accepted = |_: &usize| {
        let values: Vec<Vec<u8>> = columns.iter().map(|column| random_value(random, &column.ty)).collect();
        let values: Vec<Value<'_>> = values.iter().map(|value| Value::Bytes(value)).collect();
        let options = QueryOptions { values: Values::Positional(&values), ..QueryOptions::default() };
        node.try_run(&statement, &options).is_ok()
    };
    (0..3).filter(is_accepted).count()
}

/// All rows of every table, as a SELECT returns them.
fn contents(node: &TestNode, tables: &[String]) -> BTreeMap<String, Vec<u8>> {
    let rows = |table: &String| rows_of(node.run(&format!("SELECT * FROM {table}"))).cells;
    tables.iter().map(|table| (table.clone(), rows(table))).collect()
}

#[test]
fn tables_of_all_types_and_their_rows_survive_a_flush_a_compaction_and_restarts() {
    let (mut accepted, mut written) = (0, 0);
    for seed in seeds(0..6) {
        let (mut random, disk) = (Random(seed), SimulatedDisk::new());
        let mut node = node_on(&disk).with_keyspace();
        for name in NAMES.split_whitespace() {
            let statement = format!("CREATE TYPE {} (a int)", quoted(name));
            node.run(&statement);
        }
        for name in NAMES.split_whitespace().skip(2) {
            let field = random_type(&mut random, 2);
            let _refused =
                node.try_run(&format!("ALTER TYPE {} ADD b {field}", quoted(name)), &QueryOptions::default());
        }
        let mut tables = Vec::new();
        for i in 0..25 {
            let name = format!("t{i}");
            if node.try_run(&random_table(&mut random, &name), &QueryOptions::default()).is_ok() {
                written += insert(&node, &mut random, &name);
                tables.push(name);
            }
        }
        accepted += tables.len();
        let (keyspace, expected) =
            (node.processor.engine().schema().keyspace("ks").unwrap().clone(), contents(&node, &tables));
        for in_order in [false, true, false] {
            node = restarted(node, &disk, in_order);
            let engine = node.processor.engine();
            assert_eq!(engine.schema().keyspace("ks"), Some(&keyspace), "seed {seed}");
            assert_eq!(contents(&node, &tables), expected, "seed {seed}");
            for name in &tables {
                engine.compact(engine.schema().table("ks", name).unwrap()).unwrap();
            }
            assert_eq!(contents(&node, &tables), expected, "seed {seed}: compacted");
        }
    }
    assert!(accepted > 50 && written > 2 * accepted, "only {accepted} tables with {written} rows");
}

/// As in Cassandra 5.0.8, a missing field is null, and null sorts before every value.
#[test]
fn values_of_an_extended_type_stay_distinct() {
    for options in [
        "comment = 'trie'",
        "memtable = 'skiplist'",
        "compaction = {'class': 'MemoryOnlyStrategy', 'size_limit_in_mb': 8}",
    ] {
        let disk = SimulatedDisk::new();
        let mut node = node_on(&disk).with_keyspace();
        node.run("CREATE TYPE u (a int)");
        node.run(&format!(
            "CREATE TABLE t (k int PRIMARY KEY, m map<frozen<u>, int>, s set<frozen<u>>) WITH {options}"
        ));
        node.run(&format!(
            "CREATE TABLE c (k int, c frozen<list<frozen<u>>>, v int, PRIMARY KEY (k, c)) \
             WITH CLUSTERING ORDER BY (c DESC) AND {options}"
        ));
        node.run("UPDATE t SET m = m + {{a: 1}: 1}, s = s + {{a: 1}} WHERE k = 1");
        node.run("INSERT INTO c (k, c, v) VALUES (1, [{a: 1}], 1)");
        node.run("ALTER TYPE u ADD b int");
        node.run("UPDATE t SET m = m + {{a: 1, b: 1}: 2}, s = s + {{a: 1, b: 1}} WHERE k = 1");
        node.run("UPDATE t SET m = m + {{a: 1, b: null}: 3} WHERE k = 1");
        for (value, b) in [(2, "1"), (3, "null"), (4, "-1")] {
            node.run(&format!("INSERT INTO c (k, c, v) VALUES (1, [{{a: 1, b: {b}}}], {value})"));
        }
        node.run("ALTER TYPE u ADD d text");
        node.run("INSERT INTO c (k, c, v) VALUES (1, [{a: 1, b: 1, d: 'x'}], 5)");
        for state in ["in memory", "flushed", "restarted"] {
            if state == "flushed" {
                node.processor.engine().flush_all().unwrap();
            } else if state == "restarted" {
                node = restarted(node, &disk, false);
            }
            let one = |statement: &str| node.rows(statement).join("; ");
            assert_eq!(one("SELECT v FROM c WHERE k = 1"), "5; 2; 4; 3", "{options}, {state}");
            assert_eq!(one("SELECT v FROM c WHERE k = 1 AND c = [{a: 1}]"), "3", "{options}, {state}");
            assert_eq!(one("SELECT v FROM c WHERE k = 1 AND c > [{a: 1, b: 0}]"), "5; 2", "{options}, {state}");
            assert_eq!(one("SELECT m[{a: 1}], m[{a: 1, b: 1}], m[{a: 2}] FROM t"), "3 2 null", "{options}, {state}");
            assert_eq!(one("SELECT s FROM t"), "{{a: 1}, {a: 1, b: 1}}", "{options}, {state}");
        }
        node.run("DELETE FROM c WHERE k = 1 AND c = [{a: 1, b: 1}]");
        node.run("DELETE m[{a: 1, b: 1}] FROM t WHERE k = 1");
        assert_eq!(node.rows("SELECT v FROM c WHERE k = 1").join("; "), "5; 4; 3", "{options}");
        assert_eq!(node.rows("SELECT m[{a: 1}], m[{a: 1, b: 1}] FROM t"), ["3 null"], "{options}");
    }
}

#[test]
fn types_that_are_too_large_are_refused_by_the_name_of_the_limit() {
    let node = TestNode::with(&["CREATE TYPE t0 (a int)"]);
    let create = |i: i32| format!("CREATE TYPE t{} (a frozen<t{i}>, b frozen<t{i}>)", i + 1);
    (0..12).for_each(|i| drop(node.run(&create(i))));
    assert_eq!(
        node.failure(&create(12)),
        "type ks.t13 cannot be stored: a type may consist of 16384 types with its user types written out, and this one of 24575"
    );
    let nested = |depth: usize| {
        format!(
            "CREATE TABLE d{depth} (k int PRIMARY KEY, v {}int{})",
            "frozen<list<".repeat(depth),
            ">>".repeat(depth)
        )
    };
    node.run(&nested(40));
    node.run("CREATE TYPE n0 (a int)");
    (0..62).for_each(|i| drop(node.run(&format!("CREATE TYPE n{} (a frozen<n{i}>)", i + 1))));
    assert_eq!(
        node.failure("CREATE TYPE n63 (a frozen<n62>, b int)"),
        "type ks.n63 cannot be stored: types may be nested 64 deep, and this one is 65 deep"
    );
    node.run("CREATE TABLE deep (k int PRIMARY KEY, v frozen<n62>)");
    node.run("ALTER TYPE n0 ADD b int");
    assert_eq!(
        node.failure("ALTER TYPE n0 ADD c list<int>"),
        "type ks.n62 cannot be stored: types may be nested 64 deep, and this one is 65 deep"
    );
}
