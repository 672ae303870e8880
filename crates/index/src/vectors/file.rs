//! Reads files of vectors. The layout is in VECTORS.md. Bytes are untrusted: pages have checksums, and the numbers in a
//! page are checked against the footer. So a damaged file is an error, and no walk leaves its segment.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions};
use model::{IndexKey, IndexPart};
use sstable::{BlockCache, Corruption, SSTableError, TRIE_PAGE_BYTES, TrieFile};
use types::Similarity;

use super::beam::{Beam, Near, Nodes};
use super::graph::{DEGREE_MAX, count_above};
use super::search::VectorSource;
use super::space::{SearchTarget, Space, coordinates};
use crate::paged::{Footer, FooterBytes, Form, Origin};

/// The form of these files.
pub(crate) const FORM: Form = Form { magic: b"ESPV", version: 2, segment_bytes: 44 };

/// The entry of a segment without a graph.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// No type of vectors has more elements.
const DIMENSION_MAX: u32 = 1 << 16;

const PAGE: u64 = TRIE_PAGE_BYTES as u64;

/// Vectors that were written together: their points with the graph, their keys, and the ends of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    pub first_page: u64,
    pub keys_page: u64,
    pub ends_page: u64,
    /// The number of vectors.
    pub count: u32,
    /// Where walks through the graph begin.
    pub entry: u32,
    pub dimension: u32,
    /// The number of nearest points that a walk keeps.
    pub width: u32,
    /// See [`Space::squared_length`].
    pub squared_length: f32,
}

impl Segment {
    /// Appends its part of the footer.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Segment { first_page, keys_page, ends_page, count, entry, dimension, width, squared_length } = self;
        [first_page, keys_page, ends_page].iter().for_each(|page| out.extend_from_slice(&page.to_be_bytes()));
        [count, entry, dimension, width].iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        out.extend_from_slice(&squared_length.to_be_bytes());
    }

    /// Reads a segment of a file with this number of pages, and checks that it lies within.
    fn read(footer: &mut Footer<'_>, page_count: u64, similarity: Similarity) -> Result<Segment, SSTableError> {
        let what = "the pages of a segment";
        let (first_page, keys_page, ends_page) = (footer.u64(what)?, footer.u64(what)?, footer.u64(what)?);
        let (count, entry) = (footer.u32("the number of vectors")?, footer.u32("the entry of a graph")?);
        let (dimension, width) = (footer.u32("the dimension of vectors")?, footer.u32("the width of walks")?);
        let squared_length = footer.f32("the length of points")?;
        let segment = Segment { first_page, keys_page, ends_page, count, entry, dimension, width, squared_length };
        let is_sound = (1..=DIMENSION_MAX).contains(&dimension)
            && count > 0
            && (entry < count || entry == NO_ENTRY)
            && squared_length >= 0.0
            && first_page <= keys_page
            && keys_page <= ends_page
            && ends_page <= page_count
            && segment.layout(similarity).all_pages(count) <= keys_page - first_page
            && u64::from(count) * 4 <= (page_count - ends_page) * PAGE;
        if !is_sound {
            return Err(footer.damaged("a segment within the file", format!("{segment:?}")));
        }
        Ok(segment)
    }

    fn layout(&self, similarity: Similarity) -> Layout {
        let coordinates = coordinates(similarity, self.dimension as usize);
        Layout { coordinates, has_graph: self.entry != NO_ENTRY }
    }
}

/// The layout of a segment's nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub coordinates: usize,
    pub has_graph: bool,
}

impl Layout {
    /// The bytes of a node.
    pub fn node_bytes(self) -> usize {
        let neighbours = if self.has_graph { 4 + DEGREE_MAX * 4 } else { 0 };
        self.coordinates * 4 + neighbours
    }

    /// The offset of a node from the segment's first page. A node that fits a page does not cross one.
    pub fn position(self, node: u32) -> u64 {
        let node = u64::from(node);
        match (TRIE_PAGE_BYTES / self.node_bytes()) as u64 {
            0 => node * (self.node_bytes() as u64).next_multiple_of(PAGE),
            per_page => node / per_page * PAGE + node % per_page * self.node_bytes() as u64,
        }
    }

