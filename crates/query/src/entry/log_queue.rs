//! The queue of one connection's requests that wait for the log alone. A single check of the log shows how many of them
//! are durable. Those are answered in their order, and only the first of the rest has a waker at the log.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

use engine::{Awaited, Durable, LogHold};

use super::Pending;

/// The keys of up to this number of durable writes are prefetched together. With fewer than the second number of
/// writes, a prefetch does not pay.
const PREFETCHED_MAX: usize = 64;
const PREFETCHED_MIN: usize = 8;

/// Pending requests, ordered by the positions in the log that they wait for. An item is whatever contains a request.
pub struct LogQueue<T> {
    queue: VecDeque<Entry<T>>,
    /// Resolves when the first request is settled.
    watch: Option<(Awaited, Durable)>,
    /// The pending request in an item.
    pending_of: fn(&T) -> Option<&Pending>,
    /// The number of requests at the front that were settled at the last look, and were prefetched if there were enough
    /// of them. This is a hint, since some of them may have timed out in the meantime.
    prefetched: usize,
}

struct Entry<T> {
    awaited: Awaited,
    deadline: Option<Instant>,
    item: T,
}

impl<T> LogQueue<T> {
    /// An empty queue. The function returns the pending request in an item.
    pub fn new(pending_of: fn(&T) -> Option<&Pending>) -> LogQueue<T> {
        LogQueue { queue: VecDeque::new(), watch: None, pending_of, prefetched: 0 }
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a request that waits for this position, until the deadline at most.
    pub fn push(&mut self, awaited: Awaited, deadline: Option<Instant>, item: T) {
        self.queue.push_back(Entry { awaited, deadline, item });
    }

    /// The next request whose record is settled; the caller polls it again. If it returns `None`, the first request
    /// will wake `context`.
    pub fn next_settled(&mut self, hold: &LogHold, context: &mut Context<'_>) -> Option<T> {
        let awaited = self.queue.front()?.awaited;
        if !hold.is_settled(awaited) {
            let watch = match &mut self.watch {
                Some((of, watch)) if *of == awaited => watch,
                watch => &mut watch.insert((awaited, hold.settled(awaited))).1,
            };
            if Pin::new(watch).poll(context).is_pending() {
                return None;
            }
        }
        if self.prefetched == 0 {
            self.prefetched = self.prefetch_settled(hold);
        }
        self.prefetched = self.prefetched.saturating_sub(1);
        self.queue.pop_front().map(|entry| entry.item)
    }

    /// Prefetches the memory that the settled requests at the front will read, so that they do not wait for it one
    /// after the other. Returns the number of these requests.
    fn prefetch_settled(&self, hold: &LogHold) -> usize {
        let first = self.queue.iter().take(PREFETCHED_MAX);
        let count = first.clone().take_while(|entry| hold.is_settled(entry.awaited)).count();
        if count >= PREFETCHED_MIN {
            Pending::prefetch(first.take(count).filter_map(|entry| (self.pending_of)(&entry.item)));
        }
        count
    }

    /// The earliest deadline in the queue.
    pub fn first_deadline(&self) -> Option<Instant> {
        self.queue.iter().filter_map(|entry| entry.deadline).min()
    }

    /// Removes a request whose deadline is over.
    pub fn take_late(&mut self, now: Instant) -> Option<T> {
        let late = self.queue.iter().position(|entry| entry.deadline.is_some_and(|deadline| deadline <= now))?;
        self.queue.remove(late).map(|entry| entry.item)
    }

    /// Removes all requests.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.queue.drain(..).map(|entry| entry.item)
    }
}
