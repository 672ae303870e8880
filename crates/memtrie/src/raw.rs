//! The memory below the trie, and the only unsafe code of this crate.
//!
//! The SAFETY comments of the modules here name the invariants R1 to R10 of `FORMAT.md`.

pub(crate) mod arena;
pub(crate) mod blocks;
pub(crate) mod characters;
pub(crate) mod epoch;
pub(crate) mod leaf;
pub(crate) mod memory;
pub(crate) mod space;
pub(crate) mod spare_pages;
