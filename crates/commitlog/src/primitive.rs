//! What the hand-off between appenders, writer and waiters is built from. `tests/model.rs` and `tests/writer_model.rs`
//! put a model checker's in its place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub(crate) use std::{hint, thread, thread_local};

pub(crate) use blockio::{
    BlockQueue, BlockRing, FilledBatch, Frame, QueueMeans, QueueWaker, Reservation, ReserveError, Seal, SealedBatch,
    Written,
};
