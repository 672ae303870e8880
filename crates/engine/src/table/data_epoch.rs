//! The epoch of a table's data, which ends when rows are added or removed other than by writes: by a truncation or an
//! import.
//!
//! Within an epoch, only writes change the rows that were read. A write that depends on a read notes the epoch before
//! the read, and may only enter the log in the same epoch ([`ReadEpoch::is_current`]). A truncation closes the epoch
//! before it divides the writes, until the old rows are gone. So such a write is either before the truncation, or has
//! read the state after it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use super::TableStore;
use crate::wakers::Wakers;

/// The present epoch of a store's data.
#[derive(Debug)]
pub(crate) struct DataEpoch {
    /// No two epochs of any stores have the same number.
    number: AtomicU64,
    is_closed: AtomicBool,
    /// The writes that wait until it is open again.
    waiting: Wakers,
}

impl DataEpoch {
    pub fn new() -> DataEpoch {
        DataEpoch {
            number: AtomicU64::new(next_number()),
            is_closed: AtomicBool::new(false),
            waiting: Wakers::default(),
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Begins a new epoch, once the change of the data is in the view.
    pub fn begin(&self) {
        self.number.store(next_number(), Ordering::SeqCst);
    }

    /// Refuses writes that depend on reads, until the returned value is dropped. A write that is in a group already may
    /// still enter the log, so the caller has to wait for the groups.
    pub fn close(&self) -> ClosedEpoch<'_> {
        let was_closed = self.is_closed.swap(true, Ordering::SeqCst);
        debug_assert!(!was_closed, "truncations run one at a time");
        ClosedEpoch(self)
    }

    /// Waits until such writes are no longer refused.
    pub async fn open(&self) {
        poll_fn(|context| {
            if !self.is_closed.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            self.waiting.add(context.waker());
            if self.is_closed.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

/// Writes that depend on reads are refused while this exists.
pub(crate) struct ClosedEpoch<'e>(&'e DataEpoch);

impl Drop for ClosedEpoch<'_> {
    fn drop(&mut self) {
        let was_closed = self.0.is_closed.swap(false, Ordering::SeqCst);
        debug_assert!(was_closed, "it is closed while this exists");
        self.0.waiting.wake_all();
    }
}

/// The epoch in which a store was read.
pub(crate) struct ReadEpoch {
    store: Arc<TableStore>,
    number: u64,
}

impl ReadEpoch {
    /// Notes the present epoch, before the store is read.
    pub fn of(store: &Arc<TableStore>) -> ReadEpoch {
        ReadEpoch { store: Arc::clone(store), number: store.epoch.number() }
    }

    /// Whether a write may still depend on the read. Called inside a write group.
    pub fn is_current(&self) -> bool {
        let epoch = &self.store.epoch;
        !epoch.is_closed.load(Ordering::SeqCst) && epoch.number.load(Ordering::SeqCst) == self.number
    }

    /// Waits until the store may be read for a write again.
    pub async fn renewed(&self) {
        self.store.epoch.open().await;
    }
}

/// A number that no epoch of any store had.
fn next_number() -> u64 {
    static EPOCHS: AtomicU64 = AtomicU64::new(0);
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}
