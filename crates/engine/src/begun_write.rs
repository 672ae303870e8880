//! A write without a task: its record is in the log, and whoever has it polls it until it is visible. What it keeps meanwhile is its
//! mutation and its places in memory and log, a tenth of what the future of a whole request is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use commitlog::Durable;
use model::Mutation;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::write::LoggedWrite;

/// A write that was begun: ready once it is as durable as `commitlog_sync` says and visible to every read that starts later. Dropped
/// before, it is finished in the background.
#[must_use = "it is acknowledged when it is ready"]
pub struct BegunWrite {
    engine: Arc<Engine>,
    /// Until it is visible, or never will be.
    write: Option<LoggedWrite>,
    durable: Option<Durable>,
    /// Of the memtables' memory.
    taken_bytes: i64,
}

impl Engine {
    /// Begins a write as [`Engine::write`] does, but waits for nothing. `None` if it would have to wait for room in memory or log:
    /// nothing has happened then.
    pub fn begin_write(self: &Arc<Engine>, mutation: Mutation) -> Result<Option<BegunWrite>, EngineError> {
        let stores = self.stores_of(&mutation)?;
        let Some(taken) = self.pool().take_now(mutation.record_size()) else { return Ok(None) };
        let Some(room) = self.reserve_now(&mutation, &stores)? else { return Ok(None) };
        let Some((membership, logged)) = self.try_enter_and_log(&mutation, &stores)? else { return Ok(None) };
        let mut begun =
            BegunWrite { engine: Arc::clone(self), write: None, durable: None, taken_bytes: taken.into_bytes() };
        match logged {
            Some(logged) => {
                begun.durable = Some(self.log().durable(logged));
                begun.write = Some(LoggedWrite { mutation, stores, logged, membership, room });
            }
            None => {
                self.apply_all(&stores, &mutation, None);
                drop((room, membership));
                begun.give_back();
            }
        }
        Ok(Some(begun))
    }
}

impl BegunWrite {
    fn give_back(&mut self) {
        self.engine.pool().give_back(std::mem::take(&mut self.taken_bytes));
        if self.engine.pool().wants_flush() {
            self.engine.request_cleanup();
        }
    }
}

impl Future for BegunWrite {
    type Output = Result<(), EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(durable) = &mut this.durable else { return Poll::Ready(Ok(())) };
        let Poll::Ready(durable) = Pin::new(durable).poll(context) else { return Poll::Pending };
        this.durable = None;
        let Some(write) = this.write.take() else { return Poll::Ready(Ok(())) };
        if durable.is_ok() {
            this.engine.apply_all(&write.stores, &write.mutation, Some(write.logged));
        }
        drop(write);
        this.give_back();
        Poll::Ready(durable.map_err(|error| this.engine.log_failed(error)))
    }
}

impl Drop for BegunWrite {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.engine.finish_in_background(write);
            self.give_back();
        }
    }
}
