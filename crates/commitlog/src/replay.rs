//! Replay: the records found at open, in order. Each is checked three times: by its blocks' ids and checksums, by its
//! head's checksum, and by its body's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread;

use blockio::{AlignedBuffer, BLOCK_SIZE, Disk, OpenOptions};
use uuid::Uuid;

use crate::file::free_path;
use crate::format::TABLE_ID_SIZE;
use crate::scan::{RecordCursor, RecordLocation, Run, SegmentImage, Step, Verdict};
use crate::segment::{DirtyRange, SegmentUse};
use crate::shared::Shared;
use crate::{Corruption, LogError, LogOptions, LogPosition};

/// The records found at open. They must be read to the end before the log's segments can be freed.
#[derive(Debug)]
pub struct Replay {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    salvage: bool,
    /// Keep a copy of every segment, not only of damaged ones.
    keeps_copies: bool,
    /// The segments still to be read, oldest first.
    pending: VecDeque<Arc<SegmentUse>>,
    /// If set, records that touch none of these tables are skipped.
    wanted: Option<Vec<Uuid>>,
    found: Vec<Arc<SegmentUse>>,
    /// By the id of its segment: how many blocks were durable once, as the caller knows.
    durable_blocks: BTreeMap<i64, u32>,
    /// The images of the segments, in order, once the first was requested.
    images: Option<Images>,
    /// The image of the first pending segment, if it was already read.
    ahead: Option<SegmentImage>,
    current: Option<CurrentSegment>,
    /// Table ids and data of the last record.
    scratch: Vec<u8>,
    tables: Vec<Uuid>,
    report: ReplayReport,
}

/// The prefetch of segment images by a background thread.
#[derive(Debug)]
struct Images {
    read: Receiver<Result<SegmentImage, LogError>>,
    /// Returns buffers for reuse; their pages are already mapped.
    used: Sender<AlignedBuffer>,
}

/// The segment being replayed.
#[derive(Debug)]
struct CurrentSegment {
    segment: Arc<SegmentUse>,
    image: SegmentImage,
    runs: VecDeque<Run>,
    cursor: Option<RecordCursor>,
    /// The table of the last record that touched a single table, with its range: the next record usually touches the
    /// same table.
    last: Option<(Uuid, Arc<DirtyRange>)>,
}

/// A record of the log. Its bytes are borrowed from the replay until the next record is requested.
#[derive(Debug)]
pub struct Record<'a> {
    /// Where it begins.
    pub start: LogPosition,
    /// Where it ends: the position that identifies it.
    pub position: LogPosition,
    /// The tables it touches.
    pub tables: &'a [Uuid],
    /// Its data, as appended.
    pub data: &'a [u8],
}

/// The findings of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Segments read.
    pub segments: u64,
    /// Sound records.
    pub records: u64,
    /// Bytes of data in them.
    pub data_bytes: u64,
    /// Records that the end of the log cuts off. They were never acknowledged and are dropped.
    pub cut_records: u64,
    /// The damage that was bypassed: of a superblock copy, or, with salvage, of anything.
    pub gaps: Vec<Gap>,
}

/// A damaged piece of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its place, and what was found there.
    pub damage: Corruption,
    /// How many bytes of segments could not be replayed because of it; 0 where only bookkeeping was damaged.
    pub length_bytes: u64,
    /// The segment's id, if the damage concerns one.
    pub segment: Option<i64>,
}

impl Gap {
    pub(crate) fn of(damage: Corruption, length_bytes: u64, segment: Option<i64>) -> Gap {
        Gap { damage, length_bytes, segment }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.damage.fmt(f)?;
        match self.segment {
            _ if self.length_bytes == 0 => Ok(()),
            Some(id) => write!(f, " ({} bytes of segment {id} lost)", self.length_bytes),
            None => write!(f, " ({} bytes lost)", self.length_bytes),
        }
    }
}

