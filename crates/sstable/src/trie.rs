//! The on-disk trie of Partitions.db and Rows.db; see FORMAT.md.

mod builder;
mod node;
mod payload;
mod walk;

pub(crate) use builder::TrieBuilder;
pub(crate) use node::PAGE_SIZE;
pub(crate) use payload::{Payload, read_sized, sized_length};
pub(crate) use walk::{EntryCursor, Pages, follow};
