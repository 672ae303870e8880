//! Failed logins. After several of them in a row, further ones are refused for a while without hashing a password.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// The failures of one role from one address, and of all roles from one address, after which logins are refused.
const OF_ROLE_MAX: u32 = 10;
const OF_ADDRESS_MAX: u32 = 100;

/// The time without a failure after which failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// The number of pairs of an address and a role that are remembered.
const REMEMBERED_MAX: usize = 4096;

/// The digest of a name that a client sent. Names may be long, and clients that have not logged in choose them, so the
/// names themselves are not kept.
pub(super) type NameDigest = [u8; 32];

/// The digest of this name.
pub(super) fn digest(name: &str) -> NameDigest {
    Sha256::digest(name).into()
}

/// An address, and a role unless all roles are meant.
type Key = (Option<IpAddr>, Option<NameDigest>);

/// Failed logins by address and role.
#[derive(Default)]
pub(super) struct Failures(HashMap<Key, (u32, Instant)>);

impl Failures {
    /// Whether a login must be refused.
    pub fn must_refuse(&self, address: Option<IpAddr>, role: &str, now: Instant) -> bool {
        let count = |role: Option<NameDigest>| match self.0.get(&(address, role)) {
            Some((count, last)) if now.duration_since(*last) < FORGOTTEN_AFTER => *count,
            _ => 0,
        };
        !self.0.is_empty() && (count(None) >= OF_ADDRESS_MAX || count(Some(digest(role))) >= OF_ROLE_MAX)
    }

    /// Notes a failure.
    pub fn add(&mut self, address: Option<IpAddr>, role: &str, now: Instant) {
        for key in [(address, Some(digest(role))), (address, None)] {
            if self.0.len() >= REMEMBERED_MAX && !self.0.contains_key(&key) {
                self.make_room(now);
            }
            let (count, last) = self.0.entry(key).or_insert((0, now));
            *count = if now.duration_since(*last) < FORGOTTEN_AFTER { count.saturating_add(1) } else { 1 };
            *last = now;
        }
    }

    /// Forgets the failures of a role that has logged in.
    pub fn forget(&mut self, address: Option<IpAddr>, role: &str) {
        if !self.0.is_empty() {
            self.0.remove(&(address, Some(digest(role))));
        }
    }

    /// Forgets what is old, or else the pair that failed longest ago.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, (_, last)| now.duration_since(*last) < FORGOTTEN_AFTER);
        if self.0.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_refused_after_failures_from_the_same_address_only() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        let [here, there] = [1, 2].map(|last| Some(IpAddr::from([127, 0, 0, last])));
        for _ in 0..OF_ROLE_MAX {
            assert!(!failures.must_refuse(here, "r", now));
            failures.add(here, "r", now);
        }
        assert!(failures.must_refuse(here, "r", now));
        assert!(!failures.must_refuse(there, "r", now));
        assert!(!failures.must_refuse(here, "other", now));
        assert!(!failures.must_refuse(here, "r", now + FORGOTTEN_AFTER));
        failures.forget(here, "r");
        assert!(!failures.must_refuse(here, "r", now));
    }

    #[test]
    fn an_address_that_tries_many_roles_is_refused_and_memory_is_bounded() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        let here = Some(IpAddr::from([127, 0, 0, 1]));
        for role in 0..2 * REMEMBERED_MAX {
            failures.add(here, &role.to_string(), now + Duration::from_micros(role as u64));
        }
        assert!(failures.must_refuse(here, "a new one", now + Duration::from_secs(1)));
        assert!(failures.0.len() <= REMEMBERED_MAX);
    }

    #[test]
    fn a_long_name_takes_no_more_memory_than_a_short_one() {
        /// The size of a key that refers to no memory elsewhere, which only a type that is `Copy` ensures.
        fn key_bytes<K: Copy>(_: &HashMap<K, (u32, Instant)>) -> usize {
            size_of::<K>()
        }
        let (mut failures, now) = (Failures::default(), Instant::now());
        let (long, other) = ("n".repeat(64 * 1024), "n".repeat(64 * 1024 - 1));
        for _ in 0..OF_ROLE_MAX {
            failures.add(None, &long, now);
        }
        assert!(failures.must_refuse(None, &long, now) && !failures.must_refuse(None, &other, now));
        assert!(key_bytes(&failures.0) <= 64);
    }
}
