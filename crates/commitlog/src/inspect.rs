//! Reading a log without opening it. This locks, repairs and writes nothing, so the log may be in use at the same time.

use std::path::Path;

use blockio::Disk;
use uuid::Uuid;

use crate::file::LogFile;
use crate::format::{BookkeepingEntry, EntryFault, Geometry, SegmentState, Superblock};
use crate::format::{RecordFault, TABLE_ID_SIZE};
use crate::scan::{RecordCursor, SegmentImage, Step, Verdict};
use crate::{Corruption, LogError, LogPosition, Record};

/// A log opened for reading only. Concurrent writes of a running node may or may not be visible.
#[derive(Debug)]
pub struct LogInspector {
    file: LogFile,
    entries: Vec<Result<BookkeepingEntry, EntryFault>>,
}

/// A segment in use, as it was found.
#[derive(Debug)]
pub struct Inspected {
    /// The segment's bookkeeping entry.
    pub entry: BookkeepingEntry,
    /// The segment's blocks.
    pub image: SegmentImage,
    /// The number of blocks known to have been durable.
    pub horizon_blocks: u32,
    /// Recovery's verdict about them.
    pub verdict: Verdict,
}

/// A step through the records of a segment.
#[derive(Debug)]
pub enum Walked<'a> {
    /// A sound record.
    Record(Record<'a>),
    /// The log ends within a record that begins at this byte offset; the record was never acknowledged.
    Cut(u32),
    /// A damaged record at this byte offset, in sound blocks.
    Fault(u32, RecordFault),
}

impl Inspected {
    /// Walks the records, in order.
    pub fn walk<E>(&self, mut visit: impl FnMut(Walked<'_>) -> Result<(), E>) -> Result<(), E> {
        let at =
            |offset: u32| LogPosition { segment: self.entry.id, offset: i32::try_from(offset).unwrap_or(i32::MAX) };
        let mut scratch = Vec::new();
        let mut tables = Vec::new();
        for run in &self.verdict.runs {
            let mut cursor = RecordCursor::new(&self.image, run.clone());
            loop {
                match cursor.next(&self.image, &mut scratch) {
                    Step::Record(found) => {
                        let (ids, data) =
                            scratch.split_at_checked(usize::from(found.tables) * TABLE_ID_SIZE).unwrap_or_default();
                        tables.clear();
                        tables.extend(ids.chunks_exact(TABLE_ID_SIZE).filter_map(|id| Uuid::from_slice(id).ok()));
                        visit(Walked::Record(Record {
                            start: at(found.start),
                            position: at(found.end),
                            tables: &tables,
                            data,
                        }))?;
                    }
                    Step::Cut(start) => visit(Walked::Cut(start))?,
                    Step::Fault(start, fault) => visit(Walked::Fault(start, fault))?,
                    Step::End => break,
                }
            }
        }
        Ok(())
    }
}

impl LogInspector {
    /// Reads superblocks and bookkeeping of the log in the file or device `path`.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<LogInspector, LogError> {
        let file = LogFile::open_to_read(disk, path)?;
        let entries = file.read_entries()?;
        Ok(LogInspector { file, entries })
    }

    /// The log's file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The log's identity.
    pub fn superblock(&self) -> &Superblock {
        &self.file.superblock
    }

    /// The layout.
    pub fn geometry(&self) -> &Geometry {
        self.file.geometry()
    }

    /// The file's length in bytes: how far it has grown.
    pub fn length_bytes(&self) -> Result<u64, LogError> {
        Ok(self.file.file().len()?)
    }

    /// The damage found in the superblock copies and the bookkeeping. An unsound entry is read a second time, because a
    /// running node may have been writing it.
    pub fn damage(&self) -> Result<Vec<Corruption>, LogError> {
        let mut damage: Vec<Corruption> = self.file.damaged_superblock.iter().cloned().collect();
        for (slot, entry) in (0..).zip(&self.entries) {
            match entry {
                Err(_) => {
                    damage.extend(self.file.read_entry(slot)?.err().map(|fault| self.file.unsound_entry(slot, &fault)))
                }
                // The segment may have been reused meanwhile; its entry then says so.
                Ok(entry)
                    if self.file.was_used_since(entry)?
                        && self.file.read_entry(slot)?.is_ok_and(|now| now.is_same_use(entry)) =>
                {
                    damage.push(self.file.lost_entry(entry));
                }
                Ok(_) => {}
            }
        }
        let live = self.live();
        let twins = live.array_windows::<2>().filter(|[a, b]| a.id == b.id);
        damage.extend(twins.map(|pair| self.file.twin_entries(pair)));
        Ok(damage)
    }

    /// The sound bookkeeping entries, by slot.
    pub fn entries(&self) -> impl Iterator<Item = &BookkeepingEntry> {
        self.entries.iter().flatten()
    }

    /// The segments in use, oldest first.
    pub fn live(&self) -> Vec<BookkeepingEntry> {
        let mut live: Vec<_> = self.entries().filter(|entry| entry.state == SegmentState::Live).copied().collect();
        live.sort_by_key(|entry| entry.id);
        live
    }

    /// Reads and judges the segments in use one by one, oldest first. It leaves out segments that a running node stops
    /// using meanwhile.
    pub fn segments(&self) -> impl Iterator<Item = Result<Inspected, LogError>> {
        let live = self.live();
        let mut ahead: Option<SegmentImage> = None;
        (0..live.len()).filter_map(move |at| {
            let next = live.get(at + 1);
            self.segment(live[at], next, &mut ahead).transpose()
        })
    }

    /// Returns `None` if the segment's use has ended. `ahead` holds the segment's image if it was already read, and
    /// receives the image of the next one.
    fn segment(
        &self,
        entry: BookkeepingEntry,
        next: Option<&BookkeepingEntry>,
        ahead: &mut Option<SegmentImage>,
    ) -> Result<Option<Inspected>, LogError> {
        let read = |entry: &BookkeepingEntry| self.file.read_image(entry.index, entry.id, None);
        let mut image = ahead.take().map_or_else(|| read(&entry), Ok)?;
        let mut horizon_blocks = image.horizon_of(entry.id).max(entry.durable_blocks);
        if let Some(next) = next {
            let next = ahead.insert(read(next)?);
            horizon_blocks = horizon_blocks.max(next.horizon_of(entry.id));
        }
        let mut verdict = image.judge(horizon_blocks);
        if !verdict.damaged.is_empty() {
            // A running node writes while this thread reads. A block may have been read before it was written, while
            // the claim that it is durable was read afterwards. A second read finds every claimed block, unless the
            // segment was reused, and then its entry said so first.
            image = read(&entry)?;
            if !self.file.read_entry(entry.index)?.is_ok_and(|now| now.is_same_use(&entry)) {
                return Ok(None);
            }
            verdict = image.judge(horizon_blocks);
        }
        Ok(Some(Inspected { entry, image, horizon_blocks, verdict }))
    }

    /// The damage report for a byte offset of a segment in use.
    pub fn corruption(
        &self,
        slot: u32,
        offset: u32,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Corruption {
        self.file.corrupt(self.geometry().segment_offset(slot) + u64::from(offset), expected, got)
    }
}
