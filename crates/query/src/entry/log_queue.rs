//! Requests of one connection that wait for nothing but the log. They are woken together and answered in their order:
//! one look at the log tells how many are durable, and only the first of the rest is waited for.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

use engine::{Awaited, Durable, LogHold};

use super::Pending;

/// Of so many settled writes keys are prefetched together; not if there are fewer than a few.
const PREFETCHED_MAX: usize = 64;
const PREFETCHED_MIN: usize = 8;

/// Pending requests in the order of the places in the log that they wait for, each with something of its owner's.
pub struct LogQueue<T> {
    queue: VecDeque<Entry<T>>,
    /// What resolves when the first of them is settled.
    watch: Option<(Awaited, Durable)>,
    /// The pending request that an item is.
    pending_of: fn(&T) -> Option<&Pending>,
    /// So many of the first were settled when it was last looked, and prefetched if they were enough. A hint: some may
    /// have been given up since.
    prefetched: usize,
}

struct Entry<T> {
    awaited: Awaited,
    deadline: Option<Instant>,
    item: T,
}

impl<T> LogQueue<T> {
    /// An empty queue of items that are these pending requests.
    pub fn new(pending_of: fn(&T) -> Option<&Pending>) -> LogQueue<T> {
        LogQueue { queue: VecDeque::new(), watch: None, pending_of, prefetched: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds one that waits for this place, and for no longer than until the deadline.
    pub fn push(&mut self, awaited: Awaited, deadline: Option<Instant>, item: T) {
        self.queue.push_back(Entry { awaited, deadline, item });
    }

    /// The next whose record is settled, to be polled again. With `None` the first of the others will wake `context`.
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

    /// Has memtables prefetch what the first that are settled will look at: one after the other each would wait for
    /// memory by itself. Answers how many those are.
    fn prefetch_settled(&self, hold: &LogHold) -> usize {
        let first = self.queue.iter().take(PREFETCHED_MAX);
        let count = first.clone().take_while(|entry| hold.is_settled(entry.awaited)).count();
        if count >= PREFETCHED_MIN {
            Pending::prefetch(first.take(count).filter_map(|entry| (self.pending_of)(&entry.item)));
        }
        count
    }

    /// When the first deadline of all is.
    pub fn first_deadline(&self) -> Option<Instant> {
        self.queue.iter().filter_map(|entry| entry.deadline).min()
    }

    /// Takes out one whose deadline is over.
    pub fn take_late(&mut self, now: Instant) -> Option<T> {
        let late = self.queue.iter().position(|entry| entry.deadline.is_some_and(|deadline| deadline <= now))?;
        self.queue.remove(late).map(|entry| entry.item)
    }

    /// Takes out all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.queue.drain(..).map(|entry| entry.item)
    }
}
