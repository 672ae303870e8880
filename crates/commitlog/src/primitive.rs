//! What the hand-off between appenders, writer and waiters is built from. `tests/model.rs` puts a model checker's in its place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
pub(crate) use std::thread_local;

pub(crate) use blockio::{BlockRing, QueueWaker, Reservation, ReserveError, Seal};
