//! The permits for hashes of passwords. Only a few passwords are hashed at a time, and only one of each role: a role
//! may have a hash that takes seconds, and the logins of others must not wait for all who try to log in as this role.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of passwords that are hashed at a time. Other logins wait. Requests of clients that have logged in are
/// not delayed.
const HASHES_AT_A_TIME: usize = 2;

/// The digest of a role's name.
type Role = [u8; 32];

/// The permits for all logins.
#[derive(Debug)]
pub(crate) struct HashPermits {
    permits: Arc<Semaphore>,
    roles: Mutex<HashMap<Role, Logins>>,
}

/// The logins of a role that have a permit or wait for one.
#[derive(Debug)]
struct Logins {
    count: usize,
    /// The turn of the role, which only one hash of it has.
    turn: Arc<Semaphore>,
}

/// A permit for one hash. Dropping it frees the permit.
#[derive(Debug)]
pub(crate) struct HashPermit {
    _permit: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
    _login: CountedLogin,
}

/// A counted login of a role. Dropping it ends the count.
#[derive(Debug)]
struct CountedLogin {
    permits: Arc<HashPermits>,
    role: Role,
}

impl HashPermits {
    pub(crate) fn new() -> Arc<HashPermits> {
        Arc::new(HashPermits { permits: Arc::new(Semaphore::new(HASHES_AT_A_TIME)), roles: Mutex::default() })
    }

    /// Waits for a permit. Logins of one role get theirs in turn, and wait for each other before they wait for others.
    pub(crate) async fn take(self: Arc<HashPermits>, role: Role) -> Option<HashPermit> {
        let (login, turn) = self.count(role);
        let turn = turn.acquire_owned().await.ok()?;
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        Some(HashPermit { _permit: permit, _turn: turn, _login: login })
    }

    fn count(self: &Arc<HashPermits>, role: Role) -> (CountedLogin, Arc<Semaphore>) {
        let mut roles = self.lock();
        let logins = roles.entry(role).or_insert_with(|| Logins { count: 0, turn: Arc::new(Semaphore::new(1)) });
        logins.count += 1;
        (CountedLogin { permits: self.clone(), role }, logins.turn.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Role, Logins>> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedLogin {
    fn drop(&mut self) {
        let mut roles = self.permits.lock();
        if let Some(logins) = roles.get_mut(&self.role) {
            logins.count -= 1;
            if logins.count == 0 {
                roles.remove(&self.role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn taken(permits: &Arc<HashPermits>, role: u8) -> Option<HashPermit> {
        permits.clone().take([role; 32]).now_or_never().flatten()
    }

    #[test]
    fn a_role_has_one_permit_and_leaves_the_others_to_others() {
        let permits = HashPermits::new();
        let first = taken(&permits, 1).unwrap();
        assert!(taken(&permits, 1).is_none());
        let other = taken(&permits, 2).unwrap();
        assert!(taken(&permits, 3).is_none(), "all permits are taken");
        drop(first);
        assert!(taken(&permits, 2).is_none());
        let third = taken(&permits, 3).unwrap();
        drop((other, third));
        assert!(taken(&permits, 2).is_some());
        assert!(permits.lock().is_empty(), "nothing is kept of roles without logins");
    }

    #[test]
    fn a_login_that_waits_for_its_role_takes_no_permit() {
        let permits = HashPermits::new();
        let first = taken(&permits, 1).unwrap();
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(permits.clone().take([1; 32]))).collect();
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        assert!(taken(&permits, 2).is_some());
        drop(first);
        assert!(waiting[0].as_mut().now_or_never().flatten().is_some(), "the first that waits is the next");
        drop(waiting);
        assert!(permits.lock().is_empty());
    }
}
