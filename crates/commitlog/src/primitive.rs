//! The primitives of the hand-off between appenders, writer and waiters. `tests/model.rs` and `tests/writer_model.rs`
//! replace them with a model checker's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub(crate) use std::{hint, thread, thread_local};

pub(crate) use blockio::{
    BlockQueue, BlockRing, CompletedWrite, FilledBatch, Frame, QueueMeans, QueueWaker, Reservation, ReserveError, Seal,
    SealedBatch,
};
