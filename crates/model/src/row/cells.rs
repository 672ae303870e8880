//! Reading the cells of a row in place.

use std::ops::Range;

use types::steps;

use super::{Header, Reader, Row, TTL_NONE, cell_flag, flag};
use crate::column_sets::ColumnPlace;
use crate::{DeletionTime, NO_DELETION_TIME, Table};

/// One cell. Borrows from the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell<'a> {
    /// Microseconds.
    pub timestamp: i64,
    /// Seconds; [`TTL_NONE`] if the cell does not expire.
    pub ttl: i32,
    /// Seconds since the epoch: the expiration of an expiring cell, the deletion time of a tombstone, otherwise
    /// [`NO_DELETION_TIME`].
    pub local_deletion_time: u32,
    /// The element of a complex column; empty in simple columns.
    pub path: &'a [u8],
    /// The serialized value; empty in a tombstone.
    pub value: &'a [u8],
}

impl<'a> Cell<'a> {
    /// A cell that does not expire.
    pub fn live(timestamp: i64, value: &'a [u8]) -> Self {
        Cell { timestamp, ttl: TTL_NONE, local_deletion_time: NO_DELETION_TIME, path: &[], value }
    }

    /// A cell that expires at `expiration` (seconds since the epoch).
    pub fn expiring(timestamp: i64, ttl: i32, expiration: u32, value: &'a [u8]) -> Self {
        Cell { timestamp, ttl, local_deletion_time: expiration, path: &[], value }
    }

    /// A deleted cell.
    pub fn tombstone(timestamp: i64, local_deletion_time: u32) -> Self {
        Cell { timestamp, ttl: TTL_NONE, local_deletion_time, path: &[], value: &[] }
    }

    /// The same cell as an element of a complex column.
    pub fn with_path(self, path: &'a [u8]) -> Self {
        Cell { path, ..self }
    }

    /// Whether the cell is a tombstone (an expired cell is not one: see [`Cell::is_live`]).
    pub fn is_tombstone(&self) -> bool {
        self.local_deletion_time != NO_DELETION_TIME && self.ttl == TTL_NONE
    }

    /// Whether the cell has a TTL.
    pub fn is_expiring(&self) -> bool {
        self.ttl != TTL_NONE
    }

    /// Whether a client would see it at `now_seconds`.
    pub fn is_live(&self, now_seconds: u32) -> bool {
        self.local_deletion_time == NO_DELETION_TIME || (self.is_expiring() && now_seconds < self.local_deletion_time)
    }
}

/// A row's data of one column.
#[derive(Clone, Copy, Debug)]
pub enum ColumnData<'a> {
    /// A simple column's cell.
    Simple(Cell<'a>),
    /// A complex column's deletion and cells.
    Complex(ComplexCells<'a>),
}

/// The deletion and the cells of a complex column. Iterates over the cells in path order.
#[derive(Clone, Copy, Debug)]
pub struct ComplexCells<'a> {
    /// The deletion of the whole column, `LIVE` if none.
    pub deletion: DeletionTime,
    row: RowDefaults,
    dropped_time_micros: i64,
    remaining: u64,
    reader: Reader<'a>,
}

#[derive(Clone, Copy, Debug)]
struct RowDefaults {
    timestamp: i64,
    ttl: i32,
    expiration: u32,
}

impl RowDefaults {
    /// Whether a cell without times of its own is live.
    fn cell_is_live(&self, now_seconds: u32) -> bool {
        self.ttl == TTL_NONE || now_seconds < self.expiration
    }

    fn cell<'a>(&self, bytes: &'a [u8], path: &'a [u8]) -> Cell<'a> {
        let mut reader = Reader { bytes };
        let flags = reader.u8();
        let timestamp = if flags & cell_flag::OWN_TIMESTAMP != 0 { reader.i64() } else { self.timestamp };
        let (mut ttl, mut local_deletion_time) = (self.ttl, self.expiration);
        if flags & cell_flag::TOMBSTONE != 0 {
            (ttl, local_deletion_time) = (TTL_NONE, reader.u32());
        } else if flags & cell_flag::EXPIRING != 0 {
            local_deletion_time = reader.u32();
            ttl = reader.i32();
        } else if flags & cell_flag::NOT_EXPIRING != 0 {
            (ttl, local_deletion_time) = (TTL_NONE, NO_DELETION_TIME);
        }
        Cell { timestamp, ttl, local_deletion_time, path, value: reader.bytes }
    }
}

