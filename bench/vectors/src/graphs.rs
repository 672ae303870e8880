//! The libraries behind one trait. Each is built with the settings that its documentation starts from, and a degree of
//! about 32, which is ours.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anndists::dist::DistL2;
use blockio::{Disk, SystemDisk};
use diskann_rs::DiskANN;
use index::{SearchStep, KeyBounds, NearestSearch, Origin, VectorFile, VectorOptions, VectorWriter};
use model::{Analysis, ColumnId, IndexKey, IndexPart, KeyRange};
use sstable::{BlockCache, SSTableId};
use types::Similarity;
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

const DEGREE: usize = 32;
const BUILD_WIDTH: usize = 100;
const LAYERS: usize = 16;

/// A graph over vectors.
pub trait Graph {
    /// The size of its file, or of what it holds; 0 if it does not say.
    fn bytes_per_vector(&self) -> f64;

    /// The numbers of about the nearest vectors. A search that keeps more points (`width`) finds more of them.
    fn search(&self, wanted: &[f32], count: usize, width: usize) -> Result<Vec<usize>, Box<dyn Error>>;
}

/// Builds a graph of vectors, of which each has its place as its number. Files go to the directory.
pub type Build = fn(&[Vec<f32>], &Path) -> Result<Box<dyn Graph>, Box<dyn Error>>;

/// The file of vectors of this project. Its writer measures the least width that finds nearly all, so lesser ones
/// have no effect.
pub struct Ours {
    file: Arc<VectorFile>,
}

impl Ours {
    pub fn build(vectors: &[Vec<f32>], directory: &Path) -> Result<Box<dyn Graph>, Box<dyn Error>> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
        let path = directory.join("ours.db");
        let similarity = Similarity::Euclidean;
        let key = IndexKey { column: ColumnId(1), part: IndexPart::Vectors(similarity), analysis: Analysis::NONE };
        let origin = Origin { sstable: SSTableId::from_sequence(1), data_bytes: 1 };
        let mut writer = VectorWriter::create(&disk, &path, similarity, VectorOptions::default())?;
        for (number, vector) in vectors.iter().enumerate() {
            let mut entry: Vec<u8> = vector.iter().flat_map(|element| element.to_be_bytes()).collect();
            entry.push(0x40);
            entry.extend_from_slice(&(number as u32).to_be_bytes());
            writer.add(&entry, vector.len() * 4, &mut || true)?;
        }
        writer.finish(key, &origin, &mut || true)?;
        let file = VectorFile::open(&*disk, &path, key, &origin, &BlockCache::new(4 << 30))?;
        Ok(Box::new(Ours { file: Arc::new(file) }))
    }
}

impl Graph for Ours {
    fn bytes_per_vector(&self) -> f64 {
        self.file.size_bytes() as f64 / self.file.vector_count() as f64
    }

    fn search(&self, wanted: &[f32], count: usize, width: usize) -> Result<Vec<usize>, Box<dyn Error>> {
        // A walk keeps four times as many as are asked for.
        let sources = self.file.search(wanted, width / 4);
        let mut search = NearestSearch::new(sources, KeyBounds::of(&KeyRange::all()));
        let (mut found, mut key) = (Vec::new(), Vec::new());
        while found.len() < count {
            match search.next(&mut key)? {
                SearchStep::Candidate(_) => {
                    found.push(key.last_chunk().map_or(0, |number| u32::from_be_bytes(*number)) as usize)
                }
                SearchStep::Nothing(_) => {}
                SearchStep::End => break,
            }
        }
        Ok(found)
    }
}

/// Unum's USearch, in memory.
pub struct Usearch {
    index: Index,
}

impl Usearch {
    pub fn build(vectors: &[Vec<f32>], _: &Path) -> Result<Box<dyn Graph>, Box<dyn Error>> {
        let index = Index::new(&IndexOptions {
            dimensions: vectors.first().map_or(0, Vec::len),
            metric: MetricKind::L2sq,
            quantization: ScalarKind::F32,
            connectivity: DEGREE / 2,
            expansion_add: BUILD_WIDTH,
            expansion_search: BUILD_WIDTH,
            multi: false,
        })?;
        index.reserve(vectors.len())?;
        for (number, vector) in vectors.iter().enumerate() {
            index.add(number as u64, vector)?;
        }
        Ok(Box::new(Usearch { index }))
    }
}

impl Graph for Usearch {
    fn bytes_per_vector(&self) -> f64 {
        self.index.serialized_length() as f64 / self.index.size() as f64
    }

    fn search(&self, wanted: &[f32], count: usize, width: usize) -> Result<Vec<usize>, Box<dyn Error>> {
        self.index.change_expansion_search(width);
        Ok(self.index.search(wanted, count)?.keys.into_iter().map(|key| key as usize).collect())
    }
}

/// hnsw_rs, in memory.
pub struct Hnsw {
    graph: hnsw_rs::prelude::Hnsw<'static, f32, DistL2>,
}

impl Hnsw {
    pub fn build(vectors: &[Vec<f32>], _: &Path) -> Result<Box<dyn Graph>, Box<dyn Error>> {
        let graph = hnsw_rs::prelude::Hnsw::new(DEGREE / 2, vectors.len(), LAYERS, BUILD_WIDTH, DistL2 {});
        for (number, vector) in vectors.iter().enumerate() {
            graph.insert((vector, number));
        }
        Ok(Box::new(Hnsw { graph }))
    }
}

impl Graph for Hnsw {
    fn bytes_per_vector(&self) -> f64 {
        0.0
    }

    fn search(&self, wanted: &[f32], count: usize, width: usize) -> Result<Vec<usize>, Box<dyn Error>> {
        Ok(self.graph.search(wanted, count, width).into_iter().map(|found| found.d_id).collect())
    }
}

/// diskann-rs, in a mapped file.
pub struct DiskAnn {
    index: DiskANN<DistL2>,
    bytes_per_vector: f64,
}

impl DiskAnn {
    pub fn build(vectors: &[Vec<f32>], directory: &Path) -> Result<Box<dyn Graph>, Box<dyn Error>> {
        let path = directory.join("diskann.db");
        let name = path.to_str().ok_or("a directory whose name is no text")?;
        let index = DiskANN::build_index(vectors, DEGREE, BUILD_WIDTH, 1.2, DistL2 {}, name)?;
        let bytes_per_vector = std::fs::metadata(&path)?.len() as f64 / vectors.len() as f64;
        Ok(Box::new(DiskAnn { index, bytes_per_vector }))
    }
}

impl Graph for DiskAnn {
    fn bytes_per_vector(&self) -> f64 {
        self.bytes_per_vector
    }

    fn search(&self, wanted: &[f32], count: usize, width: usize) -> Result<Vec<usize>, Box<dyn Error>> {
        Ok(self.index.search(wanted, count, width).into_iter().map(|number| number as usize).collect())
    }
}
