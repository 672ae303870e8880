//! Builds the index files of one SSTable: while its rows are written, or from a scan of them.

use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use model::{IndexKey, IndexPart, PartitionHead, PartitionKey, RowRef, Table, Unfiltered, UnfilteredCursor};
use sstable::SSTableError;

use crate::file::Origin;
use crate::indexer::Indexer;
use crate::writer::IndexWriter;

/// The name of the file with these entries, in the directory of its SSTable's indexes.
pub fn file_name(key: IndexKey) -> String {
    let part = match key.part {
        IndexPart::Whole => "",
        IndexPart::Values => "-values",
        IndexPart::Keys => "-keys",
        IndexPart::Entries => "-entries",
    };
    let analysis = if key.analysis.is_none() { String::new() } else { format!("-{}", key.analysis) };
    format!("{}{part}{analysis}.db", key.column.0)
}

/// Takes the rows of an SSTable and writes its index files, one for each index. It holds about 32 MiB of
/// entries for each of them. The files that are not complete are removed if this is dropped.
pub struct IndexBuilder<'i> {
    parts: Vec<(&'i Indexer, IndexWriter)>,
    /// A buffer for an entry.
    entry: Vec<u8>,
}

impl<'i> IndexBuilder<'i> {
    /// Starts the files of these indexes in a directory that exists. A file that is there is replaced when the new one
    /// is complete.
    pub fn create(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        indexers: impl IntoIterator<Item = &'i Indexer>,
    ) -> Result<IndexBuilder<'i>, SSTableError> {
        let start = |indexer: &'i Indexer| {
            let path = directory.join(file_name(indexer.key()));
            Ok((indexer, IndexWriter::create(disk, &path)?))
        };
        let parts = indexers.into_iter().map(start).collect::<Result<_, SSTableError>>()?;
        Ok(IndexBuilder { parts, entry: Vec::new() })
    }

    /// Takes the next partition. Its rows follow.
    pub fn partition(&mut self, table: &Table, head: PartitionHead<'_>) -> Result<(), SSTableError> {
        let PartitionHead { key, static_row, .. } = head;
        self.parts.iter_mut().try_for_each(|(indexer, writer)| {
            let mut added = Ok(());
            indexer.of_partition(table, key, static_row, &mut self.entry, |entry, term_length| {
                added = writer.add(entry, term_length);
            });
            added
        })
    }

    /// Takes the next row of the partition with this key.
    pub fn row(&mut self, table: &Table, key: &PartitionKey, row: RowRef<'_>) -> Result<(), SSTableError> {
        self.parts.iter_mut().try_for_each(|(indexer, writer)| {
            let mut added = Ok(());
            indexer.of_row(table, key, row, &mut self.entry, |entry, term_length| {
                added = writer.add(entry, term_length);
            });
            added
        })
    }

    /// Takes all rows of a cursor that has not begun. `go_on` is called after each partition, and may fail to stop it.
    pub fn scan(
        &mut self,
        cursor: &mut dyn UnfilteredCursor,
        mut go_on: impl FnMut() -> Result<(), SSTableError>,
    ) -> Result<(), SSTableError> {
        let table = cursor.table().clone();
        while cursor.advance_partition()? {
            let key = cursor.partition().key.clone();
            self.partition(&table, cursor.partition())?;
            while cursor.advance()? {
                if let Unfiltered::Row(row) = cursor.unfiltered() {
                    self.row(&table, &key, row)?;
                }
            }
            go_on()?;
        }
        Ok(())
    }

    /// Completes the files, durably but for their names: the caller syncs the directory.
    pub fn finish(self, origin: &Origin) -> Result<(), SSTableError> {
        self.parts.into_iter().try_for_each(|(indexer, writer)| writer.finish(indexer.key(), origin))
    }
}
