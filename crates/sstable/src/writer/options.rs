//! The options of a writer.

use model::{LargeRowLimit, Table};
use types::{CqlType, MarshalClass};
use uuid::Uuid;

use super::sizes::SizeWatch;
use crate::compression::CompressionParams;
use crate::error::SSTableError;
use crate::stats::{CommitLogPosition, EncodingBase, HeaderColumn, SerializationHeader};

/// Cassandra's `column_index_size` for BTI tables where unset, 16 KiB.
pub const COLUMN_INDEX_SIZE_DEFAULT: u64 = 16 * 1024;

/// Options of a writer.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// How many partitions to expect; sizes the Bloom filter.
    pub estimated_partitions: u64,
    /// The bases of stored timestamps, deletion times and TTLs: ideally the least of each.
    pub base: EncodingBase,
    /// Indexes, ascending, of the table's static columns that the header lists.
    pub statics: Vec<usize>,
    /// Indexes, ascending, of the table's regular columns that the header lists.
    pub regulars: Vec<usize>,
    /// Uncompressed bytes of rows per block of the row index.
    pub column_index_size_bytes: u64,
    /// The compression of Data.db; `None` for none.
    pub compression: Option<CompressionParams>,
    /// Whether writes of Data.db bypass the kernel's page cache, where it allows that.
    pub past_page_cache: bool,
    /// The part of the commit log that the table covers, (start, end].
    pub commit_log_intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// The node whose commit log that is.
    pub originating_host_id: Option<Uuid>,
    /// Milliseconds, 0 = unrepaired.
    pub repaired_at: i64,
    /// Level under LeveledCompactionStrategy.
    pub sstable_level: i32,
    /// Whether the table may contain counter shards from before Cassandra 2.1.
    pub has_legacy_counter_shards: bool,
    /// Reports partitions and collections that are larger than they should be.
    pub size_watch: Option<SizeWatch>,
    /// Counts the copies of large rows.
    pub large_rows: LargeRowLimit,
}

impl WriterOptions {
    /// The options of a table, with every column in the header.
    pub fn for_table(table: &Table) -> Result<Self, SSTableError> {
        Ok(WriterOptions {
            estimated_partitions: 1,
            base: EncodingBase::default(),
            statics: (0..table.statics().columns.len()).collect(),
            regulars: (0..table.regulars().columns.len()).collect(),
            column_index_size_bytes: COLUMN_INDEX_SIZE_DEFAULT,
            compression: CompressionParams::from_options(&table.options.compression)?,
            past_page_cache: true,
            commit_log_intervals: Vec::new(),
            originating_host_id: None,
            repaired_at: 0,
            sstable_level: 0,
            has_legacy_counter_shards: false,
            size_watch: None,
            large_rows: LargeRowLimit::None,
        })
    }

    /// The serialization header of a table written with these options.
    pub(crate) fn header(&self, table: &Table) -> SerializationHeader {
        let key_types: Vec<CqlType> = table.partition_key().iter().map(|column| column.ty.clone()).collect();
        let key_class = match <[CqlType; 1]>::try_from(key_types) {
            Ok([only]) => only.to_marshal_class(),
            Err(several) => MarshalClass::Composite(several).name(),
        };
        let clustering_class = |column: &std::sync::Arc<model::Column>| match column.reversed {
            true => MarshalClass::Reversed(column.ty.clone()).name(),
            false => column.ty.to_marshal_class(),
        };
        SerializationHeader {
            base: self.base,
            key_class,
            clustering_classes: table.clustering().iter().map(clustering_class).collect(),
            statics: header_columns(table, true, &self.statics),
            regulars: header_columns(table, false, &self.regulars),
        }
    }
}

fn header_columns(table: &Table, is_static: bool, included: &[usize]) -> Vec<HeaderColumn> {
    let columns = &table.columns(is_static).columns;
    let column = |index: &usize| {
        let column = columns.get(*index)?;
        Some(HeaderColumn { name: column.name.to_string(), class: column.ty.to_marshal_class() })
    };
    included.iter().filter_map(column).collect()
}
