//! The order of a write, as a state machine. Nothing else decides it.
//!
//! ```text
//!            ┌───────── no room in the log: leave, wait, try again ────────┐
//!            ▼                                                             │
//! Write ─▶ Admitted ─▶ [lock] ─▶ [read and derive] ─▶ enter the group ─▶ log ─▶ Entered
//!   admit: tables, room, memory                                                   │
//!                 answer ◀─ leave ◀─ apply ◀─ durable: InFlight, unless there is nothing to wait for
//! ```
//!
//! Each state is a type and each step consumes the state before it, so that a wrong order does not compile. The steps
//! in brackets are those of writes that read before they write ([`super::derived`]). Such a write takes the locks of
//! its partitions and holds them until its record is in the log. It becomes visible after those that held the locks
//! before it ([`super::visible_order`]). Its size is known when it is derived. If there is no memory for it, or no room
//! in the log, it gives the locks back, waits, and starts again at the lock.
//!
//! | state        | it holds                                  | it may wait for            | dropped there            |
//! |--------------|-------------------------------------------|----------------------------|--------------------------|
//! | [`Write`]    | nothing                                   | room, then memory          | nothing happened         |
//! | [`Admitted`] | room in tables in memory, memory, [locks] | room in the log            | nothing happened         |
//! | [`Entered`]  | also a place in the group and in the log  | nothing                    | never                    |
//! | [`InFlight`] | the same, without the locks               | earlier writes, the device | finished in background   |
//!
//! So no write waits for memory or for room inside a group or under a lock, nor for a lock inside a group. There are
//! four drivers: [`begin`] waits for nothing and returns what waits for the device, to be polled by a connection;
//! [`drive`] is a future that waits for everything; [`drive_under`] is one that took locks and waits for the device
//! alone; [`block`] waits on its thread for the device alone. A write that is dropped in flight goes to
//! [`super::abandoned`], with its place among the writes of its partitions.

use std::borrow::Borrow;
use std::future::poll_fn;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use commitlog::{LogError, LogPosition, LogWait};
use model::Mutation;

use super::Writes;
use super::admission::Admitted;
use super::apply::prefetch;
use super::locks::{HeldLocks, VisiblePlace};
use crate::error::EngineError;
use crate::shared::{Membership, Shared};
use crate::table::in_memory::Reservations;
use crate::table::{ReadEpoch, TableStore};

/// A mutation and the stores for it: the first state.
#[derive(Clone, Copy)]
pub(super) struct Write<'w> {
    pub writes: &'w Writes,
    pub mutation: &'w Mutation,
    /// The store of each update's table.
    pub stores: &'w [Arc<TableStore>],
}

/// How durable a write is before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// As durable as `commitlog_sync` requires.
    Configured,
    /// On the device, in every mode of the log.
    OnDevice,
}

/// A write that is in a group and, unless its tables are not logged, in the log. It must be applied or kept.
#[must_use]
pub(super) struct Entered {
    membership: Membership,
    /// The end of its record.
    logged: Option<LogPosition>,
}

