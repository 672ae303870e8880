//! What threads meet by: the standard library's, or the model checker's.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, Thread},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, Thread},
};
