//! The order in which the writes of a lock become visible.
//!
//! A write that reads first passes its lock on when its record is in the log, so that the records of many such writes
//! share one wait for the device. Until it is visible, it stays in this queue. Writes enter in the order of their
//! records and become visible in the same order, so no read sees a write without those that it follows from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

use commitlog::LogPosition;
use model::Mutation;

/// Further writes keep the lock until they are visible, because each decision reads all updates in the queue.
const WRITES_MAX: usize = 16;
/// The same limit for the records in the queue, bytes.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// A write, and where its record ends; `None` if its tables are not logged.
pub(super) type InOrder = (Arc<Mutation>, Option<LogPosition>);

/// The writes of one lock that are in the log and not visible yet, in the order of their records.
#[derive(Debug, Default)]
pub(super) struct VisibleOrder {
    entries: VecDeque<OrderEntry>,
    /// The sum of the records in `entries`.
    record_bytes: usize,
}

/// A write in the queue, or an answer that waits for the writes before it.
#[derive(Debug)]
struct OrderEntry {
    number: u64,
    write: Option<InOrder>,
    /// The task that waits until the entry is the first one.
    waiting: Option<Waker>,
}

impl VisibleOrder {
    /// Enters a write, or an answer. The numbers ascend.
    pub fn enter(&mut self, number: u64, write: Option<InOrder>) {
        debug_assert!(self.entries.back().is_none_or(|last| last.number < number), "the order of the records");
        self.record_bytes += record_bytes(&write);
        self.entries.push_back(OrderEntry { number, write, waiting: None });
    }

    /// Whether the lock is kept by the next write until that is visible.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= WRITES_MAX || self.record_bytes >= RECORD_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The writes, in their order.
    pub fn writes(&self) -> impl Iterator<Item = &InOrder> {
        self.entries.iter().filter_map(|entry| entry.write.as_ref())
    }

    /// Ready once everything before this number is visible or lost.
    pub fn poll_first(&mut self, number: u64, waker: &Waker) -> Poll<()> {
        let index = self.index_of(number);
        if index == 0 {
            return Poll::Ready(());
        }
        match &mut self.entries[index].waiting {
            Some(waiting) => waiting.clone_from(waker),
            waiting => *waiting = Some(waker.clone()),
        }
        Poll::Pending
    }

    /// Takes an entry out. Returns the task to be woken.
    pub fn leave(&mut self, number: u64) -> Option<Waker> {
        let index = self.index_of(number);
        let left = self.entries.remove(index)?;
        self.record_bytes -= record_bytes(&left.write);
        if index > 0 {
            return None;
        }
        self.entries.front_mut()?.waiting.take()
    }

    fn index_of(&self, number: u64) -> usize {
        let index = self.entries.partition_point(|entry| entry.number < number);
        debug_assert!(self.entries.get(index).is_some_and(|entry| entry.number == number), "it has entered");
        index
    }
}

fn record_bytes(write: &Option<InOrder>) -> usize {
    write.as_ref().map_or(0, |(mutation, _)| mutation.record_size())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_entry_is_first_when_all_before_it_have_left_in_any_order() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut order = VisibleOrder::default();
        [1, 4, 9].into_iter().for_each(|number| order.enter(number, None));
        assert!(order.poll_first(1, &waker).is_ready());
        assert!(order.poll_first(9, &waker).is_pending());
        assert!(order.leave(4).is_none(), "the first one is still there");
        assert!(order.poll_first(9, &waker).is_pending());
        order.leave(1).into_iter().for_each(Waker::wake);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(order.poll_first(9, &waker).is_ready());
        assert!(order.leave(9).is_none() && order.is_empty());
    }

    #[test]
    fn a_full_order_has_room_again_when_entries_have_left() {
        let mut order = VisibleOrder::default();
        (0..WRITES_MAX as u64).for_each(|number| order.enter(number, None));
        assert!(order.is_full());
        order.leave(0);
        assert!(!order.is_full());
    }
}
