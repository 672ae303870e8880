//! Replaying the log on all cores. One thread reads and checks records. The other threads apply them, each for its part
//! of the tokens, in the order of tokens, so that each shard of a memtable has one writer, and an update finds the
//! memory of the previous one in the cache.
//!
//! Records are applied in any order, because the content of a table does not depend on the order of writes. Records for
//! which the order matters (the schema, truncations) were replayed before. Tables of counters are the exception: a
//! deletion of a counter wins over increments that are merged with it, whatever their timestamps are, until a deletion
//! of the row hides it. So their records are applied in the order of the log, all by one thread. Every update is
//! applied inside a write group, so that a flush in between contains it as a whole or not at all.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use commitlog::{LogPosition, Replay};
use model::{Mutation, TableId};
use types::Token;
use uuid::Uuid;

use super::covered::Covered;
use super::record_batch::RecordBatch;
use super::{ReplaySummary, Replayer};
use crate::error::EngineError;

/// The size of the chunks of records that are handed over.
const CHUNK_SIZE: usize = 4 << 20;

/// Records on their way to an applying thread.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// The end of each record in `bytes`, and its position in the log.
    records: Vec<(usize, LogPosition)>,
    /// The places of the records by table and token, sorted before they are applied.
    order: Vec<(u64, u32)>,
}

impl Chunk {
    fn push(&mut self, place: u64, record: &[u8], position: LogPosition) {
        self.order.push((place, self.records.len() as u32));
        self.bytes.extend_from_slice(record);
        self.records.push((self.bytes.len(), position));
    }

    /// The records, by table and token.
    fn sorted(&mut self) -> impl Iterator<Item = (&[u8], LogPosition)> {
        self.order.sort_unstable();
        self.order.iter().filter_map(|(_, index)| {
            let index = *index as usize;
            let start = index.checked_sub(1).map_or(Some(0), |before| self.records.get(before).map(|(end, _)| *end));
            let (end, position) = self.records.get(index)?;
            Some((self.bytes.get(start?..*end)?, *position))
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.order.clear();
    }
}

/// The connection to one of the applying threads, and the chunk that is being filled for it.
struct Lane {
    next: Chunk,
    full: SyncSender<Chunk>,
    /// Chunks that were applied.
    applied: Receiver<Chunk>,
}

impl Lane {
    /// Returns false if the thread has failed. Its result gives the reason.
    fn send(&mut self) -> bool {
        let empty = self.applied.try_recv().unwrap_or_default();
        self.full.send(std::mem::replace(&mut self.next, empty)).is_ok()
    }
}

impl Replayer {
    /// Applies all records of the log that no SSTable covers to the memtables.
    pub fn replay_all(&self, replay: &mut Replay, covered: &Covered) -> Result<ReplaySummary, EngineError> {
        let count = thread::available_parallelism().map_or(1, |cores| cores.get()).min(8);
        thread::scope(|scope| {
            let (mut lanes, mut threads) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for _ in 0..count {
                // One chunk waits while another one is applied and the next one is filled.
                let (full, to_apply) = sync_channel(1);
                let (done, applied) = channel();
                lanes.push(Lane { next: Chunk::default(), full, applied });
                let thread = thread::Builder::new().name("CommitLogReplayer".into());
                threads.push(thread.spawn_scoped(scope, move || self.apply_chunks(covered, &to_apply, &done)));
            }
            let read = read_chunks(replay, &mut lanes, &self.counter_tables());
            drop(lanes);
            let mut summary = Ok(ReplaySummary::default());
            for thread in threads {
                let thread =
                    thread.map_err(|error| EngineError::Startup(format!("no thread to replay the log: {error}")));
                let applied =
                    thread.and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                summary = summary.and_then(|sum| Ok(sum + applied?));
            }
            read.and(summary)
        })
    }

    fn counter_tables(&self) -> HashSet<TableId> {
        self.shared.stores().iter().filter(|store| store.counts).map(|store| store.table.load().id).collect()
    }

    fn apply_chunks(
        &self,
        covered: &Covered,
        to_apply: &Receiver<Chunk>,
        done: &Sender<Chunk>,
    ) -> Result<ReplaySummary, EngineError> {
        let (mut summary, mut batch) = (ReplaySummary::default(), RecordBatch::default());
        for mut chunk in to_apply {
            summary = summary + self.apply_records(chunk.sorted(), covered, &mut batch)?;
            chunk.clear();
            // The log has been read, so the chunk is not filled again.
            let _ = done.send(chunk);
        }
        Ok(summary)
    }
}

/// Reads to the end of the log, or until a record could not be applied.
fn read_chunks(replay: &mut Replay, lanes: &mut [Lane], counter_tables: &HashSet<TableId>) -> Result<(), EngineError> {
    while let Some(record) = replay.next_record().map_err(|error| EngineError::Startup(error.to_string()))? {
        // A record of several partitions is sorted by the first one. Most records have only one.
        let (table, token) = Mutation::first_partition(record.data).unwrap_or((TableId(Uuid::nil()), Token(0)));
        // A record with counters has nothing else. Records of one place keep the order of the log.
        let (share, place) = match counter_tables.contains(&table) {
            true => (0, 0),
            false => place_of(table, token, lanes.len()),
        };
        let lane = &mut lanes[share];
        lane.next.push(place, record.data, record.position);
        if lane.next.bytes.len() >= CHUNK_SIZE && !lane.send() {
            return Ok(());
        }
    }
    // A thread that takes no chunk has failed, and its result gives the reason.
    lanes.iter_mut().for_each(|lane| _ = lane.send());
    Ok(())
}

/// The lane of a partition, by its part of the tokens, and its place among the records of a chunk.
fn place_of(table: TableId, token: Token, lanes: usize) -> (usize, u64) {
    let token = token.0 as u64 ^ 1 << 63;
    let share = (u128::from(token) * lanes as u128) >> 64;
    let (a, b) = table.0.as_u64_pair();
    (share as usize, (a ^ b) << 48 | token >> 16)
}
