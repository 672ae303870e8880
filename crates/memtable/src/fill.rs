//! Copying partitions, rows and markers out of the shards, under short pins.
//!
//! A fill resumes where the last one stopped: at a partition, or between two rows. In the second case it looks up again
//! which range deletion is in force, and emits a marker if that differs from what the items so far have said. Entering
//! a slice works the same way, with no deletion announced yet. Markers are therefore always well nested, and a deletion
//! that arrived between two fills applies to the rest of the partition. For this to work, a fill may stop before a
//! marker, but never directly after one.
//!
//! Within one fill a partition is read under one pin that says so to the writer, and from one tail of the trie, so that
//! its header, deletions and rows are of one version. A fill that ends within a small partition leaves all of it to the
//! next fill, so a reader sees partitions of up to 4 KiB in one version each.

use std::ops::{Bound, Range};
use std::sync::Arc;

use memtrie::{Bounds, Direction, Tail};
use model::{DeletionTime, ReadError, Row, RowMerger, RowReservation, Side, Table};

use crate::branch::{Branch, BranchRange, after_partition, after_row};
use crate::layout::{Header, PIECE_BRANCH, ROW_DELETION_BRANCH, read_deletion, side_of};
use crate::pieces::{LargeRows, StoredRow, WantedColumns};
use crate::plan::{Plan, ReadPosition};
use crate::ranges::{self, Borders, deletion_at};
use crate::shard::is_newer;
use crate::translate::{deletion_only, translate};

/// Where the next fill resumes.
pub(crate) enum Stop {
    /// At the plan's only partition.
    Only,
    /// At the first partition at or after this path.
    Partition {
        shard: usize,
        path: Vec<u8>,
    },
    /// Between rows of a partition.
    Rows {
        shard: usize,
        path: Vec<u8>,
        at: Position,
    },
    End,
}

/// A place inside a partition.
pub(crate) struct Position {
    /// The partition's deletion as it was yielded.
    deletion: DeletionTime,
    /// The slice, in reading order.
    slice: usize,
    /// The border between two rows; `None` at the start of the slice.
    place: Option<ReadPosition>,
    /// The range deletion in force according to the markers so far.
    open: DeletionTime,
}

impl Position {
    fn start(deletion: DeletionTime) -> Position {
        Position { deletion, slice: 0, place: None, open: DeletionTime::LIVE }
    }

    fn place<'p>(&'p self, plan: &'p Plan) -> &'p ReadPosition {
        debug_assert!(self.slice < plan.slices.len(), "slice {} of {}", self.slice, plan.slices.len());
        self.place.as_ref().unwrap_or(&plan.slices[self.slice].from)
    }
}

pub(crate) type Span = Range<usize>;

pub(crate) enum Item {
    /// A partition, without its path if it is the plan's only one.
    Partition {
        path: Span,
        deletion: DeletionTime,
        static_row: Option<Span>,
    },
    Row {
        clustering: Span,
        row: Span,
    },
    Marker {
        prefix: Span,
        side: Side,
        before: DeletionTime,
        after: DeletionTime,
    },
}

/// Items that were copied out, with their bytes.
#[derive(Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub items: Vec<Item>,
    /// The size from which the batch is full.
    bytes_max: usize,
    /// How many more rows the reader will ask for, if that is known. At 0 the batch is full.
    rows_expected: Option<usize>,
    /// Rows in the batch.
    rows: usize,
    /// The memory that the reader has taken for copies of large rows.
    pub reservation: RowReservation,
    /// There was too little memory for a row. The batch is then not used.
    refusal: Option<ReadError>,
    /// The next partition is left to the next batch.
    is_closed: bool,
}

/// The state of a batch before a partition was begun.
struct Mark {
    items: usize,
    bytes: usize,
    rows: usize,
    rows_expected: Option<usize>,
}

