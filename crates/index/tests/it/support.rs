//! A disk, files and entries for tests.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions, SimulatedDisk};
use index::{Batch, IndexFile, IndexWriter, Origin, Source, WriterLimits};
use model::{Analysis, ColumnId, IndexKey, IndexPart};
use sstable::{BlockCache, SSTableError, SSTableId};

pub const KEY: IndexKey = IndexKey { column: ColumnId(7), part: IndexPart::Whole, analysis: Analysis::NONE };
/// The SSTable of the files.
pub fn origin() -> Origin {
    Origin { sstable: SSTableId::from_sequence(5), data_bytes: 100 }
}

pub const PATH: &str = "/index/7.db";

pub fn disk() -> Arc<dyn Disk> {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(Path::new("/index")).unwrap();
    Arc::new(disk)
}

/// Writes a file of these entries, with the lengths of their terms, in segments of this many bytes of entries.
pub fn write<'e>(disk: &Arc<dyn Disk>, entries: impl IntoIterator<Item = (&'e [u8], usize)>, segment_bytes: usize) {
    write_within(disk, entries, WriterLimits { run_bytes: segment_bytes, runs_max: 1 });
}

/// As [`write`], with limits for the writer.
pub fn write_within<'e>(
    disk: &Arc<dyn Disk>,
    entries: impl IntoIterator<Item = (&'e [u8], usize)>,
    limits: WriterLimits,
) {
    let mut writer = IndexWriter::with_limits(disk, Path::new(PATH), limits).unwrap();
    entries.into_iter().for_each(|(entry, term_length)| writer.add(entry, term_length, None).unwrap());
    writer.finish(KEY, &origin(), &mut || true).unwrap();
}

pub fn open(disk: &Arc<dyn Disk>) -> Result<Arc<IndexFile>, SSTableError> {
    IndexFile::open(&**disk, Path::new(PATH), KEY, &origin(), &BlockCache::new(1 << 20)).map(Arc::new)
}

pub fn bytes_of(disk: &Arc<dyn Disk>) -> Vec<u8> {
    let file = disk.open(Path::new(PATH), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub fn overwrite(disk: &Arc<dyn Disk>, bytes: &[u8]) {
    let file = disk.open(Path::new(PATH), OpenOptions::create()).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// All entries of a source from `start` on and before `end`, with the lengths of their terms.
pub fn read_all(source: &dyn Source, start: &[u8], end: &[u8]) -> Result<Vec<(Vec<u8>, usize)>, SSTableError> {
    let (mut all, mut batch) = (Vec::<(Vec<u8>, usize)>::new(), Batch::default());
    loop {
        batch.clear_to_read_on();
        let from = all.last().map_or(Bound::Included(start), |(last, _)| Bound::Excluded(last.as_slice()));
        source.read(from, end, true, &mut batch)?;
        for index in 0..batch.len() {
            let (entry, key) = (batch.entry(index).unwrap(), batch.key(index).unwrap());
            all.push((entry.to_vec(), entry.len() - key.len()));
        }
        if batch.is_last() {
            return Ok(all);
        }
    }
}
