//! Replaying the log on all cores: one thread reads and checks records, the others apply them.
//!
//! Records are applied in any order: what a table holds does not depend on the order of writes, and what does (the schema, truncations)
//! was replayed before. An update is applied inside a write group, as any write, so that a flush between finds it whole or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use commitlog::{LogPosition, Replay};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::recovery::{Covered, Recovery, ReplaySummary};

/// Bytes of records handed over at once.
const CHUNK_SIZE: usize = 64 << 10;
/// Chunks that wait for each thread, at most.
const CHUNKS_WAITING: usize = 4;

/// Records on their way to whoever applies them.
struct Chunk {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, and its position in the log.
    records: Vec<(usize, LogPosition)>,
}

impl Chunk {
    fn new() -> Chunk {
        // A record more than a chunk may have begun within it.
        Chunk { bytes: Vec::with_capacity(CHUNK_SIZE + CHUNK_SIZE / 8), records: Vec::with_capacity(CHUNK_SIZE / 128) }
    }

    fn records(&self) -> impl Iterator<Item = (&[u8], LogPosition)> {
        let mut from = 0;
        self.records.iter().map(move |(end, position)| {
            let record = self.bytes.get(from..*end).unwrap_or_default();
            from = *end;
            (record, *position)
        })
    }
}

/// What the applying threads have in common.
struct Hand<'a> {
    engine: &'a Engine,
    covered: &'a Covered,
    failed: AtomicBool,
}

impl Engine {
    /// Applies all records of the log to the memtables, as far as no table covers them.
    pub(crate) fn replay_all(&self, replay: &mut Replay, recovery: &mut Recovery) -> Result<(), EngineError> {
        let threads = thread::available_parallelism().map_or(1, |cores| cores.get()).min(8);
        let hand = Hand { engine: self, covered: &recovery.covered, failed: AtomicBool::new(false) };
        let summary = thread::scope(|scope| {
            let (send, receive) = mpsc::sync_channel(CHUNKS_WAITING * threads);
            let receive = Arc::new(Mutex::new(receive));
            let started: Vec<_> = (0..threads)
                .map(|_| {
                    let (hand, receive) = (&hand, Arc::clone(&receive));
                    let thread = thread::Builder::new().name("CommitLogReplayer".into());
                    thread.spawn_scoped(scope, move || hand.apply_chunks(&receive))
                })
                .collect();
            drop(receive);
            let read = hand.read_chunks(replay, &send);
            drop(send);
            let mut summary = Ok(ReplaySummary::default());
            for thread in started {
                let thread =
                    thread.map_err(|error| EngineError::Startup(format!("no thread to replay the log: {error}")));
                let applied =
                    thread.and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                summary = summary.and_then(|sum| Ok(sum + applied?));
            }
            read.and(summary)
        })?;
        recovery.summary = recovery.summary + summary;
        Ok(())
    }
}

impl Hand<'_> {
    /// Reads to the end of the log, or until a record could not be applied.
    fn read_chunks(&self, replay: &mut Replay, send: &mpsc::SyncSender<Chunk>) -> Result<(), EngineError> {
        let mut chunk = Chunk::new();
        while let Some(record) = replay.next_record().map_err(|error| EngineError::Startup(error.to_string()))? {
            chunk.bytes.extend_from_slice(record.data);
            chunk.records.push((chunk.bytes.len(), record.position));
            if chunk.bytes.len() >= CHUNK_SIZE {
                let full = std::mem::replace(&mut chunk, Chunk::new());
                // Nobody takes it: all have failed, and say why.
                if self.failed.load(Ordering::Relaxed) || send.send(full).is_err() {
                    return Ok(());
                }
            }
        }
        let _ = send.send(chunk);
        Ok(())
    }

    fn apply_chunks(&self, receive: &Mutex<mpsc::Receiver<Chunk>>) -> Result<ReplaySummary, EngineError> {
        let mut recovered = ReplaySummary::default();
        loop {
            let chunk = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(chunk) = chunk else { return Ok(recovered) };
            let applied = self.engine.replay_records(chunk.records(), self.covered);
            recovered = recovered + applied.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))?;
        }
    }
}
