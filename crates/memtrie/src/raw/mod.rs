//! The memory below the trie, and the only unsafe code of this crate.
//!
//! Invariants, named by the SAFETY comments of the modules here:
//!
//! - **R1** A [`Space`](space::Space) is one private anonymous mapping; bytes below its committed length are readable and
//!   writable until it is dropped, and it is dropped only with the `Trie` (no reader or writer outlives that).
//! - **R2** The shared base pointers are null before the first write and never change after they are set.
//! - **R3** A non-zero, non-leaf pointer word that a reader can reach names a block below the committed length; a leaf
//!   pointer names the first 8-byte unit of a blob that was completely written before the pointer was published by a
//!   release store. Pointers are made only by the allocators here and by moving inside a block.
//! - **R4** All node words that readers may race with are atomics; a word is accessed with one width from the node's
//!   allocation until its reclamation: 32 bits, except those that `FORMAT.md` calls wide, which are 64 bits.
//! - **R5** A blob's bytes do not change between its publication and its reclamation.
//! - **R6** A retired block or blob is reclaimed only when every pin that was active at its retirement has ended
//!   (see [`epoch`]); references into the memory live no longer than the pin, or than a shared borrow of the writer.
//! - **R7** Allocator state is reached only through the writer's lock.
//! - **R8** The steps of a chain do not change between its publication and its reclamation, and no word of them is written.
//! - **R9** Every x86-64 processor has SSE2.

pub(crate) mod arena;
pub(crate) mod blocks;
pub(crate) mod characters;
pub(crate) mod epoch;
pub(crate) mod leaf;
pub(crate) mod memory;
pub(crate) mod space;
