//! The on-disk trie that Partitions.db and Rows.db are made of; see FORMAT.md.

mod builder;
mod node;
mod payload;
mod walk;

pub(crate) use builder::TrieBuilder;
pub(crate) use node::PAGE_SIZE;
pub(crate) use payload::{Payload, read_sized, sized_length};
pub(crate) use walk::{EntryCursor, Pages, follow};
