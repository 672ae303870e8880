//! SSTables in Cassandra's BTI format, version `da`: every component, written, read and verified.
//!
//! [`SSTableReader`] opens a table and returns cursors over its partitions and rows ([`SSTableCursor`], which
//! implements the model's cursor trait). Blocks of data and pages of indexes are read through a bounded [`BlockCache`];
//! nothing is memory-mapped. Every checksum is verified when its bytes are read, and damage is an error that names
//! file, offset, expected and found bytes.
#![doc = include_str!("../FORMAT.md")]
#![forbid(unsafe_code)]

mod big;
mod cache;
mod cached_file;
mod clustering;
mod compression;
mod copy;
mod counter;
mod data;
pub mod decode;
mod descriptor;
mod dump;
mod error;
mod filter;
mod header_table;
mod index_file;
mod input;
mod lifecycle;
mod messaging;
mod new_files;
mod page_checksums;
mod partition_index;
mod reader;
mod row_index;
mod salvage;
mod stats;
mod trie;
mod trie_file;
mod verify;
mod writer;

pub use big::{list_all_tables, list_big_tables, list_foreign_tables, open_big};
pub use cache::BlockCache;
pub use compression::{CompressionInfo, CompressionParams, Compressor};
pub use copy::{adopt_table, export_table, link_table};
pub use descriptor::{Component, Descriptor, SSTableId};
pub use dump::{DumpError, DumpLayout, DumpOptions, dump_json};
pub use error::{Corruption, SSTableError};
pub use filter::BloomFilter;
pub use lifecycle::{ReplaceError, missing_tocs, remove_all_tables, remove_leftovers, remove_tables, replace_tables};
pub use messaging::{MessageEncoder, UpdateReader};
pub use new_files::PreparedSSTable;
pub use reader::{
    Edge, PartitionHint, PartitionSlice, ReadMode, RowLookup, SSTableCursor, SSTableReader, find_only_row, find_rows,
    list_tables, prefetch_hinted, read_statistics,
};
pub use salvage::{Loss, Salvaged, salvage};
pub use stats::{
    Cardinality, CommitLogPosition, CoveredBound, EncodingBase, EstimatedHistogram, HeaderColumn, SerializationHeader,
    Statistics, StatsMetadata, TombstoneHistogram,
};
pub use trie_file::{TRIE_PAGE_BYTES, TrieFile, TriePage, TrieWriter};
pub use verify::{Verified, verify};
pub use writer::{
    COLUMN_INDEX_SIZE_DEFAULT, Oversize, SSTableWriter, SizeHook, SizeKind, SizeLimits, SizeWatch, WriterOptions,
};
