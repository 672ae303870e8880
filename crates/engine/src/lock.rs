//! Locking of mutexes whose guarded values are always valid.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. The guarded values are replaced by single stores, so that a panic elsewhere leaves them valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
