//! Write groups: the writes that had already begun when something changed.
//!
//! Every write is in a group from before it appends to the log until it is visible. A flush replaces the memtable,
//! closes the current group, and waits until that group and all earlier ones are empty. After that, no write can still
//! be on its way into the replaced memtable. Entering and leaving is one atomic addition each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use arc_swap::{ArcSwap, Guard};

/// The groups of one engine.
#[derive(Debug)]
pub(crate) struct WriteGroups {
    current: ArcSwap<Group>,
    /// Serializes barriers, so that a group is closed once.
    barrier: Mutex<()>,
}

#[derive(Debug)]
struct Group {
    /// Twice the number of writes in the group, plus one once it is closed.
    state: AtomicUsize,
    /// The previous group, which becomes empty before this one.
    previous: Mutex<Option<Arc<Group>>>,
    empty: Mutex<bool>,
    emptied: Condvar,
}

const CLOSED: usize = 1;
const WRITE: usize = 2;

const _: () = assert!(WRITE > CLOSED && WRITE.is_multiple_of(2), "closing a group changes no count of writes");

impl Group {
    fn new(previous: Option<Arc<Group>>) -> Arc<Group> {
        Arc::new(Group {
            state: AtomicUsize::new(0),
            previous: Mutex::new(previous),
            empty: Mutex::new(false),
            emptied: Condvar::new(),
        })
    }

    fn leave(&self) {
        let before = self.state.fetch_sub(WRITE, Ordering::AcqRel);
        debug_assert!(before >= WRITE, "a write leaves its group once");
        if before == WRITE | CLOSED {
            self.set_empty();
        }
    }

    fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    fn set_empty(&self) {
        debug_assert!(self.is_closed(), "writes may still enter an open group");
        *lock(&self.empty) = true;
        self.emptied.notify_all();
    }

    /// Blocks until this group, which is closed, and all earlier groups are empty.
    fn wait(&self) {
        debug_assert!(self.is_closed(), "an open group may never be empty");
        let previous = lock(&self.previous).clone();
        if let Some(previous) = previous {
            previous.wait();
        }
        let mut empty = lock(&self.empty);
        while !*empty {
            empty = self.emptied.wait(empty).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(empty);
        lock(&self.previous).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code panics in the middle of a change while it holds these locks, so a poisoned lock guards valid data.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A write's membership in a group; dropping it leaves the group.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The group is borrowed until the write waits. Otherwise all writers would change the count of the group's owners.
    group: Guard<Arc<Group>>,
}

impl Membership {
    /// The membership of a write that has to wait. It owns its share of the group, because few threads can borrow at a
    /// time.
    pub fn into_owned(mut self) -> Membership {
        debug_assert!(self.is_counted(), "a write waits inside its group");
        self.group = Guard::from_inner(Arc::clone(&self.group));
        self
    }

    /// Whether its group counts at least one write.
    pub fn is_counted(&self) -> bool {
        self.group.state.load(Ordering::Relaxed) >= WRITE
    }
}

impl Drop for Membership {
    #[inline]
    fn drop(&mut self) {
        self.group.leave();
    }
}

/// A closed group that can be waited for.
#[must_use]
pub(crate) struct Barrier(Arc<Group>);

impl Barrier {
    /// Blocks until every write that entered before the barrier was issued has left.
    pub fn wait(&self) {
        self.0.wait();
    }

    /// Whether the last group before the barrier is empty.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        *lock(&self.0.empty)
    }
}

impl WriteGroups {
    pub fn new() -> Self {
        WriteGroups { current: ArcSwap::new(Group::new(None)), barrier: Mutex::new(()) }
    }

    /// Enters the current group.
    pub fn enter(&self) -> Membership {
        loop {
            let group = self.current.load();
            let state = group.state.fetch_add(WRITE, Ordering::AcqRel);
            let membership = Membership { group };
            debug_assert!(state <= usize::MAX / 2, "the count of writes is far from its end");
            if state & CLOSED == 0 {
                debug_assert!(membership.is_counted(), "a barrier waits for this write");
                return membership;
            }
            // The group was closed since it was loaded: leave it and take its successor.
        }
    }

    /// Closes the current group; later writes enter the next one.
    pub fn barrier(&self) -> Barrier {
        let _one_at_a_time = lock(&self.barrier);
        let closed = self.current.load_full();
        debug_assert!(!closed.is_closed(), "a group is closed once");
        self.current.store(Group::new(Some(closed.clone())));
        if closed.state.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
            closed.set_empty();
        }
        debug_assert!(!self.current.load().is_closed(), "writes can enter the group that follows");
        Barrier(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    #[test]
    fn a_barrier_waits_for_earlier_writes_only() {
        let groups = Arc::new(WriteGroups::new());
        let early = groups.enter();
        let barrier = groups.barrier();
        let late = groups.enter();
        let passed = Arc::new(AtomicBool::new(false));
        let waiting = std::thread::spawn({
            let passed = passed.clone();
            move || {
                barrier.wait();
                passed.store(true, Ordering::SeqCst);
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!passed.load(Ordering::SeqCst), "the early write is still under way");
        drop(early);
        waiting.join().unwrap();
        drop(late);
        groups.barrier().wait();
    }

    #[test]
    fn a_later_barrier_waits_for_the_writes_of_all_earlier_groups() {
        let groups = WriteGroups::new();
        let early = groups.enter();
        let _first = groups.barrier();
        let second = groups.barrier();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| second.wait());
            std::thread::sleep(Duration::from_millis(10));
            assert!(!waiting.is_finished());
            drop(early);
        });
    }

    #[test]
    fn writers_and_barriers_in_parallel_never_lose_a_member() {
        let groups = Arc::new(WriteGroups::new());
        let inside = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let member = groups.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(member);
                    }
                });
            }
            for _ in 0..200 {
                groups.barrier().wait();
            }
        });
        groups.barrier().wait();
        assert_eq!(inside.load(Ordering::SeqCst), 0);
    }
}
