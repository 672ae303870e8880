//! Running compactions are rows of `system_views.sstable_tasks`. Pending, active and finished ones are counted in
//! `thread_pools`.

use std::sync::Arc;

use blockio::SimulatedDisk;
use commitlog::SyncMode;
use engine::{Engine, EngineOptions};
use query::{ClientState, Processor, ProcessorOptions};

use crate::node::TestNode;

const TASKS: &str = "SELECT keyspace_name, table_name, kind, sstables, unit FROM system_views.sstable_tasks";
const POOL: &str = "SELECT pending_tasks, active_tasks, completed_tasks FROM system_views.thread_pools WHERE name = 'CompactionExecutor'";

/// A node that compacts only on request, at this speed.
fn node(compaction_throughput_bytes: u64) -> (Arc<Engine>, TestNode) {
    let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 4 << 20;
    options.commitlog.sync = SyncMode::Batch;
    options.concurrent_compactors = 0;
    options.compaction_throughput_bytes = compaction_throughput_bytes;
    let engine = Engine::open(options).unwrap();
    let processor = Arc::new(Processor::new(engine.clone(), ProcessorOptions::default()));
    let mut node = TestNode { processor, client: Arc::new(ClientState::default()) };
    node.create_keyspace();
    (engine, node)
}

#[test]
fn a_running_compaction_is_a_row() {
    // At this speed a merge takes most of a minute, unless it is stopped.
    let (engine, node) = node(200);
    node.run("CREATE TABLE t (k int PRIMARY KEY, v text)");
    let table = engine.schema().table("ks", "t").unwrap().clone();
    for _ in 0..2 {
        (0..300).for_each(|k| drop(node.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 'value')"))));
        engine.flush(&table).unwrap();
    }
    assert_eq!(node.rows(TASKS), Vec::<String>::new());
    assert_eq!(node.rows(POOL), ["0 0 0"], "pending, active, completed");
    for _ in 0..2 {
        (0..300).for_each(|k| drop(node.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 'value')"))));
        engine.flush(&table).unwrap();
    }
    assert_eq!(node.rows(POOL), ["1 0 0"], "four SSTables call for a merge");
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| engine.compact(&table));
        let seen = loop {
            let seen = node.rows(TASKS);
            if !seen.is_empty() || compaction.is_finished() {
                break seen;
            }
            std::thread::yield_now();
        };
        let counted = node.rows(POOL);
        let ratios = node.rows("SELECT completion_ratio FROM system_views.sstable_tasks");
        node.run("DROP TABLE t");
        compaction.join().unwrap().unwrap();
        assert_eq!(seen, ["'ks' 't' 'compaction' 4 'bytes'"]);
        assert_eq!(counted, ["0 1 0"]);
        let ratios: Vec<f64> = ratios.iter().map(|ratio| ratio.parse().unwrap()).collect();
        assert!(ratios.len() == 1 && (0.0..1.0).contains(&ratios[0]), "{ratios:?}");
    });
    assert_eq!(node.rows(TASKS), Vec::<String>::new());
    assert_eq!(node.rows(POOL), ["0 0 0"], "it was stopped");
}

#[test]
fn finished_compactions_are_counted() {
    let (engine, node) = node(0);
    node.run("CREATE TABLE t (k int PRIMARY KEY)");
    node.run("INSERT INTO t (k) VALUES (1)");
    assert_eq!(node.rows(POOL), ["0 0 0"]);
    engine.compact(&engine.schema().table("ks", "t").unwrap().clone()).unwrap();
    assert_eq!(node.rows(POOL), ["0 0 1"]);
    let limits = "SELECT active_tasks_limit FROM system_views.thread_pools WHERE name = 'MemtableFlushWriter'";
    assert_eq!(node.rows(limits), [engine.options().memtable_flush_writers.to_string()]);
}
