//! Clean-up: rewriting the SSTables that hold partitions outside of given tokens, without those partitions.

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

impl Compaction {
    /// Removes the partitions outside of `kept` from the SSTables that a table has now. Those that have none are not
    /// touched, and the others are rewritten one after another, oldest first, so that a deletion mostly outlasts what
    /// it shadows. Each is replaced as a whole or not at all. Returns false if SSTables with such partitions are left,
    /// because the merges were stopped, or because the log needs them (see [`Compaction::merges_of_clean_up`]). Blocks
    /// until all is done.
    pub fn clean_up(&self, store: &TableStore, kept: &TokenRanges) -> Result<bool, EngineError> {
        let one_at_a_time = lock(&store.compacting_all);
        let cleaned = self.rewrite_without_others(store, kept);
        drop(one_at_a_time);
        // Restarts the merges that were stopped.
        self.request(store);
        cleaned
    }

    fn rewrite_without_others(&self, store: &TableStore, kept: &TokenRanges) -> Result<bool, EngineError> {
        let stopped = store.merges.stop();
        store.check_files()?;
        let strategy = strategy_of(&store.table.load_full())?;
        let merges = self.merges_of_clean_up(&store.table.load_full(), &store.view(), kept)?;
        let _claim = stopped.claim(merges.iter().flat_map(|inputs| ids_of(inputs)).collect());
        let mut is_clean = Ok(true);
        for inputs in merges {
            if self.is_closing(store) || store.merges.is_stopping() {
                return is_clean.and(Ok(false));
            }
            let boundaries = strategy.output_boundaries(&metadata_of(&inputs));
            let merged = self.merge(store, &inputs, boundaries, Some(kept));
            // The failure of one merge does not prevent the others.
            is_clean = is_clean.and_then(|is_clean| Ok(merged? == Merged::Replaced && is_clean));
        }
        is_clean
    }

    /// What a clean-up merges. An SSTable of which nothing would be left, while the log may still hold its records, is
    /// merged with another one that covers these records from then on. Without such a one it stays.
    fn merges_of_clean_up(
        &self,
        table: &Arc<Table>,
        view: &View,
        kept: &TokenRanges,
    ) -> Result<Vec<Inputs>, EngineError> {
        let (mut merges, mut covering, mut unmixed): (Vec<Inputs>, Inputs, Option<Inputs>) = Default::default();
        let mut first_mixed = None;
        for sstable in view.sstables.iter().rev() {
            let has_inside = holds_any(sstable, table, kept.inside())?;
            match (holds_any(sstable, table, kept.outside())?, has_inside) {
                (false, _) => unmixed = Some(vec![sstable.clone()]),
                (true, false) if self.may_replay(std::slice::from_ref(sstable)) => covering.push(sstable.clone()),
                (true, _) => {
                    first_mixed = first_mixed.or(has_inside.then_some(merges.len()));
                    merges.push(vec![sstable.clone()]);
                }
            }
        }
        if !covering.is_empty() {
            let mixed = first_mixed.map(|index| merges.remove(index));
            merges.insert(0, mixed.or(unmixed).into_iter().flatten().chain(covering).collect());
        }
        Ok(merges)
    }
}

/// Whether an SSTable holds a partition in one of some intervals of tokens; first and last token of each.
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
