//! Writing row blobs.
//!
//! A [`RowBuilder`] owns the buffers of the row that it collects. The blob depends on the parts only, not on the rows
//! that were written before. The builder does not know the schema, and does not merge (`merge.rs`): the caller passes
//! columns in set order, and the cells of a column in the order of their paths.

use std::ops::Range;

use types::{steps, vint};

use super::{Cell, Liveness, Row, TTL_NONE, cell_flag, flag};
use crate::{ColumnSet, DeletionTime, NO_DELETION_TIME};

/// The capacity that the buffers of a builder may keep for the next row, in bytes. Builders live as long as their
/// threads, and a row may have many megabytes.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Collects the parts of a row, column by column in set order, and writes it as a blob.
///
/// It reuses its buffers for all rows: `start`, then the parts, then `finish`.
#[derive(Debug)]
pub struct RowBuilder {
    is_static: bool,
    version: u32,
    slots: usize,
    liveness: Liveness,
    deletion: DeletionTime,
    /// Simple columns, while all their cells have the row's times; from the first exception on, all columns are in
    /// `columns`.
    runs: Vec<Run>,
    plain: Shared,
    /// The times that many of the cells may share.
    usual: Shared,
    columns: Vec<ColumnEntry>,
    cells: Vec<CellEntry>,
    bytes: Vec<u8>,
}

/// Adjacent columns whose slots are in `bytes` as the blob has them.
#[derive(Debug)]
struct Run {
    index: usize,
    count: usize,
    slots: Range<usize>,
}

#[derive(Debug)]
struct ColumnEntry {
    index: usize,
    /// The deletion of a complex column; `None` for a simple one.
    complex: Option<DeletionTime>,
    first_cell: usize,
}

#[derive(Debug)]
struct CellEntry {
    timestamp: i64,
    ttl: i32,
    local_deletion_time: u32,
    path: Range<usize>,
    value: Range<usize>,
}

/// The form of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Row,
    Piece,
}

/// The slots of a dense piece of simple columns, whose cells all have the same times.
pub(super) struct PlainPiece<'a> {
    pub times: Shared,
    /// The index of the first column.
    pub first: usize,
    /// The number of columns, including absent ones.
    pub count: usize,
    pub slots: &'a [u8],
}

impl<'a> PlainPiece<'a> {
    /// Runs of adjacent columns with values: the index of the first, their number, and their slots.
    fn runs(&self) -> impl Iterator<Item = (usize, usize, &'a [u8])> {
        let (mut at, mut index, end, slots) = (0, self.first, self.first + self.count, self.slots);
        std::iter::from_fn(move || {
            while index < end && slot_length(slots, at) < 0 {
                (at, index) = (at + size_of::<i32>(), index + 1);
            }
            let (start, first) = (at, index);
            while index < end
                && let Ok(length) = usize::try_from(slot_length(slots, at))
            {
                (at, index) = (at + size_of::<i32>() + length, index + 1);
            }
            (index > first).then(|| (first, index - first, slots.get(start..at).unwrap_or_default()))
        })
    }
}

/// The times that cells share unless they state their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Shared {
    timestamp: Option<i64>,
    ttl: i32,
    expiration: u32,
}

impl Shared {
    const NOTHING: Shared = Shared { timestamp: None, ttl: TTL_NONE, expiration: NO_DELETION_TIME };

    /// The shared times of a row without liveness, taken from its first cell.
    fn of_first(timestamp: i64, ttl: i32, local_deletion_time: u32) -> Shared {
        let expiration = if ttl == TTL_NONE { NO_DELETION_TIME } else { local_deletion_time };
        Shared { timestamp: Some(timestamp), ttl, expiration }
    }

    /// The times that a row states for its cells.
    pub fn of_row(row: Row<'_>) -> Shared {
        let header = row.header();
        let timestamp = (header.flags & flag::TIMESTAMP != 0).then_some(header.timestamp);
        Shared { timestamp, ttl: header.ttl, expiration: header.expiration }
    }

    /// The times of a cell.
    pub fn of_cell(cell: &Cell<'_>) -> Shared {
        Shared::of_first(cell.timestamp, cell.ttl, cell.local_deletion_time)
    }

    fn of_liveness(liveness: &Liveness) -> Shared {
        Shared { timestamp: Some(liveness.timestamp), ttl: liveness.ttl, expiration: liveness.expiration }
    }

