//! Memtables: the newest writes of a table, in memory and in order.
//!
//! A memtable takes [`model::PartitionUpdate`]s and gives them back through [`model::UnfilteredCursor`], reconciled. It
//! knows nothing of logs, files or clocks.
#![doc = include_str!("../FORMAT.md")]
#![forbid(unsafe_code)]

mod apply;
mod branch;
mod cursor;
mod deletions;
mod fill;
mod layout;
mod memtable;
mod pieces;
#[cfg(test)]
mod pieces_test;
mod plan;
mod shard;
mod statistics;
mod translate;
mod trie_memtable;

pub use memtable::{Memtable, MemtableFull, MemtableStatistics, MemtableUse};
pub use trie_memtable::TrieMemtable;
