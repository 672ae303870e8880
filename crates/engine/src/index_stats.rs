//! Statistics of secondary indexes.

use std::path::PathBuf;
use std::sync::Arc;

use model::{Index, Table};
use types::Token;

use crate::read;
use crate::shared::Shared;
use crate::table::TableStore;

/// Statistics of a secondary index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexStats {
    /// The table.
    pub table: Arc<Table>,
    /// The index.
    pub index: Index,
    /// Whether every memtable and SSTable of the table has it, so that SELECTs use it.
    pub is_complete: bool,
    /// The number of the table's SSTables.
    pub sstable_count: usize,
    /// Its files, by SSTable. SSTables whose files are not built yet have none.
    pub files: Vec<IndexFileStats>,
}

/// Statistics of the index file of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFileStats {
    /// The path of the SSTable's Data.db.
    pub sstable: PathBuf,
    /// The tokens of its first and its last partition.
    pub tokens: (Token, Token),
    /// The number of entries of each segment.
    pub segment_entry_counts: Vec<u64>,
    /// The size of the index file, bytes.
    pub size_bytes: u64,
}

/// Every index, by keyspace, table and name.
pub(crate) fn all_index_stats(shared: &Shared) -> Vec<IndexStats> {
    let stores = shared.stores();
    let mut all: Vec<IndexStats> = stores.iter().filter(|store| store.is_served()).flat_map(of_store).collect();
    let key = |stats: &IndexStats| (stats.table.keyspace.clone(), stats.table.name.clone(), stats.index.name.clone());
    all.sort_by_key(key);
    all
}

fn of_store(store: &Arc<TableStore>) -> Vec<IndexStats> {
    let table = store.table.load_full();
    table.indexes().iter().filter_map(|index| of_index(store, &table, index)).collect()
}

/// `None` if the table does not have the column.
fn of_index(store: &TableStore, table: &Arc<Table>, index: &Index) -> Option<IndexStats> {
    let key = table.index_key(index)?;
    let view = store.view();
    let file = |sstable: &Arc<sstable::SSTableReader>| {
        let file = store.indexes.own_file(sstable, key)?;
        Some(IndexFileStats {
            sstable: sstable.descriptor().path(sstable::Component::Data),
            tokens: (sstable.first_key().token(), sstable.last_key().token()),
            segment_entry_counts: file.segment_entry_counts(),
            size_bytes: file.size_bytes(),
        })
    };
    Some(IndexStats {
        table: table.clone(),
        index: index.clone(),
        is_complete: read::is_complete(store, key),
        sstable_count: view.sstables.len(),
        files: view.sstables.iter().filter_map(file).collect(),
    })
}
