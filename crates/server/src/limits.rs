//! The limits on clients: the number of connections, and the memory for their requests and answers.
//!
//! The node has one budget of memory (`native_transport_max_request_data_in_flight`), and each address has a part of it
//! (`..._per_ip`). A connection takes memory from its address's part: for bytes that have arrived, for the missing
//! bytes of a request that has begun to arrive, for requests in flight, and for answers that are not sent yet. The
//! memory that statements hold while they run belongs to the same budget ([`query::MemoryBudget`]).
//!
//! A connection that holds no more than [`FREE_BYTES`] takes nothing from the budget, and beyond that it takes memory
//! in steps of [`STEP_BYTES`]. Ordinary requests therefore touch nothing that connections share. In exchange, the node
//! may hold `FREE_BYTES` for each connection in addition to the budget.
//!
//! Memory that is already in use is counted even if it exceeds a limit. A connection over the limit is not read until
//! there is room (or its requests are refused, if its client asked for that). While other connections wait for memory,
//! a connection is closed if it does not finish its request or does not read its answers for some seconds. So no client
//! can hold memory for ever.

use crate::options::ServerOptions;
use query::{Lease, MemoryBudget};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// The memory that a connection may hold without taking it from a budget.
pub(crate) const FREE_BYTES: usize = 32 * 1024;

/// The steps in which it takes memory beyond that.
const STEP_BYTES: usize = 64 * 1024;

/// The largest request before STARTUP; that message and OPTIONS are much smaller.
pub(crate) const FIRST_REQUEST_BYTES_MAX: usize = 16 * 1024;

/// The node's limits, and the part of them that is in use.
#[derive(Debug)]
pub(crate) struct Limits {
    node: Arc<MemoryBudget>,
    address_bytes_max: usize,
    connections_max: Option<usize>,
    connections_per_address_max: Option<usize>,
    connected: Mutex<Connected>,
}

#[derive(Debug, Default)]
struct Connected {
    connections: usize,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Debug)]
struct Address {
    connections: usize,
    budget: Arc<MemoryBudget>,
}

/// Counts one connection against the limits until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    address: IpAddr,
    limits: Arc<Limits>,
    budget: Arc<MemoryBudget>,
}

impl Limits {
    pub(crate) fn new(options: &ServerOptions) -> Arc<Limits> {
        Arc::new(Limits {
            node: options.request_memory.clone(),
            address_bytes_max: options.request_bytes_in_flight_per_ip_max,
            connections_max: options.connections_max,
            connections_per_address_max: options.connections_per_ip_max,
            connected: Mutex::default(),
        })
    }