/// The size of the first batch. It is small, and each further one is twice as large.
const BATCH_BYTES_FIRST: usize = 4 << 10;
const BATCH_BYTES_MAX: usize = 64 << 10;
/// The bytes that an item counts in addition to its content.
const ITEM_BYTES: usize = size_of::<Item>();

const _: () = assert!(BATCH_BYTES_FIRST <= BATCH_BYTES_MAX && ITEM_BYTES < BATCH_BYTES_FIRST);

impl Batch {
    fn start(&mut self) {
        self.items.clear();
        self.bytes.clear();
        self.rows = 0;
        self.is_closed = false;
        if self.rows_expected == Some(0) {
            // The reader could not use some of them, so it is unknown how many more it needs.
            (self.rows_expected, self.bytes_max) = (None, 0);
        }
        // The buffer must not stay as large as a row of many megabytes.
        self.bytes.shrink_to(4 * BATCH_BYTES_MAX);
        self.bytes_max = (self.bytes_max * 2).clamp(BATCH_BYTES_FIRST, BATCH_BYTES_MAX);
        if self.items.capacity() == 0 {
            self.items = Vec::with_capacity(8);
        }
        if self.bytes.capacity() < self.bytes_max {
            // Growing the old buffer would copy its contents. The last row may exceed the batch's size.
            self.bytes = Vec::with_capacity(self.bytes_max + self.bytes_max / 4);
        }
    }

    pub fn expect_rows(&mut self, rows: usize) {
        self.rows_expected = Some(rows).filter(|rows| *rows > 0);
    }

    fn is_full(&self) -> bool {
        self.rows_expected == Some(0)
            || self.is_closed
            || self.refusal.is_some()
            || self.bytes.len() + self.items.len() * ITEM_BYTES >= self.bytes_max
    }

    fn mark(&self) -> Mark {
        let (items, bytes) = (self.items.len(), self.bytes.len());
        Mark { items, bytes, rows: self.rows, rows_expected: self.rows_expected }
    }

    /// Leaves a partition that the batch has no room for to the next batch. Returns false if it stays: what the batch
    /// has of it is as large as a first batch, or nothing is before it, or the reader wants no more rows.
    fn leave_to_next(&mut self, mark: &Mark) -> bool {
        let size_bytes = self.bytes.len() - mark.bytes + (self.items.len() - mark.items) * ITEM_BYTES;
        let stays = mark.items == 0 || size_bytes >= BATCH_BYTES_FIRST || self.rows_expected == Some(0);
        if stays || self.refusal.is_some() {
            return false;
        }
        self.items.truncate(mark.items);
        self.bytes.truncate(mark.bytes);
        (self.rows, self.rows_expected) = (mark.rows, mark.rows_expected);
        self.is_closed = true;
        true
    }

    /// Adds a row whose bytes were pushed.
    fn push_row(&mut self, clustering: Span, row: Span) {
        debug_assert!(clustering.end <= self.bytes.len() && row.end <= self.bytes.len(), "the bytes of a row");
        self.items.push(Item::Row { clustering, row });
        self.rows += 1;
        let Some(expected) = &mut self.rows_expected else { return };
        debug_assert!(*expected > 0, "a batch is full with the last row that is expected");
        *expected -= 1;
        // The first row suggests how large the others are. The room is limited, because fewer rows may exist than
        // expected.
        let rest = expected.saturating_mul(self.bytes.len() + ITEM_BYTES);
        if self.rows == 1 && rest < BATCH_BYTES_MAX {
            self.bytes_max = BATCH_BYTES_MAX;
            self.bytes.reserve(rest + rest / 8);
            self.items.reserve(*expected);
        }
    }

    /// Reserves memory for a copy of a large row. If there is too little, the batch is refused.
    #[cold]
    fn reserve(&mut self, bytes: usize) -> bool {
        self.refusal = self.reservation.take(bytes).err();
        self.refusal.is_none()
    }

    fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        if RowReservation::is_large(bytes.len()) && !self.reserve(bytes.len()) {
            return start..start;
        }
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// Joins the pieces of rows.
struct RowJoiner {
    merger: RowMerger,
    large: LargeRows,
}

/// Fills batches according to a plan.
#[derive(Default)]
pub(crate) struct Filler {
    pub batch: Batch,
    /// Created for the first row that needs it: most reads are of one row in one piece.
    joiner: Option<Box<RowJoiner>>,
    scratch: Vec<u8>,
    /// The row joined from its pieces.
    joined: Vec<u8>,
    /// The regular columns that the reader uses, if it said so.
    pub columns_expected: Option<Arc<[usize]>>,
}

impl Filler {
    fn joiner(&mut self) -> &mut RowJoiner {
        self.joiner.get_or_insert_with(|| Box::new(RowJoiner { merger: RowMerger::default(), large: LargeRows::new() }))
    }

    /// Replaces the batch with the next one. An empty batch is the end.
    pub fn fill(&mut self, plan: &Plan, mut stop: Stop) -> Result<Stop, ReadError> {
        self.batch.start();
        while !self.batch.is_full() {
            stop = match stop {
                Stop::End => return Ok(Stop::End),
                Stop::Only => self.only_partition(plan)?,
                Stop::Partition { shard, path } => self.partitions(plan, shard, path)?,
                Stop::Rows { shard, path, at } => self.continue_partition(plan, shard, path, at)?,
            };
        }
        if let Some(refusal) = self.batch.refusal.take() {
            self.batch.items.clear();
            return Err(refusal);
        }
        Ok(stop)
    }

    fn continue_partition(
        &mut self,
        plan: &Plan,
        shard: usize,
        mut path: Vec<u8>,
        at: Position,
    ) -> Result<Stop, ReadError> {
        let pin = plan.memtable.shards()[shard].trie.pin_below(&path);
        let tail = pin.tail(&path);
        let header = tail.get(&[]).map_or(Header::EMPTY, Header::read);
        match self.rows(plan, tail, &header, at)? {
            Some(at) => Ok(Stop::Rows { shard, path, at }),
            None if plan.single.is_some() => Ok(Stop::End),
            None => {
                after_partition(&mut path);
                Ok(Stop::Partition { shard, path })
            }
        }
    }

    fn only_partition(&mut self, plan: &Plan) -> Result<Stop, ReadError> {
        debug_assert!(plan.single.is_some() && !plan.start.is_empty(), "the read is of one partition");
        let (shard, path) = (plan.first_shard, plan.start.as_slice());
        let pin = plan.memtable.shards()[shard].trie.pin_below(path);
        if !plan.memtable.layout().has_clustering() {
            // Most such partitions are completely in the header.
            let Some(content) = pin.get(path) else { return Ok(Stop::End) };
            let header = Header::read(content);
            if !header.row.is_some_and(|row| row.is_piece()) {
                self.begin_partition(plan, &[], None, &header);
                return Ok(Stop::End);
            }
        }
        // The header, deletions and rows are of one version.
        let tail = pin.tail(path);
        let Some(content) = tail.get(&[]) else { return Ok(Stop::End) };
        let stop = self.partition(plan, tail, &[], content)?;
        Ok(stop.map_or(Stop::End, |at| Stop::Rows { shard, path: path.to_vec(), at }))
    }

