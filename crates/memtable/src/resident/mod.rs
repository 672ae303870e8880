//! All data of a table that lives in memory.
//!
//! The tokens are divided among parts, each a trie with one writer at a time. A part that is full is split in two where its
//! data's tokens have their middle: its writers wait, readers go on with what they have.

mod cursor;
mod growth;
mod purge;
mod updates;

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use memtrie::TrieOptions;
use model::{BoxCursor, KeyBound, KeyRange, PartitionUpdate, ReadError, ReadRange, Table};
use types::Token;

use crate::statistics::Bounds;
use crate::{Memtable, MemtableFull, MemtableUse, TrieMemtable};
use cursor::PartsCursor;

pub use growth::growth_max;
pub use purge::Purge;
pub(crate) use purge::Walk;
pub use updates::for_each_update;

/// A part's structure at its largest, bytes. To split it takes about a second.
const PART_BLOCKS_BYTES: usize = 64 << 20;
/// A part's contents at their largest, bytes.
const PART_BLOBS_BYTES: usize = 2 << 30;

/// All data of a table that lives in memory: what was written to it or loaded into it, reconciled.
///
/// Thread-safe, as a [`Memtable`] is; never flushed, and without statistics for it.
pub struct ResidentTable {
    options: TrieOptions,
    /// By token; the first begins at the least.
    parts: ArcSwap<Vec<Arc<Part>>>,
    /// Held while the list of parts is replaced.
    change: Mutex<()>,
    used_bytes: AtomicI64,
}

/// The data of the tokens from `first` to the next part's.
struct Part {
    first: Token,
    memtable: Arc<TrieMemtable>,
    writing: Mutex<Writing>,
    /// When something in it may be purged first, seconds; the greatest value if nothing ever.
    purge_at: AtomicU32,
}

struct Writing {
    /// Whether others took over from it.
    is_replaced: bool,
}

impl Part {
    fn new(first: Token, table: &Arc<Table>, options: TrieOptions) -> Part {
        let memtable = Arc::new(TrieMemtable::with_options(table, 1, options));
        Part {
            first,
            memtable,
            writing: Mutex::new(Writing { is_replaced: false }),
            purge_at: AtomicU32::new(u32::MAX),
        }
    }

    fn used_bytes(&self) -> i64 {
        self.memtable.memory().used_bytes as i64
    }
}

/// The halves have no room either, or the part cannot be read.
struct SplitFailed;

impl From<ReadError> for SplitFailed {
    fn from(_: ReadError) -> Self {
        SplitFailed
    }
}

impl ResidentTable {
    /// Without data, in a number of parts (at least one). Memory is taken as data comes.
    pub fn new(table: &Arc<Table>, parts: usize) -> ResidentTable {
        let options = TrieOptions {
            blocks_bytes_max: PART_BLOCKS_BYTES,
            blobs_bytes_max: PART_BLOBS_BYTES,
            ..TrieOptions::default()
        };
        ResidentTable::with_options(table, parts, options)
    }

    /// As `new`, with limits for each part.
    pub fn with_options(table: &Arc<Table>, parts: usize, options: TrieOptions) -> ResidentTable {
        let count = parts.max(1);
        let width = (1_u128 << 64) / count as u128;
        let first = |index: usize| Token(((width * index as u128) as u64 ^ 1 << 63) as i64);
        let parts = (0..count).map(|index| Arc::new(Part::new(first(index), table, options))).collect();
        ResidentTable {
            options,
            parts: ArcSwap::from_pointee(parts),
            change: Mutex::new(()),
            used_bytes: AtomicI64::new(0),
        }
    }

    /// Applies an update; all of it becomes visible at once.
    ///
    /// Fails without any effect if the system gives no more memory, or one partition is larger than a part can be.
    pub fn apply(&self, update: &PartitionUpdate) -> Result<(), MemtableFull> {
        loop {
            let part = self.part_of(update.key().token());
            let mut writing = lock(&part.writing);
            if writing.is_replaced {
                continue;
            }
            if let Ok(growth_bytes) = part.memtable.apply(update, None) {
                part.purge_at.fetch_min(earliest_deletion(update), Ordering::Relaxed);
                self.used_bytes.fetch_add(growth_bytes, Ordering::Relaxed);
                return Ok(());
            }
            self.split(&part)?;
            writing.is_replaced = true;
        }
    }

    /// The rows within `range`, read under `table`; see [`Memtable::cursor`].
    pub fn cursor(&self, table: &Arc<Table>, range: &ReadRange) -> BoxCursor<'static> {
        let parts = self.parts.load();
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