impl Admitted<'_> {
    /// Enters the write group and appends to the log; no other code does. Returns `None` if the log has no room. The
    /// group is then left, because a flush makes room, and a flush waits for the group.
    pub fn enter(&self) -> Result<Option<Entered>, EngineError> {
        self.enter_log(self.enter_group()?)
    }

    fn enter_group(&self) -> Result<Membership, EngineError> {
        let Write { writes, stores, .. } = self.write;
        let membership = writes.shared.groups().enter();
        // A drop, a quarantine and a shutdown change the state first and wait for the groups afterwards, so a write
        // that enters later sees the new state.
        writes.shared.check_running()?;
        match stores.iter().find(|store| !store.is_served()) {
            Some(refusing) => Err(refusing.refusal()),
            None => Ok(membership),
        }
    }

    fn enter_log(&self, membership: Membership) -> Result<Option<Entered>, EngineError> {
        debug_assert!(membership.is_counted(), "a record's write is in its group, so that a flush waits for it");
        let Write { writes, mutation, stores } = self.write;
        if !stores.iter().any(|store| store.durable_writes.load(Ordering::Relaxed)) {
            return Ok(Some(Entered { membership, logged: None }));
        }
        match append(&writes.shared, mutation) {
            Ok(end) => {
                debug_assert!(end <= writes.shared.log().position(), "the record is in the log");
                Ok(Some(Entered { membership, logged: Some(end) }))
            }
            Err(LogError::NoFreeSegment) => Ok(None),
            Err(error) => Err(writes.shared.not_appended(mutation.updates(), error)),
        }
    }

    /// Enters once the log has room.
    async fn enter_when_log_has_space(&self) -> Result<Entered, EngineError> {
        let writes = self.write.writes;
        loop {
            let space_freed = writes.shared.log().space_freed();
            if let Some(entered) = self.enter()? {
                return Ok(entered);
            }
            writes.flush.request_cleanup();
            space_freed.await;
        }
    }

    /// Applies a write that need not wait, and leaves the group.
    #[inline]
    fn apply(self, entered: Entered) {
        let Entered { membership, logged } = entered;
        debug_assert!(
            logged.is_none_or(|end| self.write.writes.shared.log().is_durable(end)),
            "it has something to wait for"
        );
        self.write.apply(logged);
        drop((self.room, membership, self.memory, self.locks));
        self.write.writes.flush.request_if_wanted();
    }

    /// Like `apply`, or returns the parts of the write that must be kept while it waits to become durable.
    #[inline(always)]
    fn apply_unless_waiting(self, entered: Entered, durability: Durability) -> Option<InFlightParts> {
        let log = self.write.writes.shared.log();
        let waits = |end: LogPosition| durability == Durability::OnDevice || !log.is_durable(end);
        if !entered.logged.is_some_and(waits) && !self.locks.follow_others() {
            self.apply(entered);
            return None;
        }
        let end = entered.logged;
        // A later record may outlive an earlier one in this mode, so it must not follow from it before that is durable.
        let keeps_locks = !log.keeps_order();
        Some(InFlightParts {
            logged: Logged {
                room: self.room,
                membership: entered.membership.into_owned(),
                end,
                place: self.locks.into_place(end, keeps_locks),
            },
            wait: end.map(|end| log.wait_for(end)),
            taken_bytes: self.memory.into_bytes(),
        })
    }
}

/// Appends the record of a mutation. Returns the end of the record.
#[inline]
fn append(shared: &Shared, mutation: &Mutation) -> Result<LogPosition, LogError> {
    let log = shared.log();
    let appended = match mutation.updates() {
        [update] => log.try_append(&[update.table().id.0], update.as_bytes()),
        updates => {
            let mut tables: Vec<_> = updates.iter().map(|update| update.table().id.0).collect();
            tables.sort_unstable();
            tables.dedup();
            let mut record = Vec::with_capacity(mutation.record_size());
            mutation.write_record(&mut record);
            log.try_append(&tables, &record)
        }
    };
    appended.map(|appended| appended.position)
}

/// The resources that a write holds from its record to its application.
pub(super) struct Logged {
    /// The room in tables in memory.
    room: Reservations,
    membership: Membership,
    /// The end of its record; `None` if its tables are not logged.
    end: Option<LogPosition>,
    place: VisiblePlace,
}

/// The parts of a write that it keeps while it waits for the device.
struct InFlightParts {
    logged: Logged,
    wait: Option<LogWait>,
    taken_bytes: i64,
}

/// A write that waits for the device. It borrows its parts if a future or a thread drives it to its end, and owns them
/// if it outlives the call that began it. If it is dropped before it is done, it is finished in the background.
pub(super) struct InFlight<E, M, S>
where
    E: Deref<Target = Writes>,
    M: Borrow<Mutation>,
    S: Deref<Target = [Arc<TableStore>]>,
{
    writes: E,
    mutation: M,
    stores: S,
    /// `None` after it was applied, or if it never will be.
    logged: Option<Logged>,
    /// `None` if its tables are not logged.
    wait: Option<LogWait>,
    /// The memory of the pool.
    taken_bytes: i64,
}

