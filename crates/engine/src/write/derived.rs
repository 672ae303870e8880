//! Writes that follow from what is read before them: conditions, and lists whose elements are named by index.
//!
//! The locks of the partitions make one step of reading, deciding and entering the log. The next write reads what is
//! visible, and the updates that are only in the log ([`Unsettled`]). It becomes visible, and is answered, after the
//! writes that it follows, also where it writes nothing. Therefore the writes of one partition share a wait for the
//! device, and no client learns of a write that a power cut may undo. Plain writes take no lock, as in Cassandra.

use std::future::poll_fn;
use std::sync::Arc;

use model::{Mutation, TableId};
use types::Token;

use super::Writes;
use super::locks::HeldLocks;
use super::order::{Attempt, Write, drive_under};
use crate::error::EngineError;
use crate::table::in_memory::{self, Reservations};
use crate::table::{ReadEpoch, Taken};
use crate::turn::Turn;
use crate::unsettled::Unsettled;

/// The result that a write derives from its reads.
pub struct Derived<A> {
    /// The mutation; `None` if nothing is written.
    pub mutation: Option<Mutation>,
    /// The answer to the client, once the mutation is visible.
    pub answer: A,
}

/// A write that reads before it writes. It owns all that it needs, because another thread may carry it on.
pub trait Derive: Send + Sync + 'static {
    /// The answer.
    type Answer: Send + 'static;
    /// The error if there is none.
    type Error: From<EngineError> + Send + 'static;

    /// The partitions that it reads and writes.
    fn partitions(&self) -> Vec<(TableId, Token)>;

    /// Reads, decides, and makes the mutation, while no other write does so in these partitions. It is called again if
    /// the mutation could not be written.
    fn derive(&self, turn: Turn<'_>) -> Result<Derived<Self::Answer>, Self::Error>;

    /// The number of the client that it is for. Clients have their turns on the threads that read for writes.
    fn client(&self) -> u64 {
        0
    }

    /// Whether the error says that a read would have to wait for a device.
    fn would_wait(error: &Self::Error) -> bool;
}

/// The room and the memory that an attempt reserved for its write. The next attempt uses them.
struct Reserved<'w> {
    room: Reservations,
    memory: Taken<'w>,
    /// The size of the write for which it was reserved, bytes.
    size_bytes: usize,
}

/// Times are written with variable length, so the same write may grow a little when it is derived again.
const SLACK_BYTES: usize = 64;

impl Writes {
    /// Executes a write that reads first. Completes as [`Writes::write`] does. With `may_block` its reads wait for
    /// devices on this thread.
    ///
    /// The future may be dropped before it completes. A write that is in the log by then is finished in the background,
    /// and keeps its place in the order of its partitions.
    pub async fn write_derived<D: Derive>(&self, derive: &Arc<D>, may_block: bool) -> Result<D::Answer, D::Error> {
        let partitions = derive.partitions();
        let mut reserved = None;
        loop {
            let locks = self.locks.lock(&partitions).await;
            // The epochs are noted before anything is read, including the updates that are only in the log.
            let read = self.epochs_of(&partitions);
            let unsettled = Arc::new(locks.unsettled());
            match self.derive(derive, &unsettled, may_block).await {
                Ok(Derived { mutation: Some(mutation), answer }) => {
                    match self.attempt(Arc::new(mutation), locks, &read, &mut reserved).await {
                        Ok(true) => return Ok(answer),
                        Ok(false) => {}
                        Err(error) => {
                            self.wait_for_log(&unsettled).await?;
                            return Err(error.into());
                        }
                    }
                }
                decided => {
                    self.release_and_wait(locks, &unsettled).await?;
                    return decided.map(|derived| derived.answer);
                }
            }
        }
    }

    /// Reads and decides without locks, on this thread with `may_block`. Other writes may change what it read.
    pub async fn derive_unlocked<D: Derive>(
        &self,
        derive: &Arc<D>,
        may_block: bool,
    ) -> Result<Derived<D::Answer>, D::Error> {
        self.derive(derive, &Arc::default(), may_block).await
    }

