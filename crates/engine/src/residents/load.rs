//! Loads the data of a table that lives in memory from its memtables and SSTables, in ranges of tokens in parallel.

use std::sync::Arc;

use compaction::{PurgeCursor, gc_before};
use memtable::for_each_update;
use model::{BoxCursor, KeyBound, KeyRange, MergeCursor, PartitionKey, ReadRange, Table};
use sstable::{ReadMode, SSTableReader};
use types::Token;

use super::Residents;
use crate::error::EngineError;
use crate::files::open_cursor;
use crate::table::in_memory::Resident;
use crate::table::{Generation, TableStore, View};

/// The number of ranges that are loaded at a time for each core. While some wait for the device, others can run.
const RANGES_PER_CORE: usize = 2;

/// The table's data outside of the loaded sources. If there is any, deletions in the sources are kept, however old,
/// because they may shadow it.
#[derive(Clone, Copy)]
enum Rest {
    Nothing,
    Resident,
}

impl Residents {
    /// Loads all data that is not resident yet, which is the data of older generations and SSTables. Writes continue
    /// meanwhile, and are reconciled with loaded data as usual: the newer one wins. Blocks on the disk.
    pub(super) fn load_resident(&self, store: &Arc<TableStore>, resident: &Arc<Resident>) -> Result<(), EngineError> {
        // Waits for the writes to older generations, so that their memtables are complete.
        self.shared.groups().barrier().wait();
        let (table, view) = (store.table.load_full(), store.view());
        let is_older = |generation: &&Arc<Generation>| {
            !generation.resident.as_ref().is_some_and(|other| Arc::ptr_eq(other, resident))
        };
        let has_memtables = view.generations().filter(is_older).any(|generation| !generation.memtable.is_empty());
        if has_memtables || !view.sstables.is_empty() {
            let sstables: Vec<_> = view.sstables.iter().map(|sstable| self.shared.files().for_load(sstable)).collect();
            let sources = |range: &ReadRange| {
                let mut sources = memtable_sources(&view, resident, &table, range);
                sources.extend(sstable_sources(&sstables, &table, range)?);
                Ok(sources)
            };
            self.load_ranges(&table, resident, Rest::Nothing, &sources)?;
        }
        resident.set_complete();
        Ok(())
    }

    /// Adds the data of imported SSTables. If they cannot be read, reads of the table use the disk from now on, as they
    /// are.
    pub fn load_imported(&self, table: &Arc<Table>, resident: &Arc<Resident>, sstables: &[Arc<SSTableReader>]) {
        let loaded =
            self.load_ranges(table, resident, Rest::Resident, &|range| sstable_sources(sstables, table, range));
        if let Err(error) = loaded {
            self.give_up(resident, error);
        }
    }

    fn load_ranges(
        &self,
        table: &Arc<Table>,
        resident: &Arc<Resident>,
        rest: Rest,
        sources: &(dyn Fn(&ReadRange) -> Result<Vec<BoxCursor<'static>>, EngineError> + Sync),
    ) -> Result<(), EngineError> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let ranges = token_ranges(cores * RANGES_PER_CORE);
        std::thread::scope(|scope| {
            let load = |keys: KeyRange| {
                move || -> Result<(), EngineError> {
                    let merged = MergeCursor::new(table, false, sources(&ReadRange::all_rows(keys))?);
                    let now = self.shared.now_seconds();
                    let gc_before = gc_before(&table.options, now);
                    let oldest_elsewhere = |_: &PartitionKey| match rest {
                        Rest::Nothing => i64::MAX,
                        Rest::Resident => i64::MIN,
                    };
                    let mut cursor = PurgeCursor::new(merged, now, gc_before, &oldest_elsewhere);
                    for_each_update(&mut cursor, table, |update| {
                        resident.apply(&update);
                        Ok(())
                    })
                }
            };
            let loading: Vec<_> = ranges.into_iter().map(|keys| scope.spawn(load(keys))).collect();
            let results = loading.into_iter().map(|thread| {
                let panicked = |_| Err(EngineError::Startup("a thread that loads a table into memory panicked".into()));
                thread.join().unwrap_or_else(panicked)
            });
            results.fold(Ok(()), Result::and)
        })
    }
}

/// Cursors over older generations.
fn memtable_sources(
    view: &View,
    resident: &Arc<Resident>,
    table: &Arc<Table>,
    range: &ReadRange,
) -> Vec<BoxCursor<'static>> {
    let is_its_own = |other: &Arc<Resident>| Arc::ptr_eq(other, resident);
    let older = view.generations().filter(|generation| !generation.resident.as_ref().is_some_and(is_its_own));
    older.map(|generation| generation.memtable.clone().cursor(table, range)).collect()
}

fn sstable_sources(
    sstables: &[Arc<SSTableReader>],
    table: &Arc<Table>,
    range: &ReadRange,
) -> Result<Vec<BoxCursor<'static>>, EngineError> {
    sstables.iter().map(|sstable| open_cursor(sstable, table, range, ReadMode::Sequential)).collect()
}

/// All tokens, divided into a number of ranges.
fn token_ranges(count: usize) -> Vec<KeyRange> {
    let width = (1_u128 << 64) / count as u128;
    let bound = |index: usize| Token(((width * index as u128) as u64 ^ 1 << 63) as i64);
    let ranges = (0..count).map(|index| KeyRange::Range {
        start: match index {
            0 => KeyBound::Unbounded,
            _ => KeyBound::Token { token: bound(index), inclusive: true },
        },
        end: match index + 1 {
            next if next == count => KeyBound::Unbounded,
            next => KeyBound::Token { token: bound(next), inclusive: false },
        },
    });
    ranges.collect()
}
