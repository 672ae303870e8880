//! Writers, an operator and power cuts at the same time. The machine chooses the interleaving, so a seed does not
//! repeat it; the conditions checked afterwards hold for every interleaving.
//!
//! Every write is a batch over `a`, `b` and `t`. `a` and `b` receive only writes: after a crash a batch is in both or
//! in neither. `t` is truncated now and then, `d` is dropped and created again with the same id or another one, `idle`
//! gains and loses a column, and some writers hang up. The log is so short that it is often full, also when a node
//! starts. Now and then nothing can be written to the directory of a table until the process ends. If that table is
//! quarantined, the next life repairs it, and the promise holds for it as for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use blockio::{Disk, Fault, SimulatedDisk};
use commitlog::SyncMode;
use engine::{Engine, EngineError, EngineOptions, block_on};
use model::{Keyspace, Mutation, Table, TableBuilder, TableId, TableOptions};
use types::CqlType;
use uuid::Uuid;

use super::evidence::evidence;
use crate::fixture::{columns, insertion, memory_only, open_with, rows, set_options, stored_columns};
use testkit::Choices;

const WRITERS: u64 = 3;
/// The writes of each writer from one crash to the next.
const WRITES: i32 = 100;
const OPERATIONS: u64 = 20;
const KEYSPACE: &str = "ks";

/// A batch, and the times at which it was sent and acknowledged.
struct Sent {
    id: (i32, i32),
    sent: u64,
    acknowledged: Option<u64>,
}

/// A truncation, with `ended` if it was acknowledged.
struct Truncation {
    began: u64,
    ended: Option<u64>,
}

/// The events, with times from a clock that all threads share.
#[derive(Default)]
struct History {
    clock: AtomicU64,
    sent: Mutex<Vec<Sent>>,
    truncations: Mutex<Vec<Truncation>>,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

type Found = BTreeSet<(i32, i32)>;

#[test]
fn acknowledged_writes_survive_with_concurrent_truncations_and_drops() {
    let prepared = prepared_disk();
    let cases = super::setting("ESPALIER_TORTURE_CASES", 200).div_ceil(5);
    let first = super::setting("ESPALIER_TORTURE_SEED", 1);
    for seed in first..first + cases {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(seed, &prepared)));
        if let Err(cause) = failed {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(cause);
        }
    }
}

fn prepared_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let engine = open_with(&options(&disk, SyncMode::Batch));
    let mut keyspace = Keyspace::new(KEYSPACE, BTreeMap::new(), true);
    for name in ["a", "b", "t", "d", "idle"] {
        keyspace.tables.insert(name.into(), table(name, Uuid::new_v4(), 0));
    }
    engine.set_keyspace(keyspace).unwrap();
    engine.shutdown().unwrap();
    disk
}

/// A table. Its comment contains its incarnation, and every other incarnation has one more column.
fn table(name: &str, id: Uuid, incarnation: u64) -> Arc<Table> {
    let options = TableOptions { comment: incarnation.to_string(), ..TableOptions::default() };
    let builder = TableBuilder::new(KEYSPACE, name, TableId(id)).options(options).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).regular("v", CqlType::Text);
    let builder = if incarnation % 2 == 1 { builder.regular("w", CqlType::Int) } else { builder };
    Arc::new(builder.build())
}

fn options(disk: &SimulatedDisk, sync: SyncMode) -> EngineOptions {
    let mut options = EngineOptions::new(Arc::new(disk.clone()), "/node");
    options.opens_damaged = false;
    options.commitlog.segment_size_bytes = 256 << 10;
    options.commitlog.total_space_bytes = 6 * (256 << 10);
    options.commitlog.sync = sync;
    options.memtable_shards = 1;
    options.memtable_space_bytes = 4 << 20;
    options.concurrent_compactors = 2;
    options
}

fn open(disk: &SimulatedDisk, sync: SyncMode) -> Arc<Engine> {
    open_with(&options(disk, sync))
}

fn table_of(engine: &Engine, name: &str) -> Option<Arc<Table>> {
    engine.schema().table(KEYSPACE, name).cloned()
}

