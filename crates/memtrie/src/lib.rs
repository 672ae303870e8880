//! The in-memory byte trie of *Trie Memtables in Cassandra* (Lambov, PVLDB 15(12), 2022): an ordered map from byte
//! strings to byte strings, with one writer and any number of lock-free readers.
//!
//! Look-ups of many keys wait for memory together: [`Pin::get_many`] for keys that are read next (`IN`, batches, the
//! replay of a log), [`Writer::put_many`] for puts, [`Writer::prefetch`] before about 32 changes of other kinds. A
//! reader that visits keys in order uses a [`Cursor`], which prefetches what is ahead. A flush does this, and looks
//! nothing up.
//!
//! Start with [`Trie`]. `node.rs` has the readers' view of a node, and `node/` its two layouts; `edit.rs` has the
//! changes that both share; `raw` has the memory.
#![doc = include_str!("../FORMAT.md")]
#![deny(missing_docs, unsafe_code)]

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
mod intersection;
mod item_queue;
mod node;
mod node_cursor;
#[cfg(test)]
mod patience_test;
mod ranges;
#[allow(unsafe_code, reason = "it has the memory of the trie, and all unsafe code of the crate")]
mod raw;
mod store;
mod sync;
mod tail;
mod terms;
mod together;
mod trie;
mod union;
mod verify;
mod walk;

pub use contents::Contents;
pub use cursor::Cursor;
pub use intersection::Intersection;
pub use node_cursor::NodeCursor;
pub use ranges::Ranges;
pub use raw::spare_pages::SparePages;
pub use tail::Tail;
pub use terms::{Bounds, Direction, Edit, Layout, MemoryUse, TrieFull, TrieOptions, Upsert};
pub use trie::{Pin, Trie, Writer};
pub use union::Union;
