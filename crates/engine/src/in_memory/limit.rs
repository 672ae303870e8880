//! What a table in memory may take, and who may still write to it.
//!
//! A write is admitted before it is logged: the most that it can add is reserved, and given back once it is applied, when what it
//! did add is part of what is used. If there is no room for that, it is looked up whether it adds anything at all. So a write that
//! is refused is never in the log, and replay is never refused. The limit can be passed only by what loads and replays bring, and
//! by writes that race with deletions of the rows that they were to replace.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use memtable::growth_max;
use model::{Mutation, PartitionUpdate};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::TableStore;

/// Deletions may go beyond the limit by its 20th part.
const DELETION_SHARE: u64 = 20;
/// Percentages of the limit at which somebody is told.
const WARN_PERCENT: [u64; 2] = [80, 95];
/// How far use has to fall below such a percentage before it is told again.
const CALM_PERCENT: u64 = 5;

/// The limit of one table.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit {
    /// 0 if the table does not live in memory.
    limit_bytes: AtomicU64,
    reserved_bytes: AtomicU64,
    refused_writes: AtomicU64,
    /// How many of `WARN_PERCENT` were told.
    warned: AtomicU8,
}

/// Room that writes have until they are applied.
#[derive(Default)]
pub(crate) struct Reservations(Vec<(Arc<TableStore>, u64)>);

impl Drop for Reservations {
    fn drop(&mut self) {
        for (store, bytes) in &self.0 {
            store.limit.reserved_bytes.fetch_sub(*bytes, Ordering::Relaxed);
        }
    }
}

/// A table in memory that comes near its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InMemoryNotice {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// The percentage of the limit that was passed: 80 or 95.
    pub percent: u64,
    /// What the table takes, bytes.
    pub used_bytes: u64,
    /// What it may take, bytes.
    pub limit_bytes: u64,
}

/// Is told of tables that come near their limits, from any thread.
#[derive(Clone)]
pub struct InMemoryNotices(pub Arc<dyn Fn(&InMemoryNotice) + Send + Sync>);

impl fmt::Debug for InMemoryNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InMemoryNotices")
    }
}

impl MemoryLimit {
    /// Sets the limit, `None` for a table that does not live in memory.
    pub fn set(&self, limit_bytes: Option<u64>) {
        self.limit_bytes.store(limit_bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit, if the table lives in memory.
    pub fn get(&self) -> Option<u64> {
        Some(self.limit_bytes.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// Writes that were refused.
    pub fn refused_writes(&self) -> u64 {
        self.refused_writes.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Reserves room in memory for a write, or refuses it.
    pub(crate) fn reserve(&self, mutation: &Mutation, stores: &[Arc<TableStore>]) -> Result<Reservations, EngineError> {
        let mut reservations = Reservations::default();
        for (store, update) in stores.iter().zip(mutation.updates()) {
            if let Some(limit_bytes) = store.limit.get() {
                reserve_one(store, update, limit_bytes, &mut reservations)?;
            }
        }
        Ok(reservations)
    }

    /// Tells whoever wants to know that a table passed a percentage of its limit.
    pub(crate) fn note_memory_use(&self, store: &TableStore, used_bytes: u64) {
        let Some(limit_bytes) = store.limit.get() else { return };
        let percent = used_bytes.saturating_mul(100) / limit_bytes;
        let warned = usize::from(store.limit.warned.load(Ordering::Relaxed));
        let passed = WARN_PERCENT.iter().filter(|threshold| percent >= **threshold).count();
        let calm = WARN_PERCENT.iter().filter(|threshold| percent + CALM_PERCENT >= **threshold).count();
        let now = warned.clamp(passed, calm);
        if now == warned || store.limit.warned.swap(now as u8, Ordering::Relaxed) as usize >= now {
            return;
        }
        if let Some(notices) = &self.options().in_memory_notices {
            let table = store.table.load();
            let (keyspace, table) = (table.keyspace.to_string(), table.name.to_string());
            notices.0(&InMemoryNotice { keyspace, table, percent: WARN_PERCENT[now - 1], used_bytes, limit_bytes });
        }
    }
}

fn reserve_one(
    store: &Arc<TableStore>,
    update: &PartitionUpdate,
    limit_bytes: u64,
    reservations: &mut Reservations,
) -> Result<(), EngineError> {
    let Some(resident) = store.resident() else { return Ok(()) };
    let most_bytes = if is_deletion(update) { limit_bytes + limit_bytes / DELETION_SHARE } else { limit_bytes };
    let bytes = growth_max(update);
    let reserved_bytes = store.limit.reserved_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
    reservations.0.push((store.clone(), bytes));
    let used_bytes = resident.data.used_bytes();
    if used_bytes + reserved_bytes <= most_bytes || !resident.data.grows(update) {
        return Ok(());
    }
    store.limit.refused_writes.fetch_add(1, Ordering::Relaxed);
    let table = store.table.load();
    Err(EngineError::InMemoryTableFull { table: format!("{}.{}", table.keyspace, table.name), used_bytes, limit_bytes })
}

/// Whether an update does nothing but delete.
fn is_deletion(update: &PartitionUpdate) -> bool {
    let table = update.table();
    let mut rows = update.static_row().into_iter().chain(update.rows().map(|row| row.row));
    rows.all(|row| !row.is_live(table, 0))
}
