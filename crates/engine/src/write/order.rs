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
//! in brackets have no user yet: whatever reads before it writes will take its partition's lock there, once it is
//! admitted. A write that finds no room in the log gives that lock back as it leaves its group.
//!
//! | state        | it holds                                   | it may wait for      | dropped there                |
//! |--------------|--------------------------------------------|----------------------|------------------------------|
//! | [`Write`]    | nothing                                    | room, then memory    | nothing happened             |
//! | [`Admitted`] | room in tables in memory, memory           | room in the log      | nothing happened             |
//! | [`Entered`]  | also a place in the group and in the log   | nothing              | never: no step between waits |
//! | [`InFlight`] | the same                                   | the device           | finished in the background   |
//!
//! So nobody waits for memory or for room inside a group. There are three drivers: [`begin`] waits for nothing and
//! returns the rest of the write, to be polled by a connection; [`drive`] is a future that waits for everything;
//! [`block`] waits on its thread for the device alone. What is dropped in flight goes to [`super::abandoned`].

use std::borrow::Borrow;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use commitlog::{LogError, LogHold, LogPlace, LogPosition, LogWait};
use model::Mutation;

use super::admission::Admitted;
use super::apply::prefetch;
use super::groups::Membership;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::in_memory::Reservations;
use crate::table::TableStore;

/// A mutation and the stores for it: the first state.
#[derive(Clone, Copy)]
pub(super) struct Write<'w> {
    pub engine: &'w Engine,
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
    pub fn enter(&self, hold: Option<&LogHold>) -> Result<Option<Entered>, EngineError> {
        let Write { engine, mutation, stores } = self.write;
        let membership = engine.groups().enter();
        // A drop, a quarantine and a shutdown change the state first and wait for the groups afterwards, so a write
        // that enters later sees the new state.
        engine.check_running()?;
        if let Some(refusing) = stores.iter().find(|store| !store.is_served()) {
            return Err(refusing.refusal());
        }
        if !stores.iter().any(|store| store.durable_writes.load(Ordering::Relaxed)) {
            return Ok(Some(Entered { membership, logged: None }));
        }
        match append(engine, mutation, hold) {
            Ok(end) => Ok(Some(Entered { membership, logged: Some(end) })),
            Err(LogError::NoFreeSegment) => Ok(None),
            Err(error) => Err(engine.not_appended(mutation.updates(), error)),
        }
    }

    /// Enters once the log has room.
    async fn enter_with_room(&self) -> Result<Entered, EngineError> {
        let engine = self.write.engine;
        loop {
            let room = engine.log().room();
            if let Some(entered) = self.enter(None)? {
                return Ok(entered);
            }
            engine.request_cleanup();
            room.await;
        }
    }

    /// Applies a write that need not wait, and leaves the group.
    #[inline]
    fn apply(self, entered: Entered) {
        let Entered { membership, logged } = entered;
        debug_assert!(logged.is_none_or(|end| self.write.engine.log().is_durable(end)), "it has something to wait for");
        self.write.apply(logged);
        drop((self.room, membership, self.memory));
        self.write.engine.flush_if_wanted();
    }

    /// Like `apply`, or returns the parts of the write that must be kept while it waits to become durable.
    #[inline(always)]
    fn apply_unless_waiting(self, entered: Entered, durability: Durability) -> Option<Kept> {
        let log = self.write.engine.log();
        let waits = |end: &LogPosition| durability == Durability::OnDevice || !log.is_durable(*end);
        match entered.logged.filter(waits) {
            None => {
                self.apply(entered);
                None
            }
            Some(end) => Some(Kept {
                logged: Logged { room: self.room, membership: entered.membership.that_waits(), end },
                wait: log.wait_for(end),
                taken_bytes: self.memory.into_bytes(),
            }),
        }
    }
}

/// Appends the record of a mutation. Returns the end of the record.
#[inline]
fn append(engine: &Engine, mutation: &Mutation, hold: Option<&LogHold>) -> Result<LogPosition, LogError> {
    let log = engine.log();
    let appended = match mutation.updates() {
        [update] => log.try_append_held(&[update.table().id.0], update.as_bytes(), hold),
        updates => {
            let mut tables: Vec<_> = updates.iter().map(|update| update.table().id.0).collect();
            tables.sort_unstable();
            tables.dedup();
            let mut record = Vec::with_capacity(mutation.record_size());
            mutation.write_record(&mut record);
            log.try_append_held(&tables, &record, hold)
        }
    };
    appended.map(|appended| appended.position)
}

/// The resources that a write holds from its record to its application.
pub(super) struct Logged {
    /// The room in tables in memory.
    room: Reservations,
    membership: Membership,
    /// The end of its record.
    end: LogPosition,
}

/// The parts of a write that it keeps while it waits for the device.
struct Kept {
    logged: Logged,
    wait: LogWait,
    taken_bytes: i64,
}

