//! The log's single file. A new file is made complete under another name before it is used; afterwards it is read in
//! large pieces and written in blocks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use blockio::{AlignedBuffer, BLOCK_SIZE, BlockWrites, Disk, DiskError, DiskErrorKind, Durability, File, OpenOptions};

use crate::format::{
    BlockState, BookkeepingEntry, EntryFault, FORMAT_VERSION, FORMAT_VERSION_MIN, Geometry, SegmentState, Superblock,
    SuperblockFault, classify_block, seed_of,
};
use crate::scan::SegmentImage;
use crate::{Corruption, LogError, LogOptions};

/// The file's name in the commit log directory.
pub const FILE_NAME: &str = "commitlog.log";
/// The file's name while it is incomplete.
const NEW_FILE_NAME: &str = "commitlog.log.new";
/// The file in which a salvage keeps a log that it cannot read, or the superblocks of a log that it can read.
pub(crate) const DAMAGED_FILE_NAME: &str = "commitlog.damaged";
/// How many bytes are prewritten at once.
pub(crate) const CHUNK_SIZE: usize = 1 << 20;

/// How many writes a measurement times.
const TIMED_WRITES: usize = 9;

const _: () = assert!(CHUNK_SIZE.is_multiple_of(BLOCK_SIZE) && TIMED_WRITES % 2 == 1, "whole blocks, and a middle");

/// The open file.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: Box<dyn File>,
    pub superblock: Superblock,
    /// The seed of the checksums of bookkeeping and blocks: the checksum of the log's id.
    pub seed: u32,
    /// A superblock copy has an older version; opening the log for writing rewrites it.
    pub is_old: bool,
    /// A superblock copy that was found damaged; opening the log for writing rewrites it.
    pub damaged_superblock: Option<Corruption>,
    /// A buffer of one block, for writing bookkeeping entries.
    entry: Mutex<AlignedBuffer>,
}

/// The first of `name`, `name.2`, `name.3`, … that does not exist, so that files kept by earlier salvages stay.
pub(crate) fn free_path(disk: &dyn Disk, directory: &Path, name: &str) -> Result<PathBuf, LogError> {
    let mut path = directory.join(name);
    let mut number = 2;
    while disk.exists(&path)? {
        path = directory.join(format!("{name}.{number}"));
        number += 1;
    }
    Ok(path)
}