impl<E, M, S> InFlight<E, M, S>
where
    E: Deref<Target = Writes>,
    M: Borrow<Mutation>,
    S: Deref<Target = [Arc<TableStore>]>,
{
    fn new(writes: E, mutation: M, stores: S, parts: InFlightParts) -> Self {
        let InFlightParts { logged, wait, taken_bytes } = parts;
        InFlight { writes, mutation, stores, logged: Some(logged), wait, taken_bytes }
    }

    fn is_done(&self) -> bool {
        self.logged.is_none()
    }

    /// Applies the write when those before it are visible and its record is durable; no other code polls the log.
    /// Afterwards it stays done.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), EngineError>> {
        let Some(logged) = &self.logged else { return Poll::Ready(Ok(())) };
        debug_assert!(logged.membership.is_counted(), "flushes wait for it");
        if logged.place.poll_first(context).is_pending() {
            return Poll::Pending;
        }
        let durable = match &mut self.wait {
            Some(wait) => self.writes.shared.log().poll_wait(wait, context),
            None => Poll::Ready(Ok(())),
        };
        durable.map(|durable| self.apply_if_durable(durable))
    }

    /// Waits for the device on this thread.
    fn block(mut self, durability: Durability) -> Result<(), EngineError> {
        match durability {
            Durability::Configured => crate::block_on(poll_fn(|context| self.poll(context))),
            Durability::OnDevice => {
                let durable = self.writes.shared.log().sync();
                self.apply_if_durable(durable)
            }
        }
    }

    /// Applies the write if it is durable, leaves its group, and returns its resources.
    fn apply_if_durable(&mut self, durable: Result<(), LogError>) -> Result<(), EngineError> {
        debug_assert!(self.logged.is_some(), "a write is applied once");
        let outcome = durable.map_err(|error| self.writes.shared.log_failed(error));
        if let Some(Logged { room, membership, end, place }) = self.logged.take() {
            debug_assert!(membership.is_counted(), "it is applied inside its group");
            if outcome.is_ok() {
                debug_assert!(self.is_on_device(end), "it is applied when its record is durable");
                self.write().apply(end);
            }
            // The place is left before the group. So once a truncation has waited for the group, no write reads this
            // one in the order of its partitions any more.
            drop((room, place, membership));
        }
        self.give_back();
        debug_assert!(self.is_done() && self.taken_bytes == 0, "it holds nothing any more");
        outcome
    }

    /// Whether the log's horizon has passed its record, if the log acknowledges records in order; for assertions.
    fn is_on_device(&self, end: Option<LogPosition>) -> bool {
        let log = self.writes.shared.log();
        !log.keeps_order() || end.is_none_or(|end| log.is_durable(end))
    }

    fn write(&self) -> Write<'_> {
        Write { writes: &self.writes, mutation: self.mutation.borrow(), stores: &self.stores }
    }

    fn give_back(&mut self) {
        self.writes.shared.pool().give_back(std::mem::take(&mut self.taken_bytes));
        self.writes.flush.request_if_wanted();
    }
}

impl<E, M, S> Drop for InFlight<E, M, S>
where
    E: Deref<Target = Writes>,
    M: Borrow<Mutation>,
    S: Deref<Target = [Arc<TableStore>]>,
{
    fn drop(&mut self) {
        if let Some(logged) = self.logged.take() {
            let (mutation, stores) = (self.mutation.borrow().clone(), WrittenStores::from(&*self.stores));
            self.writes.finish_in_background(AbandonedWrite { mutation, stores, logged });
            self.give_back();
        }
    }
}

/// A write that was dropped in flight.
pub(super) struct AbandonedWrite {
    mutation: Mutation,
    stores: WrittenStores,
    logged: Logged,
}

/// An abandoned write that is being finished. An error has no receiver any more.
pub(super) struct Finishing<E: Deref<Target = Writes>>(InFlight<E, Mutation, WrittenStores>);

impl<E: Deref<Target = Writes>> Finishing<E> {
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll(context).map(|_| ())
    }
}

impl AbandonedWrite {
    /// The write, to be polled until it is visible.
    pub fn resume<E: Deref<Target = Writes>>(self, writes: E) -> Finishing<E> {
        let wait = self.logged.end.map(|end| writes.shared.log().wait_for(end));
        let parts = InFlightParts { logged: self.logged, wait, taken_bytes: 0 };
        Finishing(InFlight::new(writes, self.mutation, self.stores, parts))
    }

    /// Finishes the write on this thread. It waits for no other write, because this thread may have to finish that one
    /// too.
    pub fn finish(mut self, writes: &Writes) {
        debug_assert!(self.logged.membership.is_counted(), "the group still waits for it");
        self.logged.place = HeldLocks::NONE.into_place(None, false);
        let mut finishing = self.resume(writes);
        crate::block_on(poll_fn(|context| finishing.poll(context)));
        debug_assert!(finishing.0.is_done(), "it is visible, or never will be");
    }
}