impl Replay {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: &LogOptions,
        shared: Arc<Shared>,
        found: Vec<Arc<SegmentUse>>,
        gaps: Vec<Gap>,
    ) -> Replay {
        assert!(found.iter().all(|segment| segment.number.is_none()), "only segments found at open are replayed");
        Replay {
            shared,
            disk,
            directory: options.directory.clone(),
            salvage: options.salvage,
            keeps_copies: false,
            pending: found.clone().into(),
            wanted: None,
            found,
            durable_blocks: BTreeMap::new(),
            images: None,
            ahead: None,
            current: None,
            scratch: Vec::new(),
            tables: Vec::new(),
            report: ReplayReport { gaps, ..ReplayReport::default() },
        }
    }

    /// Notes positions up to which the log was durable once. The caller knows them from elsewhere: an SSTable that was
    /// written after the log was synced names the end of the log at that time. If a segment ends before such a position
    /// now, it is damaged. Call this before anything is read, and before [`preview`](Replay::preview).
    pub fn note_durable(&mut self, positions: impl IntoIterator<Item = LogPosition>) {
        debug_assert!(self.current.is_none() && self.images.is_none(), "nothing was read of it");
        for position in positions {
            let is_found = self.found.iter().any(|segment| segment.id == position.segment);
            let offset = u32::try_from(position.offset).unwrap_or(0);
            // At the end of a segment, or after it, a position does not say where the last record ends.
            if is_found && u64::from(offset) < self.shared.segment_size() {
                let blocks = self.durable_blocks.entry(position.segment).or_default();
                *blocks = offset.div_ceil(BLOCK_SIZE as u32).max(*blocks);
            }
        }
    }

    /// Returns the next record in order of positions, or `None` at the end. [`LogError::Corrupt`] is final unless the
    /// log was opened with salvage.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let location = loop {
            let Some(current) = &mut self.current else {
                match self.pending.pop_front() {
                    Some(segment) => self.current = Some(self.load(segment)?),
                    None => {
                        self.finish()?;
                        return Ok(None);
                    }
                }
                continue;
            };
            let Some(cursor) = &mut current.cursor else {
                match current.runs.pop_front() {
                    Some(run) => current.cursor = Some(RecordCursor::new(&current.image, run)),
                    None => self.leave(),
                }
                continue;
            };
            match cursor.next_of(self.wanted.as_deref(), &current.image, &mut self.scratch) {
                Step::Record(location) => break location,
                Step::End => current.cursor = None,
                Step::Cut(_) => self.report.cut_records += 1,
                Step::Fault(start, fault) => {
                    let file = &self.shared.file;
                    let offset = file.geometry().segment_offset(current.segment.slot) + u64::from(start);
                    let gap = Gap::of(file.corrupt(offset, "a record", fault.to_string()), 0, Some(current.segment.id));
                    self.got_over(gap)?;
                }
            }
        };
        self.deliver(location).map(Some)
    }

    fn deliver(&mut self, location: RecordLocation) -> Result<Record<'_>, LogError> {
        let Some(current) = &mut self.current else { return Err(LogError::Closed("its replay is at its end".into())) };
        let at = |offset: u32| current.segment.at(i32::try_from(offset).unwrap_or(i32::MAX));
        let (start, position) = (at(location.start), at(location.end));
        let (ids, data) =
            self.scratch.split_at_checked(usize::from(location.tables) * TABLE_ID_SIZE).unwrap_or_default();
        debug_assert!(start < position, "a record has a length");
        debug_assert_eq!(ids.len(), usize::from(location.tables) * TABLE_ID_SIZE, "the ids are in the scratch buffer");
        self.tables.clear();
        self.tables.extend(ids.chunks_exact(TABLE_ID_SIZE).filter_map(|id| Uuid::from_slice(id).ok()));
        match (&*self.tables, &current.last) {
            ([table], Some((last, range))) if table == last => range.extend(position.offset),
            (tables, _) => {
                // The bookkeeping still promises that there is no such record. The withdrawal of the promise should
                // have been durable before this record was, but it is not. So the preview did not see this record.
                let promised = self.shared.is_promised(&current.segment);
                if promised && tables.iter().any(|table| self.shared.preview_tables.contains(table)) {
                    let damage = self.shared.file.broken_promise(current.segment.slot, location.start);
                    if !self.salvage {
                        return Err(LogError::Corrupt(Box::new(damage)));
                    }
                    // A salvage trusts no promise, so its preview saw the record. The report names the damage once.
                    let gap = Gap::of(damage, 0, Some(current.segment.id));
                    let is_reported =
                        |reported: &Gap| reported.segment == gap.segment && reported.damage.offset == gap.damage.offset;
                    if !self.report.gaps.iter().any(is_reported) {
                        self.report.gaps.push(gap);
                    }
                }
                current.segment.mark_dirty(tables, position.offset);
                if let [table] = tables {
                    current.last = Some((*table, current.segment.range_of(*table)));
                }
            }
        }
        self.report.records += 1;
        self.report.data_bytes += data.len() as u64;
        Ok(Record { start, position, tables: &self.tables, data })
    }

    /// Another replay, from the first record, of the records that touch one of
    /// [`preview_tables`](LogOptions::preview_tables), for a caller that needs to know these beforehand. It does not
    /// check the data of other records, and does not read segments that have none. Only this replay, and not the
    /// preview, frees segments.
    pub fn preview(&self) -> Replay {
        Replay {
            shared: Arc::clone(&self.shared),
            disk: Arc::clone(&self.disk),
            directory: self.directory.clone(),
            salvage: self.salvage,
            keeps_copies: false,
            pending: self.to_preview().into(),
            wanted: Some(self.shared.preview_tables.clone()),
            found: Vec::new(),
            durable_blocks: self.durable_blocks.clone(),
            images: None,
            ahead: None,
            current: None,
            scratch: Vec::new(),
            tables: Vec::new(),
            report: ReplayReport::default(),
        }
    }

    /// Reads what the preview left out, for a caller that missed a record in the preview. Fails if a segment has a
    /// record of [`preview_tables`](LogOptions::preview_tables), although its bookkeeping promises that it has none:
    /// then the log is damaged, and the preview has not seen that record.
    pub fn check_promises(&self) -> Result<(), LogError> {
        let mut all = Replay { pending: self.found.clone().into(), ..self.preview() };
        while all.next_record()?.is_some() {}
        Ok(())
    }

    /// Another replay of the same records, for a caller that learns during the first replay that it needs some of them
    /// again. Make it before the first replay is read, and read it before anything of the log is freed; see
    /// [`only`](Replay::only).
    pub fn again(&self) -> Replay {
        Replay { pending: self.found.clone().into(), wanted: None, ..self.preview() }
    }

    /// Skips the records that touch none of these tables, and the segments in which none of them has any left.
    pub fn only(mut self, tables: Vec<Uuid>) -> Replay {
        debug_assert!(self.current.is_none(), "nothing was read of it");
        self.pending.retain(|segment| segment.dirty_tables().iter().any(|table| tables.contains(table)));
        self.wanted = Some(tables);
        self
    }

    /// The segments whose bookkeeping does not promise that they have no such record, each with its successor, whose
    /// first frame says how far the segment is durable. Salvage trusts no promise.
    fn to_preview(&self) -> Vec<Arc<SegmentUse>> {
        let mut is_next = false;
        let is_read = |segment: &&Arc<SegmentUse>| {
            let may_have = self.salvage || !self.shared.is_promised(segment);
            std::mem::replace(&mut is_next, may_have) || may_have
        };
        self.found.iter().filter(is_read).cloned().collect()
    }

    /// Keeps a copy of every segment from now on, as if all were damaged, because the caller cannot interpret all
    /// records.
    pub fn keep_copies(&mut self) {
        self.keeps_copies = true;
    }

    /// The findings so far.
    pub fn report(&self) -> &ReplayReport {
        &self.report
    }

    /// Reads a segment and judges its blocks.
    fn load(&mut self, segment: Arc<SegmentUse>) -> Result<CurrentSegment, LogError> {
        let image = match self.ahead.take() {
            Some(image) => image,
            None => {
                self.images = Some(self.read_ahead(&segment)?);
                self.next_image()?
            }
        };
        if let Some(mode) = image.unknown_mode() {
            let reason =
                format!("segment {} was written in sync mode {mode}, which this build does not know", segment.id);
            return Err(LogError::Refused { path: self.shared.file.path().to_path_buf(), reason });
        }
        let noted = self.durable_blocks.get(&segment.id).copied().unwrap_or(0);
        let mut horizon = image.horizon_of(segment.id).max(noted).max(segment.durable_blocks());
        if !self.pending.is_empty() {
            // The first frame of the next segment says how far this one is durable.
            let next = self.next_image()?;
            horizon = horizon.max(next.horizon_of(segment.id));
            self.ahead = Some(next);
        }
        let verdict = image.judge(horizon);
        self.report_damage(&segment, &image, &verdict)?;
        debug_assert_eq!(image.id(), segment.id, "images come in the order of segments");
        // Everything found was made durable when the log was opened.
        segment.note_durable_blocks(horizon.max(verdict.sound_blocks()));
        self.report.segments += 1;
        Ok(CurrentSegment { segment, image, runs: verdict.runs.into(), cursor: None, last: None })
    }

    /// Starts a thread that reads this segment and the following ones and classifies their blocks, while the records of
    /// earlier segments are applied. It keeps one image ready while it reads the next.
    fn read_ahead(&self, first: &Arc<SegmentUse>) -> Result<Images, LogError> {
        let ((send, read), (used, memory)) = (sync_channel(0), channel());
        let shared = Arc::clone(&self.shared);
        let segments: Vec<_> = [first].into_iter().chain(&self.pending).map(|found| (found.slot, found.id)).collect();
        let read_all = move || {
            // The send fails when the replay was abandoned.
            let mut read = |(slot, id)| send.send(shared.file.read_image(slot, id, memory.try_recv().ok()));
            let _ = segments.into_iter().try_for_each(&mut read);
        };
        match thread::Builder::new().name("CommitLogReader".into()).spawn(read_all) {
            Ok(_) => Ok(Images { read, used }),
            Err(error) => Err(LogError::Closed(format!("no thread to read the commit log: {error}").into())),
        }
    }

    fn next_image(&self) -> Result<SegmentImage, LogError> {
        let next = self.images.as_ref().and_then(|images| images.read.recv().ok());
        next.unwrap_or_else(|| Err(LogError::Closed("the reader of the commit log failed".into())))
    }

    /// Leaves the current segment, which is at its end.
    fn leave(&mut self) {
        if let (Some(current), Some(images)) = (self.current.take(), &self.images) {
            // The send fails when the last segment was already read.
            let _ = images.used.send(current.image.into_memory());
        }
    }

    fn report_damage(&mut self, segment: &SegmentUse, image: &SegmentImage, verdict: &Verdict) -> Result<(), LogError> {
        for range in &verdict.damaged {
            let offset = self.shared.file.geometry().block_offset(segment.slot, range.start);
            let expected = format!("block {} of segment {}", range.start, segment.id);
            let damage = self.shared.file.corrupt(offset, expected, image.state(range.start).to_string());
            let length = u64::from(range.end - range.start) * BLOCK_SIZE as u64;
            debug_assert!(length > 0 && range.end <= image.blocks());
            self.got_over(Gap::of(damage, length, Some(segment.id)))?;
        }
        if self.keeps_copies || !verdict.damaged.is_empty() {
            self.keep_copy(segment, image)?;
        }
        Ok(())
    }

    /// Reports damage: as an error, unless the log is opened with salvage.
    fn got_over(&mut self, gap: Gap) -> Result<(), LogError> {
        if !self.salvage {
            return Err(LogError::Corrupt(Box::new(gap.damage)));
        }
        self.report.gaps.push(gap);
        Ok(())
    }

    /// Keeps a copy of a segment's bytes for later inspection, because the segment will be reused. Keeps one copy,
    /// however often the start is tried.
    fn keep_copy(&self, segment: &SegmentUse, image: &SegmentImage) -> Result<(), LogError> {
        let name = format!("commitlog.damaged-{}", segment.id);
        if self.is_kept(&name, image)? {
            return Ok(());
        }
        let path = free_path(&*self.disk, &self.directory, &name)?;
        let copy = self.disk.open(&path, OpenOptions::create())?;
        copy.write_at(image.bytes(), 0)?;
        copy.sync_data()?;
        Ok(self.disk.sync_dir(&self.directory)?)
    }

    /// Whether an existing copy has the same bytes.
    fn is_kept(&self, name: &str, image: &SegmentImage) -> Result<bool, LogError> {
        let file_names = self.disk.list(&self.directory)?.into_iter().map(|entry| entry.name);
        let copies = file_names
            .filter(|file| file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
        for copy in copies {
            let copy = self.disk.open(&self.directory.join(copy), OpenOptions::read())?;
            let mut bytes = vec![0; image.bytes().len()];
            if copy.len()? == bytes.len() as u64
                && copy.read_at(&mut bytes, 0)? == bytes.len()
                && bytes == image.bytes()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the replay: everything about the found segments is known now, and those that no table needs are freed.
    fn finish(&mut self) -> Result<(), LogError> {
        debug_assert!(self.pending.is_empty() && self.current.is_none(), "the replay was read to its end");
        for segment in self.found.drain(..) {
            segment.replayed();
        }
        self.shared.free_unused()
    }
}
