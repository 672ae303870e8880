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

/// An update that cannot add more bytes than this to indexes is not counted.
const UNCOUNTED_BYTES: u64 = 1 << 20;
/// The largest growth by one mutation, as a multiple of the largest record of the log.
const RECORDS_MAX: u64 = 4;

/// How much a mutation adds to indexes; nothing if it is little.
pub fn index_growth(mutation: &Mutation) -> IndexGrowth {
    let indexed = mutation.updates().iter().filter(|update| is_indexed(update));
    indexed.fold(IndexGrowth::default(), |growth, update| growth + growth_of(update))
}

fn is_indexed(update: &PartitionUpdate) -> bool {
    !update.table().indexes().is_empty()
}

fn growth_of(update: &PartitionUpdate) -> IndexGrowth {
    if growth_bytes_max(update) <= UNCOUNTED_BYTES {
        return IndexGrowth::default();
    }
    indexers_of(update.table()).iter().fold(IndexGrowth::default(), |growth, indexer| growth + indexer.growth(update))
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
        let growth_bytes = index_growth(mutation).size_bytes;
        let growth_bytes_max = self.shared.log().record_size_max().saturating_mul(RECORDS_MAX);
        match growth_bytes > growth_bytes_max {
            true => Err(EngineError::too_large(mutation.updates(), growth_bytes, growth_bytes_max)),
            false => Ok(growth_bytes as usize),
        }
    }
}
