//! A write without a task: its record is in the log, and whoever has it polls it until it is visible. What it keeps
//! meanwhile is its mutation and its places in memory and log, a tenth of what the future of a whole request is.

use std::future::Future;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};

use commitlog::LogWait;
use model::Mutation;

use crate::engine::{BorrowedSchema, Engine};
use crate::error::EngineError;
use crate::store::TableStore;
use crate::write::{LoggedWrite, prefetch};

/// A write that was begun: ready once it is as durable as `commitlog_sync` says and visible to every read that starts
/// later. Dropped before, it is finished in the background.
#[must_use = "it is acknowledged when it is ready"]
pub struct BegunWrite {
    /// `None` if there never was anything to wait for.
    waiting: Option<Waiting>,
}

struct Waiting {
    engine: Arc<Engine>,
    /// `None` once it is visible, or never will be.
    write: Option<LoggedWrite>,
    wait: LogWait,
    /// Of the memtables' memory.
    taken_bytes: i64,
}

impl Engine {
    /// Begins a write, made under this schema, as [`Engine::write`] does, but waits for nothing. `None` if it would
    /// have to wait for room in memory or log: nothing has happened then.
    pub fn begin_write(
        self: &Arc<Engine>,
        schema: &BorrowedSchema,
        mutation: Mutation,
    ) -> Result<Option<BegunWrite>, EngineError> {
        let [update] = mutation.updates() else {
            let stores = self.stores_of(&mutation)?;
            return self.begin_write_to(&stores, mutation);
        };
        let store = schema.catalog().store(update.table())?;
        self.begin_write_to(slice::from_ref(store), mutation)
    }

    /// The same for a mutation of these stores' tables. Where there is nothing to wait for, no count of owners changes
    /// that threads share.
    fn begin_write_to(
        self: &Arc<Engine>,
        stores: &[Arc<TableStore>],
        mutation: Mutation,
    ) -> Result<Option<BegunWrite>, EngineError> {
        let size_bytes = mutation.record_size();
        let taken = match self.log().is_periodic() {
            true => self.pool().find_room(size_bytes),
            false => self.pool().take_now(size_bytes),
        };
        let Some(taken) = taken else { return Ok(None) };
        let Some(room) = self.reserve_now(&mutation, stores)? else { return Ok(None) };
        let Some((membership, logged)) = self.try_enter_and_log(&mutation, stores)? else { return Ok(None) };
        match logged.filter(|end| !self.log().is_durable(*end)) {
            Some(logged) => {
                let (membership, stores) = (membership.that_waits(), stores.into());
                let waiting = Waiting {
                    engine: Arc::clone(self),
                    write: Some(LoggedWrite { mutation, stores, logged, membership, room }),
                    wait: self.log().wait_for(logged),
                    taken_bytes: taken.into_bytes(),
                };
                Ok(Some(BegunWrite { waiting: Some(waiting) }))
            }
            None => {
                self.apply_all(stores, &mutation, logged);
                drop((room, membership, taken));
                self.flush_if_wanted();
                Ok(Some(BegunWrite { waiting: None }))
            }
        }
    }
}

impl BegunWrite {
    /// Whether there is nothing to wait for, or nothing any more.
    pub fn is_done(&self) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.write.is_none())
    }

    /// The engine, of one that had to wait: no other can fail.
    pub fn engine(&self) -> Option<&Engine> {
        self.waiting.as_ref().map(|waiting| &*waiting.engine)
    }

    /// Has memtables bring near what these will look at first: for writes that are durable and polled right after, some
    /// eight or more.
    pub fn prefetch<'w>(writes: impl Iterator<Item = &'w BegunWrite>) {
        let logged = writes.filter_map(|write| write.waiting.as_ref()?.write.as_ref());
        prefetch(logged.filter_map(|write| write.stores.first().zip(write.mutation.updates().first())));
    }
}

impl Waiting {
    fn give_back(&mut self) {
        self.engine.pool().give_back(std::mem::take(&mut self.taken_bytes));
        self.engine.flush_if_wanted();
    }
}

impl Future for BegunWrite {
    type Output = Result<(), EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.write.is_some()) else {
            return Poll::Ready(Ok(()));
        };
        let engine = &waiting.engine;
        let Poll::Ready(durable) = engine.log().poll_wait(&mut waiting.wait, context) else { return Poll::Pending };
        let write = waiting.write.take();
        let outcome = durable.map_err(|error| engine.log_failed(error));
        if let (Ok(()), Some(write)) = (&outcome, &write) {
            engine.apply_all(&write.stores, &write.mutation, Some(write.logged));
        }
        drop(write);
        waiting.give_back();
        Poll::Ready(outcome)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.engine.finish_in_background(write);
            self.give_back();
        }
    }
}
