//! The in-memory byte trie of *Trie Memtables in Cassandra* (Lambov, PVLDB 15(12), 2022): an ordered map from byte
//! strings to byte strings, with one writer and any number of readers that take no lock.
//!
//! Many keys at once wait for memory together: [`Pin::get_many`] for what is looked at next (`IN`, batches, the replay
//! of a log), [`Writer::put_many`] for puts, [`Writer::prefetch`] before some 32 changes of other kinds. Whoever goes
//! through keys in order takes a [`Cursor`], which asks for what is ahead itself: a flush does, and looks nothing up.
//!
//! Start with [`Trie`]. What readers see of a node is in `node.rs`; the two layouts, and how each is changed, are in
//! `edit.rs`, `adaptive` and `paper`; memory is in `raw`.
#![doc = include_str!("../FORMAT.md")]
#![deny(missing_docs, unsafe_code)]

mod adaptive;
mod coming;
mod contents;
mod cursor;
mod edit;
#[cfg(test)]
mod failure_test;
#[cfg(test)]
mod format_test;
mod gather;
mod graph;
#[cfg(test)]
mod held_test;
mod node;
mod node_cursor;
mod paper;
#[cfg(test)]
mod patience_test;
mod ranges;
#[allow(unsafe_code)]
mod raw;
mod store;
mod sync;
mod tail;
mod together;
mod trie;
mod union;
mod verify;
mod walk;

pub use contents::Contents;
pub use cursor::Cursor;
pub use node_cursor::NodeCursor;
pub use ranges::Ranges;
pub use raw::spare_pages::SparePages;
pub use tail::Tail;
pub use trie::{Bounds, Direction, Edit, Layout, MemoryUse, Pin, Trie, TrieOptions, Upsert, Writer};
pub use union::Union;

/// A shard's memory limit is reached, or the system gives no more. The trie is as it was before the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrieFull;

impl std::fmt::Display for TrieFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the trie's memory limit is reached")
    }
}

impl std::error::Error for TrieFull {}