    fn covers(&self, timestamp: i64, ttl: i32, local_deletion_time: u32) -> bool {
        self.timestamp == Some(timestamp) && self.ttl == ttl && self.expiration == local_deletion_time
    }

    fn covers_entry(&self, cell: &CellEntry) -> bool {
        self.covers(cell.timestamp, cell.ttl, cell.local_deletion_time)
    }
}

impl Default for RowBuilder {
    fn default() -> Self {
        RowBuilder {
            is_static: false,
            version: 0,
            slots: 0,
            liveness: Liveness::EMPTY,
            deletion: DeletionTime::LIVE,
            runs: Vec::new(),
            plain: Shared::NOTHING,
            usual: Shared::NOTHING,
            columns: Vec::new(),
            cells: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

/// Appends the head of the blob of a row that was inserted at `timestamp` and has a cell of that age for each column of
/// `set`, all of them simple. The caller appends the columns' slots (an i32 length and the value each).
pub fn begin_plain_row(set: &ColumnSet, timestamp: i64, out: &mut Vec<u8>) {
    out.push(flag::TIMESTAMP | flag::LIVENESS);
    vint::write_uvint(u64::from(set.version), out);
    out.extend_from_slice(&timestamp.to_be_bytes());
}

impl RowBuilder {
    /// Begins a row of the columns of `set`.
    pub fn start(&mut self, set: &ColumnSet, is_static: bool) {
        self.is_static = is_static;
        self.version = set.version;
        self.slots = set.columns.len();
        self.liveness = Liveness::EMPTY;
        self.deletion = DeletionTime::LIVE;
        self.runs.clear();
        self.plain = Shared::NOTHING;
        self.usual = Shared::NOTHING;
        self.columns.clear();
        self.cells.clear();
        self.bytes.clear();
    }

    /// Sets the primary-key liveness.
    pub fn liveness(&mut self, liveness: Liveness) {
        self.itemize();
        self.liveness = liveness;
        self.plain = if liveness.is_empty() { Shared::NOTHING } else { Shared::of_liveness(&liveness) };
    }

    /// Sets the times that many of the cells may share, for a row without liveness; cells with these times then need
    /// none of their own.
    pub(super) fn usual(&mut self, usual: Shared) {
        self.usual = usual;
    }

    /// Sets the deletion of the whole row.
    pub fn deletion(&mut self, deletion: DeletionTime) {
        self.deletion = deletion;
    }

    /// Adds the cell of the simple column at `index` of the set. Indexes must ascend.
    pub fn cell(&mut self, index: usize, cell: &Cell<'_>) {
        let Cell { timestamp, ttl, local_deletion_time, value, .. } = *cell;
        if self.plain.timestamp.is_none() {
            self.plain = Shared::of_first(timestamp, ttl, local_deletion_time);
        }
        if self.columns.is_empty() && self.plain.covers(timestamp, ttl, local_deletion_time) {
            return self.push_slot(index, value);
        }
        self.itemize();
        self.push_column(index, None);
        self.push_cell(cell);
    }

    /// Adds the cells of the first columns of the set, all with the times of the row's liveness. `write` appends their
    /// slots (an i32 length and the value each) and returns their number. Only if nothing but the liveness was set.
    pub fn slots_of_row<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<usize, E>) -> Result<usize, E> {
        debug_assert!(self.columns.is_empty() && self.runs.is_empty() && !self.liveness.is_empty(), "slots come first");
        let start = self.bytes.len();
        let count = write(&mut self.bytes)?;
        if count > 0 {
            self.runs.push(Run { index: 0, count, slots: start..self.bytes.len() });
        }
        Ok(count)
    }

    /// Adds the cells of a piece by copying their slots, if all have the row's times; otherwise adds nothing and
    /// returns false.
    pub(super) fn add_plain_piece(&mut self, piece: &PlainPiece<'_>) -> bool {
        if self.plain.timestamp.is_none() {
            self.plain = piece.times;
        }
        let is_plain = self.columns.is_empty() && self.plain == piece.times;
        if is_plain {
            piece.runs().for_each(|(index, count, slots)| self.push_slots(index, count, slots));
        }
        is_plain
    }

    /// Adds a cell with the row's times.
    fn push_slot(&mut self, index: usize, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(value);
        self.lengthen_runs(index, 1, start);
    }

    /// Adds `count` such cells of adjacent columns.
    fn push_slots(&mut self, index: usize, count: usize, slots: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(slots);
        self.lengthen_runs(index, count, start);
    }

    /// Extends the runs by columns whose slots begin at `start` in the buffer.
    fn lengthen_runs(&mut self, index: usize, count: usize, start: usize) {
        debug_assert!(index + count <= self.slots, "column {index} of {}", self.slots);
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some(run) if run.index + run.count == index => {
                run.count += count;
                run.slots.end = end;
            }
            last => {
                debug_assert!(last.is_none_or(|run| run.index + run.count < index), "columns ascend");
                self.runs.push(Run { index, count, slots: start..end });
            }
        }
    }

    /// Converts the runs to single cells, because not all cells have the row's times.
    fn itemize(&mut self) {
        let Shared { timestamp, ttl, expiration } = self.plain;
        for run in &self.runs {
            let mut at = run.slots.start;
            for index in run.index..run.index + run.count {
                let value = slot_value(&self.bytes, at);
                at = value.end;
                self.columns.push(ColumnEntry { index, complex: None, first_cell: self.cells.len() });
                self.cells.push(CellEntry {
                    timestamp: timestamp.unwrap_or(i64::MIN),
                    ttl,
                    local_deletion_time: expiration,
                    path: 0..0,
                    value,
                });
            }
        }
        self.runs.clear();
    }

    /// Begins the complex column at `index` of the set; its cells follow in path order. Indexes must ascend.
    pub fn complex(&mut self, index: usize, deletion: DeletionTime) {
        self.push_column(index, Some(deletion));
    }

    /// Adds a cell to the current complex column, unless the column's deletion deletes it. Paths must ascend in the
    /// order of the path's type.
    pub fn complex_cell(&mut self, cell: &Cell<'_>) {
        let deletion = self.columns.last().and_then(|column| column.complex);
        debug_assert!(deletion.is_some(), "complex() comes first");
        if !deletion.is_some_and(|deletion| deletion.deletes(cell.timestamp)) {
            self.push_cell(cell);
        }
    }

    fn push_column(&mut self, index: usize, complex: Option<DeletionTime>) {
        self.drop_empty_complex();
        debug_assert!(index < self.slots, "column {index} of {}", self.slots);
        debug_assert!(self.columns.last().is_none_or(|last| last.index < index), "columns ascend");
        self.columns.push(ColumnEntry { index, complex, first_cell: self.cells.len() });
    }

    fn push_cell(&mut self, cell: &Cell<'_>) {
        let path = self.push_bytes(cell.path);
        let value = self.push_bytes(cell.value);
        let Cell { timestamp, ttl, local_deletion_time, .. } = *cell;
        self.cells.push(CellEntry { timestamp, ttl, local_deletion_time, path, value });
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Removes a complex column without deletion and cells, which is not written.
    fn drop_empty_complex(&mut self) {
        if let Some(last) = self.columns.last()
            && last.complex.is_some_and(|deletion| deletion.is_live())
            && last.first_cell == self.cells.len()
        {
            self.columns.pop();
        }
    }

    /// Whether nothing was added. Such a row must not be written.
    pub fn is_empty(&mut self) -> bool {
        self.drop_empty_complex();
        self.liveness.is_empty() && self.deletion.is_live() && self.columns.is_empty() && self.runs.is_empty()
    }

    /// The approximate length of the blob in bytes; it is seldom longer.
    pub fn size_bytes(&self) -> usize {
        const HEADER_BYTES_MAX: usize = 34;
        const CELL_BYTES_MAX: usize = 24;
        HEADER_BYTES_MAX + self.bytes.len() + CELL_BYTES_MAX * self.cells.len()
    }

    /// The bytes that its buffer for values keeps for the next row.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The number of cells.
    pub(super) fn cell_count(&self) -> usize {
        self.cells.len() + self.runs.iter().map(|run| run.count).sum::<usize>()
    }

    /// Appends the blob to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.drop_empty_complex();
        self.write(Form::Row, 0..self.slots, out);
        self.release();
    }

    /// Appends the blob of a piece of a row to `out`.
    pub(super) fn finish_piece(&mut self, out: &mut Vec<u8>) {
        self.drop_empty_complex();
        self.write(Form::Piece, self.span(), out);
        self.release();
    }

    /// Makes room for this many bytes of values of a large row. A buffer that grows step by step is up to twice as
    /// large as what it holds, and is copied while the old one is still there.
    #[cold]
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    /// Frees buffers that a large row has enlarged. Call it after the row was written or discarded.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.bytes.capacity() + self.cells.capacity() * size_of::<CellEntry>() > KEPT_BYTES_MAX {
            self.discard();
        }
    }

    #[cold]
    fn discard(&mut self) {
        (self.bytes, self.cells) = (Vec::new(), Vec::new());
        (self.runs, self.columns) = (Vec::new(), Vec::new());
    }

    /// The columns from the first to the last that has any data.
    fn span(&self) -> Range<usize> {
        let (runs, columns) = (&self.runs, &self.columns);
        let start = runs.first().map(|run| run.index).or(columns.first().map(|column| column.index));
        let end = columns.last().map(|column| column.index + 1).or(runs.last().map(|run| run.index + run.count));
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Writes the blob. A dense one has the slots of `span`.
    fn write(&self, form: Form, span: Range<usize>, out: &mut Vec<u8>) {
        steps::count(self.cell_count());
        if self.bytes.len() > KEPT_BYTES_MAX {
            out.reserve_exact(self.size_bytes());
        }
        let shared = self.shared();
        let has_cell_meta = self.simple_cells().any(|cell| !shared.covers_entry(cell));
        let count = self.columns.len() + self.runs.iter().map(|run| run.count).sum::<usize>();
        let absent = span.len() - count;
        let sparse = absent > 0 && 4 * absent > self.index_size() + vint::uvint_size(count as u64);
        self.write_header(form, &shared, has_cell_meta, sparse, out);
        if sparse {
            vint::write_uvint(count as u64, out);
        } else if form == Form::Piece {
            vint::write_uvint(span.start as u64, out);
            vint::write_uvint(span.len() as u64, out);
        }
        let mut next_slot = self.write_runs(sparse, span.start, out);
        for (place, column) in self.columns.iter().enumerate() {
            if sparse {
                vint::write_uvint(column.index as u64, out);
            } else {
                write_absent(column.index - next_slot, out);
            }
            next_slot = column.index + 1;
            let end = self.columns.get(place + 1).map_or(self.cells.len(), |next| next.first_cell);
            let cells = &self.cells[column.first_cell..end];
            write_sized(out, |out| match column.complex {
                Some(deletion) => self.write_complex(deletion, cells, &shared, out),
                None => cells.iter().for_each(|cell| self.write_simple(cell, has_cell_meta, &shared, out)),
            });
        }
        if !sparse {
            write_absent(span.end - next_slot, out);
        }
    }

    /// The bytes of the indexes of a sparse row.
    fn index_size(&self) -> usize {
        let of_runs = self.runs.iter().flat_map(|run| run.index..run.index + run.count);
        let indexes = of_runs.chain(self.columns.iter().map(|column| column.index));
        indexes.map(|index| vint::uvint_size(index as u64)).sum()
    }

    /// Writes the runs and, if the row is dense, the absent columns before them (from `first_slot` on) and between
    /// them. Returns the index after them.
    fn write_runs(&self, sparse: bool, first_slot: usize, out: &mut Vec<u8>) -> usize {
        let mut next_slot = first_slot;
        for run in &self.runs {
            if sparse {
                let mut at = run.slots.start;
                for index in run.index..run.index + run.count {
                    let end = slot_value(&self.bytes, at).end;
                    vint::write_uvint(index as u64, out);
                    out.extend_from_slice(&self.bytes[at..end]);
                    at = end;
                }
            } else {
                write_absent(run.index - next_slot, out);
                out.extend_from_slice(&self.bytes[run.slots.clone()]);
            }
            next_slot = run.index + run.count;
        }
        next_slot
    }

    fn simple_cells(&self) -> impl Iterator<Item = &CellEntry> {
        self.columns
            .iter()
            .filter(|column| column.complex.is_none())
            .filter_map(|column| self.cells.get(column.first_cell))
    }

    /// The times that the row states for its cells: the liveness if there is one; otherwise those of the first cell,
    /// unless more cells have the usual ones.
    fn shared(&self) -> Shared {
        let of = |first: &CellEntry| Shared::of_first(first.timestamp, first.ttl, first.local_deletion_time);
        let first = match self.plain.timestamp {
            Some(_) => self.plain,
            None => self.cells.first().map_or(Shared::NOTHING, of),
        };
        // All cells in runs have the same times as the first.
        let is_said = !self.liveness.is_empty() || !self.runs.is_empty() || self.usual == first;
        let count = |shared: Shared| self.cells.iter().filter(|cell| shared.covers_entry(cell)).count();
        if is_said || self.usual.timestamp.is_none() || count(self.usual) < count(first) { first } else { self.usual }
    }

    fn write_header(&self, form: Form, shared: &Shared, has_cell_meta: bool, sparse: bool, out: &mut Vec<u8>) {
        let bits = [
            (shared.timestamp.is_some(), flag::TIMESTAMP),
            (!self.liveness.is_empty(), flag::LIVENESS),
            (shared.ttl != TTL_NONE, flag::EXPIRING),
            (!self.deletion.is_live(), flag::DELETION),
            (sparse, flag::SPARSE),
            (has_cell_meta, flag::CELL_META),
            (self.is_static, flag::STATIC),
            (form == Form::Piece, flag::PIECE),
        ];
        out.push(bits.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit));
        vint::write_uvint(u64::from(self.version), out);
        if let Some(timestamp) = shared.timestamp {
            out.extend_from_slice(&timestamp.to_be_bytes());
        }
        if shared.ttl != TTL_NONE {
            out.extend_from_slice(&shared.ttl.to_be_bytes());
            out.extend_from_slice(&shared.expiration.to_be_bytes());
        }
        if !self.deletion.is_live() {
            write_deletion(self.deletion, out);
        }
    }

    fn write_simple(&self, cell: &CellEntry, has_cell_meta: bool, shared: &Shared, out: &mut Vec<u8>) {
        if has_cell_meta {
            self.write_cell(cell, shared, out);
        } else {
            out.extend_from_slice(&self.bytes[cell.value.clone()]);
        }
    }

    fn write_complex(&self, deletion: DeletionTime, cells: &[CellEntry], shared: &Shared, out: &mut Vec<u8>) {
        out.push(u8::from(!deletion.is_live()));
        if !deletion.is_live() {
            write_deletion(deletion, out);
        }
        vint::write_uvint(cells.len() as u64, out);
        for cell in cells {
            vint::write_uvint(cell.path.len() as u64, out);
            out.extend_from_slice(&self.bytes[cell.path.clone()]);
            write_sized(out, |out| self.write_cell(cell, shared, out));
        }
    }

    fn write_cell(&self, cell: &CellEntry, shared: &Shared, out: &mut Vec<u8>) {
        let own_timestamp = shared.timestamp != Some(cell.timestamp);
        let is_tombstone = cell.local_deletion_time != NO_DELETION_TIME && cell.ttl == TTL_NONE;
        let same_expiry = shared.ttl == cell.ttl && shared.expiration == cell.local_deletion_time;
        let expiring = cell.ttl != TTL_NONE && !same_expiry;
        let not_expiring = cell.ttl == TTL_NONE && !is_tombstone && shared.ttl != TTL_NONE;
        let bits = [
            (own_timestamp, cell_flag::OWN_TIMESTAMP),
            (is_tombstone, cell_flag::TOMBSTONE),
            (expiring, cell_flag::EXPIRING),
            (not_expiring, cell_flag::NOT_EXPIRING),
        ];
        out.push(bits.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit));
        if own_timestamp {
            out.extend_from_slice(&cell.timestamp.to_be_bytes());
        }
        if is_tombstone || expiring {
            out.extend_from_slice(&cell.local_deletion_time.to_be_bytes());
        }
        if expiring {
            out.extend_from_slice(&cell.ttl.to_be_bytes());
        }
        out.extend_from_slice(&self.bytes[cell.value.clone()]);
    }
}

/// The range of the value of the slot at `at`; slots of runs always have values.
fn slot_value(bytes: &[u8], at: usize) -> Range<usize> {
    at + 4..at + 4 + slot_length(bytes, at) as usize
}

fn slot_length(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |length| i32::from_be_bytes(*length))
}

fn write_deletion(deletion: DeletionTime, out: &mut Vec<u8>) {
    out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
    out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
}

fn write_absent(slots: usize, out: &mut Vec<u8>) {
    for _ in 0..slots {
        out.extend_from_slice(&(-1i32).to_be_bytes());
    }
}

/// Writes an i32 length, and the bytes that `write` appends.
fn write_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}