    fn partitions(&mut self, plan: &Plan, shard: usize, mut path: Vec<u8>) -> Result<Stop, ReadError> {
        let layout = plan.memtable.layout();
        let pin = plan.memtable.shards()[shard].trie.pin();
        debug_assert!(plan.single.is_none(), "the read is of a range of partitions");
        debug_assert!((plan.first_shard..=plan.last_shard).contains(&shard), "shard {shard} is in the range");
        let start = path.clone();
        let end = if plan.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(plan.end.as_slice()) };
        let mut cursor = pin.cursor(Bounds { start: Bound::Included(&start), end }, Direction::Forward);
        let mut has_entry = cursor.advance();
        while has_entry {
            if self.batch.is_full() {
                return Ok(Stop::Partition { shard, path: cursor.key().to_vec() });
            }
            path.clear();
            path.extend_from_slice(cursor.key());
            let mark = self.batch.mark();
            let header = Header::read(cursor.content());
            let tail = cursor.tail();
            if plan.is_plain && !header.has_branches {
                self.begin_partition(plan, &path, Some(tail), &header);
                let deletion = header.deletion;
                has_entry = match header.row {
                    Some(row) if row.is_piece() => cursor.skip_to(&[path.as_slice(), &[PIECE_BRANCH + 1]].concat()),
                    _ => cursor.advance(),
                };
                while has_entry && cursor.key().starts_with(&path) {
                    let row = self.row(plan, tail, &cursor.key()[path.len()..], Some(cursor.content()), None)?;
                    if self.batch.is_full() {
                        if self.batch.leave_to_next(&mark) {
                            return Ok(Stop::Partition { shard, path });
                        }
                        let at = Position { place: Some(self.place_beside(plan, row)), ..Position::start(deletion) };
                        return Ok(Stop::Rows { shard, path, at });
                    }
                    has_entry = match layout.is_piece(cursor.content()) {
                        true => cursor.skip_to(&after_row(cursor.key())),
                        false => cursor.advance(),
                    };
                }
            } else {
                if let Some(at) = self.partition(plan, tail, &path, cursor.content())? {
                    return Ok(match self.batch.leave_to_next(&mark) {
                        true => Stop::Partition { shard, path },
                        false => Stop::Rows { shard, path, at },
                    });
                }
                after_partition(&mut path);
                has_entry = cursor.skip_to(&path);
            }
        }
        if shard == plan.last_shard {
            return Ok(Stop::End);
        }
        Ok(Stop::Partition { shard: shard + 1, path: start })
    }

    /// Copies a partition. Returns where to resume in it if the batch is full before its end.
    fn partition(
        &mut self,
        plan: &Plan,
        tail: Tail<'_>,
        path: &[u8],
        content: &[u8],
    ) -> Result<Option<Position>, ReadError> {
        let header = Header::read(content);
        self.begin_partition(plan, path, Some(tail), &header);
        if plan.slices.is_empty() || !plan.memtable.layout().has_clustering() {
            return Ok(None);
        }
        self.rows(plan, tail, &header, Position::start(header.deletion))
    }

    /// Starts a partition. `tail` gives access to the pieces of the header's row, if it has any.
    fn begin_partition(&mut self, plan: &Plan, path: &[u8], tail: Option<Tail<'_>>, header: &Header<'_>) {
        let path = self.batch.push(path);
        let row = header.row.map(|row| match tail {
            Some(tail) if row.is_piece() => {
                self.push_joined(plan, StoredRow { head: row, pieces: tail.tail(&[PIECE_BRANCH]) })
            }
            _ => self.push_row(plan, row),
        });
        let is_static = header.row.is_some_and(|row| row.is_static());
        let static_row = row.clone().filter(|_| is_static);
        self.batch.items.push(Item::Partition { path, deletion: header.deletion, static_row });
        if let Some(row) = row
            && !is_static
            && !plan.slices.is_empty()
        {
            self.batch.push_row(0..0, row);
        }
    }