/// Several lives of one node.
fn case(seed: u64, prepared: &SimulatedDisk) {
    let mut choices = Choices(seed);
    let mut disk = prepared.crash_image(0);
    let periodic = SyncMode::Periodic { period: Duration::from_millis(5) };
    let sync = if choices.one_in(3) { periodic } else { SyncMode::Batch };
    let history = History::default();
    let mut before = None;
    for life in 0..1 + choices.below(3) {
        let found = disk.after_process_death();
        let engine = open(&disk, sync);
        repair_all(&engine, &disk);
        check_all(&engine, [&found, &disk], &history, before.take());
        let fault = match choices.below(6) {
            0..=1 if sync == SyncMode::Batch => Some(Fault::PowerCut),
            2 if sync == SyncMode::Batch => Some(Fault::Fail),
            _ => None,
        };
        fault.into_iter().for_each(|fault| disk.inject(fault, choices.below(1500)));
        let refuses = choices.one_in(8);
        if refuses {
            disk.refuse_changes(Some(["/ks/a-", "/ks/b-", "/ks/t-"][choices.below(3) as usize]));
        }
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (engine, history, choices) = (&engine, &history, Choices(choices.next()));
                scope.spawn(move || write(engine, history, writer as i32, life as i32 * WRITES, choices));
            }
            operate(&engine, &history, life * OPERATIONS, Choices(choices.next()));
        });
        // All writes are finished, except those of clients that hung up. A flush waits for them.
        let quiet = engine.flush(&table_of(&engine, "idle").unwrap()).is_ok();
        before = (fault.is_none() && quiet && !refuses).then(|| read(&engine));
        let image = disk.crash_image(choices.next());
        drop(engine);
        disk.refuse_changes(None);
        // In periodic mode writes survive only the end of the process.
        if sync == SyncMode::Batch {
            disk = image;
        }
    }
    let found = disk.after_process_death();
    let engine = open(&disk, sync);
    repair_all(&engine, &disk);
    check_all(&engine, [&found, &disk], &history, before);
    let t = table_of(&engine, "t").unwrap();
    engine.truncate(&t).unwrap();
    assert_eq!(rows(&engine, &t), []);
    engine.shutdown().unwrap();
}

/// Repairs the tables that were quarantined in the previous life.
fn repair_all(engine: &Engine, disk: &SimulatedDisk) {
    for quarantined in engine.quarantined_tables() {
        engine.repair_table(&quarantined.keyspace, &quarantined.table).unwrap();
    }
    let side_files = Path::new("/node/quarantine");
    let is_empty = !disk.exists(side_files).unwrap() || disk.list(side_files).unwrap().is_empty();
    assert!(is_empty, "repair removes side files");
}

/// Checks the state that a start finds. `found` is the disk as it was before the start.
fn check_all(engine: &Engine, [found, disk]: [&SimulatedDisk; 2], history: &History, before: Option<[Found; 3]>) {
    let after = read(engine);
    let torn: Vec<_> = after[0].symmetric_difference(&after[1]).copied().collect();
    if !torn.is_empty() {
        let tables = ["a", "b", "t"].map(|name| table_of(engine, name).unwrap());
        panic!("batches {torn:?} are there in part\n{}", evidence(engine, found, &tables, &torn));
    }
    check(history, &after);
    if let Some(before) = before {
        assert_eq!(before, after, "reads after a crash answer what they did before");
    }
    assert_eq!(
        stored_columns(engine, KEYSPACE).unwrap(),
        columns(engine, KEYSPACE),
        "what is shown is what the schema is"
    );
    check_incarnation(engine);
    check_directories(engine, [found, disk]);
}

/// Sends batches until the engine refuses one, or until there are enough.
fn write(engine: &Engine, history: &History, writer: i32, first: i32, mut choices: Choices) {
    let tables = ["a", "b", "t"].map(|name| table_of(engine, name).unwrap());
    let value = "v".repeat(choices.below(1500) as usize);
    for number in first..first + WRITES {
        let updates = tables.iter().map(|table| insertion(table, writer, number, &value, 10).updates()[0].clone());
        let mutation = Mutation::new(updates.collect());
        let sent = history.now();
        let result = send(engine, &mutation, choices.one_in(5));
        let acknowledged = matches!(result, Some(Ok(()))).then(|| history.now());
        history.sent.lock().unwrap().push(Sent { id: (writer, number), sent, acknowledged });
        if matches!(result, Some(Err(_))) {
            return;
        }
        if let Some(d) = table_of(engine, "d") {
            let mutation = insertion(&d, writer, number, &d.options.comment, 10);
            match send(engine, &mutation, choices.one_in(5)) {
                None | Some(Ok(()) | Err(EngineError::UnknownTable(_))) => {}
                Some(Err(_)) => return,
            }
        }
    }
}

/// Writes and waits, or hangs up after the first poll, or after a failed flush, as a client does after its timeout.
/// Without flushes there may never be room in the log, and a write waits for it.
fn send(engine: &Engine, mutation: &Mutation, hang_up: bool) -> Option<Result<(), EngineError>> {
    let mut write = pin!(engine.write(mutation));
    block_on(poll_fn(|context| match write.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if hang_up || engine.last_flush_failure().is_some() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    }))
}