    /// Admits a connection from this address, unless a limit is reached.
    pub(crate) fn admit(self: &Arc<Limits>, address: IpAddr) -> Option<ConnectionPermit> {
        let mut connected = self.lock();
        if self.connections_max.is_some_and(|max| connected.connections >= max) {
            return None;
        }
        let of_address = connected.addresses.get(&address).map_or(0, |known| known.connections);
        if self.connections_per_address_max.is_some_and(|max| of_address >= max) {
            return None;
        }
        connected.connections += 1;
        let known = connected.addresses.entry(address).or_insert_with(|| Address {
            connections: 0,
            budget: MemoryBudget::part_of(&self.node, self.address_bytes_max),
        });
        known.connections += 1;
        Some(ConnectionPermit { address, limits: self.clone(), budget: known.budget.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// The memory that the address may take.
    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut connected = self.limits.lock();
        connected.connections -= 1;
        if let Some(known) = connected.addresses.get_mut(&self.address) {
            known.connections -= 1;
            if known.connections == 0 {
                connected.addresses.remove(&self.address);
            }
        }
    }
}

/// The memory that one connection holds.
#[derive(Debug)]
pub(crate) struct Account {
    lease: Lease,
    /// Whether it waits for room that it has requested.
    is_waiting: bool,
}

impl Account {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Account {
        Account { lease: Lease::new(budget), is_waiting: false }
    }

    /// Ready if the connection may hold this many bytes. Otherwise `cx` is woken when it may.
    pub(crate) fn poll_grow(&mut self, held_bytes: usize, cx: &Context<'_>) -> Poll<()> {
        let room = self.lease.poll_grow(leased_bytes(held_bytes), cx);
        self.is_waiting = room.is_pending();
        room
    }

    /// Sets the bytes that the connection holds now, even beyond the limits. It keeps what it has taken for the missing
    /// part of a request.
    pub(crate) fn update(&mut self, held_bytes: usize, missing_bytes: usize) {
        let (used, kept) = (leased_bytes(held_bytes), leased_bytes(held_bytes + missing_bytes));
        if used > self.lease.bytes() {
            self.lease.grow(used);
        } else if kept == 0 || kept + STEP_BYTES < self.lease.bytes() {
            self.lease.shrink(kept);
        }
    }

    /// Withdraws its request for room.
    pub(crate) fn stop_waiting(&mut self) {
        self.lease.stop_waiting();
        self.is_waiting = false;
    }

    /// Whether it waits for room that it has requested.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether it holds memory for which other connections wait.
    pub(crate) fn blocks_others(&self) -> bool {
        self.lease.bytes() > 0 && self.is_short()
    }

    /// Whether memory is short for connections of this address.
    pub(crate) fn is_short(&self) -> bool {
        self.lease.budget().is_short()
    }
}

/// The bytes taken of the budgets for a connection that holds this many bytes.
fn leased_bytes(held_bytes: usize) -> usize {
    if held_bytes <= FREE_BYTES { 0 } else { held_bytes.next_multiple_of(STEP_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::Waker;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn connections_are_limited_for_the_node_and_for_each_address() {
        let options =
            ServerOptions { connections_max: Some(3), connections_per_ip_max: Some(2), ..ServerOptions::default() };
        let limits = Limits::new(&options);
        let (first, second) = (limits.admit(address(1)).unwrap(), limits.admit(address(1)).unwrap());
        assert!(limits.admit(address(1)).is_none());
        let other = limits.admit(address(2)).unwrap();
        assert!(limits.admit(address(2)).is_none());
        drop(first);
        let again = limits.admit(address(1)).unwrap();
        drop((second, other, again));
        assert!(limits.lock().addresses.is_empty());
        assert_eq!(limits.lock().connections, 0);
    }

    #[test]
    fn connections_of_an_address_share_its_part_and_leave_the_rest_to_others() {
        let options = ServerOptions {
            request_memory: MemoryBudget::new(10 * STEP_BYTES),
            request_bytes_in_flight_per_ip_max: 4 * STEP_BYTES,
            ..ServerOptions::default()
        };
        let limits = Limits::new(&options);
        let places = [limits.admit(address(1)), limits.admit(address(1)), limits.admit(address(2))];
        let [mut first, mut second, mut other] =
            places.each_ref().map(|place| Account::new(place.as_ref().unwrap().budget().clone()));
        let cx = Context::from_waker(Waker::noop());
        assert!(first.poll_grow(3 * STEP_BYTES + 1, &cx).is_ready());
        assert!(second.poll_grow(FREE_BYTES, &cx).is_ready(), "small requests do not wait");
        assert!(second.poll_grow(FREE_BYTES + 1, &cx).is_pending() && second.is_waiting());
        assert!(first.blocks_others() && !second.blocks_others());
        assert!(other.poll_grow(4 * STEP_BYTES, &cx).is_ready());
        first.update(STEP_BYTES, 2 * STEP_BYTES);
        assert!(second.poll_grow(FREE_BYTES + 1, &cx).is_pending(), "what is missing stays reserved");
        first.update(0, 0);
        assert!(second.poll_grow(FREE_BYTES + 1, &cx).is_ready() && !second.is_waiting());
        second.update(20 * STEP_BYTES, 0);
        assert!(other.is_short(), "what is used is counted beyond the limits");
        drop((first, second, other));
        assert_eq!(limits.node.taken_bytes(), 0);
    }
}
