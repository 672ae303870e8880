//! The rows whose vectors may be the most similar to a given one, by an index of vectors.

use std::sync::Arc;

use index::{Indexer, KeyBounds, NearestSearch, RowKey, SearchStep, decode_row_key};
use model::{Index, KeyRange, Table};

use super::candidates::{failure, sources, undecodable};
use crate::error::EngineError;
use crate::shared::Shared;

/// The keys of rows that had vectors similar to a given one in some memtable or SSTable, the most similar first. The
/// row may have another vector now, or be deleted, and a key may be returned several times.
pub struct NearestCandidates {
    search: NearestSearch,
    indexer: Indexer,
    table: Arc<Table>,
    key: Vec<u8>,
}

/// The result of a step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum NearestStep {
    /// The key of the next row, and how similar its vector was.
    Row(RowKey, f32),
    /// No row yet. The number estimates how many vectors were compared.
    Nothing(u64),
    /// There are no more rows.
    End,
}

impl NearestCandidates {
    /// Continues the search for less than a millisecond. Blocks on the disk. Fails with
    /// [`EngineError::UnreadableIndex`] if a file cannot be read.
    pub fn step(&mut self) -> Result<NearestStep, EngineError> {
        Ok(match self.search.next(&mut self.key).map_err(failure)? {
            SearchStep::Candidate(score) => {
                let row_key = decode_row_key(self.indexer.clustering(), &self.key, &mut Vec::new());
                NearestStep::Row(row_key.map_err(|error| undecodable(&self.table, &error))?, score)
            }
            SearchStep::Nothing(count) => NearestStep::Nothing(count),
            SearchStep::End => NearestStep::End,
        })
    }

    /// The bytes that the search holds.
    pub fn held_bytes(&self) -> usize {
        self.search.held_bytes()
    }
}

/// Searches within `keys` for the rows with the most similar vectors. About `count` of them will be asked for. `None`
/// if the index is not complete yet. The thread must be one that may be blocked.
pub(crate) fn nearest(
    shared: &Shared,
    table: &Arc<Table>,
    index: &Index,
    wanted: &[f32],
    keys: &KeyRange,
    count: usize,
) -> Result<Option<NearestCandidates>, EngineError> {
    let catalog = shared.catalog();
    let store = catalog.store(table)?;
    let current = store.table.load_full();
    let Some(column) = current.column(&index.column) else { return Ok(None) };
    let indexer = Indexer::new(&current, column, index.part);
    if table.index_key(index) != Some(indexer.key()) {
        return Ok(None);
    }
    let Some(found) = sources(store, indexer.key()) else {
        shared.files().index_requests().request();
        return Ok(None);
    };
    let mut parts = Vec::new();
    found.sources.iter().for_each(|source| source.add_nearest(wanted, count, &mut parts));
    let search = NearestSearch::new(parts, KeyBounds::of(keys));
    Ok(Some(NearestCandidates { search, indexer, table: table.clone(), key: Vec::new() }))
}
