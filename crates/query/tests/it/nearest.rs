//! Storage-attached indexes of vectors and `ORDER BY … ANN OF`. The answers and the texts of errors are Cassandra's.

use std::time::{Duration, Instant};

use blockio::SimulatedDisk;
use model::KeyRange;
use query::{Consistency, ProcessorOptions, QueryOptions};
use testkit::{Random, seed};

use crate::node::TestNode;

const USAGE: &str = "SAI ANN indexes on vector columns are experimental and are not recommended for production use.\n\
    They don't yet support SELECT queries with:\n \
    * Consistency level higher than ONE/LOCAL_ONE.\n \
    * Paging.\n \
    * No LIMIT clauses.\n \
    * PER PARTITION LIMIT clauses.\n \
    * GROUP BY clauses.\n \
    * Aggregation functions.\n \
    * Filters on columns without a SAI index.";
const LIMIT: &str = "Top-K queries must have a limit specified and the limit must be less than the query page size";
const ALL_INDEXED: &str = "ANN ordering by vector requires all restricted column(s) to be indexed";
const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
    FILTERING";
const BY_V: &str = "ORDER BY v ANN OF [1, 2, 3]";

fn node() -> TestNode {
    TestNode::with(&[
        "CREATE TABLE t (p int, q int, c int, d int, a int, b int, n int, v vector<float, 3>, w vector<float, 3>, \
         e vector<float, 3>, o vector<float, 1>, i vector<int, 3>, x text, sv vector<float, 3> static, \
         PRIMARY KEY ((p, q), c, d))",
        "CREATE TABLE u (k int PRIMARY KEY, a int, v vector<float, 3>)",
        "CREATE TABLE plain (k int PRIMARY KEY, v vector<float, 3>)",
    ])
}

/// The rows that Cassandra was asked about.
fn filled() -> TestNode {
    let node = node();
    for index in [
        "t (v) USING 'sai'",
        "t (w) USING 'sai' WITH OPTIONS = {'similarity_function': 'dot_product'}",
        "t (e) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
        "t (sv) USING 'sai'",
        "t (a) USING 'sai'",
        "t (d) USING 'sai'",
        "t (n)",
        "plain (v)",
        "u (v) USING 'sai'",
        "u (a) USING 'sai'",
    ] {
        node.run(&format!("CREATE INDEX ON {index}"));
    }
    for k in 0..20 {
        let (p, c, d, a, b, n, rest) = (k % 4, k / 4, k % 3, k % 3, k % 5, k % 2, 20 - k);
        node.run(&format!(
            "INSERT INTO t (p, q, c, d, sv, a, b, n, v, w, e) VALUES ({p}, 1, {c}, {d}, [{p}, 1, 0], {a}, {b}, {n}, \
             [{k}, {rest}, 1], [{k}, 1, 1], [{k}, 0, 0])"
        ));
        node.run(&format!("INSERT INTO u (k, a, v) VALUES ({k}, {a}, [{k}, {rest}, 1])"));
    }
    node.run("INSERT INTO u (k, a) VALUES (100, 1)");
    node
}

fn warnings(node: &TestNode, statement: &str, options: &QueryOptions<'_>) -> Vec<String> {
    node.try_run(statement, options).unwrap_or_else(|error| panic!("{statement}: {error:?}")).warnings
}

#[test]
fn an_index_of_vectors_is_checked_as_in_cassandra() {
    let node = node();
    for (index, message) in [
        ("t (i)", "SAI ANN indexes are only allowed on vector columns with float elements"),
        ("t (o)", "Cosine similarity is not supported for single-dimension vectors"),
        (
            "t (v) {'similarity_function': 'nope'}",
            "Similarity function NOPE was not recognized for index null. Valid values are: EUCLIDEAN, DOT_PRODUCT, COSINE",
        ),
        (
            "t (v) {'optimize_for': 'nope'}",
            "optimize_for 'NOPE' was not recognized for index null. Valid values are: LATENCY, RECALL",
        ),
        (
            "t (v) {'maximum_node_connections': '16'}",
            "Maximum node connections cannot be set without enabling SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS",
        ),
        (
            "t (v) {'construction_beam_width': '16'}",
            "Construction beam width cannot be set without enabling SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS",
        ),
        (
            "t (v) {'source_model': 'bert'}",
            "Properties specified [source_model] are not understood by StorageAttachedIndex",
        ),
        ("t (v) {'ascii': 'true'}", "CQL type vector<float, 3> cannot be analyzed."),
    ] {
        let (target, options) = index.split_once(" {").unwrap_or((index, "}"));
        let statement = format!("CREATE INDEX ON {target} USING 'sai' WITH OPTIONS = {{{options}");
        assert_eq!(node.failure(&statement), message, "{statement}");
    }
    let none = QueryOptions::default();
    let of_v = "CREATE INDEX vi ON t (v) USING 'sai'";
    assert_eq!(warnings(&node, of_v, &none), [USAGE]);
    let one = "CREATE INDEX ON t (o) USING 'sai' WITH OPTIONS = {'similarity_function': 'Euclidean', 'optimize_for': 'recall'}";
    node.run(one);
    let twice = "CREATE INDEX other ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}";
    assert_eq!(node.failure(twice), "Cannot create more than one storage-attached index on the same column: v");
}