    /// The epochs of the partitions' tables, noted before these are read. A table that is gone has none: a write to it
    /// is refused.
    fn epochs_of(&self, partitions: &[(TableId, Token)]) -> Vec<ReadEpoch> {
        let catalog = self.shared.catalog();
        let mut tables: Vec<TableId> = partitions.iter().map(|(table, _)| *table).collect();
        tables.dedup();
        tables.iter().filter_map(|table| catalog.stores().get(table)).map(ReadEpoch::of).collect()
    }

    /// Reads and decides under the locks. It also reads the updates that are not visible yet. With `may_block` it waits
    /// for devices on this thread, otherwise on a thread of the pool.
    async fn derive<D: Derive>(
        &self,
        derive: &Arc<D>,
        unsettled: &Arc<Unsettled>,
        may_block: bool,
    ) -> Result<Derived<D::Answer>, D::Error> {
        let unsettled = (!unsettled.is_empty()).then_some(unsettled);
        if may_block {
            return derive.derive(Turn { unsettled, ..Turn::BLOCKING });
        }
        match derive.derive(Turn { unsettled, ..Turn::NON_BLOCKING }) {
            Err(error) if D::would_wait(&error) => {
                let (client, derive, unsettled) = (derive.client(), Arc::clone(derive), unsettled.cloned());
                let run = move || derive.derive(Turn { unsettled: unsettled.as_ref(), ..Turn::BLOCKING });
                self.readers.run(client, run).await?
            }
            derived => derived,
        }
    }

    /// Releases the locks, and waits until everything that was read under them is durable and visible.
    async fn release_and_wait(&self, locks: HeldLocks, unsettled: &Unsettled) -> Result<(), EngineError> {
        if unsettled.is_empty() {
            return Ok(());
        }
        let place = locks.into_place(None, false);
        poll_fn(|context| place.poll_first(context)).await;
        self.wait_for_log(unsettled).await
    }

    /// Waits until everything that was read is durable, as far as it is logged.
    async fn wait_for_log(&self, unsettled: &Unsettled) -> Result<(), EngineError> {
        let Some(end) = unsettled.end() else { return Ok(()) };
        let (log, mut wait) = (self.shared.log(), self.shared.log().wait_for(end));
        let durable = poll_fn(|context| log.poll_wait(&mut wait, context)).await;
        durable.map_err(|error| self.shared.log_failed(error))
    }

    /// Writes a mutation under these locks, which follows from reads in these epochs. Returns false if it was not
    /// written: then the locks were released while it waited for memory, for room in the log or for the end of a
    /// truncation, and the mutation must be derived again.
    async fn attempt<'w>(
        &'w self,
        mutation: Arc<Mutation>,
        locks: HeldLocks,
        read: &[ReadEpoch],
        reserved: &mut Option<Reserved<'w>>,
    ) -> Result<bool, EngineError> {
        let stores = self.stores_of(&mutation)?;
        let write = Write { writes: self, mutation: &mutation, stores: &stores };
        let size_bytes = self.size_bytes(&mutation)?;
        let admitted = match reserved.take().filter(|reserved| size_bytes <= reserved.size_bytes + SLACK_BYTES) {
            Some(Reserved { room, memory, .. }) => Some(write.admitted_with(room, memory)),
            None => write.admit_now()?,
        };
        let Some(mut admitted) = admitted else {
            drop(locks);
            let room = in_memory::reserve(&mutation, &stores).await?;
            let memory = self.shared.pool().take(size_bytes).await;
            *reserved = Some(Reserved { room, memory, size_bytes });
            return Ok(false);
        };
        admitted.locks = locks.of(Arc::clone(&mutation));
        let space_freed = self.shared.log().space_freed();
        match drive_under(admitted, read).await? {
            Attempt::Written => Ok(true),
            Attempt::Outdated => {
                for epoch in read {
                    epoch.renewed().await;
                }
                Ok(false)
            }
            Attempt::LogFull => {
                self.flush.request_cleanup();
                space_freed.await;
                Ok(false)
            }
        }
    }
}
