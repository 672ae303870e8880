//! Index files with correct checksums and arbitrary content.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use index::{
    IndexFile, IndexWriter, KeyBounds, NearestSearch, Origin, SearchStep, VectorFile, VectorOptions, VectorWriter,
    WriterLimits,
};
use model::{Analysis, ColumnId, IndexKey, IndexPart, KeyRange};
use sstable::{BlockCache, SSTableError, SSTableId};
use types::Similarity;

const PATH: &str = "/index/7.db";
const CACHE_BYTES: u64 = 1 << 20;
const PAGE_BYTES: usize = 4096;
/// The position of the footer and the magic number.
const TAIL_BYTES: usize = 12;
const DIMENSION: usize = 6;

fn key(part: IndexPart) -> IndexKey {
    IndexKey { column: ColumnId(7), part, analysis: Analysis::NONE }
}

fn origin() -> Origin {
    Origin { sstable: SSTableId::from_sequence(5), data_bytes: 100 }
}

fn empty_disk() -> Arc<dyn Disk> {
    let disk = SimulatedDisk::new();
    // A simulated disk without faults refuses nothing.
    let _ = disk.create_dir_all(Path::new("/index"));
    Arc::new(disk)
}

fn disk_with(bytes: &[u8]) -> Option<Arc<dyn Disk>> {
    let mut bytes = bytes.to_vec();
    let _ = reseal(&mut bytes);
    let disk = empty_disk();
    disk.open(Path::new(PATH), OpenOptions::create()).ok()?.write_at(&bytes, 0).ok()?;
    Some(disk)
}

/// Corrects the checksums of a file's pages and footer. `None` if no footer is found.
fn reseal(bytes: &mut [u8]) -> Option<()> {
    let tail = bytes.len().checked_sub(TAIL_BYTES)?;
    let footer = usize::try_from(u64::from_be_bytes(*bytes[tail..].first_chunk()?)).ok()?;
    let number = |bytes: &[u8], at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    // The magic number, the version, the column and its part; the analysis and the id of the SSTable with their
    // lengths; the length of the SSTable and the number of pages.
    let id = footer.checked_add(16)?.checked_add(4)?.checked_add(number(bytes, footer.checked_add(16)?)?)?;
    let crcs = id.checked_add(4)?.checked_add(number(bytes, id)?)?.checked_add(8 + 4)?;
    for page in 0..footer / PAGE_BYTES {
        let crc = crc32fast::hash(bytes.get(page * PAGE_BYTES..(page + 1) * PAGE_BYTES)?);
        bytes.get_mut(crcs + page * 4..crcs + page * 4 + 4)?.copy_from_slice(&crc.to_be_bytes());
    }
    let end = tail.checked_sub(4)?;
    let crc = crc32fast::hash(bytes.get(footer..end)?);
    bytes[end..tail].copy_from_slice(&crc.to_be_bytes());
    Some(())
}

/// An index file: all its entries are read.
pub fn entries(bytes: &[u8]) {
    let Some(disk) = disk_with(bytes) else { return };
    let cache = BlockCache::new(CACHE_BYTES);
    if let Ok(file) = IndexFile::open(&*disk, Path::new(PATH), key(IndexPart::Whole), &origin(), &cache) {
        let _ = Arc::new(file).verify();
    }
}

/// A file of vectors: all of them are searched for.
///
/// # Panics
///
/// If the search returns more vectors than the file can hold.
pub fn vectors(bytes: &[u8]) {
    let Some(disk) = disk_with(bytes) else { return };
    let cache = BlockCache::new(CACHE_BYTES);
    let key = key(IndexPart::Vectors(Similarity::Cosine));
    let Ok(file) = VectorFile::open(&*disk, Path::new(PATH), key, &origin(), &cache) else { return };
    let sources = Arc::new(file).search(&[1.0; DIMENSION], 10);
    let mut search = NearestSearch::new(sources, KeyBounds::of(&KeyRange::all()));
    let (mut steps, mut key) = (0, Vec::new());
    while let Ok(SearchStep::Candidate(_) | SearchStep::Nothing(_)) = search.next(&mut key) {
        steps += 1;
        assert!(steps <= bytes.len() + 16, "a search does not end");
    }
}

/// The names and the bytes of files.
type Seeds = Vec<(&'static str, Vec<u8>)>;

/// Seeds of index files, and of files of vectors.
///
/// # Errors
///
/// A simulated disk without faults returns no errors.
pub fn seeds() -> Result<[Seeds; 2], SSTableError> {
    let entries = [("short", entries_seed(40, 3)?), ("long", entries_seed(30, 900)?)].to_vec();
    let of = |graph_min| VectorOptions { graph_min, always_graph: true, ..VectorOptions::default() };
    let vectors = [("graph", vectors_seed(of(1))?), ("list", vectors_seed(of(1000))?)].to_vec();
    Ok([entries, vectors])
}

fn written(disk: &dyn Disk) -> Result<Vec<u8>, SSTableError> {
    let file = disk.open(Path::new(PATH), OpenOptions::read())?;
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or_default()];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A file of entries with terms of this length.
fn entries_seed(count: u8, term_bytes: usize) -> Result<Vec<u8>, SSTableError> {
    let disk = empty_disk();
    let limits = WriterLimits { run_bytes: 1 << 14, runs_max: 1 };
    let mut writer = IndexWriter::with_limits(&disk, Path::new(PATH), limits)?;
    for number in 0..count {
        let entry = [vec![0x40 + number % 7; term_bytes], vec![0x40, number, 0x18]].concat();
        writer.add(&entry, term_bytes, None)?;
    }
    writer.finish(key(IndexPart::Whole), &origin(), &mut || true)?;
    written(&*disk)
}

fn vectors_seed(options: VectorOptions) -> Result<Vec<u8>, SSTableError> {
    let disk = empty_disk();
    let mut writer = VectorWriter::create(&disk, Path::new(PATH), Similarity::Cosine, options)?;
    for number in 0..40_u8 {
        let vector = (0..DIMENSION).map(|place| (f32::from(number) * 0.7 + place as f32).sin());
        let mut entry: Vec<u8> = vector.flat_map(f32::to_be_bytes).collect();
        entry.extend_from_slice(&[0x40, number, 0x18]);
        writer.add(&entry, DIMENSION * 4, &mut || true)?;
    }
    writer.finish(key(IndexPart::Vectors(Similarity::Cosine)), &origin(), &mut || true)?;
    written(&*disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_read_behind_their_checksums() {
        for (files, part) in
            seeds().unwrap().into_iter().zip([IndexPart::Whole, IndexPart::Vectors(Similarity::Cosine)])
        {
            for (name, mut bytes) in files {
                // The last byte of the first page is padding after the content.
                bytes[PAGE_BYTES - 1] ^= 1;
                let (disk, cache) = (disk_with(&bytes).unwrap(), BlockCache::new(CACHE_BYTES));
                let opened = match part {
                    IndexPart::Whole => IndexFile::open(&*disk, Path::new(PATH), key(part), &origin(), &cache)
                        .and_then(|file| Arc::new(file).verify()),
                    _ => VectorFile::open(&*disk, Path::new(PATH), key(part), &origin(), &cache)
                        .and_then(|file| file.verify()),
                };
                assert!(opened.is_ok(), "{name}: {opened:?}");
            }
        }
    }
}
