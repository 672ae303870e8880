//! Prefetching the data of partitions that are looked up next.
//!
//! A look-up at a known position waits for memory three times in a row: for the place of the block in the cache's
//! array, for the block's head, and for its bytes. Here several look-ups take each step together, so that their waits
//! overlap.

use std::array;
use std::sync::Arc;

use blockio::prefetch;

use super::{DataFile, PartitionHint, SSTableReader};

/// The number of blocks that are prefetched at a time.
const TOGETHER: usize = 6;
/// The bytes of data that are prefetched, by their distances from the beginning of the partition: those of a short row.
const DISTANCES: [usize; 3] = [0, 64, 128];

/// A position in the data.
struct PrefetchTarget<'s> {
    data: &'s DataFile,
    block: u64,
    offset: usize,
}

/// Prefetches the data at these positions, as far as it is in the cache. Waits for no device, and has no other effect.
pub fn prefetch_hinted(sstables: &[Arc<SSTableReader>], hints: &[PartitionHint]) {
    for hints in hints.chunks(TOGETHER) {
        let targets: [Option<PrefetchTarget<'_>>; TOGETHER] =
            array::from_fn(|place| target(sstables, hints.get(place)?));
        targets.iter().flatten().for_each(|target| target.data.cached_blocks().prefetch_place(target.block));
        let prefetch_block = |target: &Option<PrefetchTarget<'_>>| {
            target.as_ref().map(|target| target.data.cached_blocks().prefetch_block(target.block))
        };
        let prefetched = targets.each_ref().map(prefetch_block);
        for (target, prefetched) in targets.iter().flatten().zip(prefetched.iter().flatten()) {
            let Some(bytes) = target.data.cached_blocks().bytes_of(prefetched, target.block) else { continue };
            DISTANCES.iter().filter_map(|distance| bytes.get(target.offset + distance)).for_each(prefetch);
        }
    }
}

fn target<'s>(sstables: &'s [Arc<SSTableReader>], hint: &PartitionHint) -> Option<PrefetchTarget<'s>> {
    let sstable = sstables.iter().find(|sstable| sstable.number() == hint.sstable)?;
    let data = &*sstable.files.data;
    let offset = (hint.position % data.block_length) as usize;
    Some(PrefetchTarget { data, block: hint.position / data.block_length, offset })
}
