//! The write path: how a mutation becomes durable and visible.
//!
//! This module holds the entry points of a write. [`order`] decides the order of its steps, and nothing else does:
//! admit → lock → read and derive → enter the group → log → durable → apply → leave → answer.
//! [`admission`] and [`pool`] limit what writes may take of memory, [`groups`] lets flushes wait for writes under way,
//! [`apply`] puts a logged mutation into memtables, [`batch`] writes logged batches that no log record can hold, and
//! [`abandoned`] finishes writes whose callers gave up.
//!
//! It guarantees that an acknowledged write is as durable as `commitlog_sync` says and visible to every later read,
//! that a write whose record is in the log becomes visible unless the log fails, and that a refused write shows
//! nowhere. It knows nothing of CQL.

mod abandoned;
mod admission;
mod apply;
mod batch;
mod groups;
mod order;
mod pool;

use std::slice;
use std::sync::Arc;

use model::Mutation;

use crate::engine::{BorrowedSchema, Engine};
use crate::error::EngineError;
use crate::turn::Turn;

pub(crate) use abandoned::Finisher;
pub(crate) use groups::WriteGroups;
pub(crate) use order::Durability;
use order::Write;
pub use order::{BegunWrite, Oversized};
pub(crate) use pool::MemtablePool;

impl Engine {
    /// Writes a mutation. Completes when the mutation is as durable as `commitlog_sync` requires and visible to every
    /// read that starts later. It waits for memory, for room in tables in memory and for room in the log.
    ///
    /// The future may be dropped before it completes. The mutation is then written as a whole or not at all; if its
    /// record is in the log already, it is written in the background. The future needs no particular runtime.
    pub async fn write(&self, mutation: &Mutation) -> Result<(), EngineError> {
        let stores = self.stores_of(mutation)?;
        order::drive(Write { engine: self, mutation, stores: &stores }).await
    }

    /// Writes a batch as [`Engine::write`] does. The batch may be larger than a log record; some updates of such a
    /// batch become visible before others. Each single update must fit into a record.
    pub async fn write_batch(self: &Arc<Engine>, mutation: &Mutation) -> Result<(), EngineError> {
        match self.write(mutation).await {
            Err(EngineError::MutationTooLarge { .. }) if mutation.updates().len() > 1 => {
                self.write_stored_batch(mutation).await
            }
            result => result,
        }
    }

    /// Writes a mutation as [`Engine::write`] does. A mutation larger than a log record is written update by update,
    /// for updates that need not become visible together. Each of them must fit into a record, or nothing is written.
    pub async fn write_parts(&self, mutation: &Mutation) -> Result<(), EngineError> {
        match self.write(mutation).await {
            Err(EngineError::MutationTooLarge { .. }) if mutation.updates().len() > 1 => {
                self.write_update_by_update(mutation).await
            }
            result => result,
        }
    }

    /// Begins a write that was made under this schema. This call waits for nothing, whatever the turn permits: what the
    /// write has to wait for is left to the result. Its record joins the turn's wake-up batch.
    pub fn begin_write(
        self: &Arc<Engine>,
        schema: &BorrowedSchema,
        mutation: Mutation,
        oversized: Oversized,
        turn: Turn<'_>,
    ) -> Result<BegunWrite, EngineError> {
        let [update] = mutation.updates() else {
            let stores = self.stores_of(&mutation)?;
            return order::begin(self, mutation, &stores, oversized, turn.log_hold);
        };
        let store = schema.catalog().store(update.table())?;
        order::begin(self, mutation, slice::from_ref(store), oversized, turn.log_hold)
    }

    /// Writes to system tables. Blocks until the log has room and the write is as durable as `commitlog_sync` requires,
    /// but does not wait for memory.
    pub(crate) fn write_system(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.until_room(|| self.try_write(mutation, Durability::Configured))
    }

    /// Like `write_system`, but the write is on the device, in every mode of the log, before it becomes visible.
    pub(crate) fn write_durably(&self, mutation: Mutation) -> Result<(), EngineError> {
        self.until_room(|| self.try_write(&mutation, Durability::OnDevice))
    }

    /// Like `write_system`, but does not wait for room in the log, for callers that delay flushes. Returns false if
    /// there is no room, in which case nothing has happened.
    pub(crate) fn try_write(&self, mutation: &Mutation, durability: Durability) -> Result<bool, EngineError> {
        let stores = self.stores_of(mutation)?;
        order::block(Write { engine: self, mutation, stores: &stores }, durability)
    }

    /// Repeats `attempt` until the log has room for it. If no segment is free, only flushes make room: if one of them
    /// fails, this fails too.
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

    /// Requests a flush of the largest memtable if memtables use more memory than they should.
    fn flush_if_wanted(&self) {
        if self.pool().wants_flush() {
            self.request_cleanup();
        }
    }
}
