//! Builds the index files of one SSTable, while its rows are written or from a scan of them.

use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use model::{IndexKey, IndexPart, PartitionHead, PartitionKey, RowRef, Table, Unfiltered, UnfilteredCursor};
use sstable::SSTableError;
use types::Similarity;

use crate::indexer::Indexer;
use crate::paged::{Origin, stopped};
use crate::vectors::{VectorOptions, VectorWriter};
use crate::writer::IndexWriter;

/// The number of rows between two checks of whether a build should continue.
const ROWS_PER_LOOK: u32 = 1024;

/// The name of the file with these entries, in the directory of its SSTable's indexes.
pub fn file_name(key: IndexKey) -> String {
    let part = match key.part {
        IndexPart::Whole => "",
        IndexPart::Values => "-values",
        IndexPart::Keys => "-keys",
        IndexPart::Entries => "-entries",
        IndexPart::Vectors(Similarity::Euclidean) => "-euclidean",
        IndexPart::Vectors(Similarity::DotProduct) => "-dot-product",
        IndexPart::Vectors(Similarity::Cosine) => "-cosine",
    };
    let analysis = if key.analysis.is_none() { String::new() } else { format!("-{}", key.analysis) };
    format!("{}{part}{analysis}.db", key.column.0)
}

/// Takes the rows of an SSTable and writes its index files, one for each index. For each index it holds about 32 MiB of
/// entries in memory, and several times as much for vectors; further entries are written to a temporary file. If it is
/// dropped, incomplete files are removed.
pub struct IndexBuilder<'i> {
    parts: Vec<(&'i Indexer, PartWriter)>,
    /// Whether the build should continue. Once this has returned false, the build fails soon.
    goes_on: Box<dyn FnMut() -> bool + 'i>,
    /// The position of the partition, if it is known and may be used.
    position: Option<u64>,
    /// A buffer for an entry.
    entry: Vec<u8>,
}

enum PartWriter {
    Entries(Box<IndexWriter>),
    Vectors(Box<VectorWriter>),
}

impl PartWriter {
    fn create(disk: &Arc<dyn Disk>, path: &Path, part: IndexPart) -> Result<PartWriter, SSTableError> {
        Ok(match part.similarity() {
            None => PartWriter::Entries(Box::new(IndexWriter::create(disk, path)?)),
            Some(similarity) => {
                let writer = VectorWriter::create(disk, path, similarity, VectorOptions::default())?;
                PartWriter::Vectors(Box::new(writer))
            }
        })
    }

    fn add(
        &mut self,
        entry: &[u8],
        term_length: usize,
        position: Option<u64>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SSTableError> {
        match self {
            PartWriter::Entries(writer) => writer.add(entry, term_length, position),
            PartWriter::Vectors(writer) => writer.add(entry, term_length, goes_on),
        }
    }
}

impl<'i> IndexBuilder<'i> {
    /// Starts the files of these indexes in a directory that exists. An existing file is replaced when the new one is
    /// complete. `goes_on` is called from time to time, and may return false to stop the build.
    pub fn create(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        indexers: impl IntoIterator<Item = &'i Indexer>,
        goes_on: impl FnMut() -> bool + 'i,
    ) -> Result<IndexBuilder<'i>, SSTableError> {
        let start = |indexer: &'i Indexer| {
            let path = directory.join(file_name(indexer.key()));
            Ok((indexer, PartWriter::create(disk, &path, indexer.key().part)?))
        };
        let parts = indexers.into_iter().map(start).collect::<Result<_, SSTableError>>()?;
        Ok(IndexBuilder { parts, goes_on: Box::new(goes_on), position: None, entry: Vec::new() })
    }

    /// Takes the next partition. Its rows follow.
    pub fn partition(&mut self, table: &Table, head: PartitionHead<'_>) -> Result<(), SSTableError> {
        let PartitionHead { key, static_row, .. } = head;
        self.parts.iter_mut().try_for_each(|(indexer, writer)| {
            let mut added = Ok(());
            indexer.of_partition(table, key, static_row, &mut self.entry, |entry, term_length| {
                added = writer.add(entry, term_length, self.position, &mut self.goes_on);
            });
            added
        })
    }

    /// Takes the next row of the partition with this key.
    pub fn row(&mut self, table: &Table, key: &PartitionKey, row: RowRef<'_>) -> Result<(), SSTableError> {
        self.parts.iter_mut().try_for_each(|(indexer, writer)| {
            let mut added = Ok(());
            indexer.of_row(table, key, row, &mut self.entry, |entry, term_length| {
                added = writer.add(entry, term_length, self.position, &mut self.goes_on);
            });
            added
        })
    }

    /// Takes all rows of a cursor at its beginning. The entries have the positions of their partitions if the cursor
    /// reads the SSTable and its table has no clustering: only then does a position lead to a row.
    pub fn scan(&mut self, cursor: &mut dyn UnfilteredCursor) -> Result<(), SSTableError> {
        let table = cursor.table().clone();
        while cursor.advance_partition()? {
            let key = cursor.partition().key.clone();
            self.position = cursor.data_position().filter(|_| table.clustering().is_empty());
            self.partition(&table, cursor.partition())?;
            let mut rows: u32 = 0;
            while cursor.advance()? {
                if let Unfiltered::Row(row) = cursor.unfiltered() {
                    self.row(&table, &key, row)?;
                }
                rows = rows.wrapping_add(1);
                if rows.is_multiple_of(ROWS_PER_LOOK) {
                    self.look()?;
                }
            }
            self.look()?;
        }
        Ok(())
    }

    /// Fails if the build should not go on.
    fn look(&mut self) -> Result<(), SSTableError> {
        if (self.goes_on)() { Ok(()) } else { Err(stopped()) }
    }

    /// Completes the files and makes their contents durable. The caller syncs the directory.
    pub fn finish(mut self, origin: &Origin) -> Result<(), SSTableError> {
        self.parts.into_iter().try_for_each(|(indexer, writer)| match writer {
            PartWriter::Entries(writer) => writer.finish(indexer.key(), origin, &mut self.goes_on),
            PartWriter::Vectors(writer) => writer.finish(indexer.key(), origin, &mut self.goes_on),
        })
    }
}
