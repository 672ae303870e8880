//! The merges of one table that are in flight, and their inputs.
//!
//! Merges run side by side as long as no SSTable is in two. Each merge claims its inputs when it is chosen, and
//! releases them once the view has its output in their place: an unclaimed SSTable of the view is an input of no merge.
//! A caller that needs the table's SSTables for itself (a truncation, a drop, a compaction of all of them) stops the
//! merges, and none begins until that caller is done.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use sstable::SSTableId;

use crate::lock::lock;

/// The merges of a table. Thread-safe.
#[derive(Default)]
pub(crate) struct Merges {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    claimed: HashSet<SSTableId>,
    /// SSTables that merges in the background exclude.
    damaged: HashSet<SSTableId>,
    running: usize,
    /// The number of callers that stopped merges, or wait for that.
    stops: usize,
    /// Whether one of them has exclusive access to the table.
    is_taken: bool,
}

impl Merges {
    /// Begins a merge of the SSTables that `choose` names, given those that it must exclude. Returns None if it names
    /// none, or if merges must stop. The named SSTables must be in the view during this call.
    pub fn begin<C, E>(
        &self,
        choose: impl FnOnce(&HashSet<SSTableId>) -> Result<Option<(Vec<SSTableId>, C)>, E>,
    ) -> Result<Option<(Claim<'_>, C)>, E> {
        let mut state = lock(&self.state);
        if state.stops > 0 {
            return Ok(None);
        }
        let Some((inputs, chosen)) = choose(&state.left_alone())? else { return Ok(None) };
        Ok(Some((self.claim(&mut state, inputs), chosen)))
    }

    fn claim(&self, state: &mut State, inputs: Vec<SSTableId>) -> Claim<'_> {
        debug_assert!(inputs.iter().all(|input| !state.claimed.contains(input)), "an SSTable is in one merge at most");
        state.claimed.extend(inputs.iter().cloned());
        state.running += 1;
        Claim { merges: self, inputs }
    }

    /// The SSTables that are being merged, and those that cannot be merged.
    pub fn left_alone(&self) -> HashSet<SSTableId> {
        lock(&self.state).left_alone()
    }

    /// Excludes a damaged SSTable from merges in the background until the next start, so that the others are merged.
    pub fn leave_alone(&self, damaged: SSTableId) {
        lock(&self.state).damaged.insert(damaged);
    }

    /// Stops all merges, waits until they have stopped, and prevents new ones until the returned value is dropped. One
    /// caller at a time.
    pub fn stop(&self) -> Stopped<'_> {
        let mut state = lock(&self.state);
        state.stops += 1;
        while state.is_taken || state.running > 0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_taken = true;
        Stopped { merges: self }
    }

    /// Whether merges in flight must stop.
    pub fn is_stopping(&self) -> bool {
        lock(&self.state).stops > 0
    }
}

impl State {
    fn left_alone(&self) -> HashSet<SSTableId> {
        self.claimed.union(&self.damaged).cloned().collect()
    }
}

/// The inputs of a merge in flight.
pub(crate) struct Claim<'m> {
    merges: &'m Merges,
    inputs: Vec<SSTableId>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.merges.state);
        debug_assert!(state.running > 0, "each merge ends once");
        for input in &self.inputs {
            let was_claimed = state.claimed.remove(input);
            debug_assert!(was_claimed, "a merge keeps its inputs until it ends");
        }
        state.running -= 1;
        self.merges.ended.notify_all();
    }
}

/// No merge is in flight.
pub(crate) struct Stopped<'m> {
    merges: &'m Merges,
}

impl<'m> Stopped<'m> {
    /// Begins a merge of these SSTables and permits other merges again.
    pub fn claim(self, inputs: Vec<SSTableId>) -> Claim<'m> {
        self.merges.claim(&mut lock(&self.merges.state), inputs)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.merges.state);
        debug_assert!(state.is_taken && state.stops > 0, "the caller that ends this has the table for itself");
        state.is_taken = false;
        state.stops -= 1;
        self.merges.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(merges: &Merges, wanted: &[u32]) -> Option<Vec<u32>> {
        let claimed = merges.begin(|claimed| {
            let free = |id: &&u32| !claimed.contains(&SSTableId::from_sequence(**id));
            let free: Vec<u32> = wanted.iter().filter(free).copied().collect();
            let ids = free.iter().map(|id| SSTableId::from_sequence(*id)).collect();
            Ok::<_, ()>((!free.is_empty()).then_some((ids, free)))
        });
        claimed.unwrap().map(|(claim, free)| {
            // The merge continues.
            std::mem::forget(claim);
            free
        })
    }

    fn end(merges: &Merges, inputs: &[u32]) {
        drop(Claim { merges, inputs: inputs.iter().map(|id| SSTableId::from_sequence(*id)).collect() });
    }

    #[test]
    fn claimed_sstables_belong_to_one_merge_until_it_ends() {
        let merges = Merges::default();
        assert_eq!(begin(&merges, &[1, 2]), Some(vec![1, 2]));
        assert_eq!(begin(&merges, &[2, 3]), Some(vec![3]));
        assert_eq!(begin(&merges, &[1, 2, 3]), None);
        end(&merges, &[1, 2]);
        assert_eq!(begin(&merges, &[1, 2, 3]), Some(vec![1, 2]));
        assert_eq!(merges.left_alone().len(), 3);
    }

    #[test]
    fn stopping_merges_waits_for_all_of_them_and_blocks_new_ones() {
        let merges = Merges::default();
        begin(&merges, &[1]).unwrap();
        begin(&merges, &[2]).unwrap();
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| {
                let stopped = merges.stop();
                assert_eq!(lock(&merges.state).running, 0);
                stopped.claim(vec![SSTableId::from_sequence(3)])
            });
            while !merges.is_stopping() {
                std::thread::yield_now();
            }
            assert_eq!(begin(&merges, &[4]), None, "none begins meanwhile");
            end(&merges, &[1]);
            end(&merges, &[2]);
            let claim = stopping.join().unwrap();
            assert_eq!(begin(&merges, &[3, 4]), Some(vec![4]), "others begin again beside it");
            end(&merges, &[4]);
            drop(claim);
        });
        drop(merges.stop());
        assert!(merges.left_alone().is_empty());
    }
}
