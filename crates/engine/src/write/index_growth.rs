//! The growth of indexes by a write, and its limit.
//!
//! An entry of an index has the primary key of its row. So a mutation with a long key and many values, or with the text
//! of an index of suffixes, may add many times its own size to indexes. Such a write takes memory of the pool for its
//! entries too, and is refused like an oversized mutation if they are too many. Small mutations are not counted.

use index::IndexGrowth;
use model::{Mutation, PartitionUpdate};

use super::Writes;
use crate::error::EngineError;
use crate::table::indexes::indexers_of;

/// A mutation that cannot add more bytes than this to indexes is not counted.
const UNCOUNTED_BYTES: u64 = 1 << 20;
/// The largest growth by one mutation, as a multiple of the largest record of the log.
const RECORDS_MAX: u64 = 4;
/// The size above which [`index_growth`] ends.
const COUNTED_BYTES_MAX: u64 = 4 << 20;

/// Whether a mutation may add much to indexes, which [`index_growth`] counts.
pub fn may_grow_indexes(mutation: &Mutation) -> bool {
    mutation.updates().iter().filter(|update| is_indexed(update)).map(growth_bytes_max).sum::<u64>() > UNCOUNTED_BYTES
}

/// The growth of indexes by a mutation. Nothing is counted if the growth cannot be large, and counting ends at some
/// megabytes. It reads all of the mutation.
pub fn index_growth(mutation: &Mutation) -> IndexGrowth {
    growth_up_to(mutation, COUNTED_BYTES_MAX)
}

fn growth_up_to(mutation: &Mutation, size_bytes_max: u64) -> IndexGrowth {
    let mut growth = IndexGrowth::default();
    if !may_grow_indexes(mutation) {
        return growth;
    }
    for update in mutation.updates().iter().filter(|update| is_indexed(update)) {
        for indexer in indexers_of(update.table()) {
            growth = growth + indexer.growth(update, size_bytes_max.saturating_sub(growth.size_bytes));
        }
    }
    growth
}

fn is_indexed(update: &PartitionUpdate) -> bool {
    !update.table().indexes().is_empty()
}

/// A limit of the growth that follows from the size of an update. An entry takes at least a byte of the update, and
/// most are added if half of the bytes are the primary key. Each entry has some more bytes.
fn growth_bytes_max(update: &PartitionUpdate) -> u64 {
    let size_bytes = update.as_bytes().len() as u64;
    (size_bytes * size_bytes / 4 + 72 * size_bytes) * update.table().indexes().len() as u64
}

impl Writes {
    /// The memory that the mutation takes in memtables and their indexes, bytes.
    ///
    /// # Errors
    ///
    /// [`EngineError::MutationTooLarge`] if the indexes would grow too much. A part of its updates may still fit.
    #[inline]
    pub(super) fn size_bytes(&self, mutation: &Mutation) -> Result<usize, EngineError> {
        let growth_bytes = match mutation.updates().iter().any(is_indexed) {
            true => self.checked_growth_bytes(mutation)?,
            false => 0,
        };
        Ok(mutation.record_size() + growth_bytes)
    }

    #[cold]
    fn checked_growth_bytes(&self, mutation: &Mutation) -> Result<usize, EngineError> {
        let growth_bytes_max = self.shared.log().record_size_max().saturating_mul(RECORDS_MAX);
        let growth_bytes = growth_up_to(mutation, growth_bytes_max).size_bytes;
        match growth_bytes > growth_bytes_max {
            true => Err(EngineError::too_large(mutation.updates(), growth_bytes, growth_bytes_max)),
            false => Ok(growth_bytes as usize),
        }
    }
}