impl<'a> ComplexCells<'a> {
    fn new(payload: &'a [u8], row: RowDefaults, dropped_time_micros: i64) -> Self {
        let mut reader = Reader { bytes: payload };
        let mut deletion = match reader.u8() {
            0 => DeletionTime::LIVE,
            _ => DeletionTime::new(reader.i64(), reader.u32()),
        };
        if deletion.marked_for_delete_at <= dropped_time_micros {
            deletion = DeletionTime::LIVE;
        }
        let remaining = reader.uvint();
        ComplexCells { deletion, row, dropped_time_micros, remaining, reader }
    }

    fn is_empty(&self) -> bool {
        self.deletion.is_live() && self.clone().next().is_none()
    }
}

impl<'a> Iterator for ComplexCells<'a> {
    type Item = Cell<'a>;

    fn next(&mut self) -> Option<Cell<'a>> {
        while self.remaining > 0 {
            self.remaining -= 1;
            steps::count(1);
            let path_length = self.reader.uvint() as usize;
            let path = self.reader.take(path_length);
            let length = self.reader.i32().max(0) as usize;
            let cell = self.row.cell(self.reader.take(length), path);
            if cell.timestamp > self.dropped_time_micros || self.dropped_time_micros == i64::MIN {
                return Some(cell);
            }
        }
        None
    }
}

/// The columns and cells of a row that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// The columns that the table has now.
    Shown,
    /// The data to be kept, which includes the cells of dropped columns that are newer than the drop.
    Kept,
    /// Everything that was written.
    Written,
}

/// Iterates over the columns a row has data for, as (index in the table's current set, data).
#[derive(Clone, Debug)]
pub struct Cells<'a, 't> {
    /// The length of the whole row in bytes.
    length: usize,
    reader: Reader<'a>,
    row: RowDefaults,
    has_cell_meta: bool,
    /// The number of slots left to read; in a sparse row or piece each is preceded by its index.
    remaining: usize,
    sparse: bool,
    next_index: usize,
    /// The first complex column of the set under which the row was written.
    first_complex: usize,
    has_complex: bool,
    places: Option<&'t [ColumnPlace]>,
    scope: Scope,
}

impl<'a, 't> Cells<'a, 't> {
    pub(super) fn new(row: Row<'a>, table: &'t Table, scope: Scope) -> Self {
        let header = row.header();
        let sets = table.column_sets(header.flags & flag::STATIC != 0);
        let mut reader = Reader { bytes: row.as_bytes().get(header.columns..).unwrap_or_default() };
        let sparse = header.flags & flag::SPARSE != 0;
        let is_span = header.flags & (flag::SPARSE | flag::PIECE) == flag::PIECE;
        // A row with a version that the table does not know cannot pass `Row::check`; here it reads as a row without
        // columns.
        let (slots, first_complex) =
            sets.get(header.version).map_or((0, 0), |set| (set.columns.len(), set.first_complex()));
        let next_index = if is_span { (reader.uvint() as usize).min(slots) } else { 0 };
        let has_count = sparse || is_span;
        let remaining = if has_count { (reader.uvint() as usize).min(slots - next_index) } else { slots };
        Cells {
            length: row.as_bytes().len(),
            reader,
            row: Self::defaults(&header),
            has_cell_meta: header.flags & flag::CELL_META != 0,
            remaining,
            sparse,
            next_index,
            first_complex,
            has_complex: first_complex < slots,
            places: sets.places(header.version),
            scope,
        }
    }

    fn defaults(header: &Header) -> RowDefaults {
        RowDefaults { timestamp: header.timestamp, ttl: header.ttl, expiration: header.expiration }
    }

