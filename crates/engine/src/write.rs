//! The way of a write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commitlog::{LogError, LogPosition};
use model::{Mutation, PartitionUpdate};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::groups::Membership;
use crate::store::{Generation, TableStore};

/// Where a record lies in the log.
#[derive(Clone, Copy)]
struct Logged {
    start: LogPosition,
    end: LogPosition,
}

/// A write whose record is in the log and that is not visible yet.
pub(crate) struct LoggedWrite {
    mutation: Mutation,
    stores: Vec<Arc<TableStore>>,
    logged: Logged,
    membership: Membership,
}

/// A write between log and memtable. Dropped with its membership, it was abandoned by whoever waited for it.
struct InFlight<'a> {
    engine: &'a Engine,
    mutation: &'a Mutation,
    stores: &'a [Arc<TableStore>],
    logged: Option<Logged>,
    membership: Option<Membership>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let (Some(logged), Some(membership)) = (self.logged, self.membership.take()) {
            let (mutation, stores) = (self.mutation.clone(), self.stores.to_vec());
            self.engine.finisher().take_over(LoggedWrite { mutation, stores, logged, membership });
        }
    }
}

impl Engine {
    /// Writes a mutation: ready once it is as durable as `commitlog_sync` says and visible to every read that starts
    /// later.
    ///
    /// The future may be dropped before it is ready; the mutation is then written whole or not at all, and if its record
    /// is in the log already, in the background. It needs no particular runtime. The order of a write is decided here and nowhere else.
    pub async fn write(&self, mutation: &Mutation) -> Result<(), EngineError> {
        let stores = self.stores_of(mutation)?;
        self.pool().admit().await;
        let (membership, logged) = self.enter_and_log(mutation, &stores).await?;
        let mut write = InFlight { engine: self, mutation, stores: &stores, logged, membership: Some(membership) };
        if let Some(logged) = logged {
            let durable = self.log().durable(logged.end).await;
            durable.map_err(|error| {
                write.membership = None;
                self.log_failed(error)
            })?;
        }
        self.apply_all(&stores, mutation, logged);
        write.membership = None;
        if self.pool().wants_flush() {
            self.request_cleanup();
        }
        Ok(())
    }

    fn apply_all(&self, stores: &[Arc<TableStore>], mutation: &Mutation, logged: Option<Logged>) {
        for (store, update) in stores.iter().zip(mutation.updates()) {
            self.apply(store, update, logged);
        }
    }

    /// Makes a write visible whose future was dropped after its record was logged, once the record is durable.
    pub(crate) fn finish_abandoned(&self, write: LoggedWrite) {
        if self.log().durable(write.logged.end).wait().is_ok() {
            self.apply_all(&write.stores, &write.mutation, Some(write.logged));
        }
        drop(write.membership);
    }

    /// The stores of a mutation's tables; fails if one is gone, before anything is written.
    fn stores_of(&self, mutation: &Mutation) -> Result<Vec<Arc<TableStore>>, EngineError> {
        mutation.updates().iter().map(|update| self.store(update.table())).collect()
    }

    /// Enters the write group and gets a place in the log. While the log has no room the group is left: what makes room
    /// is a flush, and a flush waits for the group.
    async fn enter_and_log(
        &self,
        mutation: &Mutation,
        stores: &[Arc<TableStore>],
    ) -> Result<(Membership, Option<Logged>), EngineError> {
        let is_logged = stores.iter().any(|store| store.durable_writes.load(Ordering::Relaxed));
        loop {
            let membership = self.groups().enter();
            // Whoever drops a table waits for the groups before the drop: later writes see it.
            if let Some(dropped) = stores.iter().find(|store| store.is_dropped()) {
                return Err(EngineError::UnknownTable(dropped.table.load().name.to_string()));
            }
            if !is_logged {
                return Ok((membership, None));
            }
            let room = self.log().room();
            match self.append(mutation) {
                Ok(logged) => return Ok((membership, Some(logged))),
                Err(LogError::NoFreeSegment) => drop(membership),
                Err(error) => return Err(self.log_failed(error)),
            }
            self.request_cleanup();
            room.await;
        }
    }

    fn append(&self, mutation: &Mutation) -> Result<Logged, LogError> {
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
        appended.map(|appended| Logged { start: appended.start, end: appended.position })
    }

    /// Applies an update that is not in the log.
    pub(crate) fn apply_unlogged(&self, store: &TableStore, update: &PartitionUpdate) {
        let membership = self.groups().enter();
        self.apply(store, update, None);
        drop(membership);
    }

    /// Applies an update to the memtable that its log position belongs to.
    fn apply(&self, store: &TableStore, update: &PartitionUpdate, logged: Option<Logged>) {
        let generation = generation_of(store, logged);
        if generation.memtable.apply(update, None).is_ok() {
            generation.account(self.pool());
            return;
        }
        self.apply_to_next(store, update, logged, generation);
    }

    /// The memtable is full: the next one takes the record over, and with it the record's part of the log.
    fn apply_to_next(
        &self,
        store: &TableStore,
        update: &PartitionUpdate,
        logged: Option<Logged>,
        mut full: Arc<Generation>,
    ) {
        loop {
            let next = self.successor(store, &full);
            if let Some(logged) = logged {
                next.extend_down_to(logged.start);
            }
            if next.memtable.apply(update, None).is_ok() {
                next.account(self.pool());
                self.request_flush(store);
                return;
            }
            full = next;
        }
    }
}

/// Records belong to the newest generation whose part of the log they are in; what is not logged goes to the active one.
fn generation_of(store: &TableStore, logged: Option<Logged>) -> Arc<Generation> {
    let view = store.borrow_view();
    let Some(logged) = logged else {
        return view.active.clone();
    };
    let generation = view.generations().find(|generation| generation.lower() < logged.end);
    generation.unwrap_or(&view.active).clone()
}
