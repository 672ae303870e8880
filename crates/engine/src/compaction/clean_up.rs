//! Clean-up: rewriting the SSTables that hold partitions outside of given tokens, without those partitions.

use std::cmp::Reverse;
use std::sync::Arc;

use model::{KeyBound, KeyRange, ReadRange, Table, UnfilteredCursor};
use sstable::{ReadMode, SSTableReader};
use types::{Token, TokenRanges};

use super::{Compaction, Merged, ids_of, metadata_of, strategy_of};
use crate::error::EngineError;
use crate::files::open_cursor;
use crate::lock::lock;
use crate::table::{TableStore, View};

/// The SSTables of a merge.
type Inputs = Vec<Arc<SSTableReader>>;

/// The SSTables of a table, by what a clean-up finds in them.
#[derive(Default)]
struct CleanUpInputs {
    /// SSTables with some partitions to remove, oldest first.
    mixed: Inputs,
    /// SSTables with nothing but partitions to remove, whose records the log may still hold.
    covering: Inputs,
    /// SSTables without partitions to remove.
    clean: Inputs,
}

impl Compaction {
    /// Removes the partitions outside of `kept` from the SSTables that a table has now. The SSTables that have such
    /// partitions are rewritten one after another, oldest first, so that a deletion usually outlasts the data that it
    /// shadows. Each SSTable is replaced as a whole or not at all.
    ///
    /// If nothing of an SSTable would be left, but the log may still hold its records, another SSTable has to cover
    /// these records. So it is merged at the end with another SSTable, or with all others if nothing of that one is
    /// left either. It stays if nothing of the whole table would be left. Returns false if an SSTable stays, or if the
    /// merges were stopped. Blocks until all merges are done.
    pub fn clean_up(&self, store: &TableStore, kept: &TokenRanges) -> Result<bool, EngineError> {
        let one_at_a_time = lock(&store.compacting_all);
        let mut cleaned = Ok(false);
        let plans: [fn(&CleanUpInputs) -> Vec<Inputs>; 3] =
            [CleanUpInputs::one_by_one, CleanUpInputs::with_another, CleanUpInputs::all_together];
        for plan in plans {
            cleaned = self.rewrite(store, kept, plan);
            if !matches!(cleaned, Ok(false)) {
                break;
            }
        }
        drop(one_at_a_time);
        // Restarts the merges that were stopped.
        self.request(store);
        cleaned
    }

    /// Executes the merges that `plan` returns for a table's SSTables. Returns whether no partition to remove is left
    /// in them.
    fn rewrite(
        &self,
        store: &TableStore,
        kept: &TokenRanges,
        plan: fn(&CleanUpInputs) -> Vec<Inputs>,
    ) -> Result<bool, EngineError> {
        let stopped = store.merges.stop();
        store.check_files()?;
        let table = store.table.load_full();
        let strategy = strategy_of(&table)?;
        let found = self.find(&table, &store.view(), kept)?;
        let merges = plan(&found);
        let planned = merges.concat();
        let _claim = stopped.claim(ids_of(&planned));
        let is_planned = |sstable: &Arc<SSTableReader>| planned.iter().any(|other| other.is_same(sstable));
        let mut is_clean = Ok(found.covering.iter().all(is_planned));
        for inputs in merges {
            if self.is_closing(store) || store.merges.is_stopping() {
                return is_clean.and(Ok(false));
            }
            let boundaries = strategy.output_boundaries(&metadata_of(&inputs));
            let merged = self.merge(store, &inputs, boundaries, Some(kept));
            // The failure of one merge does not prevent the others.
            is_clean = match (is_clean, merged) {
                (Ok(is_clean), Ok(merged)) => Ok(is_clean && merged == Merged::Replaced),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        is_clean
    }

    fn find(&self, table: &Arc<Table>, view: &View, kept: &TokenRanges) -> Result<CleanUpInputs, EngineError> {
        let mut found = CleanUpInputs::default();
        for sstable in view.sstables.iter().rev() {
            let group = if !holds_any(sstable, table, kept.outside())? {
                &mut found.clean
            } else if !holds_any(sstable, table, kept.inside())? && self.may_replay(std::slice::from_ref(sstable)) {
                &mut found.covering
            } else {
                &mut found.mixed
            };
            group.push(sstable.clone());
        }
        Ok(found)
    }
}

impl CleanUpInputs {
    fn one_by_one(&self) -> Vec<Inputs> {
        self.mixed.iter().map(|sstable| vec![sstable.clone()]).collect()
    }

    /// One merge of the SSTables that are left to clean up with one of the others. If there is one with cells that
    /// never expire, the smallest of these is taken, because a merge usually leaves something of it.
    fn with_another(&self) -> Vec<Inputs> {
        let lasting = |sstable: &&Arc<SSTableReader>| {
            (sstable.statistics().stats.max_local_deletion_time, Reverse(sstable.data_length_bytes()))
        };
        self.left_with(self.clean.iter().max_by_key(lasting))
    }

    fn all_together(&self) -> Vec<Inputs> {
        self.left_with(&self.clean)
    }

    /// One merge of the SSTables that are left to clean up with these others; none if nothing is left to clean up.
    fn left_with<'f>(&'f self, others: impl IntoIterator<Item = &'f Arc<SSTableReader>>) -> Vec<Inputs> {
        let left: Inputs = self.mixed.iter().chain(&self.covering).cloned().collect();
        match left.is_empty() {
            true => Vec::new(),
            false => vec![left.into_iter().chain(others.into_iter().cloned()).collect()],
        }
    }
}

/// Whether an SSTable holds a partition in one of these intervals of tokens, which are given by first and last token.
fn holds_any(
    sstable: &Arc<SSTableReader>,
    table: &Arc<Table>,
    intervals: impl Iterator<Item = (Token, Token)>,
) -> Result<bool, EngineError> {
    let (least, greatest) = (sstable.first_key().token(), sstable.last_key().token());
    for (first, last) in intervals.filter(|(first, last)| *first <= greatest && least <= *last) {
        if first <= least || greatest <= last {
            return Ok(true);
        }
        let [start, end] = [first, last].map(|token| KeyBound::Token { token, inclusive: true });
        let range = ReadRange::all_rows(KeyRange::Range { start, end });
        if open_cursor(sstable, table, &range, ReadMode::Cached { may_block: true })?.advance_partition()? {
            return Ok(true);
        }
    }
    Ok(false)
}
