//! Flushes of small tables in memory.
//!
//! A flush of such a table may be as large as its data on the disk, all of which it makes obsolete, and would be merged
//! with that data at once. In the meantime the disk would hold the data three times. The flush therefore merges while
//! it writes, and replaces all SSTables with the one that it wrote.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use blockio::BlockWrites;
use commitlog::PositionInterval;
use compaction::{Compacted, CompactionError, CompactionInput, Newer, compact};
use model::{KeyRange, ReadRange, Table, UnfilteredCursor};
use sstable::{SSTableId, SSTableReader};

use super::Flush;
use crate::compaction::{Outside, engine_error, ids_of, is_enabled, left_alone};
use crate::error::EngineError;
use crate::files::descriptors_of;
use crate::table::in_memory::memory_only;
use crate::table::{Generation, TableStore};

impl Flush {
    /// Flushes a generation of a small table in memory together with all its SSTables into one SSTable. Returns false
    /// if the generation has to be flushed alone. That includes a failure here, which is reported like a compaction's
    /// failure.
    pub(super) fn flush_with_all(
        &self,
        store: &Arc<TableStore>,
        generation: &Arc<Generation>,
        interval: PositionInterval,
    ) -> bool {
        let flushed = self.try_flush_with_all(store, generation, interval);
        flushed.unwrap_or_else(|error| {
            self.shared.report_failure(&error);
            self.compaction.note(store.table.load().id, Some(error));
            false
        })
    }

    fn try_flush_with_all(
        &self,
        store: &Arc<TableStore>,
        generation: &Arc<Generation>,
        interval: PositionInterval,
    ) -> Result<bool, EngineError> {
        let table = store.table.load_full();
        if generation.memtable.is_empty() || memory_only(&table).is_none() || !is_enabled(store, &table) {
            return Ok(false);
        }
        let claimed_inputs = store.merges.begin(|merging| {
            let inputs = self.all_if_few(store, merging);
            Ok::<_, EngineError>(inputs.map(|inputs| (ids_of(&inputs), inputs)))
        })?;
        let Some((_claim, inputs)) = claimed_inputs else { return Ok(false) };
        let mut cursor = generation.memtable.clone().cursor(&table, &ReadRange::all_rows(KeyRange::all()));
        cursor.limit_large_rows(self.shared.options().background_rows());
        let statistics = generation.memtable.statistics();
        let newer = Newer { cursor, options: self.shared.files().memtable_options(&table, statistics, &[interval])? };
        let outputs = match self.merge_with(store, generation, &table, &inputs, newer) {
            Ok(compacted) => compacted.tables,
            Err(CompactionError::Stopped) => return Ok(false),
            Err(error) => return Err(engine_error(error)),
        };
        // Even an empty result needs an SSTable that says which part of the log must not be replayed.
        if outputs.is_empty() {
            return Ok(false);
        }
        let publish = |opened| store.replace_generation(generation, &inputs, opened);
        let (obsolete, stand_ins) = (descriptors_of(&inputs), store.indexes.stand_ins(&inputs, Some(generation)));
        let written = self.shared.files().replace_and(store, &table, &obsolete, outputs, stand_ins, publish)?;
        store.flush_size.note(written.iter().map(|sstable| sstable.size_on_disk_bytes()).sum());
        Ok(true)
    }

    /// All SSTables of a table, if they are few and no merge uses one of them.
    fn all_if_few(&self, store: &TableStore, merging: &HashSet<SSTableId>) -> Option<Vec<Arc<SSTableReader>>> {
        let view = store.view();
        let bytes: u64 = view.sstables.iter().map(|sstable| sstable.data_length_bytes()).sum();
        let is_small = 0 < bytes && bytes < self.shared.options().in_memory_rewritten_bytes_max;
        let left_alone = left_alone(&view, merging);
        let are_free = ids_of(&view.sstables).iter().all(|id| !left_alone.contains(id));
        (is_small && are_free && !self.compaction.is_closing(store)).then(|| view.sstables.clone())
    }

    fn merge_with(
        &self,
        store: &TableStore,
        generation: &Arc<Generation>,
        table: &Arc<Table>,
        inputs: &[Arc<SSTableReader>],
        newer: Newer,
    ) -> Result<Compacted, CompactionError> {
        let has_uncovered = self.shared.has_uncovered(table.id, &store.view());
        compact(CompactionInput {
            disk: &self.shared.options().disk,
            dir: &store.directory,
            table,
            tables: inputs,
            newer: Some(newer),
            kept: None,
            overlaps: &Outside { shared: &self.shared, store, inputs, flushed: Some(generation), has_uncovered },
            now_seconds: self.shared.now_seconds(),
            boundaries: Vec::new(),
            column_index_size_bytes: u64::from(self.shared.options().column_index_size_bytes),
            past_page_cache: self.shared.sstable_writes() == &BlockWrites::Direct,
            host_id: self.shared.host_id(),
            size_watch: self.shared.size_watch(table),
            large_rows: self.shared.options().background_rows(),
            new_id: &mut || self.shared.files().new_id(),
            progress: &mut |_| match store.merges.is_stopping()
                || self.compaction.is_closing(store)
                || self.gives_up(store)
            {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            },
        })
    }
}
