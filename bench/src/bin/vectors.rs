//! `bench-vectors COUNT DIMENSION uniform|clustered DIRECTORY [WANTED]`: builds an index of COUNT vectors in a file,
//! and searches it for the ten (or WANTED) nearest of new vectors. The program prints one line of JSON per figure: the
//! processor time of the build, the size of the file, and of searches in the file and of all vectors in memory the
//! processor time and the recall, which is the share of the true nearest vectors that were found.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::mix;
use blockio::{Disk, SystemDisk};
use index::{
    KeyBounds, NearestSearch, Origin, SearchStep, VectorFile, VectorMemory, VectorOptions, VectorSource, VectorWriter,
};
use model::{Analysis, ColumnId, IndexKey, IndexPart, KeyRange};
use rustix::time::{ClockId, clock_gettime};
use sstable::{BlockCache, SSTableError, SSTableId};
use types::{Similarity, Token};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SEARCHES: usize = 200;
const CENTERS: u64 = 1000;
const SIMILARITY: Similarity = Similarity::Euclidean;
const KEY: IndexKey = IndexKey { column: ColumnId(1), part: IndexPart::Vectors(SIMILARITY), analysis: Analysis::NONE };

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [count, dimension, kind, directory, rest @ ..] = arguments.as_slice() else { return usage() };
    let (Ok(count), Ok(dimension)) = (count.parse(), dimension.parse()) else { return usage() };
    let wanted = rest.first().and_then(|wanted| wanted.parse().ok()).unwrap_or(10);
    let spread = match kind.as_str() {
        "uniform" => None,
        "clustered" => Some(0.25),
        _ => return usage(),
    };
    match (Run { count, dimension, spread, wanted }).measure(Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: bench-vectors COUNT DIMENSION uniform|clustered DIRECTORY [WANTED]");
    ExitCode::from(2)
}

struct Run {
    count: usize,
    dimension: usize,
    /// How far vectors are from the center of their cluster, if there are clusters.
    spread: Option<f32>,
    wanted: usize,
}

/// A number between 0 and 1 that depends on two others.
fn uniform(one: u64, other: u64) -> f32 {
    (mix(mix(one).wrapping_add(other)) >> 40) as f32 / (1 << 24) as f32
}

/// A number with nearly a normal distribution.
fn normal(one: u64, other: u64) -> f32 {
    (0..12).map(|part| uniform(one, other * 12 + part)).sum::<f32>() - 6.0
}

fn report(name: &str, value: f64) {
    println!("{{\"{name}\": {value:.4}}}");
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Run {
    /// The vector with this number. Those from `count` on are searched for.
    fn vector(&self, number: usize) -> Vec<f32> {
        let number = number as u64 + 1;
        let element = |place: u64| match self.spread {
            None => uniform(number, place),
            Some(spread) => normal(u64::MAX - mix(number) % CENTERS, place) + spread * normal(number, place),
        };
        (0..self.dimension as u64).map(element).collect()
    }

    fn measure(&self, directory: &Path) -> Result<(), SSTableError> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
        disk.create_dir_all(directory)?;
        let path = directory.join("vectors.db");
        let origin = Origin { sstable: SSTableId::from_sequence(1), data_bytes: 1 };
        let vectors: Vec<Vec<f32>> = (0..self.count).map(|number| self.vector(number)).collect();
        let memory = VectorMemory::new(SIMILARITY, 8);
        let start = cpu_time();
        let mut writer = VectorWriter::create(&disk, &path, SIMILARITY, VectorOptions::default())?;
        for (number, vector) in vectors.iter().enumerate() {
            let entry = entry(number, vector);
            writer.add(&entry, vector.len() * 4, &mut || true)?;
        }
        writer.finish(KEY, &origin, &mut || true)?;
        report("build, CPU seconds", (cpu_time() - start).as_secs_f64());
        for (number, vector) in vectors.iter().enumerate() {
            memory.put(Token(number as i64), &entry(number, vector), vector.len() * 4);
        }
        let cache = BlockCache::new(4 << 30);
        let file = Arc::new(VectorFile::open(&*disk, &path, KEY, &origin, &cache)?);
        report("file, bytes per vector", file.size_bytes() as f64 / self.count as f64);
        let searched: Vec<Vec<f32>> = (0..SEARCHES).map(|number| self.vector(self.count + number)).collect();
        let truth: Vec<Vec<u32>> = searched.iter().map(|wanted| self.nearest(&vectors, wanted)).collect();
        let from_file = |wanted: &[f32]| file.search(wanted, self.wanted);
        self.search("file, first time", &searched, &truth, from_file)?;
        self.search("file", &searched, &truth, from_file)?;
        self.search("memory", &searched, &truth, |wanted| vec![memory.search(wanted)])
    }

    fn search(
        &self,
        name: &str,
        searched: &[Vec<f32>],
        truth: &[Vec<u32>],
        sources: impl Fn(&[f32]) -> Vec<Box<dyn VectorSource>>,
    ) -> Result<(), SSTableError> {
        let (mut hits, mut key, mut looks) = (0, Vec::new(), 0);
        let start = cpu_time();
        for (wanted, truth) in searched.iter().zip(truth) {
            let mut search = NearestSearch::new(sources(wanted), KeyBounds::of(&KeyRange::all()));
            let mut found = 0;
            while found < self.wanted {
                match search.next(&mut key)? {
                    SearchStep::Candidate(_) => {
                        found += 1;
                        hits += usize::from(truth.contains(&number_of(&key)));
                    }
                    SearchStep::Nothing(_) => looks += 1,
                    SearchStep::End => break,
                }
            }
        }
        let micros = (cpu_time() - start).as_micros() as f64 / searched.len() as f64;
        report(&format!("{name}: search, CPU microseconds"), micros);
        report(&format!("{name}: recall"), hits as f64 / (searched.len() * self.wanted) as f64);
        report(&format!("{name}: pauses per search"), f64::from(looks) / searched.len() as f64);
        Ok(())
    }

    fn nearest(&self, vectors: &[Vec<f32>], wanted: &[f32]) -> Vec<u32> {
        let score = |(number, vector): (usize, &Vec<f32>)| (SIMILARITY.score(vector, wanted), number as u32);
        let mut all: Vec<(f32, u32)> = vectors.iter().enumerate().map(score).collect();
        all.select_nth_unstable_by(self.wanted, |one, other| other.0.total_cmp(&one.0));
        all.into_iter().take(self.wanted).map(|(_, number)| number).collect()
    }
}

/// An entry of an index: the vector, and a key that is the number of the vector.
fn entry(number: usize, vector: &[f32]) -> Vec<u8> {
    let mut entry: Vec<u8> = vector.iter().flat_map(|element| element.to_be_bytes()).collect();
    entry.push(0x40);
    entry.extend_from_slice(&(number as u32).to_be_bytes());
    entry
}

fn number_of(key: &[u8]) -> u32 {
    key.last_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}
