//! The way of a write.

use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commitlog::{CommitLog, LogError, LogPosition};
use memtable::MemtableFull;
use model::{Mutation, PartitionUpdate};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::groups::Membership;
use crate::in_memory::{Reservations, merges_are_behind};
use crate::store::{Generation, TableStore, View};
use crate::system::is_system_keyspace;

/// So many updates of a batch are looked up in memtables together before they are applied; not if there are fewer than
/// a few.
const PREFETCHED_UPDATES: usize = 64;
const PREFETCHED_UPDATES_MIN: usize = 8;

/// A write whose record is in the log and that is not visible yet.
pub(crate) struct LoggedWrite {
    pub mutation: Mutation,
    pub stores: WrittenStores,
    pub logged: LogPosition,
    pub membership: Membership,
    /// Given back when it is applied.
    pub room: Reservations,
}

/// The stores of a mutation's tables, kept while it waits. The one that most mutations have needs no memory of its own.
pub(crate) enum WrittenStores {
    One(Arc<TableStore>),
    Several(Vec<Arc<TableStore>>),
}

impl From<&[Arc<TableStore>]> for WrittenStores {
    fn from(stores: &[Arc<TableStore>]) -> Self {
        match stores {
            [store] => WrittenStores::One(Arc::clone(store)),
            stores => WrittenStores::Several(stores.to_vec()),
        }
    }
}

impl Deref for WrittenStores {
    type Target = [Arc<TableStore>];

    fn deref(&self) -> &Self::Target {
        match self {
            WrittenStores::One(store) => slice::from_ref(store),
            WrittenStores::Several(stores) => stores,
        }
    }
}

/// A write between log and memtable. Dropped with its membership, it was abandoned by whoever waited for it.
struct InFlight<'a> {
    engine: &'a Engine,
    mutation: &'a Mutation,
    stores: &'a [Arc<TableStore>],
    /// Where its record ends.
    logged: Option<LogPosition>,
    membership: Option<Membership>,
    room: Reservations,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let (Some(logged), Some(membership)) = (self.logged, self.membership.take()) {
            let (mutation, stores) = (self.mutation.clone(), self.stores.into());
            let room = std::mem::take(&mut self.room);
            let write = LoggedWrite { mutation, stores, logged, membership, room };
            self.engine.finish_in_background(write);
        }
    }
}

impl Engine {
    /// Writes a mutation: ready once it is as durable as `commitlog_sync` says and visible to every read that starts
    /// later.
    ///
    /// The future may be dropped before it is ready; the mutation is then written whole or not at all, and if its
    /// record is in the log already, in the background. It needs no particular runtime. The order of a write is
    /// decided here and nowhere else.
    pub async fn write(&self, mutation: &Mutation) -> Result<(), EngineError> {
        let stores = self.stores_of(mutation)?;
        let room = self.reserve(mutation, &stores).await?;
        self.write_admitted(mutation, &stores, room).await
    }

    /// Writes what tables in memory have room for. Who waits for that room holds nothing of the memtables' memory,
    /// which those who have it may wait for.
    pub(crate) async fn write_admitted(
        &self,
        mutation: &Mutation,
        stores: &[Arc<TableStore>],
        room: Reservations,
    ) -> Result<(), EngineError> {
        let taken = self.pool().take(mutation.record_size()).await;
        let (membership, logged) = self.enter_and_log(mutation, stores).await?;
        let membership = membership.that_waits();
        self.make_visible(mutation, stores, membership, logged, room).await?;
        drop(taken);
        self.flush_if_wanted();
        Ok(())
    }

    /// Has the largest memtable flushed if memtables hold more than they should.
    pub(crate) fn flush_if_wanted(&self) {
        if self.pool().wants_flush() {
            self.request_cleanup();
        }
    }

    /// Writes to system tables; waits for room in the log on this thread, but not for memory.
    pub(crate) fn write_system(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.until_room(|| self.try_write(mutation))
    }

