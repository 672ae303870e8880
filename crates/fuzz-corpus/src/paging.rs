//! Paging states, as clients send them with a statement.

use std::sync::{Arc, OnceLock};

use blockio::SimulatedDisk;
use engine::{Engine, EngineOptions};
use protocol::{QueryOptions, ResponseBody, Version};
use query::{ClientState, Outcome, Processor, ProcessorOptions, QueryHandler, Request, Statement, Turn};

const SCHEMA: [&str; 3] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (a int, b text, c int, d blob, s int STATIC, v int, PRIMARY KEY ((a, b), c, d)) \
     WITH CLUSTERING ORDER BY (c DESC, d ASC)",
    "CREATE TABLE ks.one (k int PRIMARY KEY, v int)",
];

const STATEMENTS: [&str; 7] = [
    "SELECT * FROM ks.t",
    "SELECT c FROM ks.t WHERE a = 1 AND b = 'x'",
    "SELECT c FROM ks.t WHERE a IN (1, 2) AND b = 'x' AND c > 1",
    "SELECT a, b, count(v) FROM ks.t GROUP BY a, b",
    "SELECT DISTINCT a, b, s FROM ks.t",
    "SELECT * FROM ks.one",
    "DESCRIBE SCHEMA",
];

/// The length of a state's beginning, in which random bytes are only refused: a version, flags, and hashes.
const HEAD_BYTES: usize = 2 + 8;

/// A node with some rows, and a real state of each statement.
struct Node {
    processor: Arc<Processor>,
    client: Arc<ClientState>,
    states: Vec<Vec<u8>>,
}

impl Node {
    fn new() -> Node {
        let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
        options.commitlog.segment_size_bytes = 256 << 10;
        options.commitlog.total_space_bytes = 4 << 20;
        options.concurrent_compactors = 0;
        let engine = Engine::open(options).expect("a node on an empty disk");
        let processor = Arc::new(Processor::new(engine, ProcessorOptions::default()));
        let mut node = Node { processor, client: Arc::default(), states: Vec::new() };
        SCHEMA.iter().for_each(|text| drop(node.page(text, None)));
        for n in 0..6 {
            let values = format!("({}, 'x', {n}, 0x0{n}, {n}, {n})", n % 2 + 1);
            node.page(&format!("INSERT INTO ks.t (a, b, c, d, s, v) VALUES {values}"), None);
            node.page(&format!("INSERT INTO ks.one (k, v) VALUES ({n}, {n})"), None);
        }
        node.states = STATEMENTS.iter().map(|text| node.page(text, None).unwrap_or_default()).collect();
        node
    }

    /// The paging state after a page of one row. `None` also for an error.
    fn page(&self, text: &str, paging_state: Option<&[u8]>) -> Option<Vec<u8>> {
        let options = QueryOptions { page_size: Some(1), paging_state, ..QueryOptions::default() };
        let statement = Statement::Text(text);
        let request = Request { statement, client: &self.client, options: &options, version: Version::V5, trace: None };
        let outcome: Outcome = self.processor.begin(&request, Turn::BLOCKING, None);
        match outcome.into_response().ok()?.body {
            ResponseBody::Rows(rows) => rows.paging_state,
            _ => None,
        }
    }
}

/// The first byte chooses the statement; the rest is its paging state. In two of three cases its beginning is replaced
/// by that of a real state, because a random hash is nearly always refused.
pub(crate) fn paging_state(bytes: &[u8]) {
    static NODE: OnceLock<Node> = OnceLock::new();
    let Some((choice, sent)) = bytes.split_first() else { return };
    let node = NODE.get_or_init(Node::new);
    let (chosen, form) = (usize::from(*choice) % STATEMENTS.len(), usize::from(*choice) / STATEMENTS.len() % 3);
    let real = &node.states[chosen];
    let kept = (form * HEAD_BYTES).min(real.len());
    let state = [&real[..kept], sent].concat();
    node.page(STATEMENTS[chosen], Some(&state));
}
