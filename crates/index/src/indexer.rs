//! Makes the entries of rows, from an update that is applied to a memtable or from a cursor over an SSTable.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Add;
use std::sync::Arc;

use bytecomp::separator::{EXCLUDED, TERMINATOR};
use bytecomp::{ClusteringColumnType, encode_decorated_key, encode_serialized_clustering};
use model::{
    Analysis, Cell, Clusterings, Column, ColumnData, ColumnKind, Index, IndexKey, IndexPart, PartitionKey,
    PartitionUpdate, Row, RowRef, Table,
};
use types::{CqlType, collection};

use crate::entry::{TermRange, clustering_types, push_term};
use crate::text::{analysed, cut_suffix, cut_suffixes, each_term};

/// Makes the entries of one index. Thread-safe.
///
/// A regular or clustering column has an entry for each row. A static column, or a column of the partition key, has one
/// for each partition. A collection that is not frozen has one for each of its values, keys or entries. Deleted cells
/// have no entry. Expired cells have one, because an indexer has no clock. The entry of a vector begins with the
/// serialized vector.
#[derive(Debug)]
pub struct Indexer {
    column: Arc<Column>,
    part: IndexPart,
    analysis: Analysis,
    /// The type of the indexed values.
    value_type: CqlType,
    key_columns: usize,
    clustering: Vec<ClusteringColumnType>,
}

impl Indexer {
    /// An indexer of a part of a column, without changes of its values. The column is not a counter. If the part is of
    /// a collection's elements, the collection is not frozen.
    pub fn new(table: &Table, column: &Arc<Column>, part: IndexPart) -> Indexer {
        Indexer::with_analysis(table, column, part, Analysis::NONE)
    }

    /// The indexer of an index; `None` if the table does not have the column of the index.
    pub fn of_index(table: &Table, index: &Index) -> Option<Indexer> {
        let column = table.column(&index.column)?;
        Some(Indexer::with_analysis(table, column, index.part, index.analysis(&column.ty)))
    }

    /// As [`new`](Self::new), for text that is changed by this analysis.
    pub fn with_analysis(table: &Table, column: &Arc<Column>, part: IndexPart, analysis: Analysis) -> Indexer {
        debug_assert_eq!(column.is_complex(), part.is_of_collection(), "only collections of many cells have parts");
        Indexer {
            column: column.clone(),
            part,
            analysis,
            value_type: part.value_type(&column.ty),
            key_columns: table.partition_key().len(),
            clustering: clustering_types(table),
        }
    }

    /// The column, its indexed part, and the analysis.
    pub fn key(&self) -> IndexKey {
        IndexKey { column: self.column.id, part: self.part, analysis: self.analysis }
    }

    /// The entries of an indexed value.
    pub fn terms_of(&self, value: &[u8]) -> TermRange {
        TermRange::equal(&self.value_type, &analysed(self.analysis, value))
    }

    /// The entries of this term, which is text that was analyzed already.
    pub fn entries_of_term(&self, term: &[u8]) -> TermRange {
        TermRange::equal(&self.value_type, term)
    }

    /// The entries of the terms that begin with this text, which was analyzed already.
    pub fn terms_that_begin(&self, text: &[u8]) -> TermRange {
        TermRange::beginning(&self.value_type, text)
    }

    /// The entries of the terms that contain this text, or end with it if `at_the_end` is true, and of some other
    /// terms. The text was analyzed already. The index must have suffixes.
    pub fn terms_that_contain(&self, text: &[u8], at_the_end: bool) -> TermRange {
        debug_assert!(self.analysis.has_suffixes, "only suffixes show what a term contains");
        let cut = std::str::from_utf8(text).map_or(text, |text| cut_suffix(text).as_bytes());
        match at_the_end && cut.len() == text.len() {
            true => TermRange::equal(&self.value_type, text),
            false => TermRange::beginning(&self.value_type, cut),
        }
    }

    /// The entries of the indexed values between two, both included. A missing bound is no limit.
    pub fn terms_between(&self, first: Option<&[u8]>, last: Option<&[u8]>) -> TermRange {
        TermRange::between(&self.value_type, first, last)
    }

    /// Whether its entries name rows, and not whole partitions.
    pub fn is_of_rows(&self) -> bool {
        matches!(self.column.kind, ColumnKind::Clustering | ColumnKind::Regular)
    }

    /// The types of the clustering columns, with which the keys of candidates are decoded.
    pub fn clustering(&self) -> &[ClusteringColumnType] {
        &self.clustering
    }

