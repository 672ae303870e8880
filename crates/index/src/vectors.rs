//! Indexes of vectors: which rows may have vectors similar to a given one.
//!
//! A memtable has its vectors in a list, and each search looks at all of them ([`VectorMemory`]). An SSTable has a
//! [`VectorFile`] with a graph, in which a search walks from vector to vector towards the wanted one. A graph may miss
//! some of the most similar vectors; it never misses one when it is asked for all, because every vector can be reached.
//!
//! Start with `space.rs` (similarity as distance), then `graph.rs` (how a graph is built), `beam.rs` (how it is
//! searched), `width.rs` (how far), `writer.rs` and `file.rs` (the file), `memory.rs` and `search.rs` (all sources of
//! an index together).
#![doc = include_str!("../VECTORS.md")]

mod beam;
mod file;
mod graph;
mod memory;
mod search;
mod space;
mod width;
mod writer;

pub use file::VectorFile;
pub use memory::VectorMemory;
pub use search::{NearestSearch, SearchStep, VectorSource};
pub use writer::{VectorOptions, VectorWriter};
