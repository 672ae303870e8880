//! All data of a table that lives in memory.
//!
//! The tokens are divided among parts, each of them a trie with one writer at a time. A part that has grown is split at
//! the middle of its data's tokens, by a thread that runs beside its writers and readers.

mod cursor;
mod growth;
mod part;
mod purge;
mod split;
mod updates;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use memtrie::TrieOptions;
use model::{BoxCursor, KeyBound, KeyRange, PartitionUpdate, ReadRange, Row, Table};
use types::Token;

use crate::{Lookup, Memtable, MemtableFull, MemtableUse, RowLocation};
use cursor::PartsCursor;
use part::Part;

pub use growth::growth_max;
pub use purge::Purge;
pub(crate) use purge::PurgeWalk;
pub use updates::for_each_update;

/// Limits of the parts of a [`ResidentTable`].
#[derive(Clone, Copy, Debug)]
pub struct PartOptions {
    /// A part with more bytes than this, structure and data, is split.
    pub split_bytes: u64,
    /// The limits of one part's trie: the most that one partition can hold, and how far a part can grow while it is
    /// split.
    pub trie: TrieOptions,
}

impl Default for PartOptions {
    /// Splits at 128 MiB, which takes a thread about 0.3 s.
    fn default() -> PartOptions {
        PartOptions { split_bytes: 128 << 20, trie: TrieOptions::default() }
    }
}

/// All data of a table that lives in memory: everything written to it or loaded into it, reconciled.
///
/// Thread-safe like a [`Memtable`]. It is never flushed, and keeps no statistics for a flush.
pub struct ResidentTable(Arc<Parts>);

/// The parts, and their total size. Locks are taken in this order: a part's `writing`, then `change`.
struct Parts {
    options: PartOptions,
    /// In order of tokens; the first begins at the least token.
    list: ArcSwap<Vec<Arc<Part>>>,
    /// Held while the list of parts is replaced.
    change: Mutex<()>,
    used_bytes: AtomicI64,
}

impl ResidentTable {
    /// An empty table with at least `parts` parts. It has enough for `expected_bytes` bytes of data, so that no part is
    /// split before there is more. Memory is allocated as data arrives.
    pub fn new(table: &Arc<Table>, parts: usize, expected_bytes: u64) -> ResidentTable {
        let options = PartOptions::default();
        // Tokens are spread evenly, except for large partitions.
        let parts = parts.max((expected_bytes / (options.split_bytes / 2)) as usize);
        ResidentTable::with_options(table, parts, options)
    }

    /// An empty table with a number of parts (at least one), and limits for each.
    pub fn with_options(table: &Arc<Table>, parts: usize, options: PartOptions) -> ResidentTable {
        let count = parts.max(1);
        let width = (1_u128 << 64) / count as u128;
        let first = |index: usize| Token(((width * index as u128) as u64 ^ 1 << 63) as i64);
        let list: Vec<_> = (0..count).map(|index| Arc::new(Part::new(first(index), table, &options))).collect();
        debug_assert!(covers_all_tokens(&list), "{count} parts");
        ResidentTable(Arc::new(Parts {
            options,
            list: ArcSwap::from_pointee(list),
            change: Mutex::new(()),
            used_bytes: AtomicI64::new(0),
        }))
    }

    /// Applies an update, all of which becomes visible at once.
    ///
    /// Fails without any effect if the system has no more memory, or one partition is larger than a part can be.
    pub fn apply(&self, update: &PartitionUpdate) -> Result<(), MemtableFull> {
        let parts = &self.0;
        loop {
            let list = parts.list.load();
            let part = &list[index_of(&list, update.key().token())];
            let mut writing = lock(&part.writing);
            if writing.is_replaced {
                continue;
            }
            match part.apply(&mut writing, update) {
                Ok(growth_bytes) => {
                    // Replacing data with data of the same size is common, and the sum is shared by all threads.
                    if growth_bytes != 0 {
                        parts.used_bytes.fetch_add(growth_bytes, Ordering::Relaxed);
                        parts.split_if_large(part, &mut writing);
                    }
                    return Ok(());
                }
                Err(MemtableFull) => parts.split_now(part, writing)?,
            }
        }
    }