    /// The pages of a graph of this number of nodes and of those above it.
    fn all_pages(self, count: u32) -> u64 {
        let above = |count: &u32| count_above(*count as usize).filter(|_| self.has_graph).map(|above| above as u32);
        std::iter::successors(Some(count), above).map(|count| self.pages(count)).sum()
    }

    /// The pages of this number of nodes, at least one.
    fn pages(self, count: u32) -> u64 {
        (self.position(count - 1) + self.node_bytes() as u64).div_ceil(PAGE)
    }
}

/// An open file of vectors. Thread-safe.
#[derive(Debug)]
pub struct VectorFile {
    pages: TrieFile,
    similarity: Similarity,
    segments: Vec<Segment>,
    size_bytes: u64,
}

impl VectorFile {
    /// Opens an index of an SSTable. Fails if its footer shows that the file is damaged, or belongs to another index or
    /// SSTable. Blocks on the disk.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        key: IndexKey,
        origin: &Origin,
        cache: &BlockCache,
    ) -> Result<VectorFile, SSTableError> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let IndexPart::Vectors(similarity) = key.part else {
            let what = format!("vectors of {:?}", key.part);
            return Err(SSTableError::Unsupported { file: name, what });
        };
        let file = disk.open(path, OpenOptions::read())?;
        let size_bytes = file.len()?;
        let bytes = FooterBytes::read(FORM, &name, &*file, size_bytes)?;
        let mut footer = bytes.content(&name);
        let (crcs, count) = footer.head(FORM, key, origin)?;
        let segments = (0..count).map(|_| Segment::read(&mut footer, crcs.len() as u64, similarity));
        let segments = segments.collect::<Result<Vec<_>, _>>()?;
        let pages = TrieFile::new(name, file, cache, bytes.position, crcs)?;
        Ok(VectorFile { pages, similarity, segments, size_bytes })
    }

    /// The size of the file, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The number of vectors of each segment.
    pub fn segment_counts(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| u64::from(segment.count)).collect()
    }

    /// The number of vectors.
    pub fn vector_count(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.count)).sum()
    }

    /// Searches for vectors that are similar to a given one, in each segment. About `count` of them will be asked for.
    pub fn search(self: &Arc<Self>, wanted: &[f32], count: usize) -> Vec<Box<dyn VectorSource>> {
        let fits = |place: &usize| self.segments[*place].dimension as usize == wanted.len();
        let search = |place: usize| -> Box<dyn VectorSource> {
            let Segment { squared_length, count: nodes, width, .. } = self.segments[place];
            let target = Space { similarity: self.similarity, squared_length }.target(wanted);
            let beam = Beam::new(nodes as usize, width as usize, count);
            Box::new(FileSearch { file: self.clone(), segment: place, target, beam, buffer: RefCell::default() })
        };
        (0..self.segments.len()).filter(fits).map(search).collect()
    }

    /// Reads every page; fails at the first that is damaged. Blocks on the disk.
    pub fn verify(&self) -> Result<(), SSTableError> {
        for page in 0..self.pages.length() / PAGE {
            self.pages.read(page * PAGE, TRIE_PAGE_BYTES, true)?;
        }
        Ok(())
    }

    fn damaged(&self, position: u64, expected: &'static str, got: impl std::fmt::Display) -> SSTableError {
        Corruption::new(self.pages.name(), position, expected, got.to_string()).into()
    }

    /// Replaces `out` with the key of a vector.
    fn read_key(&self, segment: &Segment, node: u32, out: &mut Vec<u8>) -> Result<(), SSTableError> {
        let end = |node: u32| -> Result<u64, SSTableError> {
            let bytes = self.pages.read(segment.ends_page * PAGE + u64::from(node) * 4, 4, true)?;
            Ok(bytes.first_chunk().map_or(0, |end| u64::from(u32::from_be_bytes(*end))))
        };
        let start = node.checked_sub(1).map_or(Ok(0), end)?;
        let end = end(node)?;
        if start > end || end > (segment.ends_page - segment.keys_page) * PAGE {
            let position = segment.ends_page * PAGE + u64::from(node) * 4;
            return Err(self.damaged(position, "the end of a key in its pages", format!("{start} to {end}")));
        }
        self.pages.read_into(segment.keys_page * PAGE + start, (end - start) as usize, true, out)
    }
}

