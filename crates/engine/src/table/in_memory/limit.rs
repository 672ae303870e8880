//! The limit of a table in memory, and the admission of writes to it.
//!
//! A write is admitted before it is logged. It reserves the most memory that it can add, and returns the reservation
//! once it is applied, when its real growth is a part of the used memory. If there is no room for the most, the growth
//! is computed from the stored data. A refused write is therefore never in the log, and replay is never refused. If
//! only the reservations of others leave no room, the write waits for them: a refused write would not fit even alone.
//! Only these can exceed the limit: loads and replays; writes that race with deletions of the rows that they were to
//! replace; and, by the length of a long clustering, deletions within a deleted range that ends there.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;

use arc_swap::ArcSwap;
use memtable::growth_max;
use model::{Mutation, PartitionUpdate, Table};

use crate::error::EngineError;
use crate::hooks::{InMemoryNotice, InMemoryNotices};
use crate::table::TableStore;
use crate::wakers::Wakers;

/// Deletions may exceed the limit by this fraction of it.
const DELETION_SHARE: u64 = 20;
/// The percentages of the limit at which a notice is sent.
const WARN_PERCENT: [u64; 2] = [80, 95];
/// How far the use must fall below such a percentage before a notice is sent again.
const CALM_PERCENT: u64 = 5;

/// The limit of one table.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit {
    /// 0 if the table does not live in memory.
    limit_bytes: AtomicU64,
    reserved_bytes: AtomicU64,
    refused_writes: AtomicU64,
    /// The number of `WARN_PERCENT` entries for which a notice was sent.
    warned: AtomicU8,
    /// How often each notice was sent.
    warnings: [AtomicU64; WARN_PERCENT.len()],
    /// Writes that wait for the reservations of others.
    waiting: Wakers,
}

/// The memory that writes reserve until they are applied.
#[derive(Default)]
pub(crate) struct Reservations {
    /// Most writes are to one table, and allocate nothing for this.
    first: Option<Reservation>,
    others: Vec<Reservation>,
}

/// Reserved bytes of a table. They are returned when this is dropped.
struct Reservation(Arc<TableStore>, u64);

impl Reservations {
    fn add(&mut self, store: &Arc<TableStore>, bytes: u64) {
        let reservation = Reservation(store.clone(), bytes);
        match &self.first {
            None => self.first = Some(reservation),
            Some(_) => self.others.push(reservation),
        }
    }

    /// The bytes of a table that the same write has reserved already.
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

/// The outcome of an attempt to reserve.
enum ReserveOutcome {
    Reserved(Reservations),
    /// The reservations of others take all room of a table.
    Waits(Arc<TableStore>),
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

    /// The number of refused writes.
    pub fn refused_writes(&self) -> u64 {
        self.refused_writes.load(Ordering::Relaxed)
    }

    /// How often the table reached 80 % and 95 % of its limit.
    pub fn warnings(&self) -> [u64; WARN_PERCENT.len()] {
        self.warnings.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The percentage of the last notice, unless the table fell well below it since; 0 if there is none.
    pub fn warned_percent(&self) -> u64 {
        let warned = usize::from(self.warned.load(Ordering::Relaxed));
        WARN_PERCENT[..warned.min(WARN_PERCENT.len())].last().copied().unwrap_or(0)
    }

    /// Reserves bytes if they fit beside the used and the reserved bytes.
    fn try_take(&self, bytes: u64, most_bytes: u64, used_bytes: impl Fn() -> u64) -> bool {
        let fits = |reserved: u64| reserved + bytes + used_bytes() <= most_bytes;
        let take = |reserved| fits(reserved).then_some(reserved + bytes);
        let Ok(others) = self.reserved_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) else {
            return false;
        };
        // The used bytes are read again: since the first read, other writes may have been applied, and others may have
        // reserved as much.
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
                Ok(ReserveOutcome::Reserved(reservations)) => return Poll::Ready(Ok(reservations)),
                Ok(ReserveOutcome::Waits(store))
                    if waits_for.as_ref().is_some_and(|known| Arc::ptr_eq(known, &store)) =>
                {
                    return Poll::Pending;
                }
                Ok(ReserveOutcome::Waits(store)) => {
                    // Room that is given back after this wakes the waker. Room given back before is found by another
                    // try.
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
        ReserveOutcome::Reserved(reservations) => Some(reservations),
        ReserveOutcome::Waits(_) => None,
    })
}

impl MemoryLimit {
    /// Sends a notice if the table, which is this one, reached a percentage of its limit.
    pub fn note_use(&self, table: &ArcSwap<Table>, used_bytes: u64, notices: Option<&InMemoryNotices>) {
        let Some(limit_bytes) = self.get() else { return };
        let percent = used_bytes.saturating_mul(100) / limit_bytes;
        let warned = usize::from(self.warned.load(Ordering::Relaxed));
        let passed = WARN_PERCENT.iter().filter(|threshold| percent >= **threshold).count();
        let calm = WARN_PERCENT.iter().filter(|threshold| percent + CALM_PERCENT >= **threshold).count();
        debug_assert!(passed <= calm, "a table is calm below each percentage that it has not reached");
        let now = warned.clamp(passed, calm);
        if now == warned {
            return;
        }
        let before = usize::from(self.warned.swap(now as u8, Ordering::Relaxed));
        if before >= now {
            return;
        }
        for count in &self.warnings[before..now] {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(notices) = notices {
            let table = table.load();
            let (keyspace, table) = (table.keyspace.to_string(), table.name.to_string());
            notices.0(&InMemoryNotice { keyspace, table, percent: WARN_PERCENT[now - 1], used_bytes, limit_bytes });
        }
    }
}

fn try_reserve(mutation: &Mutation, stores: &[Arc<TableStore>]) -> Result<ReserveOutcome, EngineError> {
    let mut reservations = Reservations::default();
    for (store, update) in stores.iter().zip(mutation.updates()) {
        if let Some(limit_bytes) = store.limit.get()
            && !try_reserve_one(store, update, limit_bytes, &mut reservations)?
        {
            return Ok(ReserveOutcome::Waits(store.clone()));
        }
    }
    Ok(ReserveOutcome::Reserved(reservations))
}

/// Returns false if the reservations of others take the room.
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

/// Whether an update only deletes.
fn is_deletion(update: &PartitionUpdate) -> bool {
    let table = update.table();
    let mut rows = update.static_row().into_iter().chain(update.rows().map(|row| row.row));
    rows.all(|row| !row.is_live(table, 0))
}
