//! Failed logins. After several of them in a row, further ones are refused for a while without hashing a password.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
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

/// The bits of an IPv6 address that a client does not choose by itself: usually each network has 64 bits of its own.
const NETWORK_BITS: u128 = !0 << 64;

/// The address whose failures are counted: of IPv6, the network of the client. An IPv4 address that is mapped to IPv6
/// is that of IPv4.
fn counted(address: Option<IpAddr>) -> Option<IpAddr> {
    Some(match address?.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_BITS)),
        address => address,
    })
}

/// Failed logins by address and role.
#[derive(Default)]
pub(super) struct Failures(HashMap<Key, (u32, Instant)>);

impl Failures {
    /// Whether a login must be refused.
    pub fn must_refuse(&self, address: Option<IpAddr>, role: &str, now: Instant) -> bool {
        let address = counted(address);
        let count = |role: Option<NameDigest>| match self.0.get(&(address, role)) {
            Some((count, last)) if now.duration_since(*last) < FORGOTTEN_AFTER => *count,
            _ => 0,
        };
        !self.0.is_empty() && (count(None) >= OF_ADDRESS_MAX || count(Some(digest(role))) >= OF_ROLE_MAX)
    }

    /// Notes a failure.
    pub fn add(&mut self, address: Option<IpAddr>, role: &str, now: Instant) {
        let address = counted(address);
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
            self.0.remove(&(counted(address), Some(digest(role))));
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
    fn a_network_of_ipv6_counts_as_one_address_and_a_mapped_address_as_that_of_ipv4() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        let at = |address: &str| Some(address.parse().unwrap());
        for host in 0..OF_ROLE_MAX {
            failures.add(at(&format!("2001:db8:0:1::{host:x}")), "r", now);
            failures.add(at(if host % 2 == 0 { "192.0.2.1" } else { "::ffff:192.0.2.1" }), "r", now);
        }
        for refused in ["2001:db8:0:1:ffff::1", "192.0.2.1", "::ffff:192.0.2.1"] {
            assert!(failures.must_refuse(at(refused), "r", now), "{refused}");
        }
        for accepted in ["2001:db8:0:2::1", "192.0.2.2", "::ffff:192.0.2.2", "::1"] {
            assert!(!failures.must_refuse(at(accepted), "r", now), "{accepted}");
        }
        failures.forget(at("2001:db8:0:1::abcd"), "r");
        assert!(!failures.must_refuse(at("2001:db8:0:1::1"), "r", now));
    }

    #[test]
    fn many_addresses_take_a_bounded_memory_and_the_last_ones_are_refused() {
        let (mut failures, begun) = (Failures::default(), Instant::now());
        let address = |number: usize| Some(IpAddr::from((number as u32 + 1).to_be_bytes()));
        for number in 0..2 * REMEMBERED_MAX {
            let now = begun + Duration::from_micros(number as u64);
            (0..OF_ROLE_MAX).for_each(|_| failures.add(address(number), "r", now));
            assert!(failures.must_refuse(address(number), "r", now));
            assert!(failures.0.len() <= REMEMBERED_MAX);
        }
        let end = begun + Duration::from_secs(1);
        assert!(failures.must_refuse(address(2 * REMEMBERED_MAX - 1), "r", end));
        assert!(!failures.must_refuse(address(0), "r", end) && !failures.must_refuse(address(1 << 20), "r", end));
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
