//! The write path: how a mutation becomes durable and visible.
//!
//! This module holds the entry points of a write. [`order`] decides the order of its steps, and nothing else does:
//! admit → lock → read and derive → enter the group → log → unlock → durable → apply in order → leave → answer.
//! [`admission`] and [`index_growth`] limit what writes may take of memory, the write groups let flushes wait for
//! writes under way, [`apply`] puts a logged mutation into memtables, [`batch`] writes logged batches that no log
//! record can hold, and [`abandoned`] finishes writes whose callers gave up. [`derived`] writes what follows from what
//! was read, under [`locks`] of the partitions; [`readers`] are threads for such reads, and [`counters`] is a cache
//! that saves some.
//!
//! It guarantees that an acknowledged write is as durable as `commitlog_sync` says and visible to every later read,
//! that a write whose record is in the log becomes visible unless the log fails, and that a refused write shows
//! nowhere. It knows nothing of CQL.

mod abandoned;
mod admission;
mod apply;
mod batch;
mod counters;
mod derived;
mod index_growth;
mod locks;
mod order;
mod readers;
mod visible_order;

use std::any::Any;
use std::sync::Arc;

use model::Mutation;

use crate::error::EngineError;
use crate::flush::Flush;
use crate::quarantine::Quarantine;
use crate::shared::Shared;

use abandoned::Finisher;
use batch::Owner;
use counters::CounterCache;
pub use counters::{CachedCounters, CounterCacheStats};
pub use derived::{Derive, Derived};
pub use index_growth::{index_growth, may_grow_indexes};
use locks::PartitionLocks;
pub(crate) use order::Durability;
use order::Write;
pub(crate) use order::{OwnedWrite, begin};
use readers::Readers;

/// Writes mutations.
pub(crate) struct Writes {
    shared: Arc<Shared>,
    flush: Arc<Flush>,
    quarantine: Arc<Quarantine>,
    finisher: Finisher,
    locks: Arc<PartitionLocks>,
    readers: Readers,
    pub counters: CounterCache,
}

impl Writes {
    pub fn new(shared: &Arc<Shared>, flush: &Arc<Flush>, quarantine: &Arc<Quarantine>) -> Writes {
        let (shared, flush, quarantine) = (Arc::clone(shared), Arc::clone(flush), Arc::clone(quarantine));
        let (finisher, locks, readers) = (Finisher::new(), PartitionLocks::new(), Readers::default());
        let counters = CounterCache::new(shared.options().counter_cache_bytes, *shared.host_id().as_bytes());
        Writes { shared, flush, quarantine, finisher, locks, readers, counters }
    }

    /// Starts the thread that finishes abandoned writes.
    pub fn start(self: &Arc<Self>) -> Result<(), EngineError> {
        self.finisher.start(self)
    }

    /// Ends that thread once it has finished what it took over, and those that read for writes.
    pub fn stop(&self) {
        self.readers.stop();
        self.finisher.stop();
    }

    /// Writes a mutation. Completes when the mutation is as durable as `commitlog_sync` requires and visible to every
    /// read that starts later. It waits for memory, for room in tables in memory and for room in the log.
    ///
    /// The future may be dropped before it completes. The mutation is then written as a whole or not at all; if its
    /// record is in the log already, it is written in the background. The future needs no particular runtime.
    pub async fn write(&self, mutation: &Mutation) -> Result<(), EngineError> {
        let stores = self.stores_of(mutation)?;
        order::drive(Write { writes: self, mutation, stores: &stores }).await
    }

    /// Writes a batch like [`Writes::write`]. The batch may also be larger than a log record; some of its updates are
    /// then visible before others. Each update by itself has to fit into a record.
    ///
    /// `owner` is kept until the batch is complete, even if the caller dropped the future.
    pub async fn write_batch(
        self: &Arc<Writes>,
        owner: &Arc<impl Any + Send + Sync>,
        mutation: &Mutation,
    ) -> Result<(), EngineError> {
        match self.write(mutation).await {
            Err(EngineError::MutationTooLarge { .. }) if mutation.updates().len() > 1 => {
                self.write_stored_batch(Arc::clone(owner) as Owner, mutation).await
            }
            result => result,
        }
    }

    /// Writes a mutation like [`Writes::write`]. If it is larger than a log record may be, its updates are written one
    /// after another, so this is for updates that need not be atomic together. Each update by itself has to fit into a
    /// record; otherwise nothing is written.
    pub async fn write_parts(&self, mutation: &Mutation) -> Result<(), EngineError> {
        match self.write(mutation).await {
            Err(EngineError::MutationTooLarge { .. }) if mutation.updates().len() > 1 => {
                self.write_update_by_update(mutation).await
            }
            result => result,
        }
    }

    /// Writes to system tables. Blocks until the log has room and the write is as durable as `commitlog_sync` requires,
    /// but does not wait for memory.
    pub fn system(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.flush.retry_while_full(|| self.try_blocking(mutation, Durability::Configured))
    }

    /// Like `system`, but the write is on the device, in every mode of the log, before it becomes visible.
    pub fn durably(&self, mutation: Mutation) -> Result<(), EngineError> {
        self.flush.retry_while_full(|| self.try_blocking(&mutation, Durability::OnDevice))
    }

    /// Like `system`, but does not wait for room in the log, for callers that delay flushes. Returns false if there is
    /// no room, in which case nothing has happened.
    pub fn try_blocking(&self, mutation: &Mutation, durability: Durability) -> Result<bool, EngineError> {
        let stores = self.stores_of(mutation)?;
        order::block(Write { writes: self, mutation, stores: &stores }, durability)
    }
}
