//! Memtables: the newest writes of a table, in memory and in order.
//!
//! A memtable applies [`model::PartitionUpdate`]s and yields them, reconciled, through [`model::UnfilteredCursor`]. It
//! knows nothing of logs, files or clocks.
#![doc = include_str!("../FORMAT.md")]
#![forbid(unsafe_code)]

mod address_space;
mod apply;
mod branch;
mod combine;
#[cfg(test)]
mod combine_test;
mod configuration;
mod cursor;
mod deletions;
mod fill;
#[cfg(test)]
mod fill_test;
mod find;
mod layout;
mod memtable;
#[cfg(test)]
mod one_version_test;
mod pieces;
#[cfg(test)]
mod pieces_test;
mod plan;
mod puts;
mod ranges;
mod resident;
mod shard;
mod sharding;
mod skip_list;
mod statistics;
mod sync;
mod translate;
mod trie_memtable;
mod verify;

pub use address_space::AddressSpace;
pub use configuration::{MemtableConfiguration, open_small};
pub use memtable::{Lookup, Memtable, MemtableFull, MemtableStatistics, MemtableUse, RowLocation};
pub use memtrie::{SparePages, TrieOptions};
pub use puts::PutCounts;
pub use resident::{PartOptions, Purge, ResidentTable, for_each_update, growth_max};
pub use skip_list::SkipListMemtable;
pub use trie_memtable::TrieMemtable;