#[test]
fn an_index_of_vectors_is_stored_and_described_as_in_cassandra() {
    let disk = SimulatedDisk::new();
    let mut node = TestNode::on_disk(&disk).with_keyspace();
    node.run("CREATE TABLE t (k int PRIMARY KEY, v vector<float, 2>)");
    node.run("CREATE INDEX vi ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'Dot_Product'}");
    node.run("INSERT INTO t (k, v) VALUES (1, [1, 2])");
    node.run("INSERT INTO t (k, v) VALUES (2, [-1, 5])");
    for is_again in [false, true] {
        if is_again {
            drop(node);
            node = TestNode::on_disk(&disk);
            node.use_keyspace("ks");
        }
        let described = "'ks' 'index' 'vi' 'CREATE CUSTOM INDEX vi ON ks.t (v) USING ''sai'' WITH OPTIONS = {''similarity_function'': ''Dot_Product''};'";
        assert_eq!(node.rows("DESCRIBE INDEX vi"), [described]);
        let stored = "SELECT index_name, kind, options FROM system_schema.indexes WHERE keyspace_name = 'ks'";
        assert_eq!(
            node.rows(stored),
            ["'vi' 'CUSTOM' {'class_name': 'sai', 'similarity_function': 'Dot_Product', 'target': 'v'}"]
        );
        assert_eq!(node.rows("SELECT k FROM t ORDER BY v ANN OF [1, 0] LIMIT 5"), ["1", "2"]);
        assert_eq!(node.rows("SELECT k FROM t ORDER BY v ANN OF [0, 1] LIMIT 5"), ["2", "1"]);
    }
    node.run("DROP INDEX vi");
    let ordered = "SELECT k FROM t ORDER BY v ANN OF [0, 1] LIMIT 5";
    assert_eq!(node.failure(ordered), "ANN ordering by vector requires the column to be indexed");
    node.run("CREATE INDEX vi ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}");
    assert_eq!(node.rows("SELECT k FROM t ORDER BY v ANN OF [2, 2] LIMIT 1"), ["1"]);
}

