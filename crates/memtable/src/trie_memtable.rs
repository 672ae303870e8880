//! The memtable over tries, one for each range of tokens.

use std::sync::Arc;

use memtrie::{Direction, SparePages, Trie, TrieOptions};
use model::{BoxCursor, PartitionKey, PartitionUpdate, ReadRange, Row, RowObserver, Table};
use types::Token;

use crate::address_space::{AddressSpace, Share};
use crate::cursor::TrieCursor;
use crate::find::{find_row, lacks_partition};
use crate::layout::{Layout, decode_token, partition_path};
use crate::resident::{Purge, PurgeWalk};
use crate::shard::{Shard, is_newer, newer_of};
use crate::sharding::Division;
use crate::statistics::Bounds;
use crate::{Lookup, Memtable, MemtableFull, MemtableStatistics, MemtableUse, PutCounts, RowLocation};

/// A memtable whose shards are tries down to the row. The shards divide the tokens, equally by default. Each has one
/// writer at a time.
pub struct TrieMemtable {
    layout: Layout,
    /// The division of tokens among the shards.
    division: Division,
    shards: Box<[Shard]>,
    /// The address space that the shards may reserve, if that is limited.
    _share: Option<Share>,
}

impl TrieMemtable {
    /// An empty memtable of `shard_count` (at least one) shards. Memory is allocated as data arrives.
    pub fn new(table: &Arc<Table>, shard_count: usize) -> TrieMemtable {
        TrieMemtable::with_options(table, shard_count, TrieOptions::default())
    }

    /// Like `new`, with limits for each shard.
    pub fn with_options(table: &Arc<Table>, shard_count: usize, options: TrieOptions) -> TrieMemtable {
        TrieMemtable::of_tries(table, Division::Equal(shard_count.max(1)), || Trie::new(options))
    }

    /// A memtable whose shards divide the tokens at `firsts`: the first tokens of all shards but the first one,
    /// ascending. Memtables share the address space of the process: if there are many, the shards are smaller, or there
    /// is only one. `options` are the limits of each shard.
    pub fn divided(
        table: &Arc<Table>,
        firsts: Box<[Token]>,
        options: TrieOptions,
        space: &Arc<AddressSpace>,
    ) -> TrieMemtable {
        debug_assert!(firsts.is_sorted_by(|one, next| one < next), "the first tokens of shards rise");
        let share = space.share(firsts.len() + 1);
        let options = share.limit(options);
        let is_divided = share.shard_count() == firsts.len() + 1;
        let division = Division::At(if is_divided { firsts } else { Box::default() });
        debug_assert_eq!(division.shard_count(), share.shard_count(), "the address space counts every shard");
        let memtable = TrieMemtable::of_tries(table, division, || Trie::new(options));
        TrieMemtable { _share: Some(share), ..memtable }
    }

    /// A memtable with the shards of a share. It first grows into the spare pages, and adds its own to them when it is
    /// dropped.
    pub(crate) fn with_share(
        table: &Arc<Table>,
        share: Share,
        options: TrieOptions,
        spare_pages: &Arc<SparePages>,
    ) -> TrieMemtable {
        let options = share.limit(options);
        let division = Division::Equal(share.shard_count());
        let memtable = TrieMemtable::of_tries(table, division, || Trie::with_spare_pages(options, spare_pages.clone()));
        debug_assert_eq!(memtable.shards.len(), share.shard_count(), "the address space counts every shard");
        TrieMemtable { _share: Some(share), ..memtable }
    }

    fn of_tries(table: &Arc<Table>, division: Division, trie: impl Fn() -> Trie) -> TrieMemtable {
        let shards = (0..division.shard_count()).map(|_| Shard::new(table, trie())).collect();
        TrieMemtable { layout: Layout::new(table), division, shards, _share: None }
    }

    /// Whether the shard of a partition has reached half of a limit: another memtable should follow, while this one has
    /// room for the writes that belong to it.
    pub fn is_half_full(&self, token: Token) -> bool {
        self.shards[self.shard_of(token)].trie.is_half_full()
    }

    /// The bytes in use of each shard, in the order of their tokens.
    pub fn used_bytes_of_shards(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.memory().used as u64).collect()
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.layout.newest()
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The newest schema that anything here may have been written under.
    pub(crate) fn newest_table(&self) -> Arc<Table> {
        let tables = self.shards.iter().map(Shard::table);
        tables.reduce(|one, other| newer_of(&one, &other)).expect("there is a shard")
    }

