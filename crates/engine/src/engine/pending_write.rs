//! A write that was begun and waits for the log alone.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};

use model::Mutation;

use super::Engine;
use crate::error::EngineError;
use crate::shared::BorrowedSchema;
use crate::write::{OwnedWrite, Writes, begin};

/// Keeps the engine while a write waits.
struct OfEngine(Arc<Engine>);

impl Deref for OfEngine {
    type Target = Writes;

    fn deref(&self) -> &Writes {
        &self.0.writes
    }
}

/// A begun write. Completes when it is as durable as `commitlog_sync` requires and visible to every read that starts
/// later. If it is dropped before that, it is finished in the background.
#[must_use = "it is acknowledged when it is ready"]
pub struct PendingWrite(OwnedWrite<OfEngine>);

impl Engine {
    /// Begins a write that was created with this schema, without waiting. `None` means that the write would have to
    /// wait for memory or room, and that nothing has happened. A begun write waits only for the log.
    pub fn begin_write(
        self: &Arc<Engine>,
        schema: &BorrowedSchema,
        mutation: Mutation,
    ) -> Result<Option<PendingWrite>, EngineError> {
        let own = || OfEngine(Arc::clone(self));
        let [update] = mutation.updates() else {
            let stores = self.writes.stores_of(&mutation)?;
            return begin(&self.writes, own, PendingWrite, mutation, &stores);
        };
        if self.shared.options().read_only {
            // Called for its check: a read-only node accepts only some writes.
            self.writes.stores_of(&mutation)?;
        }
        let store = schema.catalog().store(update.table())?;
        begin(&self.writes, own, PendingWrite, mutation, slice::from_ref(store))
    }
}

impl PendingWrite {
    /// Whether the write does not wait, or no longer.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// The size of the mutation while the write waits, bytes.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    /// The engine of a write that had to wait; no other write can fail.
    pub fn engine(&self) -> Option<&Engine> {
        self.0.owner().map(|owner| &*owner.0)
    }

    /// Prefetches the memory that these writes will read first in memtables. The writes must be durable and polled soon
    /// after; about eight are needed for a gain.
    pub fn prefetch<'w>(writes: impl Iterator<Item = &'w PendingWrite>) {
        OwnedWrite::prefetch(writes.map(|write| &write.0));
    }
}

impl Future for PendingWrite {
    type Output = Result<(), EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}
