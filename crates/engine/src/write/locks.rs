//! Locks on partitions, for writes that read before they write.
//!
//! A lock is found by table and token, so partitions may share one. Each lock has a queue. The
//! holder passes the lock directly to the first waiter, so no write overtakes another. No thread waits. A waiter is a
//! future that registers its waker, and leaves the queue when it is dropped. A write that needs several locks takes
//! them in ascending order, so that no two writes wait for each other.
//!
//! A write holds its locks from its first read until its record is in the log. From then on it has a place in the
//! [`VisibleOrder`] of each lock. The next holder reads the updates in that order besides what is visible.
//!
//! | event                         | lock     | queue         | woken        |
//! |-------------------------------|----------|---------------|--------------|
//! | a taker finds it free         | held     | stays empty   | none         |
//! | a taker finds it held         | held     | gets a ticket | none         |
//! | the holder leaves, queue empty| free     | stays empty   | none         |
//! | the holder leaves, others wait| granted  | loses its head| its head     |
//! | the granted waiter is polled  | held     | unchanged     | none         |
//! | the granted waiter is dropped | as if the holder left            ||              |
//! | another waiter is dropped     | the same | loses it      | none         |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use commitlog::LogPosition;
use model::{Mutation, TableId};
use types::Token;

use super::visible_order::VisibleOrder;
use crate::lock::lock;
use crate::unsettled::Unsettled;

/// 4,096 locks: with 64 writers at a time, one in 64 waits for a writer of another partition.
const STRIPE_BITS: u32 = 12;

/// The locks of one engine.
pub(crate) struct PartitionLocks {
    stripes: Box<[Mutex<Stripe>]>,
    /// The number of places that were given out in the orders of all locks.
    places: AtomicU64,
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
    order: VisibleOrder,
}

impl Stripe {
    /// Passes the lock on, or frees it. Returns the waker of the waiter that has the lock now.
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
                debug_assert!(self.waiting.is_empty(), "a free lock has no waiters");
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

    /// Removes a waiter that gave up. Returns the waker of the waiter that has the lock now.
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
        Arc::new(PartitionLocks { stripes: (0..count).map(|_| Mutex::default()).collect(), places: AtomicU64::new(0) })
    }

    /// Takes the locks of these partitions, after all earlier takers have left them.
    pub async fn lock(self: &Arc<Self>, partitions: &[(TableId, Token)]) -> HeldLocks {
        let mut stripes: Vec<usize> = partitions.iter().map(|(table, token)| self.stripe_of(*table, *token)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        self.lock_stripes(&stripes).await
    }

    /// Takes the locks with these numbers, which ascend.
    async fn lock_stripes(self: &Arc<Self>, stripes: &[usize]) -> HeldLocks {
        debug_assert!(stripes.is_sorted_by(|one, next| one < next), "an order that all takers share");
        let mut held = LockedStripes {
            locks: Arc::clone(self),
            stripes: Vec::with_capacity(stripes.len()),
            mutation: None,
            is_held: true,
            place: None,
        };
        for &stripe in stripes {
            let mut taker = Taker { locks: self, stripe, ticket: None };
            poll_fn(|context| taker.poll(context)).await;
            held.stripes.push(stripe);
        }
        HeldLocks { held: Some(Box::new(held)) }
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
    held: Option<Box<LockedStripes>>,
}

impl HeldLocks {
    /// The locks of a write that reads nothing.
    pub const NONE: HeldLocks = HeldLocks { held: None };

    /// The updates in these partitions that are in the log and not visible yet.
    pub fn unsettled(&self) -> Unsettled {
        let mut unsettled = Unsettled::default();
        for (locked, stripe) in self.held.iter().flat_map(|locked| locked.stripes.iter().map(move |at| (locked, *at))) {
            let locks = &locked.locks;
            for (mutation, end) in lock(&locks.stripes[stripe]).order.writes() {
                unsettled
                    .add(mutation, *end, |update| locks.stripe_of(update.table().id, update.key().token()) == stripe);
            }
        }
        unsettled
    }

    /// The locks of a write of this mutation.
    pub fn of(mut self, mutation: Arc<Mutation>) -> HeldLocks {
        self.held.iter_mut().for_each(|locked| locked.mutation = Some(Arc::clone(&mutation)));
        self
    }

    /// Whether writes that were decided under these locks before are not visible yet.
    #[inline]
    pub fn follow_others(&self) -> bool {
        self.held.as_ref().is_some_and(|locked| locked.any(|stripe| !stripe.order.is_empty()))
    }

    /// Takes a place in the orders of these locks, and passes the locks on unless `keeps` is true or too many writes
    /// are in flight. The record of the write ends at `end`; an answer has none, nor does a write that is not logged.
    #[inline]
    pub fn into_place(mut self, end: Option<LogPosition>, keeps: bool) -> VisiblePlace {
        self.held.iter_mut().for_each(|locked| locked.enter(end, keeps));
        VisiblePlace { entered: self.held }
    }
}

/// The place of a write in the orders of its locks. It is left when this is dropped. Most writes have none.
#[must_use = "the next write becomes visible when it is dropped"]
pub(crate) struct VisiblePlace {
    entered: Option<Box<LockedStripes>>,
}

impl VisiblePlace {
    /// Ready once all writes before it are visible or lost.
    #[inline]
    pub fn poll_first(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(entered) = &self.entered else { return Poll::Ready(()) };
        let is_behind = |stripe: &mut Stripe| {
            entered.place.is_some_and(|number| stripe.order.poll_first(number, context.waker()).is_pending())
        };
        if entered.any(is_behind) { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// Locks that are held, and the place in their orders that is entered next.
struct LockedStripes {
    locks: Arc<PartitionLocks>,
    stripes: Vec<usize>,
    /// The mutation that is written under the locks.
    mutation: Option<Arc<Mutation>>,
    /// Whether the locks were not passed on yet.
    is_held: bool,
    /// The number of the place, once it is entered.
    place: Option<u64>,
}

impl LockedStripes {
    fn any(&self, is_so: impl FnMut(&mut Stripe) -> bool) -> bool {
        let mut is_so = is_so;
        self.stripes.iter().any(|stripe| is_so(&mut lock(&self.locks.stripes[*stripe])))
    }

    fn enter(&mut self, end: Option<LogPosition>, keeps: bool) {
        debug_assert!(self.is_held && self.place.is_none(), "the locks decide the order");
        let number = self.locks.places.fetch_add(1, Ordering::Relaxed);
        let write = self.mutation.take().map(|mutation| (mutation, end));
        let mut is_full = keeps;
        for stripe in &self.stripes {
            let mut stripe = lock(&self.locks.stripes[*stripe]);
            stripe.order.enter(number, write.clone());
            is_full |= stripe.order.is_full();
        }
        self.place = Some(number);
        if !is_full {
            self.pass_on();
        }
    }

    fn pass_on(&mut self) {
        self.is_held = false;
        self.stripes.iter().for_each(|stripe| self.locks.pass_on(*stripe));
    }
}

impl Drop for LockedStripes {
    fn drop(&mut self) {
        if let Some(number) = self.place {
            for stripe in &self.stripes {
                let next = lock(&self.locks.stripes[*stripe]).order.leave(number);
                next.into_iter().for_each(Waker::wake);
            }
        }
        if self.is_held {
            self.pass_on();
        }
    }
}

#[cfg(test)]
mod tests;