    /// Copies rows and markers from a place to the end of the last slice.
    fn rows(
        &mut self,
        plan: &Plan,
        tail: Tail<'_>,
        header: &Header<'_>,
        mut at: Position,
    ) -> Result<Option<Position>, ReadError> {
        // A partition deletion that arrived after the partition was yielded is reported as a range deletion of the
        // rest.
        let is_late = header.deletion.supersedes(&at.deletion) && !plan.live_only;
        let late = if is_late { header.deletion } else { DeletionTime::LIVE };
        let reads_branches = header.has_branches && !plan.live_only;
        while let Some(slice) = plan.slices.get(at.slice) {
            debug_assert!(at.place.is_some() || at.open.is_live(), "no deletion is open where a slice begins");
            // If the last fill stopped at the very end of the slice, only the open deletion remains to be closed.
            let is_at_end = at.place.as_ref().is_some_and(|place| place.position == slice.to.position);
            let now = if is_at_end { at.open } else { late.max(self.open_at(plan, tail, reads_branches, &at)) };
            if now != at.open {
                let before = std::mem::replace(&mut at.open, now);
                let place = at.place(plan);
                self.marker(plan, &place.prefix, place.side, before, now);
            }
            match &slice.row {
                _ if is_at_end => {}
                Some(position) if !reads_branches && at.place.is_none() => {
                    if let Some(row) = tail.get(position) {
                        let row = self.row(plan, tail, position, Some(row), None)?;
                        if self.batch.is_full() {
                            at.place = Some(self.place_beside(plan, row));
                            return Ok(Some(at));
                        }
                    }
                }
                _ => {
                    if self.slice(plan, tail, reads_branches, late, &mut at)? {
                        return Ok(Some(at));
                    }
                }
            }
            if !at.open.is_live() {
                self.marker(plan, &slice.to.prefix, slice.to.side, at.open, DeletionTime::LIVE);
                at.open = DeletionTime::LIVE;
            }
            at.slice += 1;
            at.place = None;
        }
        Ok(None)
    }

    /// The range deletion in force just after the place, in reading direction.
    fn open_at(&self, plan: &Plan, tail: Tail<'_>, reads_branches: bool, at: &Position) -> DeletionTime {
        if !reads_branches {
            return DeletionTime::LIVE;
        }
        deletion_at(tail, plan.memtable.layout(), &at.place(plan).position, !plan.reversed)
    }

    /// Copies the slice's rows and markers after the place, and moves the place. Returns true if the batch is full.
    fn slice(
        &mut self,
        plan: &Plan,
        tail: Tail<'_>,
        reads_branches: bool,
        late: DeletionTime,
        at: &mut Position,
    ) -> Result<bool, ReadError> {
        let reversed = plan.reversed;
        let direction = if reversed { Direction::Reverse } else { Direction::Forward };
        let to = &plan.slices[at.slice].to.position;
        let range = |branch: &[u8]| BranchRange::new(branch, &at.place(plan).position, to, reversed);
        let live_range = range(&[]);
        let layout = plan.memtable.layout();
        let mut live = Branch::of_rows(tail, &live_range, direction, layout);
        if !reads_branches {
            while let Some(position) = live.position() {
                let span = self.row(plan, tail, position, Some(live.cursor.content()), None)?;
                if self.batch.is_full() {
                    at.place = Some(self.place_beside(plan, span));
                    return Ok(true);
                }
                live.advance_row(layout, direction);
            }
            return Ok(false);
        }
        let from = at.place(plan).position.clone();
        let (deleted_range, range_keys) = (range(&[ROW_DELETION_BRANCH]), ranges::between(&from, to, direction));
        let mut deleted = Branch::new(tail, &deleted_range, 1, direction);
        let mut borders = Borders::new(tail, layout, (from.as_slice(), to.as_slice()), &range_keys, direction);
        let comes_first = |a: &[u8], b: &[u8]| if reversed { a > b } else { a < b };
        loop {
            let positions = [live.position(), deleted.position(), borders.position()];
            let next = positions.into_iter().flatten().reduce(|a, b| if comes_first(b, a) { b } else { a });
            let Some(next) = next else { return Ok(false) };
            if let Some(border) = borders.current().filter(|border| border.position == next) {
                let open = late.max(if reversed { border.before } else { border.after });
                let mut prefix = Vec::new();
                layout.push_clustering(next, border.kept, &mut prefix)?;
                let side = side_of(next);
                if self.batch.is_full() {
                    at.place = Some(ReadPosition { position: next.to_vec(), prefix, side });
                    return Ok(true);
                }
                if open != at.open {
                    self.marker(plan, &prefix, side, at.open, open);
                    at.open = open;
                }
                borders.advance();
                continue;
            }
            let position = next.to_vec();
            let (has_row, has_deletion) = (positions[0] == Some(next), positions[1] == Some(next));
            let row = has_row.then(|| live.cursor.content());
            let deletion = has_deletion.then(|| deleted.cursor.content());
            let span = self.row(plan, tail, &position, row, deletion)?;
            if self.batch.is_full() {
                at.place = Some(self.place_beside(plan, span));
                return Ok(true);
            }
            if has_row {
                live.advance_row(layout, direction);
            }
            if has_deletion {
                deleted.advance();
            }
        }
    }

