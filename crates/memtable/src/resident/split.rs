//! Splitting a part in two while it is written and read.
//!
//! From the start of a split, every update is applied to the part and to the half that it belongs to. A thread copies
//! the older data to the halves and then replaces the part with them. The halves receive the same rows in any order,
//! and reconciliation does not depend on the order. Readers use the part until it is replaced. Nothing is purged from
//! it meanwhile: what shadows a row stays until the row has been copied.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::Builder;

use model::{KeyRange, PartitionUpdate, ReadError, ReadRange};
use types::Token;

use super::part::{Part, Writing};
use super::{PartOptions, Parts, covers_all_tokens, for_each_update, lock, wait};
use crate::{Memtable, MemtableFull};

/// The two parts that replace a part.
pub(super) struct Halves {
    /// The last token of the first half.
    middle: Token,
    parts: [Arc<Part>; 2],
    /// Whether one of them has run out of room.
    is_full: AtomicBool,
}

/// A half has no room, or the part cannot be read.
struct CopyFailed;

impl From<ReadError> for CopyFailed {
    fn from(_: ReadError) -> Self {
        CopyFailed
    }
}

impl Halves {
    /// Two empty halves; `None` if all data of the part has one token.
    fn of(part: &Part, options: &PartOptions) -> Option<Halves> {
        let table = part.memtable.newest_table();
        let (Some(first), Some(last)) = part.memtable.token_bounds() else { return None };
        // Before `last`.
        let middle = Token(((i128::from(first.0) + i128::from(last.0)).div_euclid(2)) as i64);
        let half = |first| Arc::new(Part::new(first, &table, options));
        let halves =
            || Halves { middle, parts: [half(part.first), half(Token(middle.0 + 1))], is_full: AtomicBool::new(false) };
        debug_assert!(part.first <= first && first <= middle && middle <= last, "the middle lies in the part");
        debug_assert!(first == last || middle < last, "both halves have a partition");
        (first != last).then(halves)
    }

    /// Applies an update that is written to the part during the split.
    pub fn apply(&self, update: &PartitionUpdate) {
        if self.put(update).is_err() {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    fn put(&self, update: &PartitionUpdate) -> Result<(), MemtableFull> {
        debug_assert!(update.key().token() >= self.parts[0].first, "a part is split by its own tokens");
        debug_assert_eq!(self.parts[1].first.0, self.middle.0 + 1, "the upper half begins behind the middle");
        self.parts[usize::from(update.key().token() > self.middle)].put(update).map(drop)
    }

    /// Copies the part's data.
    fn copy(&self, part: &Part) -> Result<(), CopyFailed> {
        let table = part.memtable.newest_table();
        let mut cursor = part.memtable.clone().cursor(&table, &ReadRange::all_rows(KeyRange::all()));
        for_each_update(&mut cursor, &table, |update| self.put(&update).map_err(|MemtableFull| CopyFailed))
    }
}

impl Parts {
    /// Begins to split a part if it is large.
    pub fn split_if_large(self: &Arc<Self>, part: &Arc<Part>, writing: &mut Writing) {
        debug_assert!(!writing.is_replaced, "a part is split once");
        if writing.halves.is_some() || (part.used_bytes() as u64) <= writing.split_bytes {
            return;
        }
        // If the split fails, or leaves nearly everything in one half, it is tried again when the part has twice as
        // much. A very large partition is therefore not copied again and again.
        writing.split_bytes *= 2;
        let Some(halves) = Halves::of(part, &self.options).map(Arc::new) else { return };
        writing.halves = Some(halves.clone());
        let (parts, part) = (Arc::downgrade(self), part.clone());
        let split = move || {
            let copied = halves.copy(&part);
            if let Some(parts) = parts.upgrade() {
                // If this fails the part continues as it is.
                let _ = parts.end_split(&part, &mut lock(&part.writing), copied);
            }
        };
        if Builder::new().name("splitter".into()).spawn(split).is_err() {
            writing.halves = None;
        }
    }

    /// Splits a part that has no room, or waits for a split in progress. The part's writers wait.
    pub fn split_now(&self, part: &Arc<Part>, mut writing: MutexGuard<'_, Writing>) -> Result<(), MemtableFull> {
        debug_assert!(!writing.is_replaced, "a part is split once");
        if writing.halves.is_some() {
            while writing.halves.is_some() {
                writing = wait(&part.split_ended, writing);
            }
            return if writing.is_replaced { Ok(()) } else { Err(MemtableFull) };
        }
        let halves = Arc::new(Halves::of(part, &self.options).ok_or(MemtableFull)?);
        writing.halves = Some(halves.clone());
        self.end_split(part, &mut writing, halves.copy(part))
    }

    /// Replaces a part with its halves if they have all of its data; otherwise discards them.
    fn end_split(
        &self,
        part: &Arc<Part>,
        writing: &mut Writing,
        copied: Result<(), CopyFailed>,
    ) -> Result<(), MemtableFull> {
        part.split_ended.notify_all();
        let halves = writing.halves.take().ok_or(MemtableFull)?;
        if copied.is_err() || halves.is_full.load(Ordering::Relaxed) || writing.is_replaced {
            return Err(MemtableFull);
        }
        let _one_at_a_time = lock(&self.change);
        let mut list = self.list.load().to_vec();
        // The part is not in the list if the table was cleared.
        let index = list.iter().position(|other| Arc::ptr_eq(other, part)).ok_or(MemtableFull)?;
        let mut grown = -part.used_bytes();
        for half in &halves.parts {
            half.memtable.table_altered(&part.memtable.newest_table());
            let used_bytes = half.used_bytes();
            let split_bytes = self.options.split_bytes.max(2 * used_bytes as u64);
            lock(&half.writing).split_bytes = split_bytes;
            grown += used_bytes;
        }
        list.splice(index..=index, halves.parts.iter().cloned());
        debug_assert!(covers_all_tokens(&list), "the halves cover what the part covered");
        self.list.store(Arc::new(list));
        writing.is_replaced = true;
        self.used_bytes.fetch_add(grown, Ordering::Relaxed);
        Ok(())
    }
}
