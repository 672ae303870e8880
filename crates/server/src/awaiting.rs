//! Writes of one connection that wait for nothing but the log. They are woken together and answered in their order: one
//! look at the log tells how many are durable, and only the first of the rest is waited for.

use crate::handler::QueryHandler;
use crate::in_flight::InFlight;
use query::{Awaited, BegunModification, Durable, LogHold};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use tokio::time::{Instant, Sleep, sleep_until};

/// Of so many settled writes keys are looked up together; not if there are fewer than a few.
const LOOKED_UP_MAX: usize = 64;
const LOOKED_UP_MIN: usize = 8;

/// See the module's text.
pub(crate) struct Awaiting<H: QueryHandler> {
    queue: VecDeque<Entry<H>>,
    /// What resolves when the first of them is settled.
    watch: Option<(Awaited, Durable)>,
    /// For the first that will be late. One is enough: they have all the same time limit, and mostly none is late.
    timer: Option<Pin<Box<Sleep>>>,
    /// The time of this turn, once asked for.
    now: Option<Instant>,
    /// So many of the first were settled when it was last looked, and looked up together if they were enough. A hint:
    /// some may have been given up since.
    looked_up: usize,
}

struct Entry<H: QueryHandler> {
    awaited: Awaited,
    deadline: Option<Instant>,
    work: InFlight<H>,
}

impl<H: QueryHandler> Awaiting<H> {
    pub(crate) fn new() -> Awaiting<H> {
        Awaiting { queue: VecDeque::new(), watch: None, timer: None, now: None, looked_up: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Time has gone by since the last call.
    pub(crate) fn begin_turn(&mut self) {
        self.now = None;
    }

    /// Work that was found waiting for a place in the log.
    pub(crate) fn push(&mut self, awaited: Awaited, work: InFlight<H>) {
        let now = *self.now.get_or_insert_with(Instant::now);
        let deadline = work.time_limit().map(|limit| now + limit);
        self.queue.push_back(Entry { awaited, deadline, work });
    }

    /// The next whose record is settled, to be polled again. With `None` the first of the others will wake `cx`.
    pub(crate) fn next_settled(&mut self, bunch: &LogHold, cx: &mut Context<'_>) -> Option<InFlight<H>> {
        let awaited = self.queue.front()?.awaited;
        if !bunch.is_settled(awaited) {
            let watch = match &mut self.watch {
                Some((of, watch)) if *of == awaited => watch,
                watch => &mut watch.insert((awaited, bunch.settled(awaited))).1,
            };
            if Pin::new(watch).poll(cx).is_pending() {
                return None;
            }
        }
        if self.looked_up == 0 {
            self.looked_up = self.look_up_settled(bunch);
        }
        self.looked_up = self.looked_up.saturating_sub(1);
        self.queue.pop_front().map(|entry| entry.work)
    }

    /// Has memtables bring near what the first that are settled will look at: one after the other each would wait for
    /// memory by itself. Answers how many those are.
    fn look_up_settled(&self, bunch: &LogHold) -> usize {
        let first = self.queue.iter().take(LOOKED_UP_MAX);
        let count = first.clone().take_while(|entry| bunch.is_settled(entry.awaited)).count();
        if count >= LOOKED_UP_MIN {
            BegunModification::prefetch(first.take(count).filter_map(|entry| entry.work.modification()));
        }
        count
    }

    /// The next that has waited for too long. With `None` the first of the others will wake `cx` when it has.
    pub(crate) fn next_late(&mut self, cx: &mut Context<'_>) -> Option<InFlight<H>> {
        let first = |queue: &VecDeque<Entry<H>>| queue.iter().filter_map(|entry| entry.deadline).min();
        loop {
            if self.queue.is_empty() {
                return None;
            }
            let timer = match &mut self.timer {
                Some(timer) => timer,
                timer => timer.insert(Box::pin(sleep_until(first(&self.queue)?))),
            };
            if timer.as_mut().poll(cx).is_pending() {
                return None;
            }
            self.timer = None;
            let now = Instant::now();
            let late = self.queue.iter().position(|entry| entry.deadline.is_some_and(|deadline| deadline <= now));
            if let Some(entry) = late.and_then(|at| self.queue.remove(at)) {
                return Some(entry.work);
            }
        }
    }

    /// All of them, for whoever goes on with them otherwise.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = InFlight<H>> {
        self.queue.drain(..).map(|entry| entry.work)
    }
}
