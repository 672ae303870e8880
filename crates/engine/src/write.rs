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

impl Engine {
    /// Writes a mutation: ready once it is as durable as `commitlog_sync` says and visible to every read that starts
    /// later.
    ///
    /// The future may be dropped before it is ready; the mutation is then written whole or not at all. It needs no
    /// particular runtime. The order of a write is decided here and nowhere else.
    pub async fn write(&self, mutation: &Mutation) -> Result<(), EngineError> {
        let stores = self.stores_of(mutation)?;
        self.pool().admit().await;
        let (membership, logged) = self.enter_and_log(mutation, &stores).await?;
        if let Some(logged) = logged {
            self.log().durable(logged.end).await.map_err(|error| self.log_failed(error))?;
        }
        for (store, update) in stores.iter().zip(mutation.updates()) {
            self.apply(store, update, logged);
        }
        drop(membership);
        if self.pool().wants_flush() {
            self.request_cleanup();
        }
        Ok(())
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
