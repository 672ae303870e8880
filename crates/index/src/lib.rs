//! Secondary indexes: which rows of a table may have a value in a column.
//!
//! An index is over one column, or over the values, keys or entries of a collection. Each source of rows has its own
//! part of it: a memtable has a [`MemoryIndex`], and an SSTable has an [`IndexFile`]. Both hold *entries*: the term
//! (the byte-comparable value), then the primary key, in byte order. So the entries of one term are in the order in
//! which the table is read, and a range of values is a range of entries.
//!
//! An index returns *candidates*: the keys of rows that had the value in one source. The row may have been overwritten,
//! deleted or expired since. Callers read it from all sources and test it again, so entries are never removed. For the
//! same reason an index may return too many candidates, as it does for long values, whose terms are cut. It must never
//! miss one.
//!
//! The text of an index may be analyzed ([`analysed`], [`terms`]), so that searches ignore case, for example.
//!
//! Start with `entry.rs` (the form of entries), then [`Indexer`] (the entries of a row), [`MemoryIndex`],
//! [`IndexBuilder`], [`IndexFile`] and [`Candidates`] (the sources of one index together).
#![doc = include_str!("../FORMAT.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod batch;
mod block;
mod builder;
mod candidates;
mod entry;
mod file;
mod indexer;
mod memory;
mod nan;
mod paged;
mod runs;
mod text;
mod two_indexes;
mod vectors;
mod writer;

pub use batch::{Batch, Source};
pub use builder::{IndexBuilder, file_name};
pub use bytecomp::DecodeError;
pub use candidates::{Candidates, SORTED_BYTES_MAX};
pub use entry::{KeyBounds, RowKey, TERM_BYTES_MAX, TermRange, decode_row_key};
pub use file::IndexFile;
pub use indexer::{IndexGrowth, Indexer, entry_value};
pub use memory::{MemoryIndex, MemoryPart};
pub use paged::Origin;
pub use text::{analysed, terms};
pub use vectors::{NearestSearch, SearchStep, VectorFile, VectorMemory, VectorOptions, VectorSource, VectorWriter};
pub use writer::{IndexWriter, WriterLimits};