    /// Copies a row and its deletion (both stored contents). Returns the span of its clustering.
    fn row(
        &mut self,
        plan: &Plan,
        tail: Tail<'_>,
        position: &[u8],
        row: Option<&[u8]>,
        deletion: Option<&[u8]>,
    ) -> Result<Span, ReadError> {
        debug_assert!(row.is_some() || deletion.is_some(), "a position has a row or a row's deletion");
        if row.is_some_and(|content| plan.memtable.layout().is_piece(content)) {
            return self.large_row(plan, tail.tail(position), position, deletion);
        }
        let layout = plan.memtable.layout();
        let kept = row.or(deletion).and_then(|content| layout.split_content(content).0);
        let start = self.batch.bytes.len();
        layout.push_clustering(position, kept, &mut self.batch.bytes)?;
        let clustering = start..self.batch.bytes.len();
        let live = row.map(|content| Row::new(layout.split_content(content).1));
        let deletion = deletion.map(|content| read_deletion(layout.split_content(content).1));
        self.row_at(plan, clustering, live, deletion)
    }

    /// Copies a row that may be in pieces; `pieces` shows one version of them.
    fn large_row(
        &mut self,
        plan: &Plan,
        pieces: Tail<'_>,
        position: &[u8],
        deletion: Option<&[u8]>,
    ) -> Result<Span, ReadError> {
        let layout = plan.memtable.layout();
        let head = pieces.get(&[]).map(|content| layout.split_content(content));
        let kept = head.and_then(|(kept, _)| kept);
        let start = self.batch.bytes.len();
        layout.push_clustering(position, kept, &mut self.batch.bytes)?;
        let clustering = start..self.batch.bytes.len();
        let deletion = deletion.map(|content| read_deletion(layout.split_content(content).1));
        let stored = head.map(|(_, head)| StoredRow { head: Row::new(head), pieces });
        let (stored, deletion) = match (stored, deletion) {
            (Some(stored), None) => {
                let row = self.push_joined(plan, stored);
                self.batch.push_row(clustering.clone(), row);
                return Ok(clustering);
            }
            (None, None) => return Ok(clustering),
            (stored, Some(deletion)) => (stored, deletion),
        };
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.shrink_to(BATCH_BYTES_MAX);
        let has_row = stored.is_some();
        if let Some(stored) = stored {
            self.join(plan, stored, &newest(plan), &mut joined);
        }
        let result = match self.batch.refusal {
            Some(_) => Ok(clustering),
            None => self.row_at(plan, clustering, has_row.then(|| Row::new(&joined)), Some(deletion)),
        };
        self.joined = joined;
        result
    }

    /// Joins a stored row in the batch, so that it is not copied once more.
    fn push_joined(&mut self, plan: &Plan, stored: StoredRow<'_>) -> Span {
        let table = newest(plan);
        let is_static = stored.head.is_static();
        let version = table.columns(is_static).version as usize;
        let is_known = version < plan.table.column_sets(is_static).count();
        let mut joined = std::mem::take(if is_known { &mut self.batch.bytes } else { &mut self.joined });
        if is_known {
            let start = joined.len();
            self.join(plan, stored, &table, &mut joined);
            let span = start..joined.len();
            self.batch.bytes = joined;
            return span;
        }
        joined.clear();
        joined.shrink_to(BATCH_BYTES_MAX);
        self.join(plan, stored, &table, &mut joined);
        let span = if self.batch.refusal.is_some() { 0..0 } else { self.push_row(plan, Row::new(&joined)) };
        self.joined = joined;
        span
    }