/// The stores of a mutation's tables, kept while it waits. Most mutations have one store, which needs no allocation.
enum WrittenStores {
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

/// Executes a write, and waits for everything that it needs.
pub(super) async fn drive(write: Write<'_>) -> Result<(), EngineError> {
    drive_admitted(write.admit().await?).await
}

/// Executes a write whose room is reserved.
pub(super) async fn drive_reserved(write: Write<'_>, room: Reservations) -> Result<(), EngineError> {
    drive_admitted(write.admit_reserved(room).await?).await
}

async fn drive_admitted(admitted: Admitted<'_>) -> Result<(), EngineError> {
    let entered = admitted.enter_when_log_has_space().await?;
    let Write { writes, mutation, stores } = admitted.write;
    let Some(parts) = admitted.apply_unless_waiting(entered, Durability::Configured) else { return Ok(()) };
    let mut in_flight = InFlight::new(writes, mutation, stores, parts);
    poll_fn(|context| in_flight.poll(context)).await
}

/// The outcome of an attempt to write under locks.
pub(super) enum Attempt {
    Written,
    /// Nothing has happened, because the log has no room. The locks were given back.
    LogFull,
    /// Nothing has happened, because what was read is no longer the data of its table. The locks were given back.
    Outdated,
}

/// Executes a write that holds the locks of its partitions, has read in these epochs, and is admitted. It waits for the
/// device alone.
pub(super) async fn drive_under(admitted: Admitted<'_>, read: &[ReadEpoch]) -> Result<Attempt, EngineError> {
    let membership = admitted.enter_group()?;
    if !read.iter().all(ReadEpoch::is_current) {
        return Ok(Attempt::Outdated);
    }
    let Some(entered) = admitted.enter_log(membership)? else { return Ok(Attempt::LogFull) };
    let Write { writes, mutation, stores } = admitted.write;
    if let Some(parts) = admitted.apply_unless_waiting(entered, Durability::Configured) {
        let mut in_flight = InFlight::new(writes, mutation, stores, parts);
        poll_fn(|context| in_flight.poll(context)).await?;
    }
    Ok(Attempt::Written)
}

/// Executes a write without admission, and waits for the device on this thread. Returns false if the log has no room.
pub(super) fn block(write: Write<'_>, durability: Durability) -> Result<bool, EngineError> {
    let admitted = write.admit_exempt();
    let Some(entered) = admitted.enter()? else { return Ok(false) };
    if let Some(parts) = admitted.apply_unless_waiting(entered, durability) {
        InFlight::new(write.writes, write.mutation, write.stores, parts).block(durability)?;
    }
    Ok(true)
}

/// Begins a write as far as possible without waiting. Returns `None` if it would have to wait for more than the device.
/// `own` gives the reference that keeps the component while the write waits, and `made` what is returned: the write is
/// large, and is built in its place. If it need not wait, it changes no reference count that threads share.
#[inline]
pub(crate) fn begin<E: Deref<Target = Writes>, B>(
    writes: &Writes,
    own: impl FnOnce() -> E,
    made: impl FnOnce(OwnedWrite<E>) -> B,
    mutation: Mutation,
    stores: &[Arc<TableStore>],
) -> Result<Option<B>, EngineError> {
    let write = Write { writes, mutation: &mutation, stores };
    let Some(admitted) = write.admit_now()? else { return Ok(None) };
    let Some(entered) = admitted.enter()? else { return Ok(None) };
    let Some(parts) = admitted.apply_unless_waiting(entered, Durability::Configured) else {
        return Ok(Some(made(OwnedWrite { waiting: None })));
    };
    Ok(Some(made(OwnedWrite { waiting: Some(InFlight::new(own(), mutation, stores.into(), parts)) })))
}

/// A begun write. Completes when it is as durable as `commitlog_sync` requires and visible to every read that starts
/// later. If it is dropped before that, it is finished in the background.
#[must_use = "it is acknowledged when it is ready"]
pub(crate) struct OwnedWrite<E: Deref<Target = Writes>> {
    /// `None` if it never had to wait.
    waiting: Option<InFlight<E, Mutation, WrittenStores>>,
}

impl<E: Deref<Target = Writes>> OwnedWrite<E> {
    /// Whether it need not wait, or not any more.
    pub fn is_done(&self) -> bool {
        self.waiting.as_ref().is_none_or(InFlight::is_done)
    }

    /// The size of the mutation, bytes; 0 if the write never had to wait.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.mutation.record_size())
    }

    /// The reference that keeps the component, of a write that had to wait.
    pub fn owner(&self) -> Option<&E> {
        self.waiting.as_ref().map(|waiting| &waiting.writes)
    }

    /// Prefetches the memory that these writes will read first in memtables. The writes must be durable and polled soon
    /// after; about eight are needed for a gain.
    pub fn prefetch<'w>(writes: impl Iterator<Item = &'w OwnedWrite<E>>)
    where
        E: 'w,
    {
        let waiting = writes.filter_map(|write| write.waiting.as_ref()).filter(|waiting| !waiting.is_done());
        prefetch(waiting.filter_map(|waiting| waiting.stores.first().zip(waiting.mutation.updates().first())));
    }

    /// Applies the write once its record is durable.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), EngineError>> {
        self.waiting.as_mut().map_or(Poll::Ready(Ok(())), |waiting| waiting.poll(context))
    }
}

#[cfg(test)]
mod tests;
