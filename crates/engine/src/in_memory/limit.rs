//! What a table in memory may take, and who may still write to it.
//!
//! A write is admitted before it is logged: the most that it can add is reserved, and given back once it is applied,
//! when what it did add is part of what is used. If there is no room for that, it is looked up what it would add to
//! what is there. So a write that is refused is never in the log, and replay is never refused. Where it is only what
//! others have reserved that leaves no room, a write waits for them: what is refused would not fit by itself. The limit
//! can be passed only by what loads and replays bring, by writes that race with deletions of the rows that they were to
//! replace, and, by the length of a long clustering, by deletions within a deleted range that ends there.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;

use memtable::growth_max;
use model::{Mutation, PartitionUpdate};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::store::TableStore;
use crate::wakers::Wakers;

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
    /// How often each of them was.
    warnings: [AtomicU64; WARN_PERCENT.len()],
    /// Writes that wait for what others have reserved.
    waiting: Wakers,
}

/// Room that writes have until they are applied.
#[derive(Default)]
pub(crate) struct Reservations {
    /// Most writes are to one table, and need no memory for this.
    first: Option<Reservation>,
    others: Vec<Reservation>,
}

/// Bytes of a table's room; given back when dropped.
struct Reservation(Arc<TableStore>, u64);

impl Reservations {
    fn add(&mut self, store: &Arc<TableStore>, bytes: u64) {
        let reservation = Reservation(store.clone(), bytes);
        match &self.first {
            None => self.first = Some(reservation),
            Some(_) => self.others.push(reservation),
        }
    }

    /// What the same write has of a table already, bytes.
    fn of(&self, store: &Arc<TableStore>) -> u64 {
        let all = self.first.iter().chain(&self.others);
        all.filter(|Reservation(other, _)| Arc::ptr_eq(other, store)).map(|Reservation(_, bytes)| bytes).sum()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.limit.give_back(self.1);
    }
}

/// What trying to reserve came to.
enum Tried {
    Reserved(Reservations),
    /// Others have reserved what there is of a table.
    Waits(Arc<TableStore>),
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

    #[cfg(test)]
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::SeqCst)
    }

    /// Writes that were refused.
    pub fn refused_writes(&self) -> u64 {
        self.refused_writes.load(Ordering::Relaxed)
    }

    /// How often the table came to 80 % of its limit, and to 95 %.
    pub fn warnings(&self) -> [u64; WARN_PERCENT.len()] {
        self.warnings.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The percentage of the limit that was told of last, and that the table did not fall well below since; 0 if none.
    pub fn warned_percent(&self) -> u64 {
        let warned = usize::from(self.warned.load(Ordering::Relaxed));
        WARN_PERCENT[..warned.min(WARN_PERCENT.len())].last().copied().unwrap_or(0)
    }

    /// Reserves bytes if there is room for them beside what is used and reserved.
    fn try_take(&self, bytes: u64, most_bytes: u64, used_bytes: impl Fn() -> u64) -> bool {
        let fits = |reserved: u64| reserved + bytes + used_bytes() <= most_bytes;
        let take = |reserved| fits(reserved).then_some(reserved + bytes);
        let Ok(others) = self.reserved_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) else {
            return false;
        };
        // What was used is looked at again: others may have been applied, and as much been reserved, since it was
        // first.
        let is_room = fits(others);
        if !is_room {
            self.give_back(bytes);
        }
        is_room
    }

    fn give_back(&self, bytes: u64) {
        let before = self.reserved_bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "{bytes} bytes are given back of {before} that were reserved");
        self.waiting.wake_all();
    }
}

/// Reserves room in tables in memory for a write, once writes under way leave it, or refuses the write.
pub(crate) async fn reserve(mutation: &Mutation, stores: &[Arc<TableStore>]) -> Result<Reservations, EngineError> {
    poll_fn(|context| {
        let mut waits_for: Option<Arc<TableStore>> = None;
        loop {
            match try_reserve(mutation, stores) {
                Err(refused) => return Poll::Ready(Err(refused)),
                Ok(Tried::Reserved(reservations)) => return Poll::Ready(Ok(reservations)),
                Ok(Tried::Waits(store)) if waits_for.as_ref().is_some_and(|known| Arc::ptr_eq(known, &store)) => {
                    return Poll::Pending;
                }
                Ok(Tried::Waits(store)) => {
                    // Whoever gives back after this sees the waker; who did so before leaves room for another try.
                    store.limit.waiting.add(context.waker());
                    waits_for = Some(store);
                }
            }
        }
    })
    .await
}

/// As `reserve`; `None` if it would have to wait.
pub(crate) fn reserve_now(
    mutation: &Mutation,
    stores: &[Arc<TableStore>],
) -> Result<Option<Reservations>, EngineError> {
    Ok(match try_reserve(mutation, stores)? {
        Tried::Reserved(reservations) => Some(reservations),
        Tried::Waits(_) => None,
    })
}

impl Engine {
    /// Tells whoever wants to know that a table passed a percentage of its limit.
    pub(crate) fn note_memory_use(&self, store: &TableStore, used_bytes: u64) {
        let Some(limit_bytes) = store.limit.get() else { return };
        let percent = used_bytes.saturating_mul(100) / limit_bytes;
        let warned = usize::from(store.limit.warned.load(Ordering::Relaxed));
        let passed = WARN_PERCENT.iter().filter(|threshold| percent >= **threshold).count();
        let calm = WARN_PERCENT.iter().filter(|threshold| percent + CALM_PERCENT >= **threshold).count();
        let now = warned.clamp(passed, calm);
        if now == warned {
            return;
        }
        let before = usize::from(store.limit.warned.swap(now as u8, Ordering::Relaxed));
        if before >= now {
            return;
        }
        for count in &store.limit.warnings[before..now] {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(notices) = &self.options().in_memory_notices {
            let table = store.table.load();
            let (keyspace, table) = (table.keyspace.to_string(), table.name.to_string());
            notices.0(&InMemoryNotice { keyspace, table, percent: WARN_PERCENT[now - 1], used_bytes, limit_bytes });
        }
    }
}

fn try_reserve(mutation: &Mutation, stores: &[Arc<TableStore>]) -> Result<Tried, EngineError> {
    let mut reservations = Reservations::default();
    for (store, update) in stores.iter().zip(mutation.updates()) {
        if let Some(limit_bytes) = store.limit.get()
            && !try_reserve_one(store, update, limit_bytes, &mut reservations)?
        {
            return Ok(Tried::Waits(store.clone()));
        }
    }
    Ok(Tried::Reserved(reservations))
}

/// False if others have reserved what there is.
fn try_reserve_one(
    store: &Arc<TableStore>,
    update: &PartitionUpdate,
    limit_bytes: u64,
    reservations: &mut Reservations,
) -> Result<bool, EngineError> {
    let Some(resident) = store.resident().filter(|resident| !resident.is_failed()) else { return Ok(true) };
    let most_bytes = if is_deletion(update) { limit_bytes + limit_bytes / DELETION_SHARE } else { limit_bytes };
    let mut reserve = |bytes: u64| {
        let is_room = store.limit.try_take(bytes, most_bytes, || resident.data.used_bytes());
        if is_room {
            reservations.add(store, bytes);
        }
        is_room
    };
    if reserve(growth_max(update)) {
        return Ok(true);
    }
    let bytes = resident.data.growth(update);
    if bytes == 0 || reserve(bytes) {
        return Ok(true);
    }
    let used_bytes = resident.data.used_bytes();
    if used_bytes + reservations.of(store) + bytes <= most_bytes {
        return Ok(false);
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
