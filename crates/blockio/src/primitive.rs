//! What the ring is built from. The commit log's model puts a model checker's in its place, and so runs this very ring.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