/// A search in a segment of a file.
struct FileSearch {
    file: Arc<VectorFile>,
    segment: usize,
    target: SearchTarget,
    beam: Beam,
    /// A buffer for a node in several pages.
    buffer: RefCell<Vec<u8>>,
}

impl VectorSource for FileSearch {
    fn search(&mut self, steps: usize) -> Result<bool, SSTableError> {
        let segment = &self.file.segments[self.segment];
        let layout = segment.layout(self.file.similarity);
        let nodes = FileNodes {
            file: &self.file,
            layout,
            first_page: segment.first_page,
            count: segment.count,
            entry: (segment.entry != NO_ENTRY).then_some(segment.entry),
            buffer: &self.buffer,
        };
        self.beam.walk(&nodes, &self.target, steps)
    }

    fn best(&self) -> Option<f32> {
        self.beam.peek().map(|near| self.target.score(near.distance))
    }

    fn take(&mut self, key: &mut Vec<u8>) -> Result<(), SSTableError> {
        key.clear();
        match self.beam.take() {
            Some(near) => self.file.read_key(&self.file.segments[self.segment], near.node, key),
            None => Ok(()),
        }
    }

    fn held_bytes(&self) -> usize {
        self.beam.held_bytes()
    }
}

/// The points and neighbours of one graph of a segment.
struct FileNodes<'f> {
    file: &'f VectorFile,
    layout: Layout,
    first_page: u64,
    count: u32,
    entry: Option<u32>,
    buffer: &'f RefCell<Vec<u8>>,
}

impl FileNodes<'_> {
    fn position(&self, node: u32) -> u64 {
        self.first_page * PAGE + self.layout.position(node)
    }
}

impl Nodes for FileNodes<'_> {
    fn count(&self) -> usize {
        self.count as usize
    }

    fn entry(&self) -> Option<u32> {
        self.entry
    }

    fn above(&self) -> Option<Box<dyn Nodes + '_>> {
        let count = count_above(self.count as usize)? as u32;
        let first_page = self.first_page + self.layout.pages(self.count);
        Some(Box::new(FileNodes { first_page, count, entry: Some(0), ..*self }))
    }

    fn distance(&self, node: u32, target: &SearchTarget) -> Result<f32, SSTableError> {
        let buffer = &mut *self.buffer.borrow_mut();
        let length = self.layout.coordinates * 4;
        self.file.pages.with(self.position(node), length, buffer, |bytes| target.distance_to_bytes(bytes))
    }

    fn distances(&self, nodes: Range<u32>, target: &SearchTarget, out: &mut Vec<Near>) -> Result<(), SSTableError> {
        let (buffer, size) = (&mut *self.buffer.borrow_mut(), self.layout.node_bytes());
        let mut node = nodes.start;
        while node < nodes.end {
            let position = self.position(node);
            // The following points of the same page.
            let count = ((PAGE - position % PAGE) / size as u64).clamp(1, u64::from(nodes.end - node)) as u32;
            self.file.pages.with(position, size * count as usize, buffer, |bytes| {
                let points = bytes.chunks(size).zip(node..);
                out.extend(points.map(|(bytes, node)| {
                    let point = bytes.get(..self.layout.coordinates * 4).unwrap_or(bytes);
                    Near { distance: target.distance_to_bytes(point), node }
                }));
            })?;
            node += count;
        }
        Ok(())
    }

    fn neighbours(&self, node: u32, out: &mut Vec<u32>) -> Result<(), SSTableError> {
        let buffer = &mut *self.buffer.borrow_mut();
        let position = self.position(node) + self.layout.coordinates as u64 * 4;
        let count = self.file.pages.with(position, 4 + DEGREE_MAX * 4, buffer, |bytes| {
            let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| u32::from_be_bytes(*number));
            let count = numbers.next().unwrap_or_default();
            out.clear();
            out.extend(numbers.take(count as usize));
            count
        })?;
        if count as usize > DEGREE_MAX {
            return Err(self.file.damaged(position, "the number of a vector's neighbours", count));
        }
        match out.iter().find(|neighbour| **neighbour >= self.count) {
            Some(neighbour) => Err(self.file.damaged(position, "a neighbour in the graph", neighbour)),
            None => Ok(()),
        }
    }
}