    /// See [`Memtable::find_row`].
    pub fn find_row(&self, table: &Table, location: RowLocation<'_>, take: &mut dyn FnMut(Row<'_>)) -> Lookup {
        let parts = self.0.list.load();
        parts[index_of(&parts, location.token)].memtable.find_row(table, location, take)
    }

    /// The rows within `range`, read under `table`; see [`Memtable::cursor`].
    pub fn cursor(&self, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static> {
        let parts = self.0.list.load();
        match &range.keys {
            KeyRange::Single(key) => parts[index_of(&parts, key.token())].memtable.clone().cursor(table, range),
            KeyRange::Range { start, end } => {
                let first = token_of(start).map_or(0, |token| index_of(&parts, token));
                let last = token_of(end).map_or(parts.len() - 1, |token| index_of(&parts, token));
                let parts = parts.get(first..=last).unwrap_or_default().to_vec();
                Box::new(PartsCursor::new(parts, table, range))
            }
        }
    }

    /// Tells the table that its schema was altered; see [`Memtable::table_altered`].
    pub fn table_altered(&self, table: &Arc<Table>) {
        // A part that is being split passes its schema on, and none begins to split now.
        let _no_split = lock(&self.0.change);
        self.0.list.load().iter().for_each(|part| part.memtable.table_altered(table));
    }

    /// Frees the memory of what is no longer needed at `now_seconds`, if anything may have become so since the last
    /// call. Writers wait for short stretches of the walk. Parts that are being split are purged after their split.
    pub fn purge(&self, now_seconds: u32, purge: &mut dyn Purge) {
        self.0.list.load().iter().for_each(|part| {
            part.purge(now_seconds, purge, |growth_bytes| {
                self.0.used_bytes.fetch_add(growth_bytes, Ordering::Relaxed);
            });
        });
    }

    /// The bytes of data and structure, as the sum of all changes; costs one load. The copies that a split makes are
    /// added when the split part is removed.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// The memory held, exact to the byte.
    pub fn memory(&self) -> MemtableUse {
        self.0.list.load().iter().map(|part| part.memtable.memory()).fold(MemtableUse::default(), |sum, part| {
            MemtableUse {
                used_bytes: sum.used_bytes + part.used_bytes,
                reusable_bytes: sum.reusable_bytes + part.reusable_bytes,
                committed_bytes: sum.committed_bytes + part.committed_bytes,
            }
        })
    }

    /// Removes all data. Existing cursors keep theirs.
    pub fn clear(&self) {
        let parts = &self.0;
        let old = {
            let _no_split = lock(&parts.change);
            let old = parts.list.load_full();
            let table = old.first().expect("there is a part").memtable.newest_table();
            parts.list.store(Arc::new(vec![Arc::new(Part::new(Token(i64::MIN), &table, &parts.options))]));
            old
        };
        for part in old.iter() {
            let mut writing = lock(&part.writing);
            if !std::mem::replace(&mut writing.is_replaced, true) {
                parts.used_bytes.fetch_sub(part.used_bytes(), Ordering::Relaxed);
            }
        }
    }

    /// The number of parts. For tests.
    #[doc(hidden)]
    pub fn part_count(&self) -> usize {
        self.0.list.load().len()
    }

    /// Waits until no part is being split. For tests.
    #[doc(hidden)]
    pub fn finish_splits(&self) {
        let parts = &self.0;
        while parts.list.load().iter().any(|part| part.wait_for_split()) {}
    }
}

impl Parts {
    fn part_of(&self, token: Token) -> Arc<Part> {
        let parts = self.list.load();
        parts[index_of(&parts, token)].clone()
    }
}

fn token_of(bound: &KeyBound) -> Option<Token> {
    match bound {
        KeyBound::Unbounded => None,
        KeyBound::Token { token, .. } => Some(*token),
        KeyBound::Key { key, .. } => Some(key.token()),
    }
}

fn index_of(parts: &[Arc<Part>], token: Token) -> usize {
    let index = parts.partition_point(|part| part.first <= token).saturating_sub(1);
    debug_assert!(parts[index].first <= token, "part {index} begins behind {token:?}");
    debug_assert!(parts.get(index + 1).is_none_or(|next| token < next.first), "part {index} ends before {token:?}");
    index
}

/// Whether each token belongs to one part of the list.
fn covers_all_tokens(parts: &[Arc<Part>]) -> bool {
    parts.first().is_some_and(|part| part.first.0 == i64::MIN) && parts.is_sorted_by(|a, b| a.first < b.first)
}

/// The guarded flags are set last, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the condition variable; poisoning is handled as in `lock`.
fn wait<'m, T>(changed: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
