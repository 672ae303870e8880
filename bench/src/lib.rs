//! Ordered maps under the keys of a memtable: our trie and its alternatives, behind one trait.
//!
//! The scenarios over CQL are in `harness/` (Python) and `load/` (a cargo project of its own).

#![forbid(unsafe_code)]

mod keys;
mod peers;
mod wire;

pub use keys::{KeyKind, Keys, mix, partition_key};
pub use peers::{BPlusTree, BTree, Blart, OrderedMap, SkipList, TriePeer};
pub use wire::WireClient;
