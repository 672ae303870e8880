//! The rows that may have a value, by a secondary index.

use std::sync::Arc;

use index::{Candidates, DecodeError, Indexer, KeyBounds, MemoryIndex, RowKey, TermRange, decode_row_key};
use model::{Index, IndexKey, KeyRange, RowReservation, Table};
use sstable::{Corruption, SSTableError};
use types::CqlType;

use crate::error::EngineError;
use crate::shared::Shared;
use crate::table::indexes::{IndexSource, is_unreadable};
use crate::table::{TableStore, View};
use crate::turn::Turn;

/// The number of attempts of a search whose view a flush or a merge replaces meanwhile.
const VIEWS_MAX: usize = 8;

/// The most bytes of keys that are sorted for a range of values. For a range with more, all rows are read.
const SORTED_BYTES_MAX: usize = 8 << 20;

/// The values or terms that an index is searched for. Values are those of the indexed part of a column; those of map
/// entries are made by [`entry_value`](crate::entry_value).
#[derive(Clone, Copy, Debug)]
pub enum IndexedValues<'a> {
    /// One value.
    One(&'a [u8]),
    /// The values between two, inclusive; `None` means no limit. The keys are sorted first. If they are more than a
    /// few, the thread must be one that may be blocked.
    Between(Option<&'a [u8]>, Option<&'a [u8]>),
    /// A term of an index that analyzes text, as [`terms`](crate::terms) returns it.
    Term(&'a [u8]),
    /// The terms that begin with this text. The keys are sorted first, as for the next two.
    Beginning(&'a [u8]),
    /// The terms that end with this text.
    Ending(&'a [u8]),
    /// The terms that contain this text.
    Containing(&'a [u8]),
}

impl IndexedValues<'_> {
    /// The entries of the values.
    fn terms(&self, indexer: &Indexer) -> TermRange {
        match self {
            IndexedValues::One(value) => indexer.terms_of(value),
            IndexedValues::Term(term) => indexer.entries_of_term(term),
            IndexedValues::Between(first, last) => indexer.terms_between(*first, *last),
            IndexedValues::Beginning(text) => indexer.terms_that_begin(text),
            IndexedValues::Ending(text) => indexer.terms_that_contain(text, true),
            IndexedValues::Containing(text) => indexer.terms_that_contain(text, false),
        }
    }
}

/// The keys of rows that had a value in some memtable or SSTable, in reading order, each once. The row may have another
/// value now, or be gone.
pub struct IndexCandidates {
    candidates: Candidates,
    indexer: Arc<Indexer>,
    table: Arc<Table>,
    sstable_count: usize,
    /// A buffer for a key.
    buffer: Vec<u8>,
    /// Candidates of other indexes. A key must be in all of them.
    others: Vec<Other>,
    /// The memory of sorted keys.
    _reservation: RowReservation,
}

/// Candidates of another index.
struct Other {
    candidates: Candidates,
    /// The cost that may still be spent on reading them, which grows with what they save. Once it is used up, they are
    /// ignored: the caller tests the rows in any case.
    credit: i64,
    _reservation: RowReservation,
}

/// The result of looking up a key in other indexes.
enum Comparison {
    /// All of them have it.
    AllHaveNext,
    /// One does not have it. The next key is now one that this index may have.
    IsLeftOut,
    /// One has neither this key nor a later one.
    NoneHasMore,
}

/// The cost that a search in another index may have before it has saved anything: two batches.
const CREDIT: i64 = 1024;
/// The cost of reading a batch of entries, if skipping a key costs one. As measured (bench/notes/indexes.md), it equals
/// that of about 40 rows.
const BATCH_COST: i64 = 512;
/// The cost saved by a row that need not be read.
const ROW_COST: i64 = 12;

/// The steps of work that a part of a search in two indexes together counts as, which takes about a tenth of a
/// millisecond.
const WAITING_STEPS: u64 = 256;

impl IndexCandidates {
    /// The number of SSTables whose entries are searched.
    pub fn sstable_count(&self) -> usize {
        self.sstable_count
    }

    /// The number of keys that are known to follow: all of them if there are few. A row may count several times.
    pub fn known_count(&self) -> usize {
        self.candidates.known_count()
    }

    /// About how many keys follow. A row may count several times.
    pub fn estimated_count(&self) -> usize {
        self.candidates.estimated_count()
    }

    /// Whether the index says where an SSTable probably has the partition of the next key.
    pub fn has_hint(&self) -> bool {
        self.candidates.hint().is_some()
    }

    /// Leaves out keys that another index of the table does not have. Does nothing if one of them has entries of rows
    /// and the other of partitions, or if a clustering can have entries of different bytes, because a user type in it
    /// got a field.
    pub fn retain_those_of(&mut self, other: IndexCandidates) {
        debug_assert!(!other.candidates.is_waiting(), "the other's next key is known");
        if !has_altered_keys(&self.table) && self.indexer.is_of_rows() == other.indexer.is_of_rows() {
            self.others.push(Other { candidates: other.candidates, credit: CREDIT, _reservation: other._reservation });
        }
    }

    /// The next key; `None` at the end. `work` is called with the steps of the search, and may fail. Fails with
    /// [`EngineError::UnreadableIndex`] if a file cannot be read, and if it would have to wait for a device and may
    /// not.
    pub fn next_key<E: From<EngineError>>(
        &mut self,
        mut work: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Option<RowKey>, E> {
        loop {
            while self.candidates.is_waiting() {
                work(WAITING_STEPS)?;
                self.candidates.read_on();
            }
            if self.others.is_empty() {
                break;
            }
            match self.compare_with_others().map_err(failure)? {
                Comparison::AllHaveNext => break,
                Comparison::NoneHasMore => return Ok(None),
                Comparison::IsLeftOut => work(1)?,
            }
        }
        Ok(self.take_next()?)
    }

    /// Looks up the next key in the other indexes, as far as they are still used.
    fn compare_with_others(&mut self) -> Result<Comparison, SSTableError> {
        let Some(key) = self.candidates.peek() else { return Ok(Comparison::AllHaveNext) };
        let mut comparison = Comparison::AllHaveNext;
        for other in &mut self.others {
            other.credit -= 1 + other.candidates.advance_to(key)? as i64 * BATCH_COST;
            match other.candidates.peek() {
                Some(found) if found == key => {}
                Some(greater) => {
                    other.credit += ROW_COST;
                    self.candidates.advance_to(greater)?;
                    comparison = Comparison::IsLeftOut;
                    break;
                }
                None => return Ok(Comparison::NoneHasMore),
            }
        }
        self.others.retain(|other| other.credit > 0);
        Ok(comparison)
    }

    fn take_next(&mut self) -> Result<Option<RowKey>, EngineError> {
        let Some(key) = self.candidates.peek() else { return Ok(None) };
        let decoded = decode_row_key(self.indexer.clustering(), key, &mut self.buffer);
        let mut row_key = decoded.map_err(|error| undecodable(&self.table, &error))?;
        row_key.hint = self.candidates.hint();
        self.candidates.advance().map_err(failure)?;
        Ok(Some(row_key))
    }
}

/// The rows within `keys` that the index of the table has for some values; `None` if the index is not complete yet, or
/// has too many for a range of values (on a thread that may not be blocked, more than a few).
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
    let Some(indexer) = indexer_of(store, table, index) else { return Ok(None) };
    let Some(found) = sources(store, indexer.key()) else {
        shared.files().index_requests().request();
        return Ok(None);
    };
    let mut sources = Vec::new();
    found.sources.iter().for_each(|source| source.add_to(&mut sources));
    let mut reservation = RowReservation::default();
    let terms = values.terms(&indexer);
    // The few keys that are sorted otherwise take little memory.
    if turn.may_block && !matches!(values, IndexedValues::One(_) | IndexedValues::Term(_)) {
        reservation.set_limit(turn.large_rows());
        if reservation.take(SORTED_BYTES_MAX).is_err() {
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
    Ok(candidates.map(|candidates| IndexCandidates {
        candidates,
        indexer,
        table,
        sstable_count: found.sstable_count,
        buffer: Vec::new(),
        others: Vec::new(),
        _reservation: reservation,
    }))
}

/// The rows within `keys` that two indexes of the table have, each for its value. `None` unless all rows are in one
/// memtable, where they are found without reading all entries of one index.
pub(crate) fn common_candidates(
    shared: &Shared,
    table: &Arc<Table>,
    sought: [(&Index, IndexedValues<'_>); 2],
    keys: &KeyRange,
) -> Result<Option<IndexCandidates>, EngineError> {
    let catalog = shared.catalog();
    let store = catalog.store(table)?;
    let indexers = sought.map(|(index, _)| indexer_of(store, table, index));
    let [Some(one), Some(other)] = indexers else { return Ok(None) };
    if one.is_of_rows() != other.is_of_rows() || has_altered_keys(table) {
        return Ok(None);
    }
    let Some(memory) = only_memory(&store.view(), [one.key(), other.key()]) else { return Ok(None) };
    let terms = [sought[0].1.terms(&one), sought[1].1.terms(&other)];
    let candidates = Candidates::of_two(memory, terms.each_ref(), &KeyBounds::of(keys));
    let table = table.clone();
    Ok(candidates.map(|candidates| IndexCandidates {
        candidates,
        indexer: one,
        table,
        sstable_count: 0,
        buffer: Vec::new(),
        others: Vec::new(),
        _reservation: RowReservation::default(),
    }))
}

/// The entries of two indexes, if one memtable has all rows of the view.
fn only_memory(view: &View, keys: [IndexKey; 2]) -> Option<[Arc<MemoryIndex>; 2]> {
    let mut generations = view.generations().filter(|generation| !generation.memtable.is_empty());
    let only = generations.next().filter(|_| view.sstables.is_empty())?;
    if generations.next().is_some() {
        return None;
    }
    let indexes = only.indexes.as_ref()?;
    let entries = |key| indexes.get(key)?.entries();
    Some([entries(keys[0])?, entries(keys[1])?])
}

/// Makes the entries of an index that `table`, the caller's version of the table, has. The types of the newest version
/// have all fields of the keys that were written so far.
fn indexer_of(store: &TableStore, table: &Arc<Table>, index: &Index) -> Option<Arc<Indexer>> {
    let newest = store.table.load();
    if Arc::ptr_eq(&newest, table) {
        return store.indexers.of(table, index);
    }
    let indexer = Indexer::of_index(&newest, index)?;
    (table.index_key(index) == Some(indexer.key())).then(|| Arc::new(indexer))
}

/// Whether the clustering of one row may have entries of different bytes, because a user type in it may have got a
/// field.
fn has_altered_keys(table: &Table) -> bool {
    let is_user_type = |ty: &CqlType| matches!(ty, CqlType::Udt { .. });
    table.clustering().iter().any(|column| column.ty.any(&is_user_type))
}

pub(super) fn failure(error: SSTableError) -> EngineError {
    if is_unreadable(&error) { EngineError::UnreadableIndex(Arc::new(error)) } else { error.into() }
}

/// The error of an invalid key in an index of the table.
pub(super) fn undecodable(table: &Table, error: &DecodeError) -> EngineError {
    let file = format!("an index of {}.{}", table.keyspace, table.name);
    let got = error.got.map_or("the end".to_owned(), |got| format!("{got:02x}"));
    failure(Corruption::new(&file, error.offset as u64, error.expected, got).into())
}

/// The entries of an index in all memtables and SSTables of a view.
pub(super) struct Sources {
    pub sources: Vec<IndexSource>,
    pub sstable_count: usize,
}

/// The entries in the newest view; `None` if a memtable or an SSTable has no such index.
pub(super) fn sources(store: &TableStore, key: IndexKey) -> Option<Sources> {
    for _ in 0..VIEWS_MAX {
        let view = store.view();
        if let Some(sources) = sources_of_view(store, &view, key) {
            return Some(sources);
        }
        // The indexes of an SSTable are forgotten once it has left the view.
        if Arc::ptr_eq(&view, &store.view()) {
            return None;
        }
    }
    None
}

fn sources_of_view(store: &TableStore, view: &View, key: IndexKey) -> Option<Sources> {
    let mut sources = Vec::new();
    for generation in view.generations() {
        match generation.indexes.as_ref().and_then(|indexes| indexes.get(key)) {
            Some(memory) => sources.push(IndexSource::Memory(memory.clone())),
            None if generation.memtable.is_empty() => {}
            None => return None,
        }
    }
    for sstable in &view.sstables {
        sources.extend(store.indexes.sources(sstable, key)?);
    }
    Some(Sources { sources, sstable_count: view.sstables.len() })
}

/// Whether every memtable and SSTable of the table has the index.
pub(crate) fn is_complete(store: &TableStore, key: IndexKey) -> bool {
    sources(store, key).is_some()
}
