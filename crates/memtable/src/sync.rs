//! The synchronization primitives, and how long threads spin. A model checker replaces them (`tests/model.rs`).

pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, Thread},
};

/// How many changes of others a thread makes before it leaves the gate to one of the waiting threads.
pub(crate) const SERVED_MAX: usize = 128;

/// How often a thread checks whether its change was made before it yields, and before it sleeps.
pub(crate) const SPINS: u32 = 64;
pub(crate) const YIELDS: u32 = 4;