#[test]
fn rows_come_in_order_of_their_similarity() {
    let node = filled();
    for (select, expected) in [
        ("k FROM u ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["7", "6", "8"][..]),
        ("k FROM u WHERE a = 1 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["7", "4", "10"]),
        ("k FROM u WHERE a > 0 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["7", "8", "5"]),
        ("k FROM u WHERE k = 3 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["3"]),
        ("k FROM u WHERE k = 100 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &[]),
        ("p, c, d FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["3 1 1", "2 1 0", "0 2 2"]),
        ("p, c, d FROM t ORDER BY w ANN OF [1, 2, 3] LIMIT 3", &["3 4 1", "2 4 0", "1 4 2"]),
        ("p FROM t ORDER BY sv ANN OF [1, 2, 3] LIMIT 6", &["1", "1", "1", "1", "1", "0"]),
        ("JSON p, c FROM t ORDER BY v ANN OF [1, 2, 3] LIMIT 2", &["'{\"p\": 3, \"c\": 1}'", "'{\"p\": 2, \"c\": 1}'"]),
        ("p, c, d FROM t WHERE d = 1 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["3 1 1", "0 1 1", "2 2 1"]),
        ("p, c, d FROM t WHERE a > 1 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["0 2 2", "1 1 2", "2 0 2"]),
        ("p, c, d FROM t WHERE token(p, q) > 0 ORDER BY v ANN OF [1, 2, 3] LIMIT 3", &["3 1 1", "2 1 0", "1 1 2"]),
        ("p, c, d FROM t ORDER BY e ANN OF [5.1, 0, 0] LIMIT 4", &["1 1 2", "2 1 0", "0 1 1", "3 1 1"]),
        ("c FROM t WHERE p = 1 AND q = 1 ORDER BY e ANN OF [9.5, 0, 0] LIMIT 2", &["2", "3"]),
        ("c FROM t WHERE p = 1 AND q = 1 AND c > 2 ORDER BY e ANN OF [9.5, 0, 0] LIMIT 2", &["3", "4"]),
        ("c FROM t WHERE p = 1 AND q = 1 AND d >= 1 ORDER BY e ANN OF [9.5, 0, 0] LIMIT 2", &["3", "1"]),
    ] {
        assert_eq!(node.rows(&format!("SELECT {select}")), expected, "{select}");
    }
}

#[test]
fn an_order_by_similarity_is_checked_as_in_cassandra() {
    let node = filled();
    let only_floats = "ANN ordering is only supported on float vector indexes";
    let not_indexed = "ANN ordering by vector requires the column to be indexed";
    let by_two = "ANN ordering does not support any other ordering";
    for (select, message) in [
        (format!("k FROM u {BY_V}"), LIMIT),
        (format!("k FROM u {BY_V} LIMIT 2147483647"), LIMIT),
        (format!("k FROM u {BY_V} LIMIT 0"), "LIMIT must be strictly positive"),
        (
            format!("k FROM u {BY_V} LIMIT 1001"),
            "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than 1000. LIMIT was 1001",
        ),
        (format!("p FROM t {BY_V} PER PARTITION LIMIT 2 LIMIT 3"), "Top-K queries do not support per-partition limits"),
        (format!("count(*) FROM u {BY_V} LIMIT 3"), "Top-K queries can not be run with aggregation"),
        (format!("p FROM t GROUP BY p, q {BY_V} LIMIT 3"), "Top-K queries can not be run with aggregation"),
        (
            format!("DISTINCT p, q FROM t {BY_V} LIMIT 3"),
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ),
        (format!("k FROM u {BY_V} DESC LIMIT 3"), "Descending ANN ordering is not supported"),
        (format!("k FROM u {BY_V}, v ANN OF [1, 2, 3] LIMIT 3"), "Cannot specify more than one ANN ordering"),
        (format!("p FROM t {BY_V}, c LIMIT 3"), by_two),
        (format!("p FROM t WHERE p = 1 AND q = 1 {BY_V}, c LIMIT 3"), by_two),
        (format!("k FROM plain {BY_V} LIMIT 3"), NEEDS_FILTERING),
        (format!("k FROM plain {BY_V} LIMIT 3 ALLOW FILTERING"), not_indexed),
        (format!("p FROM t WHERE n = 1 {BY_V} LIMIT 3"), NEEDS_FILTERING),
        (format!("p FROM t WHERE a IN (1, 2) {BY_V} LIMIT 3"), NEEDS_FILTERING),
        (
            "DISTINCT p, q, sv FROM t ORDER BY sv ANN OF [1, 2, 3] LIMIT 3".to_owned(),
            "Top-K queries do not support per-partition limits",
        ),
        ("p FROM t ORDER BY a ANN OF 1 LIMIT 3".to_owned(), only_floats),
        ("p FROM t ORDER BY i ANN OF [1, 2, 3] LIMIT 3".to_owned(), only_floats),
        ("p FROM t ORDER BY o ANN OF [1] LIMIT 3".to_owned(), not_indexed),
        ("p FROM t ORDER BY nope ANN OF [1] LIMIT 3".to_owned(), "Undefined column name nope in table ks.t"),
        (
            "p FROM t ORDER BY v ANN OF [0, 0, 0] LIMIT 3".to_owned(),
            "Zero vectors cannot be indexed or queried with cosine similarity",
        ),
        ("p FROM t ORDER BY v ANN OF null LIMIT 3".to_owned(), "Unsupported null value for column v"),
        (
            format!("p FROM t WHERE v = [1, 2, 3] {BY_V} LIMIT 3"),
            "v cannot be restricted by more than one relation if it includes an Equal",
        ),
        (format!("p FROM t WHERE p = 1 {BY_V} LIMIT 3"), ALL_INDEXED),
        (format!("p FROM t WHERE p = 1 {BY_V} LIMIT 3 ALLOW FILTERING"), ALL_INDEXED),
        (format!("p FROM t WHERE b = 1 {BY_V} LIMIT 3 ALLOW FILTERING"), ALL_INDEXED),
        (format!("p FROM t WHERE c = 1 {BY_V} LIMIT 3 ALLOW FILTERING"), ALL_INDEXED),
        (
            format!("p FROM t WHERE p IN (1, 2) AND q = 1 {BY_V} LIMIT 3"),
            "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
        ),
        ("p FROM t WHERE v = [1, 2, 3]".to_owned(), "Vector indexes only support ANN queries"),
    ] {
        assert_eq!(node.failure(&format!("SELECT {select}")), message, "{select}");
    }
}

#[test]
fn vectors_that_the_index_cannot_compare_are_refused() {
    let node = filled();
    let zero = "Zero vectors cannot be indexed or queried with cosine similarity";
    for (column, value, message) in [
        ("v", "[0, 0, 0]", zero),
        ("v", "[NaN, 0, 0]", "non-finite value at vector[0]=NaN"),
        ("e", "[0, Infinity, 0]", "non-finite value at vector[1]=Infinity"),
        ("e", "[0, 0, -1e18]", "Out-of-bounds value at vector[2]=-9.9999998E17"),
    ] {
        for statement in [
            format!("INSERT INTO t (p, q, c, d, {column}) VALUES (9, 9, 9, 9, {value})"),
            format!("INSERT INTO t (p, q, c, d, {column}) VALUES (9, 9, 9, 9, {value}) IF NOT EXISTS"),
            format!("UPDATE t SET {column} = {value} WHERE p = 9 AND q = 9 AND c = 9 AND d = 9"),
            format!(
                "BEGIN UNLOGGED BATCH INSERT INTO t (p, q, c, d, {column}) VALUES (9, 9, 9, 9, {value}) APPLY BATCH"
            ),
            format!("SELECT p FROM t ORDER BY {column} ANN OF {value} LIMIT 3"),
        ] {
            assert_eq!(node.failure(&statement), message, "{statement}");
        }
    }
    node.run("INSERT INTO t (p, q, c, d, w, e) VALUES (9, 9, 9, 9, [0, 0, 0], [-1e17, 0, 0])");
    node.run("INSERT INTO t (p, q, c, d, v) VALUES (9, 9, 9, 9, null)");
    assert_eq!(node.rows("SELECT d FROM t WHERE p = 9 AND q = 9 ORDER BY w ANN OF [0, 0, 0] LIMIT 3"), ["9"]);
    // A vector that was there before the index is left out.
    node.run("CREATE TABLE late (k int PRIMARY KEY, v vector<float, 2>)");
    node.run("INSERT INTO late (k, v) VALUES (1, [0, 0])");
    node.run("INSERT INTO late (k, v) VALUES (2, [0, 1])");
    node.run("CREATE INDEX ON late (v) USING 'sai'");
    assert_eq!(node.rows("SELECT k FROM late ORDER BY v ANN OF [1, 1] LIMIT 3"), ["2"]);
}

#[test]
fn levels_and_page_sizes_are_changed_with_a_warning() {
    let node = filled();
    let select = format!("SELECT k FROM u {BY_V} LIMIT 5");
    let at = |consistency| QueryOptions { consistency, ..QueryOptions::default() };
    let downgraded = |from: &str, to: &str| {
        format!(
            "Top-K queries can only be run with consistency level ONE / LOCAL_ONE / NODE_LOCAL. Consistency level {from} \
             was requested. Downgrading the consistency level to {to}."
        )
    };
    for (level, expected) in [
        (Consistency::One, None),
        (Consistency::LocalOne, None),
        (Consistency::Two, Some(downgraded("TWO", "ONE"))),
        (Consistency::Quorum, Some(downgraded("QUORUM", "ONE"))),
        (Consistency::All, Some(downgraded("ALL", "ONE"))),
        (Consistency::EachQuorum, Some(downgraded("EACH_QUORUM", "ONE"))),
        (Consistency::LocalQuorum, Some(downgraded("LOCAL_QUORUM", "LOCAL_ONE"))),
    ] {
        assert_eq!(warnings(&node, &select, &at(level)), expected.into_iter().collect::<Vec<_>>(), "{level}");
    }
    for (level, name) in [(Consistency::Serial, "SERIAL"), (Consistency::LocalSerial, "LOCAL_SERIAL")] {
        let expected = format!(
            "Top-K queries can only be run with consistency level ONE/LOCAL_ONE. Consistency level {name} was used."
        );
        assert_eq!(node.try_run(&select, &at(level)).unwrap_err().message, expected);
    }
    let paged = |size| QueryOptions { page_size: Some(size), ..QueryOptions::default() };
    let small = "Top-K queries do not support paging and the page size is set to 2, which is less than LIMIT 5. The \
                 page size has been set to 5 to match the LIMIT.";
    assert_eq!(warnings(&node, &select, &paged(2)), [small]);
    assert_eq!(node.rows_with(&select, &paged(2)).len(), 5);
    assert_eq!(warnings(&node, &select, &paged(5)), [""; 0]);
}

/// Waits until a search by an index of vectors uses it.
fn await_index(node: &TestNode, dimension: usize) {
    let engine = node.processor.engine();
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_built = || {
        let schema = engine.schema();
        let table = schema.table("ks", "t").unwrap();
        let index = table.indexes().iter().find(|index| index.part.similarity().is_some()).unwrap();
        let wanted = vec![1.0; dimension];
        engine.nearest_candidates(table, index, &wanted, &KeyRange::all(), 10).unwrap().is_some()
    };
    while !is_built() {
        assert!(Instant::now() < deadline, "the index is not built");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const DIMENSION: usize = 8;

fn vector(random: &mut Random) -> Vec<f32> {
    let element = |random: &mut Random| (0..4).map(|_| random.below(4096) as f32 / 4096.0 - 0.5).sum();
    (0..DIMENSION).map(|_| element(random)).collect()
}

/// The share of the ten most similar rows, of 20 new vectors each, that searches find. All rows that they find are
/// there.
fn recall(node: &TestNode, rows: &[Option<Vec<f32>>], random: &mut Random) -> f64 {
    let similarity = types::Similarity::Euclidean;
    let (mut hits, searches) = (0, 20);
    for _ in 0..searches {
        let wanted = vector(random);
        let score = |(k, row): (usize, &Option<Vec<f32>>)| Some((similarity.score(row.as_ref()?, &wanted), k));
        let mut best: Vec<(f32, usize)> = rows.iter().enumerate().filter_map(score).collect();
        best.sort_by(|one, other| other.0.total_cmp(&one.0));
        let found = node.rows(&format!("SELECT k FROM t ORDER BY v ANN OF {wanted:?} LIMIT 10"));
        let found: Vec<usize> = found.iter().map(|k| k.parse().unwrap()).collect();
        assert_eq!(found.len(), 10);
        assert!(found.iter().all(|k| rows[*k].is_some()), "rows that are there: {found:?}");
        hits += best[..10].iter().filter(|(_, k)| found.contains(k)).count();
    }
    hits as f64 / f64::from(searches * 10)
}

#[test]
fn searches_in_graphs_find_nearly_all_through_updates_flushes_merges_and_restarts() {
    let disk = SimulatedDisk::new();
    let open = || {
        let mut node = TestNode::in_directory(&disk, "/node", ProcessorOptions::default());
        node.use_keyspace("ks");
        node
    };
    let mut node = TestNode::on_disk(&disk).with_keyspace();
    node.run(&format!("CREATE TABLE t (k int PRIMARY KEY, v vector<float, {DIMENSION}>)"));
    node.run("CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}");
    let mut random = Random(seed(7));
    let mut rows: Vec<Option<Vec<f32>>> = vec![None; 2600];
    let put = |node: &TestNode, rows: &mut Vec<Option<Vec<f32>>>, k: usize, random: &mut Random| {
        let new = vector(random);
        node.run(&format!("INSERT INTO t (k, v) VALUES ({k}, {new:?})"));
        rows[k] = Some(new);
    };
    let flush = |node: &TestNode| {
        let table = node.processor.schema().table("ks", "t").unwrap().clone();
        node.processor.engine().flush(&table).unwrap();
    };
    (0..1300).for_each(|k| put(&node, &mut rows, k, &mut random));
    let check = |node: &TestNode, rows: &[Option<Vec<f32>>], random: &mut Random, when: &str| {
        await_index(node, DIMENSION);
        let recall = recall(node, rows, random);
        assert!(recall >= 0.95, "{when}: {recall}");
    };
    check(&node, &rows, &mut random, "in memory");
    flush(&node);
    check(&node, &rows, &mut random, "flushed");
    (1300..2600).for_each(|k| put(&node, &mut rows, k, &mut random));
    // A third of the first rows is far away from where it was, and a third is gone.
    (0..1300).step_by(3).for_each(|k| put(&node, &mut rows, k, &mut random));
    for k in (1..1300).step_by(3) {
        node.run(&format!("DELETE FROM t WHERE k = {k}"));
        rows[k] = None;
    }
    check(&node, &rows, &mut random, "updated");
    flush(&node);
    check(&node, &rows, &mut random, "two tables");
    let table = node.processor.schema().table("ks", "t").unwrap().clone();
    node.processor.engine().compact(&table).unwrap();
    check(&node, &rows, &mut random, "merged");
    drop(node);
    node = open();
    check(&node, &rows, &mut random, "after a restart");
}