/// Executes an operator's commands while others write.
fn operate(engine: &Engine, history: &History, before: u64, mut choices: Choices) {
    for incarnation in before + 1..=before + OPERATIONS {
        let some = ["a", "b", "t"][choices.below(3) as usize];
        match choices.below(13) {
            8..=9 => move_table(engine, some),
            10..=12 => add_or_drop_column(engine),
            0..=3 => {
                let began = history.now();
                let result = engine.truncate(&table_of(engine, "t").unwrap());
                let ended = result.is_ok().then(|| history.now());
                history.truncations.lock().unwrap().push(Truncation { began, ended });
            }
            4..=5 => {
                let _ = engine.flush(&table_of(engine, some).unwrap());
            }
            6 => {
                let _ = engine.compact(&table_of(engine, some).unwrap());
            }
            _ => drop_and_create(engine, incarnation, &mut choices),
        }
    }
}

/// Moves a table into memory, or out of it.
fn move_table(engine: &Engine, name: &str) {
    let table = table_of(engine, name).unwrap();
    let mut options = table.options.clone();
    let is_in_memory = options.compaction == memory_only(64).compaction;
    options.compaction = if is_in_memory { TableOptions::default().compaction } else { memory_only(64).compaction };
    // If this fails, the state after the restart shows it.
    let _ = set_options(engine, &table, options);
}

fn add_or_drop_column(engine: &Engine) {
    let idle = table_of(engine, "idle").unwrap();
    let altered = match idle.column("w") {
        None => idle.to_builder().regular("w", CqlType::Int),
        Some(_) => idle.to_builder().drop_column("w", CqlType::Int, engine.next_timestamp_micros()),
    };
    // If this fails, the state after the restart shows it.
    let _ = engine.change_schema::<_, EngineError>(|_, keyspaces| {
        let keyspace = Arc::make_mut(keyspaces.get_mut(KEYSPACE).unwrap());
        keyspace.tables.insert("idle".into(), Arc::new(altered.build()));
        Ok(())
    });
}

fn drop_and_create(engine: &Engine, incarnation: u64, choices: &mut Choices) {
    let old = table_of(engine, "d").map_or_else(Uuid::new_v4, |d| d.id.0);
    let new = table("d", if choices.one_in(2) { old } else { Uuid::new_v4() }, incarnation);
    for table in [None, Some(new)] {
        // If this fails, the state after the restart shows it.
        let _ = engine.change_schema::<_, EngineError>(|_, keyspaces| {
            let tables = &mut Arc::make_mut(keyspaces.get_mut(KEYSPACE).unwrap()).tables;
            match &table {
                None => tables.remove("d"),
                Some(table) => tables.insert("d".into(), table.clone()),
            };
            Ok(())
        });
    }
}

fn read(engine: &Engine) -> [Found; 3] {
    ["a", "b", "t"].map(|name| {
        let table = table_of(engine, name).unwrap();
        rows(engine, &table).into_iter().map(|(key, row, _)| (key, row)).collect()
    })
}

fn check(history: &History, [a, b, t]: &[Found; 3]) {
    let (sent, truncations) = (history.sent.lock().unwrap(), history.truncations.lock().unwrap());
    assert_eq!(a, b, "a batch is there whole or not at all");
    let ids: Found = sent.iter().map(|write| write.id).collect();
    assert!(a.is_subset(&ids), "nothing that was never sent is there");
    assert!(t.is_subset(a), "a batch is there whole or not at all, but for what was truncated");
    for write in sent.iter() {
        let id = write.id;
        assert!(write.acknowledged.is_none() || a.contains(&id), "{id:?} was acknowledged and is not there");
        let is_before = |truncation: &Truncation| {
            truncation.ended.is_some() && write.acknowledged.is_some_and(|acknowledged| acknowledged < truncation.began)
        };
        let is_after = |truncation: &Truncation| truncation.ended.is_some_and(|ended| ended < write.sent);
        assert!(!truncations.iter().any(is_before) || !t.contains(&id), "{id:?} was truncated and came back");
        let must_be_there = a.contains(&id) && truncations.iter().all(is_after);
        assert!(!must_be_there || t.contains(&id), "{id:?} was written after all truncations and is gone");
    }
}

/// Checks that the rows of `d` belong to the table that has the name now.
fn check_incarnation(engine: &Engine) {
    let Some(d) = table_of(engine, "d") else { return };
    for (key, row, value) in rows(engine, &d) {
        assert_eq!(value, d.options.comment, "row {key}, {row} is of a table that was dropped");
    }
}

/// Checks that nothing is left of dropped tables.
fn check_directories(engine: &Engine, [found, disk]: [&SimulatedDisk; 2]) {
    let schema = engine.schema();
    let tables = schema.keyspaces[KEYSPACE].tables.values();
    let known: BTreeSet<String> = tables.map(|table| format!("{}-{}", table.name, table.id.0.simple())).collect();
    let directory = Path::new("/node/data").join(KEYSPACE);
    if disk.exists(&directory).unwrap() {
        for entry in disk.list(&directory).unwrap() {
            let is_known = known.contains(&entry.name);
            assert!(is_known, "{} is left of a dropped table\n{}", entry.name, evidence(engine, found, &[], &[]));
        }
    }
}
