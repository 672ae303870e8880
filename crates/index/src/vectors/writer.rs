//! Writes a file of vectors. The layout is in VECTORS.md.

use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use model::IndexKey;
use sstable::{SSTableError, TRIE_PAGE_BYTES};
use types::Similarity;
use types::similarity::read_floats;

use super::beam::WIDTH_MIN;
use super::file::{FORM, Layout, NO_ENTRY, Segment};
use super::graph::{self, DEGREE_MAX, Graph, Points};
use super::space::{Space, coordinates};
use super::width;
use crate::paged::{Origin, PagedWriter, stopped};

/// The limits that decide when a segment ends, and when it has a graph.
#[derive(Clone, Copy, Debug)]
pub struct VectorOptions {
    /// The size of vectors and keys that are held in memory, bytes. At this size a segment is written.
    pub segment_bytes: usize,
    /// A segment with fewer vectors has no graph, because comparing all of them takes less time.
    pub graph_min: usize,
    /// Whether every other segment has a graph with the narrowest walks, whether or not that pays. For tests.
    pub always_graph: bool,
}

impl Default for VectorOptions {
    fn default() -> VectorOptions {
        VectorOptions { segment_bytes: 128 << 20, graph_min: 1024, always_graph: false }
    }
}

/// The nodes of a segment are written in parts of about this size, bytes.
const WRITTEN_BYTES: usize = 1 << 20;

/// A file of vectors that is being written, under a temporary name until it is complete and durable. The file is
/// removed if this is dropped before.
pub struct VectorWriter {
    file: PagedWriter,
    similarity: Similarity,
    options: VectorOptions,
    segments: Vec<Segment>,
    /// The vectors of the next segment, one after the other, and their keys.
    vectors: Vec<f32>,
    keys: Vec<u8>,
    /// The end of each key.
    ends: Vec<u32>,
}

impl VectorWriter {
    /// Starts a file at `path`, in a directory that exists.
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: &Path,
        similarity: Similarity,
        options: VectorOptions,
    ) -> Result<VectorWriter, SSTableError> {
        let file = PagedWriter::create(disk, path)?;
        let (segments, vectors, keys, ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(VectorWriter { file, similarity, options, segments, vectors, keys, ends })
    }

    /// Adds an entry. Its first `vector_length` bytes are the serialized vector, and the rest is the key. All vectors
    /// have the same dimension. A vector that cannot be compared is left out. `goes_on` is called from time to time.
    pub fn add(
        &mut self,
        entry: &[u8],
        vector_length: usize,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SSTableError> {
        let Some((vector, key)) = entry.split_at_checked(vector_length) else { return Ok(()) };
        let size = size_of_val(&*self.vectors) + self.keys.len() + size_of_val(&*self.ends) + entry.len();
        if size > self.options.segment_bytes && !self.ends.is_empty() {
            self.write_segment(goes_on)?;
        }
        let start = self.vectors.len();
        read_floats(vector, &mut self.vectors);
        if self.vectors.len() == start || self.similarity.check(&self.vectors[start..]).is_err() {
            self.vectors.truncate(start);
            return Ok(());
        }
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
        Ok(())
    }

    /// Writes the rest and gives the file its name. The bytes are durable when this returns; the name is once the
    /// directory is synced.
    pub fn finish(
        mut self,
        key: IndexKey,
        origin: &Origin,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SSTableError> {
        if !self.ends.is_empty() {
            self.write_segment(goes_on)?;
        }
        let mut segments = Vec::new();
        self.segments.iter().for_each(|segment| segment.write(&mut segments));
        self.file.finish(FORM, key, origin, &segments)
    }

    /// Makes a graph of the vectors, and writes it with the keys.
    fn write_segment(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Result<(), SSTableError> {
        let count = self.ends.len();
        let dimension = self.vectors.len() / count;
        let space = Space::of(self.similarity, dimension, &self.vectors);
        let coordinates = coordinates(self.similarity, dimension);
        let mut values = Vec::with_capacity(count * coordinates);
        self.vectors.chunks_exact(dimension).for_each(|vector| space.push_point(vector, &mut values));
        self.vectors = Vec::new();
        let points = Points { coordinates, values: &values };
        let built = match count >= self.options.graph_min {
            true => self.build(&points, goes_on)?,
            false => None,
        };
        let (graph, width) = built.unzip();
        let layout = Layout { coordinates, has_graph: graph.is_some() };
        let first_page = self.file.page();
        self.write_nodes(layout, &points, graph.as_ref())?;
        let first = graph.as_ref().and_then(|graph| graph.above.as_deref());
        for above in std::iter::successors(first, |above| above.graph.above.as_deref()) {
            self.write_nodes(layout, &above.points(), Some(&above.graph))?;
        }
        let keys_page = self.file.page();
        self.file.write_pages(std::mem::take(&mut self.keys))?;
        let ends_page = self.file.page();
        let ends = std::mem::take(&mut self.ends).into_iter().flat_map(u32::to_be_bytes).collect();
        self.file.write_pages(ends)?;
        self.segments.push(Segment {
            first_page,
            keys_page,
            ends_page,
            count: count as u32,
            entry: graph.map_or(NO_ENTRY, |graph| graph.entry),
            dimension: dimension as u32,
            width: width.unwrap_or_default() as u32,
            squared_length: space.squared_length,
        });
        Ok(())
    }

    /// A graph, and the width of walks through it; `None` if comparing all points takes less time.
    fn build(
        &self,
        points: &Points<'_>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(Graph, usize)>, SSTableError> {
        let graph = graph::build(points, goes_on).ok_or_else(stopped)?;
        let width = match self.options.always_graph {
            true => Some(WIDTH_MIN),
            false => width::measure(points, &graph)?,
        };
        Ok(width.map(|width| (graph, width)))
    }

    fn write_nodes(&mut self, layout: Layout, points: &Points<'_>, graph: Option<&Graph>) -> Result<(), SSTableError> {
        let mut out = Vec::new();
        for node in 0..points.len() as u32 {
            // A node that does not fit the rest of the page begins the next page.
            let position = layout.position(node) - layout.position(0);
            let written = position % WRITTEN_BYTES.next_multiple_of(layout.unit_bytes()) as u64;
            if written == 0 && !out.is_empty() {
                self.file.write_pages(std::mem::take(&mut out))?;
            }
            out.resize(written as usize, 0);
            out.extend(points.point(node).iter().flat_map(|value| value.to_le_bytes()));
            if let Some(graph) = graph {
                let neighbours = &graph.neighbours[node as usize];
                out.extend_from_slice(&(neighbours.len() as u32).to_be_bytes());
                out.extend(neighbours.iter().flat_map(|neighbour| neighbour.to_be_bytes()));
                out.resize(out.len() + (DEGREE_MAX - neighbours.len()) * 4, 0);
            }
        }
        self.file.write_pages(out)
    }
}

impl Layout {
    /// The distance in bytes after which the layout of nodes in pages repeats.
    fn unit_bytes(self) -> usize {
        self.node_bytes().next_multiple_of(TRIE_PAGE_BYTES)
    }
}