    /// Tries until there is room in the log for what is tried. Where no segment is free, what makes room are flushes:
    /// if one fails, so does this.
    pub(crate) fn until_room(&self, mut attempt: impl FnMut() -> Result<bool, EngineError>) -> Result<(), EngineError> {
        loop {
            let room = self.log().room();
            if attempt()? {
                return Ok(());
            }
            if let Some(failure) = self.last_flush_failure().filter(|_| self.is_log_full()) {
                return Err(failure);
            }
            self.request_cleanup();
            crate::block_on(room);
        }
    }

    fn is_log_full(&self) -> bool {
        self.log().pressure().is_some_and(|pressure| pressure.free_segments == 0)
    }

    /// As [`Engine::write`], but waits neither for memory nor for room in the log, for whoever keeps flushes waiting;
    /// false if the log has no room.
    pub(crate) fn try_write(&self, mutation: &Mutation) -> Result<bool, EngineError> {
        let stores = self.stores_of(mutation)?;
        let Some((membership, logged)) = self.try_enter_and_log(mutation, &stores)? else {
            return Ok(false);
        };
        // For system tables, which do not live in memory.
        let room = Reservations::default();
        crate::block_on(self.make_visible(mutation, &stores, membership, logged, room))?;
        Ok(true)
    }

    /// As `try_write`, but durable in whatever mode the log is, before it is visible: one that is refused shows
    /// nowhere.
    pub(crate) fn try_write_durably(&self, mutation: &Mutation) -> Result<bool, EngineError> {
        let stores = self.stores_of(mutation)?;
        let Some((membership, logged)) = self.try_enter_and_log(mutation, &stores)? else {
            return Ok(false);
        };
        let _membership = membership.that_waits();
        self.log().sync().map_err(|error| self.log_failed(error))?;
        self.apply_all(&stores, mutation, logged);
        Ok(true)
    }

    /// Once the record is durable, applies the write and leaves its group.
    async fn make_visible(
        &self,
        mutation: &Mutation,
        stores: &[Arc<TableStore>],
        membership: Membership,
        logged: Option<LogPosition>,
        room: Reservations,
    ) -> Result<(), EngineError> {
        let mut write = InFlight { engine: self, mutation, stores, logged, membership: Some(membership), room };
        if let Some(end) = logged {
            let durable = self.log().durable(end).await;
            durable.map_err(|error| {
                write.membership = None;
                self.log_failed(error)
            })?;
        }
        self.apply_all(stores, mutation, logged);
        write.membership = None;
        Ok(())
    }

    /// Applies a write to the memtables.
    pub(crate) fn apply_all(&self, stores: &[Arc<TableStore>], mutation: &Mutation, logged: Option<LogPosition>) {
        let updates = mutation.updates();
        for (index, (store, update)) in stores.iter().zip(updates).enumerate() {
            if index % PREFETCHED_UPDATES == 0 && updates.len() - index >= PREFETCHED_UPDATES_MIN {
                prefetch(stores[index..].iter().zip(&updates[index..]).take(PREFETCHED_UPDATES));
            }
            self.apply(store, update, logged);
        }
    }

    /// Has a write finished that nobody waits for any more.
    pub(crate) fn finish_in_background(&self, write: LoggedWrite) {
        if let Some(write) = self.finisher().take_over(write) {
            self.finish_abandoned(write);
        }
    }

    /// Makes a write visible whose future was dropped after its record was logged, once the record is durable.
    pub(crate) fn finish_abandoned(&self, write: LoggedWrite) {
        if self.log().durable(write.logged).wait().is_ok() {
            self.apply_all(&write.stores, &write.mutation, Some(write.logged));
        }
        drop((write.room, write.membership));
    }

    /// The stores of a mutation's tables; fails if one is gone, before anything is written.
    pub(crate) fn stores_of(&self, mutation: &Mutation) -> Result<Vec<Arc<TableStore>>, EngineError> {
        if self.options().read_only
            && !mutation.updates().iter().all(|update| is_system_keyspace(&update.table().keyspace))
        {
            self.check_writable()?;
        }
        mutation.updates().iter().map(|update| self.store(update.table())).collect()
    }