    /// Passes the entries of an update to `put`, with the lengths of their terms. `entry` is a buffer for them.
    pub fn of_update(&self, update: &PartitionUpdate, entry: &mut Vec<u8>, mut put: impl FnMut(&[u8], usize)) {
        let (table, key) = (update.table(), update.key());
        match self.column.kind {
            ColumnKind::PartitionKey | ColumnKind::Static => {
                if update.row_count() > 0 || update.static_row().is_some() {
                    self.of_partition(table, key, update.static_row(), entry, put);
                }
            }
            ColumnKind::Clustering | ColumnKind::Regular => {
                update.rows().for_each(|row| self.of_row(table, key, row, entry, &mut put));
            }
        }
    }

    /// Passes the entries of a partition to `put`. The static row was written under `table` or an older version of it.
    pub fn of_partition(
        &self,
        table: &Table,
        key: &PartitionKey,
        static_row: Option<Row<'_>>,
        entry: &mut Vec<u8>,
        mut put: impl FnMut(&[u8], usize),
    ) {
        self.partition_values(table, key, static_row, &mut |value| {
            self.each_term(value, &mut |term| {
                let term_length = self.begin(term, key, entry);
                entry.push(EXCLUDED);
                put(entry, term_length);
            });
        });
    }

    /// Passes the entries of a row to `put`.
    pub fn of_row(
        &self,
        table: &Table,
        key: &PartitionKey,
        row: RowRef<'_>,
        entry: &mut Vec<u8>,
        mut put: impl FnMut(&[u8], usize),
    ) {
        self.row_values(table, row, &mut |value| {
            self.each_term(value, &mut |term| {
                let term_length = self.begin(term, key, entry);
                encode_serialized_clustering(&self.clustering, row.clustering, TERMINATOR, entry);
                put(entry, term_length);
            });
        });
    }

    /// The growth of an empty index by an update. It may be many times the update's own size, because an entry contains
    /// the whole primary key of its row, and one row may have many entries. Counting ends above `size_bytes_max`.
    pub fn growth(&self, update: &PartitionUpdate, size_bytes_max: u64) -> IndexGrowth {
        let (table, key_bytes) = (update.table(), update.key().bytes().len());
        let mut counted = CountedEntries { growth: IndexGrowth::default(), size_bytes_max, terms: HashSet::new() };
        match self.column.kind {
            ColumnKind::PartitionKey | ColumnKind::Static => {
                self.partition_values(table, update.key(), update.static_row(), &mut |value| {
                    self.each_term(value, &mut |term| counted.add(term, key_bytes));
                });
            }
            ColumnKind::Clustering | ColumnKind::Regular => update.rows().for_each(|row| {
                let place_bytes = key_bytes + row.clustering.len();
                counted.terms.clear();
                self.row_values(table, row, &mut |value| {
                    self.each_term(value, &mut |term| counted.add(term, place_bytes));
                });
            }),
        }
        counted.growth
    }

    /// Passes the terms of a value to `take`.
    fn each_term(&self, value: &[u8], take: &mut dyn FnMut(&[u8])) {
        let analysis = self.analysis;
        if !analysis.divides() && !analysis.has_suffixes {
            return take(&analysed(analysis, value));
        }
        let Ok(text) = std::str::from_utf8(value) else { return };
        for term in each_term(analysis, text) {
            take(term.as_bytes());
            if analysis.has_suffixes {
                cut_suffixes(&term).for_each(|suffix| take(suffix.as_bytes()));
            }
        }
    }

    /// Passes the indexed values of an update to `take`, after the analysis.
    pub fn values_of_update(&self, update: &PartitionUpdate, take: &mut dyn FnMut(&[u8])) {
        let mut take = |value: &[u8]| take(&analysed(self.analysis, value));
        if update.row_count() > 0 || update.static_row().is_some() {
            self.partition_values(update.table(), update.key(), update.static_row(), &mut take);
        }
        update.rows().for_each(|row| match self.column.kind {
            // Deleted rows count too, as in Cassandra.
            ColumnKind::Clustering => self.clustering_value(row).into_iter().for_each(&mut take),
            _ => self.row_values(update.table(), row, &mut take),
        });
    }

