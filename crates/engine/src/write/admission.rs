//! Admission: the conditions for a write to enter a write group.
//!
//! A write is admitted with the stores of its tables, with room in those that live in memory, and with memory of the
//! pool. They are taken in this order, so that a write that waits for room holds no memory for which another write may
//! be waiting. All waiting for room or memory happens here, where a write holds neither a place in a group nor a lock
//! on a partition.

use std::sync::Arc;

use model::Mutation;

use super::Writes;
use super::locks::HeldLocks;
use super::order::Write;
use crate::error::EngineError;
use crate::system::is_system_keyspace;
use crate::table::in_memory::{self, Reservations};
use crate::table::{TableStore, Taken};

/// A write that may enter a write group. If it is dropped, it returns its room and memory, and nothing has happened.
#[must_use]
pub(super) struct Admitted<'w> {
    pub write: Write<'w>,
    /// The room in tables in memory.
    pub room: Reservations,
    /// The memory of the pool.
    pub memory: Taken<'w>,
    /// The locks of its partitions, if it read them.
    pub locks: HeldLocks,
}

impl<'w> Write<'w> {
    /// Admits the write without waiting; `None` if it would have to wait for room or memory.
    #[inline]
    pub fn admit_now(self) -> Result<Option<Admitted<'w>>, EngineError> {
        self.check();
        let (pool, size_bytes) = (self.writes.shared.pool(), self.writes.size_bytes(self.mutation)?);
        let Some(room) = in_memory::reserve_now(self.mutation, self.stores)? else { return Ok(None) };
        let memory = match self.writes.shared.log().is_periodic() {
            // The write is applied before anything else happens on this thread.
            true => pool.take_uncounted(size_bytes),
            false => pool.take_now(size_bytes),
        };
        Ok(memory.map(|memory| Admitted { write: self, room, memory, locks: HeldLocks::NONE }))
    }

    /// Admits the write once there are room and memory for it.
    pub async fn admit(self) -> Result<Admitted<'w>, EngineError> {
        let size_bytes = self.writes.size_bytes(self.mutation)?;
        let room = in_memory::reserve(self.mutation, self.stores).await?;
        Ok(self.take_memory(room, size_bytes).await)
    }

    /// Admits a write once there is memory. Its room is already reserved by its batch.
    pub async fn admit_reserved(self, room: Reservations) -> Result<Admitted<'w>, EngineError> {
        let size_bytes = self.writes.size_bytes(self.mutation)?;
        Ok(self.take_memory(room, size_bytes).await)
    }

    async fn take_memory(self, room: Reservations, size_bytes: usize) -> Admitted<'w> {
        self.check();
        let memory = self.writes.shared.pool().take(size_bytes).await;
        Admitted { write: self, room, memory, locks: HeldLocks::NONE }
    }

    /// Admits a write for which an earlier attempt reserved room and memory.
    pub fn admitted_with(self, room: Reservations, memory: Taken<'w>) -> Admitted<'w> {
        self.check();
        Admitted { write: self, room, memory, locks: HeldLocks::NONE }
    }

    /// Admits a write that needs neither room nor memory: flushes may be waiting for it, and it is small, or it was
    /// admitted before a restart.
    pub fn admit_exempt(self) -> Admitted<'w> {
        self.check();
        let memory = self.writes.shared.pool().take_nothing();
        Admitted { write: self, room: Reservations::default(), memory, locks: HeldLocks::NONE }
    }

    fn check(&self) {
        debug_assert_eq!(self.stores.len(), self.mutation.updates().len(), "each update has its table's store");
    }
}

impl Writes {
    /// The stores of a mutation's tables. Fails, before anything is written, if one of them is gone.
    pub fn stores_of(&self, mutation: &Mutation) -> Result<Vec<Arc<TableStore>>, EngineError> {
        if self.shared.options().read_only
            && !mutation.updates().iter().all(|update| is_system_keyspace(&update.table().keyspace))
        {
            self.shared.check_writable()?;
        }
        mutation.updates().iter().map(|update| self.shared.store(update.table())).collect()
    }
}