    /// Appends a stored row under `table`, without the parts that the reader does not use. If there is too little
    /// memory for it, the batch is refused and nothing is appended.
    fn join(&mut self, plan: &Plan, stored: StoredRow<'_>, table: &Table, out: &mut Vec<u8>) {
        let regulars = plan.table.regulars();
        let is_current = !stored.head.is_static() && stored.head.column_set_version() == regulars.version;
        let expected = self.columns_expected.clone().filter(|_| is_current);
        let wanted = expected.as_deref().map(|columns| WantedColumns { columns, set: regulars });
        let mut reservation = std::mem::take(&mut self.batch.reservation);
        let large = &mut self.joiner().large;
        let joined = large.join_within(plan.memtable.layout(), table, stored, wanted.as_ref(), &mut reservation, out);
        self.batch.reservation = reservation;
        if let Err(refusal) = joined {
            self.batch.refusal = Some(refusal);
        }
    }

    /// Adds the item of a row and its deletion.
    fn row_at(
        &mut self,
        plan: &Plan,
        clustering: Span,
        live: Option<Row<'_>>,
        deletion: Option<DeletionTime>,
    ) -> Result<Span, ReadError> {
        let row = match (live, deletion) {
            (Some(row), None) => self.push_row(plan, row),
            (None, None) => return Ok(clustering),
            (live, Some(deletion)) => {
                let table = newest(plan);
                let mut deleted = Vec::new();
                deletion_only(&table, deletion, &mut deleted);
                let versions: Vec<Row<'_>> = live.into_iter().chain([Row::new(&deleted)]).collect();
                let mut merged = std::mem::take(&mut self.scratch);
                merged.clear();
                self.joiner().merger.merge(&table, &versions, DeletionTime::LIVE, &mut merged);
                let span = self.push_row(plan, Row::new(&merged));
                self.scratch = merged;
                span
            }
        };
        self.batch.push_row(clustering.clone(), row);
        Ok(clustering)
    }

    /// Copies a row, translated to the reader's schema if it was written under a newer one.
    fn push_row(&mut self, plan: &Plan, row: Row<'_>) -> Span {
        let versions = plan.table.column_sets(row.is_static()).count();
        if (row.column_set_version() as usize) < versions {
            return self.batch.push(row.as_bytes());
        }
        let newest = newest(plan);
        let start = self.batch.bytes.len();
        let bytes = row.as_bytes().len();
        if RowReservation::is_large(bytes) && !self.batch.reserve(2 * bytes) {
            return start..start;
        }
        translate(row, &newest, &plan.table, &mut self.batch.bytes);
        start..self.batch.bytes.len()
    }

    fn marker(&mut self, plan: &Plan, prefix: &[u8], side: Side, said: DeletionTime, now: DeletionTime) {
        debug_assert!(said != now, "a marker changes the deletion that is in force");
        let prefix = self.batch.push(prefix);
        let (before, after) = if plan.reversed { (now, said) } else { (said, now) };
        self.batch.items.push(Item::Marker { prefix, side, before, after });
    }

    /// The place just after a copied row, in reading direction.
    fn place_beside(&self, plan: &Plan, clustering: Span) -> ReadPosition {
        let prefix = self.batch.bytes[clustering].to_vec();
        let side = if plan.reversed { Side::Before } else { Side::After };
        let mut position = Vec::new();
        plan.memtable.layout().push_bound(&prefix, side, &mut position);
        ReadPosition { position, prefix, side }
    }
}

/// The newest schema that anything in the memtable was written under.
fn newest(plan: &Plan) -> Arc<Table> {
    let known = plan.memtable.shards().iter().map(|shard| shard.table());
    known.fold(plan.table.clone(), |newest, known| if is_newer(&known, &newest) { known } else { newest })
}