    fn clustering_value<'r>(&self, row: RowRef<'r>) -> Option<&'r [u8]> {
        Clusterings(row.clustering).nth(self.column.position as usize).flatten()
    }

    /// Passes the values of a partition to `take`, if the column belongs to partitions.
    fn partition_values(
        &self,
        table: &Table,
        key: &PartitionKey,
        static_row: Option<Row<'_>>,
        take: &mut dyn FnMut(&[u8]),
    ) {
        match self.column.kind {
            ColumnKind::PartitionKey => {
                let value = key.parts(self.key_columns).get(self.column.position as usize).copied();
                value.into_iter().for_each(take);
            }
            ColumnKind::Static => static_row.iter().for_each(|row| self.values(table, *row, take)),
            ColumnKind::Clustering | ColumnKind::Regular => {}
        }
    }

    /// Passes the values of a row to `take`, if the column belongs to rows.
    fn row_values(&self, table: &Table, row: RowRef<'_>, take: &mut dyn FnMut(&[u8])) {
        match self.column.kind {
            // With the epoch as the current time, every cell is live that was not written as a deletion.
            ColumnKind::Clustering if row.row.is_live(table, 0) => {
                self.clustering_value(row).into_iter().for_each(take);
            }
            ColumnKind::Regular => self.values(table, row.row, take),
            _ => {}
        }
    }

    /// Passes the indexed values of a row to `put`.
    fn values(&self, table: &Table, row: Row<'_>, put: &mut dyn FnMut(&[u8])) {
        let columns = &table.columns(self.column.kind == ColumnKind::Static).columns;
        let is_indexed = |index: usize| columns.get(index).is_some_and(|own| own.id == self.column.id);
        match row.columns(table).find(|(index, _)| is_indexed(*index)) {
            Some((_, ColumnData::Simple(cell))) if !cell.is_tombstone() => put(cell.value),
            Some((_, ColumnData::Complex(cells))) => {
                cells.filter(|cell| !cell.is_tombstone()).for_each(|cell| self.part_of(&cell, put));
            }
            _ => {}
        }
    }

    /// Passes the indexed part of an element to `put`.
    fn part_of(&self, cell: &Cell<'_>, put: &mut dyn FnMut(&[u8])) {
        match (self.part, &self.column.ty) {
            (IndexPart::Keys, _) | (IndexPart::Values, CqlType::Set { .. }) => put(cell.path),
            (IndexPart::Entries, _) => put(&entry_value(cell.path, cell.value)),
            _ => put(cell.value),
        }
    }

    /// Writes the term and the partition's position. Returns the length of the term. The term of a vector is the vector
    /// itself, because vectors are not searched by order.
    fn begin(&self, value: &[u8], key: &PartitionKey, entry: &mut Vec<u8>) -> usize {
        entry.clear();
        match self.part {
            IndexPart::Vectors(_) => entry.extend_from_slice(value),
            _ => push_term(&self.value_type, value, entry),
        }
        let term_length = entry.len();
        encode_decorated_key(key.token(), key.bytes(), entry);
        term_length
    }
}

/// The growth of indexes by a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexGrowth {
    /// The number of entries, some of which may exist already.
    pub entries: u64,
    /// An estimate of their memory.
    pub size_bytes: u64,
}

impl Add for IndexGrowth {
    type Output = IndexGrowth;

    fn add(self, other: IndexGrowth) -> IndexGrowth {
        IndexGrowth {
            entries: self.entries.saturating_add(other.entries),
            size_bytes: self.size_bytes.saturating_add(other.size_bytes),
        }
    }
}

/// The entries of an update that have been counted so far.
struct CountedEntries {
    growth: IndexGrowth,
    size_bytes_max: u64,
    /// Hashes of the terms of the current row, so that a repeated term counts once.
    terms: HashSet<u64>,
}

impl CountedEntries {
    /// The bytes of an entry in memory in addition to its term and its key.
    const ENTRY_BYTES: usize = 64;

    /// Adds the entry of a term with a key of this size, unless the limit was reached.
    fn add(&mut self, term: &[u8], place_bytes: usize) {
        if self.growth.size_bytes <= self.size_bytes_max && self.terms.insert(hash(term)) {
            let size_bytes = (term.len() + place_bytes + CountedEntries::ENTRY_BYTES) as u64;
            self.growth = self.growth + IndexGrowth { entries: 1, size_bytes };
        }
    }
}

fn hash(term: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    term.hash(&mut hasher);
    hasher.finish()
}

/// The indexed value of an entry of a map: a tuple.
pub fn entry_value(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut tuple = Vec::with_capacity(8 + key.len() + value.len());
    [key, value].into_iter().for_each(|part| collection::write_part(Some(part), &mut tuple));
    tuple
}