/// A write that waits for the device. It borrows its parts if a future or a thread drives it to its end, and owns them
/// if it outlives the call that began it. If it is dropped before it is done, it is finished in the background.
pub(super) struct InFlight<E, M, S>
where
    E: Deref<Target = Engine>,
    M: Borrow<Mutation>,
    S: Deref<Target = [Arc<TableStore>]>,
{
    engine: E,
    mutation: M,
    stores: S,
    /// `None` after it was applied, or if it never will be.
    logged: Option<Logged>,
    wait: LogWait,
    /// The memory of the pool.
    taken_bytes: i64,
}

impl<E, M, S> InFlight<E, M, S>
where
    E: Deref<Target = Engine>,
    M: Borrow<Mutation>,
    S: Deref<Target = [Arc<TableStore>]>,
{
    fn new(engine: E, mutation: M, stores: S, kept: Kept) -> Self {
        let Kept { logged, wait, taken_bytes } = kept;
        InFlight { engine, mutation, stores, logged: Some(logged), wait, taken_bytes }
    }

    fn is_done(&self) -> bool {
        self.logged.is_none()
    }

    /// Applies the write when its record is durable; no other code polls the log. Afterwards it stays done. Without a
    /// context nobody is woken.
    fn poll(&mut self, context: Option<&mut Context<'_>>) -> Poll<Result<(), EngineError>> {
        let Some(logged) = &self.logged else { return Poll::Ready(Ok(())) };
        debug_assert!(logged.membership.is_counted(), "flushes wait for it");
        let log = self.engine.log();
        let durable = match context {
            Some(context) => log.poll_wait(&mut self.wait, context),
            None => log.look_at_wait(&self.wait),
        };
        match durable {
            Poll::Ready(durable) => Poll::Ready(self.settle(durable)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Waits for the device on this thread.
    fn block(mut self, durability: Durability) -> Result<(), EngineError> {
        match durability {
            Durability::Configured => crate::block_on(poll_fn(|context| self.poll(Some(context)))),
            Durability::OnDevice => {
                let durable = self.engine.log().sync();
                self.settle(durable)
            }
        }
    }

    /// Applies the write if it is durable, leaves its group, and returns its resources.
    fn settle(&mut self, durable: Result<(), LogError>) -> Result<(), EngineError> {
        debug_assert!(self.logged.is_some(), "a write is applied once");
        let outcome = durable.map_err(|error| self.engine.log_failed(error));
        if let Some(Logged { room, membership, end }) = self.logged.take() {
            if outcome.is_ok() {
                self.write().apply(Some(end));
            }
            drop((room, membership));
        }
        self.give_back();
        outcome
    }

    fn write(&self) -> Write<'_> {
        Write { engine: &self.engine, mutation: self.mutation.borrow(), stores: &self.stores }
    }

    fn give_back(&mut self) {
        self.engine.pool().give_back(std::mem::take(&mut self.taken_bytes));
        self.engine.flush_if_wanted();
    }
}

impl<E, M, S> Drop for InFlight<E, M, S>
where
    E: Deref<Target = Engine>,
    M: Borrow<Mutation>,
    S: Deref<Target = [Arc<TableStore>]>,
{
    fn drop(&mut self) {
        if let Some(logged) = self.logged.take() {
            let (mutation, stores) = (self.mutation.borrow().clone(), WrittenStores::from(&*self.stores));
            self.engine.finish_in_background(AbandonedWrite { mutation, stores, logged });
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

impl AbandonedWrite {
    /// Finishes the write on this thread. An error has no receiver any more.
    pub fn finish(self, engine: &Engine) {
        let wait = engine.log().wait_for(self.logged.end);
        let kept = Kept { logged: self.logged, wait, taken_bytes: 0 };
        let _ = InFlight::new(engine, self.mutation, self.stores, kept).block(Durability::Configured);
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
pub(super) async fn drive_with_room(write: Write<'_>, room: Reservations) -> Result<(), EngineError> {
    drive_admitted(write.admit_with_room(room).await).await
}

async fn drive_admitted(admitted: Admitted<'_>) -> Result<(), EngineError> {
    let entered = admitted.enter_with_room().await?;
    let Write { engine, mutation, stores } = admitted.write;
    let Some(kept) = admitted.apply_unless_waiting(entered, Durability::Configured) else { return Ok(()) };
    let mut in_flight = InFlight::new(engine, mutation, stores, kept);
    poll_fn(|context| in_flight.poll(Some(context))).await
}

/// Executes a write without admission, and waits for the device on this thread. Returns false if the log has no room.
pub(super) fn block(write: Write<'_>, durability: Durability) -> Result<bool, EngineError> {
    let admitted = write.admit_exempt();
    let Some(entered) = admitted.enter(None)? else { return Ok(false) };
    if let Some(kept) = admitted.apply_unless_waiting(entered, durability) {
        InFlight::new(write.engine, write.mutation, write.stores, kept).block(durability)?;
    }
    Ok(true)
}

/// Begins a write as far as it goes without waiting. What would have to wait for more than the device is left to the
/// other drivers, which the result polls. Where there is nothing to wait for, no count of owners changes that threads
/// share.
#[inline(always)]
pub(super) fn begin(
    engine: &Arc<Engine>,
    mutation: Mutation,
    stores: &[Arc<TableStore>],
    oversized: Oversized,
    hold: Option<&LogHold>,
) -> Result<BegunWrite, EngineError> {
    let advanced = advance(Write { engine, mutation: &mutation, stores }, hold);
    let state = match advanced {
        Ok(Advanced::Applied) => State::Done,
        Ok(Advanced::Logged(kept)) => State::InFlight(InFlight::new(Arc::clone(engine), mutation, stores.into(), kept)),
        Ok(Advanced::Stopped) => State::driven(engine, mutation, oversized),
        Err(EngineError::MutationTooLarge { .. }) if mutation.updates().len() > 1 => {
            State::driven(engine, mutation, oversized)
        }
        Err(error) => return Err(error),
    };
    Ok(BegunWrite { state })
}

/// How far a write came without waiting.
enum Advanced {
    /// It is visible.
    Applied,
    /// It waits for the device.
    Logged(Kept),
    /// It would have to wait for memory or room, and nothing has happened.
    Stopped,
}

#[inline(always)]
fn advance(write: Write<'_>, hold: Option<&LogHold>) -> Result<Advanced, EngineError> {
    let Some(admitted) = write.admit_now()? else { return Ok(Advanced::Stopped) };
    let Some(entered) = admitted.enter(hold)? else { return Ok(Advanced::Stopped) };
    Ok(match admitted.apply_unless_waiting(entered, Durability::Configured) {
        None => Advanced::Applied,
        Some(kept) => Advanced::Logged(kept),
    })
}

/// How a mutation of several updates is written that is larger than a log record may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversized {
    /// As [`Engine::write_batch`] does: all of it is visible at some time, whatever happens.
    Batch,
    /// As [`Engine::write_parts`] does: nothing was promised of the updates together.
    Parts,
}

/// A write that was begun: ready once it is as durable as `commitlog_sync` says and visible to every read that starts
/// later. Dropped before, it is finished in the background if its record is in the log; otherwise nothing has happened.
#[must_use = "it is acknowledged when it is ready"]
pub struct BegunWrite {
    state: State,
}

// Most writes that wait are in flight, and would pay for an allocation with each of them.
#[allow(clippy::large_enum_variant)]
enum State {
    /// There never was anything to wait for.
    Done,
    InFlight(InFlight<Arc<Engine>, Mutation, WrittenStores>),
    /// It waits for memory, for room, or for one of its parts.
    Driven(Arc<Engine>, Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>>),
}

impl State {
    #[cold]
    fn driven(engine: &Arc<Engine>, mutation: Mutation, oversized: Oversized) -> State {
        let driven = Arc::clone(engine);
        let drive = async move {
            match oversized {
                Oversized::Batch => driven.write_batch(&mutation).await,
                Oversized::Parts => driven.write_parts(&mutation).await,
            }
        };
        State::Driven(Arc::clone(engine), Box::pin(drive))
    }
}

impl BegunWrite {
    /// Whether it need not wait, or not any more.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Done => true,
            State::InFlight(write) => write.is_done(),
            State::Driven(..) => false,
        }
    }

    /// The engine of a write that had to wait; no other write can fail.
    pub fn engine(&self) -> Option<&Engine> {
        match &self.state {
            State::Done => None,
            State::InFlight(write) => Some(&write.engine),
            State::Driven(engine, _) => Some(engine),
        }
    }

    /// The place in the log that the write waits for. `None` if it waits for something else, or if its place says
    /// nothing about other writes: then it has to be polled with a waker.
    pub fn log_place(&self) -> Option<LogPlace> {
        match &self.state {
            State::InFlight(write) if !write.is_done() => write.engine.log().place_of_wait(&write.wait),
            _ => None,
        }
    }

    /// Applies a write that is in the log if its record is settled. Nobody is woken for it: the caller waits for
    /// [`BegunWrite::log_place`], together with other writes.
    pub fn look(&mut self) -> Poll<Result<(), EngineError>> {
        match &mut self.state {
            State::Done => Poll::Ready(Ok(())),
            State::InFlight(write) => write.poll(None),
            State::Driven(..) => Poll::Pending,
        }
    }

    /// Prefetches the memory that these writes will read first in memtables. The writes must be durable and polled soon
    /// after; about eight are needed for a gain.
    pub fn prefetch<'w>(writes: impl Iterator<Item = &'w BegunWrite>) {
        let waiting = writes.filter_map(|write| match &write.state {
            State::InFlight(waiting) if !waiting.is_done() => Some(waiting),
            _ => None,
        });
        prefetch(waiting.filter_map(|waiting| waiting.stores.first().zip(waiting.mutation.updates().first())));
    }
}

impl Future for BegunWrite {
    type Output = Result<(), EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Done => Poll::Ready(Ok(())),
            State::InFlight(write) => write.poll(Some(context)),
            State::Driven(_, write) => write.as_mut().poll(context),
        }
    }
}

#[cfg(test)]
mod tests;