    /// Continues a walk of the only shard. Returns true if there is more.
    pub(crate) fn purge(&self, walk: &mut PurgeWalk, purge: &mut dyn Purge) -> bool {
        self.shards.iter().any(|shard| {
            shard.with_writer(&self.layout, |writer| walk.stretch(writer, self.layout(), &shard.table(), purge))
        })
    }

    /// The tokens of the first and of the last partition.
    pub(crate) fn token_bounds(&self) -> (Option<Token>, Option<Token>) {
        let end = |direction| {
            move |shard: &Shard| {
                let pin = shard.trie.pin();
                let mut cursor = pin.cursor(memtrie::Bounds::ALL, direction);
                if cursor.advance() { decode_token(cursor.key()) } else { None }
            }
        };
        let first = self.shards.iter().find_map(end(Direction::Forward));
        (first, self.shards.iter().rev().find_map(end(Direction::Reverse)))
    }

    /// Like [`Memtable::cursor`], without deletions of rows and ranges, for a reader that reads no other source which
    /// they could affect. The next live row is found at once, however many rows were deleted before it. For tests and
    /// measurements: the engine reads all deletions.
    #[doc(hidden)]
    pub fn live_cursor(self: Arc<Self>, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static> {
        Box::new(TrieCursor::new(self, table, range, true))
    }

    /// The shard of a token. Later ones have larger tokens.
    pub(crate) fn shard_of(&self, token: Token) -> usize {
        let shard = self.division.shard_of(token);
        debug_assert!(shard < self.shards.len(), "shard {shard} of {}", self.shards.len());
        shard
    }
}

impl Memtable for TrieMemtable {
    fn apply(&self, update: &PartitionUpdate, observer: Option<&mut dyn RowObserver>) -> Result<i64, MemtableFull> {
        self.shards[self.shard_of(update.key().token())].apply(&self.layout, update, observer)
    }

    fn cursor(self: Arc<Self>, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static> {
        Box::new(TrieCursor::new(self, table, range, false))
    }

    fn find_row(&self, table: &Table, location: RowLocation<'_>, take: &mut dyn FnMut(Row<'_>)) -> Lookup {
        find_row(self.layout(), &self.shards[self.shard_of(location.token)], table, location, take)
    }

    fn lacks_partition(&self, token: Token, key: &[u8]) -> bool {
        lacks_partition(&self.shards[self.shard_of(token)], token, key)
    }

    fn prefetch(&self, keys: &[&PartitionKey]) {
        let (mut paths, mut path) = (Vec::with_capacity(48 * keys.len()), Vec::new());
        let mut places = Vec::with_capacity(keys.len());
        for key in keys {
            partition_path(key, &mut path);
            places.push((self.shard_of(key.token()), paths.len()..paths.len() + path.len()));
            paths.extend_from_slice(&path);
        }
        for (index, shard) in self.shards.iter().enumerate() {
            let here = places.iter().filter(|(shard, _)| *shard == index);
            let here: Vec<&[u8]> = here.map(|(_, place)| &paths[place.clone()]).collect();
            debug_assert!(here.iter().all(|path| !path.is_empty()), "a partition has a path");
            shard.trie.pin_for_single_keys().get_many(&here, |_, _| {});
        }
    }

    fn table_altered(&self, table: &Arc<Table>) {
        self.layout.follow(table);
        self.shards.iter().for_each(|shard| shard.table_altered(&self.layout, table));
        debug_assert!(!is_newer(table, &self.newest_table()), "the table that is known is at least as new");
    }

    fn statistics(&self) -> MemtableStatistics {
        self.shards.iter().fold(Bounds::NONE, |bounds, shard| bounds.and(shard.bounds(&self.layout))).statistics()
    }

    fn memory(&self) -> MemtableUse {
        self.shards.iter().map(Shard::memory).fold(MemtableUse::default(), |sum, shard| MemtableUse {
            used_bytes: sum.used_bytes + shard.used as u64,
            reusable_bytes: sum.reusable_bytes + shard.reusable as u64,
            committed_bytes: sum.committed_bytes + shard.reserved as u64,
        })
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.trie.is_empty())
    }

    fn puts(&self) -> Vec<PutCounts> {
        self.shards.iter().map(Shard::puts).collect()
    }
}
