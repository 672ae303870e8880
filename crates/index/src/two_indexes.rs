//! The rows that are in two indexes of one memtable, in each for a value of its own.
//!
//! Both indexes have an entry of such a row in the tries of the same shard, with the same key after different terms.
//! The branches of the two terms are intersected, which reads far less than all entries of both.

use std::ops::Bound;
use std::sync::Arc;

use memtrie::{Bounds, Intersection};

use crate::MemoryIndex;
use crate::batch::Batch;
use crate::entry::{KeyBounds, TermRange};

/// The steps of an intersection under one pin: a fraction of a millisecond.
const STEPS_MAX: usize = 1024;

/// The keys of such rows, ascending. They are read in batches. A batch may be empty.
pub struct CommonKeys {
    indexes: [Arc<MemoryIndex>; 2],
    terms: [Vec<u8>; 2],
    /// The shard that is read next, and the key from which it is read.
    shard: usize,
    start: Bound<Vec<u8>>,
    end: Vec<u8>,
    batch: Batch,
    at: usize,
}

impl CommonKeys {
    /// The common keys within some partitions. The first batch is read at once. `None` if one of the ranges has more
    /// than one term, or if a trie was full.
    pub(crate) fn open(indexes: [Arc<MemoryIndex>; 2], terms: [&TermRange; 2], keys: &KeyBounds) -> Option<CommonKeys> {
        let are_divided_alike = indexes[0].tries().len() == indexes[1].tries().len();
        let are_in_tries = indexes.iter().all(|index| index.is_in_tries());
        if !are_divided_alike || !are_in_tries || !terms.iter().all(|terms| terms.is_one_term) {
            return None;
        }
        let mut common = CommonKeys {
            indexes,
            terms: terms.map(|terms| terms.start.clone()),
            shard: 0,
            start: Bound::Included(keys.start.clone()),
            end: keys.end.clone(),
            batch: Batch::default(),
            at: 0,
        };
        common.read_on();
        Some(common)
    }

    /// Whether a batch must be read before the next key is known.
    pub(crate) fn is_waiting(&self) -> bool {
        self.at >= self.batch.len() && !self.batch.is_last()
    }

    /// Reads a batch.
    pub(crate) fn read_on(&mut self) {
        self.batch.clear();
        self.at = 0;
        let [one, other] = self.indexes.each_ref().map(|index| index.tries());
        while let Some((one, other)) = one.get(self.shard).zip(other.get(self.shard)) {
            let (one, other) = (one.pin(), other.pin());
            let tails = [one.tail(&self.terms[0]), other.tail(&self.terms[1])];
            let bounds = Bounds { start: self.start.as_ref().map(Vec::as_slice), end: Bound::Excluded(&self.end) };
            let mut common = Intersection::new(&tails[0], &tails[1], bounds, STEPS_MAX);
            while common.advance() {
                self.batch.push([common.key(), &[]], 0);
                if self.batch.is_full() {
                    let last = common.key().to_vec();
                    self.start = Bound::Excluded(last);
                    return;
                }
            }
            if let Some(rest) = common.rest() {
                self.start = Bound::Included(rest);
                return;
            }
            self.shard += 1;
        }
        self.batch.end();
    }

    pub(crate) fn peek(&self) -> Option<&[u8]> {
        self.batch.key(self.at)
    }

    /// How many keys are known to follow. If more are to be read, this is at least the size of a full batch.
    pub(crate) fn known_count(&self) -> usize {
        self.batch.known_count(self.at)
    }

    pub(crate) fn advance(&mut self) {
        self.at = self.batch.len().min(self.at + 1);
    }

    /// Moves to the first key of the batch that is not less than this one, or to the next batch.
    pub(crate) fn advance_to(&mut self, key: &[u8]) {
        self.at = self.batch.first_not_before(self.at, key);
    }
}
