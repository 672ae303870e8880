//! What threads meet by, and how long they try. A model checker has its own in this place (`tests/model.rs`).

pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, Thread},
};

/// So many changes of others a thread makes before it leaves the writer to one of those that wait.
pub(crate) const SERVED_MAX: usize = 128;

/// How often a thread looks whether its change was made before it lets others run, and before it sleeps.
pub(crate) const SPINS: u32 = 64;
pub(crate) const YIELDS: u32 = 4;
