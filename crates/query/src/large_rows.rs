//! Memory that one statement takes for copies of large rows, while it reads them.
//!
//! It is taken from the budgets of the node and of the client's address. A row whose copies are larger than those could
//! then never be read. So one statement of the node at a time may exceed the limits, for its copies and its answer, as
//! long as all others leave half of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::RowMemory;

use crate::MemoryBudget;

/// The memory of one statement. Its address names it, so it is not moved.
#[derive(Debug)]
pub(crate) struct LargeRows {
    budget: Arc<MemoryBudget>,
    taken_bytes: AtomicUsize,
}

impl LargeRows {
    pub fn new(budget: Arc<MemoryBudget>) -> LargeRows {
        LargeRows { budget, taken_bytes: AtomicUsize::new(0) }
    }

    /// The bytes of the copies that the statement holds.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Names the statement among those that may exceed the limits.
    pub fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl RowMemory for LargeRows {
    fn take(&self, bytes: usize) -> bool {
        let is_taken = self.budget.take_or_overdraw(bytes, self.name(), self.taken_bytes());
        if is_taken {
            self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    fn give_back(&self, bytes: usize) {
        let before = self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes are given back, and {before} are taken");
        self.budget.give_back(bytes);
    }
}

impl Drop for LargeRows {
    fn drop(&mut self) {
        debug_assert_eq!(*self.taken_bytes.get_mut(), 0, "the sources are gone");
        self.budget.end_overdraft(self.name());
    }
}

/// The memory that work in the background takes for copies of large rows, while it writes them.
#[derive(Debug)]
pub struct BackgroundRows {
    budget: Arc<MemoryBudget>,
}

impl BackgroundRows {
    /// Counts the copies in this budget, which is a whole.
    pub fn new(budget: Arc<MemoryBudget>) -> BackgroundRows {
        BackgroundRows { budget }
    }
}

impl RowMemory for BackgroundRows {
    /// Takes the bytes in any case, but may wait a moment for statements to give some back.
    fn take(&self, bytes: usize) -> bool {
        self.budget.take_after_a_wait(bytes);
        true
    }

    fn give_back(&self, bytes: usize) {
        self.budget.give_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lease;

    #[test]
    fn background_work_takes_memory_beyond_the_limit_and_statements_wait_for_it() {
        let node = MemoryBudget::new(100);
        let background = BackgroundRows::new(node.clone());
        assert!(background.take(110), "it never fails");
        assert_eq!(node.taken_bytes(), 110);
        let statement = LargeRows::new(MemoryBudget::part_of(&node, 60));
        assert!(!statement.take(10), "others have to leave half of the limit");
        background.give_back(110);
        assert!(statement.take(10));
        statement.give_back(10);
        drop(statement);
        assert_eq!(node.taken_bytes(), 0);
    }

    #[test]
    fn one_statement_at_a_time_may_exceed_the_limits() {
        let node = MemoryBudget::new(100);
        let parts = [(); 3].map(|()| MemoryBudget::part_of(&node, 60));
        let [one, other, third] = parts.each_ref().map(|part| Arc::new(LargeRows::new(part.clone())));
        assert!(one.take(50) && other.take(40));
        assert!(one.take(200), "the first that has too little");
        assert!(!other.take(50) && !third.take(20), "the limits hold for all others");
        assert_eq!((parts[0].taken_bytes(), node.taken_bytes()), (250, 290));
        assert!(one.take(5), "it is the one that may");
        one.give_back(255);
        assert!(third.take(20), "there is room again");
        assert!(!other.take(61), "another may exceed the limits only when the first has ended");
        drop(one);
        assert!(other.take(61));
        other.give_back(101);
        third.give_back(20);
        drop((other, third));
        assert_eq!(node.taken_bytes(), 0);
    }

    #[test]
    fn no_statement_exceeds_the_limits_while_others_hold_much() {
        let node = MemoryBudget::new(100);
        let parts = [(); 2].map(|()| MemoryBudget::part_of(&node, 60));
        let [one, other] = parts.each_ref().map(|part| Arc::new(LargeRows::new(part.clone())));
        let mut answer = Lease::new(parts[0].clone());
        assert!(one.take(70));
        assert!(!answer.try_grow(50));
        assert!(answer.grow_or_overdraw(120, one.name(), one.taken_bytes()), "the answer may exceed them too");
        one.give_back(70);
        drop(one);
        assert!(!other.take(10), "the answer was not sent yet");
        answer.shrink(51);
        assert!(!other.take(200) && other.take(49), "only within the limits");
        answer.shrink(50);
        assert!(other.take(200));
        other.give_back(249);
    }

    #[test]
    fn one_of_many_statements_that_need_all_memory_gets_it_and_the_others_fail() {
        const READERS: usize = 4;
        let node = MemoryBudget::new(100);
        for _ in 0..20 {
            let (barrier, node) = (&std::sync::Barrier::new(READERS), &node);
            let outcomes: Vec<bool> = std::thread::scope(|scope| {
                let read = |_| {
                    scope.spawn(move || {
                        let rows = LargeRows::new(node.clone());
                        let begun = rows.take(24);
                        barrier.wait();
                        let mut taken = if begun { 24 } else { 0 };
                        let is_done = rows.take(200);
                        taken += if is_done { 200 } else { 0 };
                        rows.give_back(taken);
                        is_done
                    })
                };
                let readers: Vec<_> = (0..READERS).map(read).collect();
                readers.into_iter().map(|reader| reader.join().unwrap()).collect()
            });
            assert!(outcomes.contains(&true), "{outcomes:?}");
            assert_eq!(node.taken_bytes(), 0);
        }
    }
}
