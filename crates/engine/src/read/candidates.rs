//! The rows that may have a value, by a secondary index.

use std::sync::Arc;

use index::{Candidates, Indexer, KeyBounds, Place, Source, decode_place};
use model::{Index, IndexKey, KeyRange, RowRoom, Table};
use sstable::{Corruption, SSTableError};

use crate::error::EngineError;
use crate::shared::Shared;
use crate::table::indexes::is_unreadable;
use crate::table::{TableStore, View};
use crate::turn::Turn;

/// How often a search takes the view anew that a flush or a merge replaced meanwhile.
const VIEWS_MAX: usize = 8;

/// The most bytes of keys that are sorted for a range of values. Of a range with more all rows are read.
const SORTED_BYTES_MAX: usize = 8 << 20;

/// What an index is searched for. Values are those of the index's part: of entries they are what
/// [`entry_value`](crate::entry_value) returns.
#[derive(Clone, Copy, Debug)]
pub enum IndexedValues<'a> {
    /// One value.
    One(&'a [u8]),
    /// The values between two, both included; without one of them there is no limit. The thread must be one that may
    /// be blocked, because the places are sorted first.
    Between(Option<&'a [u8]>, Option<&'a [u8]>),
    /// A term of an index that changes text: what [`terms`](crate::terms) returns.
    Term(&'a [u8]),
    /// The terms that begin with such text. The thread must be one that may be blocked, as in the next two.
    Beginning(&'a [u8]),
    /// The terms that end with such text.
    Ending(&'a [u8]),
    /// The terms that contain such text.
    Containing(&'a [u8]),
}

/// The places of rows that had a value in some memtable or SSTable, in reading order, each once. The row may have
/// another value now, or be gone.
pub struct IndexCandidates {
    candidates: Candidates,
    indexer: Indexer,
    table: Arc<Table>,
    sstable_count: usize,
    /// For sorted places.
    _room: RowRoom,
}

impl IndexCandidates {
    /// The number of SSTables whose entries are searched.
    pub fn sstable_count(&self) -> usize {
        self.sstable_count
    }

    /// How many places are known to follow: all of them if there are few. A row may count several times.
    pub fn known_count(&self) -> usize {
        self.candidates.known_count()
    }

    /// The next place; `None` behind the last. Fails with [`EngineError::UnreadableIndex`] where a file cannot be read,
    /// and where it would have to wait for a device and may not.
    pub fn next_place(&mut self) -> Result<Option<Place>, EngineError> {
        let Some(key) = self.candidates.peek() else { return Ok(None) };
        let place = decode_place(self.indexer.clustering(), key).map_err(|error| {
            let file = format!("an index of {}.{}", self.table.keyspace, self.table.name);
            let got = error.got.map_or("the end".to_owned(), |got| format!("{got:02x}"));
            failure(Corruption::new(&file, error.offset as u64, error.expected, got).into())
        })?;
        self.candidates.advance().map_err(failure)?;
        Ok(Some(place))
    }
}

/// The places within `keys` that the index of the table has for some values; `None` if the index is not complete yet,
/// or has too many for a range of values.
pub(crate) fn candidates(
    shared: &Shared,
    table: &Arc<Table>,
    index: &Index,
    values: IndexedValues<'_>,
    keys: &KeyRange,
    turn: Turn<'_>,
) -> Result<Option<IndexCandidates>, EngineError> {
    let catalog = shared.catalog();
    let store = catalog.store(table)?;
    // Its types have all fields of the keys that were written so far.
    let current = store.table.load_full();
    let Some(indexer) = Indexer::of_index(&current, index) else { return Ok(None) };
    if table.index_key(index) != Some(indexer.key()) {
        return Ok(None);
    }
    let Some(Sources { sources, sstable_count }) = sources(store, indexer.key()) else {
        shared.files().index_requests().request();
        return Ok(None);
    };
    let mut room = RowRoom::default();
    let terms = match values {
        IndexedValues::One(value) => indexer.terms_of(value),
        IndexedValues::Term(term) => indexer.entries_of_term(term),
        IndexedValues::Between(first, last) => indexer.terms_between(first, last),
        IndexedValues::Beginning(text) => indexer.terms_that_begin(text),
        IndexedValues::Ending(text) => indexer.terms_that_contain(text, true),
        IndexedValues::Containing(text) => indexer.terms_that_contain(text, false),
    };
    if !matches!(values, IndexedValues::One(_) | IndexedValues::Term(_)) {
        debug_assert!(turn.may_block, "a thread that may not be blocked sorts no places");
        room.set_limit(turn.large_rows());
        if room.take(SORTED_BYTES_MAX).is_err() {
            return Ok(None);
        }
    }
    let bounds = KeyBounds::of(keys);
    let candidates = match Candidates::open(sources, &terms, &bounds, turn.may_block, SORTED_BYTES_MAX) {
        Err(error) if is_unreadable(&error) => {
            shared.files().index_requests().request();
            return Ok(None);
        }
        opened => opened?,
    };
    let table = table.clone();
    Ok(candidates.map(|candidates| IndexCandidates { candidates, indexer, table, sstable_count, _room: room }))
}

fn failure(error: SSTableError) -> EngineError {
    if is_unreadable(&error) { EngineError::UnreadableIndex(Arc::new(error)) } else { error.into() }
}

/// The entries of an index in all memtables and SSTables of a view.
struct Sources {
    sources: Vec<Box<dyn Source>>,
    sstable_count: usize,
}

/// The entries in the newest view; `None` if a memtable or an SSTable has no such index.
fn sources(store: &TableStore, key: IndexKey) -> Option<Sources> {
    for _ in 0..VIEWS_MAX {
        let view = store.view();
        if let Some(sources) = sources_of_view(store, &view, key) {
            return Some(sources);
        }
        // The indexes of an SSTable are forgotten once it is in the view no more.
        if Arc::ptr_eq(&view, &store.view()) {
            return None;
        }
    }
    None
}

fn sources_of_view(store: &TableStore, view: &View, key: IndexKey) -> Option<Sources> {
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    for generation in view.generations() {
        match generation.indexes.as_ref().and_then(|indexes| indexes.get(key)) {
            Some(memory) => sources.extend(memory.parts().into_iter().map(|part| Box::new(part) as Box<dyn Source>)),
            None if generation.memtable.is_empty() => {}
            None => return None,
        }
    }
    for sstable in &view.sstables {
        store.indexes.sources(sstable, key)?.iter().for_each(|source| source.add_to(&mut sources));
    }
    Some(Sources { sources, sstable_count: view.sstables.len() })
}

/// Whether every memtable and SSTable of the table has the index.
pub(crate) fn is_complete(store: &TableStore, key: IndexKey) -> bool {
    sources(store, key).is_some()
}
