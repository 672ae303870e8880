//! The primitives of the ring. The commit log's model test replaces them with a model checker's, and so runs this very
//! code.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
