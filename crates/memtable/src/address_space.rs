//! The address space of a node's memtables, divided among their shards.
//!
//! A shard's trie reserves addresses at its first write and never moves, so the reservation must be as large as the
//! trie may become. Addresses cost no memory, but a process has 128 TiB of them and Linux gives it 65,530 mappings by
//! default (`vm.max_map_count`), of which a written shard takes four. The share of a new memtable is therefore smaller
//! the more shards there are, so that a node of 128 cores can hold 10,000 written tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memtrie::TrieOptions;

/// While there are no more shards than this, a new shard may become as large as a trie can.
const LARGE_SHARDS_MAX: usize = 512;
/// While there are no more shards than this, a new memtable gets as many as it asks for. Beyond that it gets one.
const FREE_SHARDS_MAX: usize = 2048;

/// Addresses that a shard of a memtable with a small share reserves for nodes and for contents.
const SMALL_BLOCKS_BYTES: usize = 256 << 20;
const SMALL_BLOBS_BYTES: usize = 1 << 30;

const _: () = {
    // What 10,000 tables on 128 cores reserve: less than half of the addresses that a process has.
    let large = LARGE_SHARDS_MAX * ((2 << 30) + (16 << 30));
    let small = (FREE_SHARDS_MAX + 10_000) * (SMALL_BLOCKS_BYTES + SMALL_BLOBS_BYTES);
    assert!(large + small < 1 << 46);
    // Each shard has two spaces, and each space has a committed part and a part that is only reserved.
    assert!((FREE_SHARDS_MAX + 10_000) * 4 < 60_000);
};

/// Counts the shards of all memtables of a node. Shared by its tables; all methods may be called by any thread.
#[derive(Debug, Default)]
pub struct AddressSpace {
    shards: AtomicUsize,
}

/// A memtable's share of the address space. Its shards are counted until the share is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    space: Arc<AddressSpace>,
    shard_count: usize,
    is_small: bool,
}

impl AddressSpace {
    /// The share of a new memtable that asks for this many shards.
    pub(crate) fn share(self: &Arc<AddressSpace>, shards_wanted: usize) -> Share {
        let before = self.shards.load(Ordering::Relaxed);
        let shard_count = if before + shards_wanted <= FREE_SHARDS_MAX { shards_wanted.max(1) } else { 1 };
        debug_assert!(shard_count >= 1, "a memtable has a shard");
        debug_assert!(shard_count <= shards_wanted.max(1), "a memtable has no more shards than it asked for");
        let is_small = before + shard_count > LARGE_SHARDS_MAX;
        self.shards.fetch_add(shard_count, Ordering::Relaxed);
        Share { space: self.clone(), shard_count, is_small }
    }

    /// Shards of the memtables that exist now.
    pub fn shard_count(&self) -> usize {
        self.shards.load(Ordering::Relaxed)
    }
}

impl Share {
    pub(crate) fn shard_count(&self) -> usize {
        self.shard_count
    }

    /// The options with limits that fit the share.
    pub(crate) fn limit(&self, options: TrieOptions) -> TrieOptions {
        if !self.is_small {
            return options;
        }
        small(options)
    }
}

/// The options of a trie with a small reservation.
pub(crate) fn small(options: TrieOptions) -> TrieOptions {
    TrieOptions {
        blocks_bytes_max: options.blocks_bytes_max.min(SMALL_BLOCKS_BYTES),
        blobs_bytes_max: options.blobs_bytes_max.min(SMALL_BLOBS_BYTES),
        ..options
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let before = self.space.shards.fetch_sub(self.shard_count, Ordering::Relaxed);
        debug_assert!(before >= self.shard_count, "{before} shards, of which {} are dropped", self.shard_count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: TrieOptions =
        TrieOptions { layout: memtrie::Layout::Adaptive, blocks_bytes_max: 2 << 30, blobs_bytes_max: 16 << 30 };

    #[test]
    fn shares_shrink_as_shards_become_many_and_grow_again_when_they_go() {
        let space = Arc::new(AddressSpace::default());
        let mut shares: Vec<_> = (0..10_000).map(|_| space.share(128)).collect();
        assert_eq!(shares.iter().map(Share::shard_count).sum::<usize>(), space.shard_count());
        assert_eq!((shares[0].shard_count(), shares[0].limit(LARGE)), (128, LARGE));
        let last = shares.last().expect("there are many");
        assert_eq!((last.shard_count(), last.limit(LARGE)), (1, small(LARGE)));
        let reserved = |share: &Share| {
            let TrieOptions { blocks_bytes_max, blobs_bytes_max, .. } = share.limit(LARGE);
            share.shard_count() * (blocks_bytes_max + blobs_bytes_max)
        };
        assert!(shares.iter().map(reserved).sum::<usize>() < 1 << 46);
        shares.clear();
        assert_eq!((space.shard_count(), space.share(128).shard_count()), (0, 128));
    }
}
