//! Locks on partitions, for writes that read before they write.
//!
//! A lock is found by table and token, so partitions may share one. Each lock has a queue. The
//! holder passes the lock directly to the first waiter, so no write overtakes another. No thread waits. A waiter is a
//! future that registers its waker, and leaves the queue when it is dropped. A write that needs several locks takes
//! them in ascending order, so that no two writes wait for each other.
//!
//! | event                         | lock     | queue         | woken        |
//! |-------------------------------|----------|---------------|--------------|
//! | a taker finds it free         | held     | stays empty   | nobody       |
//! | a taker finds it held         | held     | gets a ticket | nobody       |
//! | the holder leaves, queue empty| free     | stays empty   | nobody       |
//! | the holder leaves, others wait| granted  | loses its head| its head     |
//! | the granted waiter is polled  | held     | unchanged     | nobody       |
//! | the granted waiter is dropped | as if the holder left            ||              |
//! | another waiter is dropped     | the same | loses it      | nobody       |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use model::TableId;
use types::Token;

use crate::lock::lock;

/// 4,096 locks: with 64 writers at a time, one in 64 waits for a writer of another partition.
const STRIPE_BITS: u32 = 12;

/// The locks of one engine.
pub(crate) struct PartitionLocks {
    stripes: Box<[Mutex<Stripe>]>,
}

/// One lock and the queue for it.
#[derive(Debug, Default)]
struct Stripe {
    is_held: bool,
    /// The waiter that holds the lock and was not polled since it was granted.
    granted: Option<u64>,
    /// The waiters, the first one at the front.
    waiting: VecDeque<(u64, Waker)>,
    /// The tickets given out so far.
    tickets: u64,
}

impl Stripe {
    /// Passes the lock on, or frees it. Returns who is to be woken.
    fn pass_on(&mut self) -> Option<Waker> {
        debug_assert!(self.is_held && self.granted.is_none(), "only the holder passes it on");
        match self.waiting.pop_front() {
            Some((ticket, waker)) => {
                self.granted = Some(ticket);
                Some(waker)
            }
            None => {
                self.is_held = false;
                None
            }
        }
    }

    /// The lock for `ticket`, or for a new one.
    fn poll(&mut self, ticket: &mut Option<u64>, waker: &Waker) -> Poll<()> {
        let Some(known) = *ticket else {
            if !self.is_held {
                debug_assert!(self.waiting.is_empty(), "nobody waits for a free lock");
                self.is_held = true;
                return Poll::Ready(());
            }
            self.tickets += 1;
            *ticket = Some(self.tickets);
            self.waiting.push_back((self.tickets, waker.clone()));
            return Poll::Pending;
        };
        if self.granted == Some(known) {
            self.granted = None;
            return Poll::Ready(());
        }
        if let Some((_, registered)) = self.waiting.iter_mut().find(|(other, _)| *other == known) {
            registered.clone_from(waker);
        }
        Poll::Pending
    }

    /// Takes a waiter out that gave up. Returns who is to be woken.
    fn leave(&mut self, ticket: u64) -> Option<Waker> {
        if self.granted == Some(ticket) {
            self.granted = None;
            return self.pass_on();
        }
        self.waiting.retain(|(other, _)| *other != ticket);
        None
    }
}

impl PartitionLocks {
    pub fn new() -> Arc<PartitionLocks> {
        PartitionLocks::with_stripes(1 << STRIPE_BITS)
    }

    fn with_stripes(count: usize) -> Arc<PartitionLocks> {
        debug_assert!(count.is_power_of_two(), "the stripe is taken from the bits of a hash");
        Arc::new(PartitionLocks { stripes: (0..count).map(|_| Mutex::default()).collect() })
    }

    /// Takes the locks of these partitions, once all who came before have left them.
    pub async fn lock(self: &Arc<Self>, partitions: &[(TableId, Token)]) -> HeldLocks {
        let mut stripes: Vec<usize> = partitions.iter().map(|(table, token)| self.stripe_of(*table, *token)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        self.lock_stripes(&stripes).await
    }

    /// Takes the locks with these numbers, which ascend.
    async fn lock_stripes(self: &Arc<Self>, stripes: &[usize]) -> HeldLocks {
        debug_assert!(stripes.is_sorted_by(|one, next| one < next), "an order that all takers share");
        let mut held = LockedStripes { locks: Arc::clone(self), stripes: Vec::with_capacity(stripes.len()) };
        for &stripe in stripes {
            let mut taker = Taker { locks: self, stripe, ticket: None };
            poll_fn(|context| taker.poll(context)).await;
            held.stripes.push(stripe);
        }
        HeldLocks { _held: Some(Box::new(held)) }
    }

    fn stripe_of(&self, table: TableId, token: Token) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let (high, low) = table.0.as_u64_pair();
        let hash = (token.0 as u64 ^ high ^ low).wrapping_mul(ODD);
        (hash >> 32) as usize & (self.stripes.len() - 1)
    }

    fn pass_on(&self, stripe: usize) {
        let next = lock(&self.stripes[stripe]).pass_on();
        next.into_iter().for_each(Waker::wake);
    }
}

/// A request for one lock. Dropping it withdraws the request.
struct Taker<'l> {
    locks: &'l PartitionLocks,
    stripe: usize,
    /// `None` before it had to wait, and when it has the lock.
    ticket: Option<u64>,
}

impl Taker<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let polled = lock(&self.locks.stripes[self.stripe]).poll(&mut self.ticket, context.waker());
        if polled.is_ready() {
            self.ticket = None;
        }
        polled
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let next = lock(&self.locks.stripes[self.stripe]).leave(ticket);
            next.into_iter().for_each(Waker::wake);
        }
    }
}

/// The locks that a write holds. They are passed on when this is dropped. Most writes hold none.
#[derive(Default)]
pub(crate) struct HeldLocks {
    _held: Option<Box<LockedStripes>>,
}

impl HeldLocks {
    /// The locks of a write that reads nothing.
    pub const NONE: HeldLocks = HeldLocks { _held: None };
}

struct LockedStripes {
    locks: Arc<PartitionLocks>,
    stripes: Vec<usize>,
}

impl Drop for LockedStripes {
    fn drop(&mut self) {
        self.stripes.iter().for_each(|stripe| self.locks.pass_on(*stripe));
    }
}

#[cfg(test)]
mod tests;
