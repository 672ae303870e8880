//! Sorted runs of entries in a temporary file, and how they are merged.
//!
//! A run is a sequence of entries: u64 position, u32 length, u16 length of the term, bytes. Integers are big-endian.
//! The file is never read by another process.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use crc32fast::Hasher;
use sstable::{Corruption, SSTableError};

/// The bytes before an entry.
const HEAD_BYTES: usize = 14;
/// The size of a write or read of a run, bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// An entry with the position of its partition in the SSTable, or [`UNKNOWN`](crate::batch::UNKNOWN).
#[derive(Clone, Copy)]
pub(crate) struct SortedEntry<'e> {
    pub bytes: &'e [u8],
    pub term_length: usize,
    pub position: u64,
}

/// The place of a run in the file.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    start: u64,
    end: u64,
    crc: u32,
    /// The bytes that the positions of its entries need; 0 if one of them is not known.
    pub position_bytes: usize,
}

/// The file of the runs, which is removed when this is dropped.
pub(crate) struct Runs {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn File>,
    runs: Vec<Run>,
}

impl Runs {
    /// Starts the file of runs for an index file with this path.
    pub fn create(disk: &Arc<dyn Disk>, index_path: &Path) -> Result<Runs, SSTableError> {
        let mut path = index_path.as_os_str().to_owned();
        path.push(".runs.tmp");
        let path = PathBuf::from(path);
        let file = disk.open(&path, OpenOptions::create())?;
        Ok(Runs { disk: disk.clone(), path, file, runs: Vec::new() })
    }

    pub fn as_slice(&self) -> &[Run] {
        &self.runs
    }

    /// Appends a run of ascending entries.
    pub fn add<'e>(
        &mut self,
        entries: impl Iterator<Item = SortedEntry<'e>>,
        position_bytes: usize,
    ) -> Result<(), SSTableError> {
        let start = self.runs.last().map_or(0, |last| last.end);
        let (mut end, mut crc, mut buffer) = (start, Hasher::new(), Vec::with_capacity(BUFFER_BYTES));
        for entry in entries {
            buffer.extend_from_slice(&entry.position.to_be_bytes());
            buffer.extend_from_slice(&(entry.bytes.len() as u32).to_be_bytes());
            buffer.extend_from_slice(&(entry.term_length as u16).to_be_bytes());
            buffer.extend_from_slice(entry.bytes);
            if buffer.len() >= BUFFER_BYTES {
                self.write(&mut buffer, &mut end, &mut crc)?;
            }
        }
        self.write(&mut buffer, &mut end, &mut crc)?;
        self.runs.push(Run { start, end, crc: crc.finalize(), position_bytes });
        Ok(())
    }

    fn write(&self, buffer: &mut Vec<u8>, end: &mut u64, crc: &mut Hasher) -> Result<(), SSTableError> {
        self.file.write_at(buffer, *end)?;
        crc.update(buffer);
        *end += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Merges some runs, and passes their entries to `take` in order. Fails if the disk returns other bytes than were
    /// written.
    pub fn merge(
        &self,
        runs: &[Run],
        mut take: impl FnMut(SortedEntry<'_>) -> Result<(), SSTableError>,
    ) -> Result<(), SSTableError> {
        let file = self.disk.open(&self.path, OpenOptions::read())?;
        let mut readers = BinaryHeap::with_capacity(runs.len());
        for run in runs {
            let mut reader = RunReader::new(&*file, *run);
            if reader.advance()? {
                readers.push(reader);
            }
        }
        while let Some(mut least) = readers.peek_mut() {
            take(least.entry())?;
            if !least.advance()? {
                PeekMut::pop(least);
            }
        }
        Ok(())
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // An error is ignored, because the next build of the index truncates the file.
        let _ = self.disk.remove_file(&self.path);
    }
}

/// A reader of a run, positioned on an entry. Readers compare in reverse order of their entries, so a heap returns the
/// one with the least entry.
struct RunReader<'f> {
    file: &'f dyn File,
    run: Run,
    crc: Hasher,
    /// The bytes that were read and not consumed, and the offset of their end in the file.
    buffer: Vec<u8>,
    end: u64,
    /// The entry in the buffer, and its head's numbers.
    entry: std::ops::Range<usize>,
    term_length: usize,
    position: u64,
}

impl<'f> RunReader<'f> {
    /// A reader before the first entry.
    fn new(file: &'f dyn File, run: Run) -> RunReader<'f> {
        let (crc, buffer) = (Hasher::new(), Vec::new());
        RunReader { file, run, crc, buffer, end: run.start, entry: 0..0, term_length: 0, position: 0 }
    }

    fn entry(&self) -> SortedEntry<'_> {
        let RunReader { term_length, position, .. } = *self;
        SortedEntry { bytes: &self.buffer[self.entry.clone()], term_length, position }
    }

    /// Moves to the next entry. Returns false after the last one.
    fn advance(&mut self) -> Result<bool, SSTableError> {
        let start = self.entry.end;
        if start == self.buffer.len() && self.end == self.run.end {
            return Ok(false);
        }
        let start = self.hold(start, HEAD_BYTES)?;
        let (position, rest) = self.buffer[start..].split_first_chunk().unwrap_or((&[0; 8], &[]));
        let (length, rest) = rest.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let term_length = rest.first_chunk().map_or(0, |length| u16::from_be_bytes(*length));
        let (position, length) = (u64::from_be_bytes(*position), u32::from_be_bytes(*length) as usize);
        let start = self.hold(start, HEAD_BYTES + length)? + HEAD_BYTES;
        self.entry = start..start + length;
        (self.position, self.term_length) = (position, usize::from(term_length));
        Ok(true)
    }

    /// Makes `length` bytes from `start` of the buffer available. Returns their new start.
    fn hold(&mut self, start: usize, length: usize) -> Result<usize, SSTableError> {
        if self.buffer.len() - start >= length {
            return Ok(start);
        }
        self.buffer.drain(..start);
        let held = self.buffer.len();
        let left = usize::try_from(self.run.end - self.end).unwrap_or(usize::MAX);
        if held.saturating_add(left) < length {
            return Err(self.damaged(format!("{length} bytes"), held + left));
        }
        let read = left.min(BUFFER_BYTES.max(length) - held);
        self.buffer.resize(held + read, 0);
        self.file.read_exact_at(&mut self.buffer[held..], self.end)?;
        self.crc.update(&self.buffer[held..]);
        self.end += read as u64;
        let crc = self.crc.clone().finalize();
        if self.end == self.run.end && crc != self.run.crc {
            return Err(self.damaged(format!("checksum {:08x} of the run", self.run.crc), format!("{crc:08x}")));
        }
        Ok(0)
    }

    #[cold]
    fn damaged(&self, expected: String, got: impl std::fmt::Display) -> SSTableError {
        let name = self.file.path().file_name().unwrap_or_default().to_string_lossy();
        Corruption::new(&name, self.end, expected, got.to_string()).into()
    }
}

impl Ord for RunReader<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.entry().bytes.cmp(self.entry().bytes)
    }
}

impl PartialOrd for RunReader<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunReader<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunReader<'_> {}