    /// Enters the write group and gets a place in the log. While the log has no room the group is left: what makes room
    /// is a flush, and a flush waits for the group.
    async fn enter_and_log(
        &self,
        mutation: &Mutation,
        stores: &[Arc<TableStore>],
    ) -> Result<(Membership, Option<LogPosition>), EngineError> {
        loop {
            let room = self.log().room();
            if let Some(entered) = self.try_enter_and_log(mutation, stores)? {
                return Ok(entered);
            }
            self.request_cleanup();
            room.await;
        }
    }

    /// As `enter_and_log`; `None` if the log has no room.
    pub(crate) fn try_enter_and_log(
        &self,
        mutation: &Mutation,
        stores: &[Arc<TableStore>],
    ) -> Result<Option<(Membership, Option<LogPosition>)>, EngineError> {
        let membership = self.groups().enter();
        // Whoever drops or quarantines a table, or shuts down waits for the groups after saying so: later writes see
        // it.
        self.check_running()?;
        if let Some(refusing) = stores.iter().find(|store| !store.is_served()) {
            return Err(refusing.refusal());
        }
        if !stores.iter().any(|store| store.durable_writes.load(Ordering::Relaxed)) {
            return Ok(Some((membership, None)));
        }
        match self.append(mutation) {
            Ok(end) => Ok(Some((membership, Some(end)))),
            Err(LogError::NoFreeSegment) => Ok(None),
            Err(error) => Err(self.not_appended(mutation.updates(), error)),
        }
    }

    /// Where the record ends.
    fn append(&self, mutation: &Mutation) -> Result<LogPosition, LogError> {
        let appended = match mutation.updates() {
            [update] => self.log().try_append(&[update.table().id.0], update.as_bytes()),
            updates => {
                let mut tables: Vec<_> = updates.iter().map(|update| update.table().id.0).collect();
                tables.sort_unstable();
                tables.dedup();
                let mut record = Vec::with_capacity(mutation.record_size());
                mutation.write_record(&mut record);
                self.log().try_append(&tables, &record)
            }
        };
        appended.map(|appended| appended.position)
    }

    /// Applies an update to the memtable that its log position belongs to; if that is full, to the one that takes over
    /// from it.
    fn apply(&self, store: &TableStore, update: &PartitionUpdate, logged: Option<LogPosition>) {
        let view = store.borrow_view();
        let generation = generation_of(&view, self.log(), logged);
        if let Ok(growth_bytes) = generation.apply(update) {
            return self.account(store, generation, growth_bytes);
        }
        let mut full = Arc::clone(generation);
        drop(view);
        loop {
            let generation = self.successor(store, &full);
            self.request_flush(store);
            match generation.apply(update) {
                Ok(growth_bytes) => return self.account(store, &generation, growth_bytes),
                Err(MemtableFull) => full = generation,
            }
        }
    }

    /// Counts what an update took of memory.
    fn account(&self, store: &TableStore, generation: &Generation, growth_bytes: i64) {
        let bytes = generation.account(growth_bytes, self.pool());
        if let Some(resident) = &generation.resident {
            self.note_memory_use(store, resident.data.used_bytes());
            let is_due = resident.are_many(bytes, self.options().in_memory_flush_bytes_min);
            if is_due
                && !generation.is_flush_requested()
                && !merges_are_behind(&store.borrow_view())
                && generation.request_flush()
            {
                self.request_flush(store);
            }
        }
    }
}

/// Has memtables bring near what updates of these stores will look at first.
pub(crate) fn prefetch<'w>(updates: impl Iterator<Item = (&'w Arc<TableStore>, &'w PartitionUpdate)>) {
    let updates: Vec<_> = updates.map(|(store, update)| (store, update.key())).collect();
    for same in updates.chunk_by(|(one, _), (next, _)| Arc::ptr_eq(one, next)) {
        let keys: Vec<_> = same.iter().map(|(_, key)| *key).collect();
        same[0].0.borrow_view().active.memtable.prefetch(&keys);
    }
}

/// Records belong to the newest generation whose part of the log they are in; what is not logged goes to the active
/// one.
fn generation_of<'v>(view: &'v View, log: &CommitLog, logged: Option<LogPosition>) -> &'v Arc<Generation> {
    let Some(end) = logged else { return &view.active };
    view.generations().find(|generation| generation.lower(log) < end).unwrap_or(&view.active)
}