    /// Tells that the table was altered; see [`Memtable::table_altered`].
    pub fn table_altered(&self, table: &Arc<Table>) {
        // A part that is split meanwhile hands its table on, or is not split yet.
        let _no_split = lock(&self.change);
        self.parts.load().iter().for_each(|part| part.memtable.table_altered(table));
    }

    /// Gives back the memory of what is not needed any more at `now_seconds`, where something may have become so since the last
    /// time. Writers wait for short stretches.
    pub fn purge(&self, now_seconds: u32, purge: &mut dyn Purge) {
        for part in self.parts.load().iter() {
            if part.purge_at.load(Ordering::Relaxed) > now_seconds {
                continue;
            }
            // What is written meanwhile sets it anew.
            part.purge_at.store(u32::MAX, Ordering::Relaxed);
            let mut walk = Walk::new(now_seconds);
            loop {
                let writing = lock(&part.writing);
                if writing.is_replaced {
                    break;
                }
                let before = part.used_bytes();
                let more = part.memtable.purge(&mut walk, purge);
                self.used_bytes.fetch_add(part.used_bytes() - before, Ordering::Relaxed);
                drop(writing);
                if !more {
                    break;
                }
            }
            part.purge_at.fetch_min(walk.next_seconds, Ordering::Relaxed);
        }
    }

    /// Bytes that data and structure take, as the sum of all changes; costs one load.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// The memory held, to the byte.
    pub fn memory(&self) -> MemtableUse {
        self.parts.load().iter().map(|part| part.memtable.memory()).fold(MemtableUse::default(), |sum, part| {
            MemtableUse {
                used_bytes: sum.used_bytes + part.used_bytes,
                reusable_bytes: sum.reusable_bytes + part.reusable_bytes,
                committed_bytes: sum.committed_bytes + part.committed_bytes,
            }
        })
    }

    /// How many parts there are.
    pub fn part_count(&self) -> usize {
        self.parts.load().len()
    }

    fn part_of(&self, token: Token) -> Arc<Part> {
        let parts = self.parts.load();
        parts[index_of(&parts, token)].clone()
    }

    /// Puts two parts in the place of one whose writers wait.
    fn split(&self, part: &Arc<Part>) -> Result<(), MemtableFull> {
        let _one_at_a_time = lock(&self.change);
        let table = part.memtable.newest_table();
        let (Some(first), Some(last)) = part.memtable.token_bounds() else { return Err(MemtableFull) };
        if first == last {
            return Err(MemtableFull);
        }
        let middle = Token(((i128::from(first.0) + i128::from(last.0)).div_euclid(2)) as i64);
        let halves = [
            Part::new(part.first, &table, self.options),
            // `middle` is before `last`.
            Part::new(Token(middle.0 + 1), &table, self.options),
        ];
        let all = ReadRange::all_rows(KeyRange::all());
        let mut cursor = part.memtable.clone().cursor(&table, &all);
        let copied = for_each_update(&mut cursor, &table, |update| {
            let half = &halves[usize::from(update.key().token() > middle)];
            half.purge_at.fetch_min(earliest_deletion(&update), Ordering::Relaxed);
            half.memtable.apply(&update, None).map(drop).map_err(|MemtableFull| SplitFailed)
        });
        if copied.is_err() {
            return Err(MemtableFull);
        }
        let grown: i64 = halves.iter().map(Part::used_bytes).sum::<i64>() - part.used_bytes();
        let mut parts: Vec<_> = self.parts.load().to_vec();
        let index = parts.iter().position(|other| Arc::ptr_eq(other, part)).expect("only a split takes a part out");
        parts.splice(index..=index, halves.map(Arc::new));
        self.parts.store(Arc::new(parts));
        self.used_bytes.fetch_add(grown, Ordering::Relaxed);
        Ok(())
    }
}

/// The first time that an update's cells expire or were deleted at, seconds; the greatest value if none do.
fn earliest_deletion(update: &PartitionUpdate) -> u32 {
    let mut bounds = Bounds::NONE;
    bounds.cover_update(update);
    bounds.statistics().local_deletion_time_min
}

fn token_of(bound: &KeyBound) -> Option<Token> {
    match bound {
        KeyBound::Unbounded => None,
        KeyBound::Token { token, .. } => Some(*token),
        KeyBound::Key { key, .. } => Some(key.token()),
    }
}

fn index_of(parts: &[Arc<Part>], token: Token) -> usize {
    parts.partition_point(|part| part.first <= token).saturating_sub(1)
}

/// What is guarded is a flag that is set last.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
