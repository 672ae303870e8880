//! Applying records of the log to the memtables, and the flushes afterwards.

use std::sync::Arc;

use commitlog::LogPosition;
use memtable::MemtableFull;
use model::{PartitionUpdate, TableId};

use super::covered::Covered;
use super::record_batch::RecordBatch;
use crate::error::EngineError;
use crate::flush::{Flush, contained};
use crate::quarantine::Quarantine;
use crate::shared::Shared;
use crate::table::TableStore;

/// The replayed data is small if it is less than the memory of memtables divided by this, and of few tables.
const REPLAYED_SHARE: u64 = 64;
/// More tables than this are not few.
const REPLAYED_TABLES: usize = 100;

/// The result of replaying the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Updates that were applied.
    pub replayed: u64,
    /// Updates that SSTables or truncations cover.
    pub covered: u64,
    /// Updates of tables that do not exist any more.
    pub of_dropped_tables: u64,
    /// Records that a salvage left out, entirely or in part: those with columns that the schema does not have, because
    /// the schema change that added them was damaged.
    pub unreadable: u64,
}

impl std::ops::Add for ReplaySummary {
    type Output = ReplaySummary;

    fn add(self, other: ReplaySummary) -> ReplaySummary {
        ReplaySummary {
            replayed: self.replayed + other.replayed,
            covered: self.covered + other.covered,
            of_dropped_tables: self.of_dropped_tables + other.of_dropped_tables,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}

/// Applies records of the log to memtables.
pub(super) struct Replayer {
    pub(super) shared: Arc<Shared>,
    quarantine: Arc<Quarantine>,
    flush: Arc<Flush>,
}

impl Replayer {
    pub fn new(shared: &Arc<Shared>, quarantine: &Arc<Quarantine>, flush: &Arc<Flush>) -> Replayer {
        Replayer { shared: Arc::clone(shared), quarantine: Arc::clone(quarantine), flush: Arc::clone(flush) }
    }

    /// Applies records, each with its position, to the memtables, unless SSTables cover them.
    pub fn apply_records<'r>(
        &self,
        mut records: impl Iterator<Item = (&'r [u8], LogPosition)>,
        covered: &Covered,
        batch: &mut RecordBatch,
    ) -> Result<ReplaySummary, EngineError> {
        let mut summary = ReplaySummary::default();
        let mut is_more = true;
        while is_more {
            let membership = self.shared.groups().enter().into_owned();
            loop {
                is_more = batch.gather(&mut records);
                summary = summary + batch.read(&self.shared, &self.quarantine, covered)?;
                self.apply_updates(batch.updates())?;
                if !is_more || self.shared.pool().wants_flush() {
                    break;
                }
            }
            // A flush waits for the group.
            drop(membership);
            self.flush.flush_largest()?;
        }
        Ok(summary)
    }

    /// Applies updates. Successive updates of one table are looked up and counted together.
    fn apply_updates(&self, updates: &[PartitionUpdate]) -> Result<(), EngineError> {
        for same in updates.chunk_by(|a, b| a.table().id == b.table().id) {
            let Some(first) = same.first() else { continue };
            let store = match self.shared.store(first.table()) {
                // Its records are set aside once the replay is over.
                Err(EngineError::Quarantined { .. }) => continue,
                store => store?,
            };
            let active = store.view().active.clone();
            let keys: Vec<_> = same.iter().map(PartitionUpdate::key).collect();
            active.memtable.prefetch(&keys);
            let mut growth_bytes = 0;
            for update in same {
                match active.apply(update) {
                    Ok(growth) => growth_bytes += growth,
                    Err(MemtableFull) => self.apply_update(&store, update),
                }
            }
            active.account(growth_bytes, self.shared.pool());
        }
        Ok(())
    }

    /// Applies one update, which may fill several memtables.
    pub fn apply_update(&self, store: &TableStore, update: &PartitionUpdate) {
        loop {
            let active = store.view().active.clone();
            if let Ok(growth_bytes) = active.apply(update) {
                active.account(growth_bytes, self.shared.pool());
                return;
            }
            self.shared.successor(store, &active);
        }
    }

    /// Flushes the replayed memtables, which frees their part of the log. This mostly happens in the background, so
    /// that queries need not wait for it. It happens at once if the data is small and of few tables, so that most
    /// starts leave nothing to flush, and if log segments or memory are short, because the start itself writes. A
    /// failed flush does not prevent service, because the data is in memory and in the log: it is retried in the
    /// background.
    pub fn flush_replayed(&self) -> Result<(), EngineError> {
        let is_little = self.shared.pool().used_bytes() < self.shared.options().memtable_space_bytes / REPLAYED_SHARE
            && self.shared.log().replayed_tables().len() <= REPLAYED_TABLES;
        if is_little || self.shared.log().pressure().is_some() || self.shared.pool().wants_flush() {
            let failures = self.flush.flush_each();
            if failures.into_iter().all(|(_, error)| contained(Err(error)).is_ok()) {
                return self.shared.log().discard_replayed().map_err(|error| self.shared.log_failed(error));
            }
        }
        let (end, stores) = (self.shared.log().position(), self.shared.stores());
        for id in self.shared.log().replayed_tables().into_iter().map(TableId) {
            match stores.iter().find(|store| store.table.load().id == id) {
                Some(store) if self.ends_replay(store) => self.flush.request(store),
                _ => {
                    self.shared.note_flushed_by_replay(id);
                    self.shared.forget_log(id, end)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the flush of the table's newest memtable, which comes after those of all others, cover all replayed
    /// records. Returns false if none of them are in memory.
    pub fn ends_replay(&self, store: &TableStore) -> bool {
        let view = store.view();
        let Some(newest) = view.generations().find(|generation| !generation.memtable.is_empty()) else { return false };
        newest.lower(self.shared.log());
        newest.end_replay();
        true
    }
}