impl LogFile {
    /// Opens the log in the options' directory or device. Returns `None` if there is none.
    pub fn open(disk: &dyn Disk, options: &LogOptions) -> Result<Option<LogFile>, LogError> {
        let file = match disk.open(&options.log_path(), OpenOptions::write().blocks()) {
            Ok(file) => file,
            Err(e) if e.kind() == DiskErrorKind::NotFound && options.device.is_none() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if options.device.is_some() && is_blank(&*file)? {
            return Ok(None);
        }
        keep_found(disk, &*file, options)?;
        let found = read_head(&*file)?;
        let log = LogFile::with(file, found);
        log.repair_superblock()?;
        Ok(Some(log))
    }

    /// Opens the log for reading only: this neither locks nor repairs anything.
    pub fn open_to_read(disk: &dyn Disk, path: &Path) -> Result<LogFile, LogError> {
        let file = disk.open(path, OpenOptions::read())?;
        let found = read_head(&*file)?;
        Ok(LogFile::with(file, found))
    }

    /// Makes a new log on a device. The superblocks are written last, so the device looks blank until the log is
    /// complete.
    pub fn create_on_device(
        disk: &dyn Disk,
        device: &Path,
        superblock: Superblock,
        last_id: i64,
    ) -> Result<LogFile, LogError> {
        let file = disk.open(device, OpenOptions::write().blocks())?;
        let log = LogFile::with(file, FoundSuperblock { superblock, damaged: None, is_old: false });
        let blank = AlignedBuffer::new(Geometry::bookkeeping_start() as usize);
        log.file.write_blocks(blank.all_blocks(), 0, Durability::Durable)?;
        log.write_all_free(last_id)?;
        log.file.sync_data()?;
        log.write_superblock(0)?;
        log.write_superblock(1)?;
        Ok(log)
    }

    /// Makes a new log, replacing any log that is there, and opens it.
    pub fn create(
        disk: &dyn Disk,
        directory: &Path,
        superblock: Superblock,
        last_id: i64,
    ) -> Result<LogFile, LogError> {
        let new = directory.join(NEW_FILE_NAME);
        let file = disk.open(&new, OpenOptions::create().blocks())?;
        let made = FoundSuperblock { superblock, damaged: None, is_old: false };
        let log = LogFile::with(file, made.clone());
        log.write_superblock(0)?;
        log.write_superblock(1)?;
        log.write_all_free(last_id)?;
        log.file.sync_data()?;
        drop(log);
        let path = directory.join(FILE_NAME);
        disk.rename(&new, &path)?;
        disk.sync_dir(directory)?;
        Ok(LogFile::with(disk.open(&path, OpenOptions::write().blocks())?, made))
    }

    fn with(file: Box<dyn File>, found: FoundSuperblock) -> LogFile {
        let entry = Mutex::new(AlignedBuffer::new(BLOCK_SIZE));
        let FoundSuperblock { superblock, damaged, is_old } = found;
        LogFile { file, superblock, seed: seed_of(superblock.log_id), is_old, damaged_superblock: damaged, entry }
    }

    pub fn file(&self) -> &dyn File {
        &*self.file
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    pub fn block_writes(&self) -> BlockWrites {
        self.file.block_writes()
    }

    /// Measures how long a durable write of one block takes: the median of several writes that leave a superblock
    /// unchanged.
    pub fn time_durable_write(&self) -> Result<Duration, LogError> {
        let mut times = [Duration::ZERO; TIMED_WRITES];
        for time in &mut times {
            let started = Instant::now();
            self.write_superblock(1)?;
            *time = started.elapsed();
        }
        times.sort_unstable();
        Ok(times[TIMED_WRITES / 2])
    }

    fn write_superblock(&self, copy: u64) -> Result<(), LogError> {
        assert!(copy < 2, "there are two copies");
        let mut block = AlignedBuffer::new(BLOCK_SIZE);
        self.superblock.encode(&mut block);
        self.file.write_blocks(block.all_blocks(), Geometry::superblock_offset(copy), Durability::Durable)?;
        Ok(())
    }

    fn repair_superblock(&self) -> Result<(), LogError> {
        match &self.damaged_superblock {
            Some(damaged) => self.write_superblock(damaged.offset / BLOCK_SIZE as u64),
            None => Ok(()),
        }
    }

    /// Upgrades a log of an older version to this version, which only adds to the format.
    pub fn renew(&self) -> Result<(), LogError> {
        if self.is_old {
            self.write_superblock(0)?;
            self.write_superblock(1)?;
        }
        Ok(())
    }

    /// Writes for a new log that every segment is free. All entries carry the greatest segment id of the previous log.
    /// Whichever segment is used first, and however far the clock has stepped back, its id is then greater than every
    /// id of the previous log.
    fn write_all_free(&self, last_id: i64) -> Result<(), LogError> {
        let segments = self.geometry().segments;
        let per_chunk = (CHUNK_SIZE / BLOCK_SIZE) as u32;
        let mut buffer = AlignedBuffer::new(CHUNK_SIZE.min(segments as usize * BLOCK_SIZE));
        for first in (0..segments).step_by(per_chunk as usize) {
            let count = per_chunk.min(segments - first);
            debug_assert!(count > 0 && count as usize * BLOCK_SIZE <= buffer.len());
            for (index, block) in (first..first + count).zip(buffer.chunks_exact_mut(BLOCK_SIZE)) {
                BookkeepingEntry { index, state: SegmentState::Free, id: last_id, without: 0, durable_blocks: 0 }
                    .encode(self.seed, block);
            }
            let blocks = buffer.blocks(0..count as usize * BLOCK_SIZE);
            self.file.write_blocks(blocks, self.geometry().bookkeeping_offset(first), Durability::AtNextSync)?;
        }
        Ok(())
    }

    /// Writes a segment's entry, which is on the device when this returns.
    pub fn write_entry(&self, entry: BookkeepingEntry) -> Result<(), LogError> {
        assert!(entry.index < self.geometry().segments, "the entry of a segment of this log");
        let mut block = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        entry.encode(self.seed, &mut block);
        self.file.write_blocks(
            block.all_blocks(),
            self.geometry().bookkeeping_offset(entry.index),
            Durability::Durable,
        )?;
        Ok(())
    }

    /// Reads every segment's entry.
    pub fn read_entries(&self) -> Result<Vec<Result<BookkeepingEntry, EntryFault>>, LogError> {
        let segments = self.geometry().segments;
        let mut bytes = vec![0; segments as usize * BLOCK_SIZE];
        self.file.read_exact_at(&mut bytes, self.geometry().bookkeeping_offset(0))?;
        let blocks = (0..segments).zip(bytes.chunks_exact(BLOCK_SIZE));
        Ok(blocks.map(|(index, block)| BookkeepingEntry::decode(block, self.seed, index)).collect())
    }

    /// Reads one segment's entry.
    pub fn read_entry(&self, slot: u32) -> Result<Result<BookkeepingEntry, EntryFault>, LogError> {
        let mut block = vec![0; BLOCK_SIZE];
        self.file.read_exact_at(&mut block, self.geometry().bookkeeping_offset(slot))?;
        Ok(BookkeepingEntry::decode(&block, self.seed, slot))
    }

    /// Whether the segment's first block belongs to a later use than its entry describes. If so, the entry of that use
    /// was lost, because an entry is made durable before any block of its use.
    pub fn was_used_since(&self, entry: &BookkeepingEntry) -> Result<bool, LogError> {
        let mut block = vec![0; BLOCK_SIZE];
        let got = self.file.read_at(&mut block, self.geometry().segment_offset(entry.index))?;
        let state = classify_block(block.get(..got).unwrap_or_default(), self.seed, entry.id, 0);
        Ok(matches!(state, BlockState::Misplaced(header) if header.index == 0 && header.segment_id > entry.id))
    }

    /// The damage report of an entry that is older than its segment's blocks.
    pub fn lost_entry(&self, entry: &BookkeepingEntry) -> Corruption {
        self.unsound_entry(entry.index, &format!("{:?} with id {}, though it was used since", entry.state, entry.id))
    }

    /// The damage report of an entry that is not what it should be.
    pub fn unsound_entry(&self, slot: u32, got: &dyn fmt::Display) -> Corruption {
        let offset = self.geometry().bookkeeping_offset(slot);
        self.corrupt(offset, format!("the bookkeeping of segment {slot}"), got.to_string())
    }

    /// The damage report of an entry that promises to have no record of some tables, while a record of theirs is at
    /// byte offset `record` of the segment.
    pub fn broken_promise(&self, slot: u32, record: u32) -> Corruption {
        let at = self.geometry().segment_offset(slot) + u64::from(record);
        self.unsound_entry(slot, &format!("a promise that it has no records like the one at offset {at}"))
    }

    /// The damage report of two segments in use that have the same id.
    pub fn twin_entries(&self, [a, b]: &[BookkeepingEntry; 2]) -> Corruption {
        let offset = self.geometry().bookkeeping_offset(b.index);
        self.corrupt(offset, "a segment id of its own", format!("id {}, which segment {} has too", a.id, a.index))
    }

    /// Reads a segment and classifies its blocks as those of use `id`. `memory` is the buffer of an earlier image,
    /// reused if given.
    pub fn read_image(&self, slot: u32, id: i64, memory: Option<AlignedBuffer>) -> Result<SegmentImage, LogError> {
        let (start, segment_size) = (self.geometry().segment_offset(slot), self.geometry().segment_size_bytes);
        // Reads whole blocks only: fewer than a segment has if the file ends inside it.
        let written = self.file.len()?.saturating_sub(start).min(u64::from(segment_size));
        let length = written as usize / BLOCK_SIZE * BLOCK_SIZE;
        debug_assert!(length <= segment_size as usize && length.is_multiple_of(BLOCK_SIZE));
        let memory = memory.filter(|memory| memory.len() == segment_size as usize);
        let mut bytes = memory.unwrap_or_else(|| AlignedBuffer::new(segment_size as usize));
        let got = self.file.read_blocks(&mut bytes, length, start)?;
        if got < length {
            let text = format!("the file ends early: expected {length} bytes, got {got}");
            let kind = DiskErrorKind::UnexpectedEnd;
            return Err(DiskError::of_kind(kind, "read", self.path(), Some(start), text).into());
        }
        debug_assert_eq!(got, length, "all whole blocks of the segment were read");
        Ok(SegmentImage::in_memory(self.superblock.log_id, id, bytes, length, segment_size))
    }

    pub fn corrupt(&self, offset: u64, expected: impl Into<String>, got: impl Into<String>) -> Corruption {
        Corruption { path: self.path().to_path_buf(), offset, expected: expected.into(), got: got.into() }
    }
}

/// Makes everything found durable before anything relies on it. A process that was killed may have left the file's name
/// or its blocks in the page cache or in the device's cache only.
fn keep_found(disk: &dyn Disk, file: &dyn File, options: &LogOptions) -> Result<(), LogError> {
    file.sync_data()?;
    match options.device {
        Some(_) => Ok(()),
        None => Ok(disk.sync_dir(&options.directory)?),
    }
}

/// Whether the superblocks' place holds only zeros.
fn is_blank(file: &dyn File) -> Result<bool, LogError> {
    let mut bytes = vec![0; Geometry::bookkeeping_start() as usize];
    let got = file.read_at(&mut bytes, 0)?;
    Ok(bytes.iter().take(got).all(|byte| *byte == 0))
}

/// The error for a device that holds data which is not a log; making a log there could destroy it.
pub(crate) fn foreign_device(damage: &Corruption, was_searched: bool) -> LogError {
    let more =
        if was_searched { "no blocks of a log follow it" } else { "if it is a log, start with --commitlog-salvage" };
    let reason = format!(
        "it holds something else ({damage}); {more}; write zeros over its first 8192 bytes to make it a new log"
    );
    LogError::Refused { path: damage.path.clone(), reason }
}

/// The result of reading the two superblock copies.
#[derive(Clone, Debug)]
struct FoundSuperblock {
    superblock: Superblock,
    damaged: Option<Corruption>,
    is_old: bool,
}

/// Reads the superblocks, and checks that the file holds all the bookkeeping that they describe. Without that check a
/// damaged superblock could cause a large allocation.
fn read_head(file: &dyn File) -> Result<FoundSuperblock, LogError> {
    let found = read_superblocks(file)?;
    let (length, end) = (file.len()?, found.superblock.geometry.segment_offset(0));
    if length >= end {
        return Ok(found);
    }
    Err(LogError::Corrupt(Box::new(Corruption {
        path: file.path().to_path_buf(),
        offset: length,
        expected: format!("bookkeeping up to {end}"),
        got: format!("a file of {length} bytes"),
    })))
}

/// Reads both copies; one sound copy is enough.
fn read_superblocks(file: &dyn File) -> Result<FoundSuperblock, LogError> {
    let mut is_old = false;
    let mut block = vec![0; BLOCK_SIZE];
    let mut read = |copy| -> Result<Result<Superblock, SuperblockFault>, LogError> {
        let got = file.read_at(&mut block, Geometry::superblock_offset(copy))?;
        let decoded = Superblock::decode(block.get(..got).unwrap_or_default());
        is_old |= decoded.is_ok() && Superblock::is_old(&block);
        Ok(decoded)
    };
    let (first, second) = (read(0)?, read(1)?);
    for copy in [&first, &second] {
        if let Err(SuperblockFault::Version(version)) = copy {
            let reason = format!(
                "it has format version {version}; this build reads versions {FORMAT_VERSION_MIN} to {FORMAT_VERSION}"
            );
            return Err(LogError::Refused { path: file.path().to_path_buf(), reason });
        }
    }
    let damage = |copy, fault: &SuperblockFault| Corruption {
        path: file.path().to_path_buf(),
        offset: Geometry::superblock_offset(copy),
        expected: "a superblock".into(),
        got: fault.to_string(),
    };
    let found = |superblock, damaged| Ok(FoundSuperblock { superblock, damaged, is_old });
    match (first, second) {
        (Ok(first), Ok(second)) if first == second => found(first, None),
        (Ok(first), Ok(second)) => Err(LogError::Corrupt(Box::new(Corruption {
            path: file.path().to_path_buf(),
            offset: Geometry::superblock_offset(1),
            expected: format!("the superblock of log {}", first.log_id),
            got: format!("that of log {}", second.log_id),
        }))),
        (Ok(sound), Err(fault)) => found(sound, Some(damage(1, &fault))),
        (Err(fault), Ok(sound)) => found(sound, Some(damage(0, &fault))),
        (Err(fault), Err(_)) => Err(LogError::Corrupt(Box::new(damage(0, &fault)))),
    }
}

/// The path of the log in a directory.
pub fn log_path(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}