    /// The index in the current set of the column at `index` of the row's set, and the timestamp up to which its cells
    /// were dropped.
    fn place(&self, index: usize) -> (Option<usize>, i64) {
        match self.places {
            None => (Some(index), i64::MIN),
            Some(places) => match places.get(index) {
                Some(place) if place.is_dropped && self.scope == Scope::Shown => (None, i64::MIN),
                Some(place) => {
                    let is_filtered = self.scope != Scope::Written;
                    let dropped_time_micros = if is_filtered { place.dropped_time_micros } else { i64::MIN };
                    (place.index.map(|index| index as usize), dropped_time_micros)
                }
                None => (None, i64::MIN),
            },
        }
    }

    fn data(&self, index: usize, payload: &'a [u8], dropped_time_micros: i64) -> Option<ColumnData<'a>> {
        if index >= self.first_complex {
            let cells = ComplexCells::new(payload, self.row, dropped_time_micros);
            return if cells.is_empty() { None } else { Some(ColumnData::Complex(cells)) };
        }
        let cell = if self.has_cell_meta {
            self.row.cell(payload, &[])
        } else {
            let RowDefaults { timestamp, ttl, expiration } = self.row;
            Cell { timestamp, ttl, local_deletion_time: expiration, path: &[], value: payload }
        };
        let gone = dropped_time_micros != i64::MIN && cell.timestamp <= dropped_time_micros;
        if gone { None } else { Some(ColumnData::Simple(cell)) }
    }
}

#[cfg(test)]
thread_local! {
    /// The number of slots that were read.
    pub(super) static SLOTS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<'a> Iterator for Cells<'a, '_> {
    type Item = (usize, ColumnData<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.remaining > 0 {
            self.remaining -= 1;
            steps::count(1);
            #[cfg(test)]
            SLOTS_READ.set(SLOTS_READ.get() + 1);
            let index = if self.sparse { self.reader.uvint() as usize } else { self.next_index };
            self.next_index = index + 1;
            let length = self.reader.i32();
            if length < 0 {
                continue;
            }
            let payload = self.reader.take(length as usize);
            let (place, dropped_time_micros) = self.place(index);
            if let Some(place) = place
                && let Some(data) = self.data(index, payload, dropped_time_micros)
            {
                return Some((place, data));
            }
        }
        None
    }
}

impl Cells<'_, '_> {
    /// Restricts the iteration to complex columns.
    pub fn complex(mut self) -> Self {
        if self.has_complex {
            self.pass_simple(0, |_, _| {});
        } else {
            self.remaining = 0;
        }
        self
    }

    /// Skips the simple columns, and reports for each the range of its value in the row, or `None` if the cell is dead
    /// at `now_seconds`.
    pub(super) fn pass_simple(&mut self, now_seconds: u32, mut found: impl FnMut(usize, Option<Range<usize>>)) {
        let row_is_live = self.row.cell_is_live(now_seconds);
        while self.remaining > 0 {
            let before = self.reader;
            let index = if self.sparse { self.reader.uvint() as usize } else { self.next_index };
            if index >= self.first_complex {
                self.reader = before;
                return;
            }
            self.remaining -= 1;
            self.next_index = index + 1;
            let length = self.reader.i32();
            if length < 0 {
                continue;
            }
            let start = self.length - self.reader.bytes.len();
            let payload = self.reader.take(length as usize);
            let (place, dropped_time_micros) = self.place(index);
            let Some(place) = place else { continue };
            let (timestamp, is_live, value_length) = match payload.first() {
                _ if !self.has_cell_meta => (self.row.timestamp, row_is_live, payload.len()),
                Some(0) => (self.row.timestamp, row_is_live, payload.len() - 1),
                _ => {
                    let cell = self.row.cell(payload, &[]);
                    (cell.timestamp, cell.is_live(now_seconds), cell.value.len())
                }
            };
            if dropped_time_micros == i64::MIN || timestamp > dropped_time_micros {
                let end = start + payload.len();
                found(place, is_live.then_some(end - value_length..end));
            }
        }
    }
}
