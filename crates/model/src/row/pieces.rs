//! Rows in pieces: cutting a large row into blobs that can be changed independently, and joining them again.
//!
//! A piece is a row blob of the same column set as the others. It holds the cells between two places of the row. The
//! first piece also has the liveness. Where a cut goes through a complex column, every part of it repeats the column's
//! deletion.

use super::builder::Shared;
use super::{Cell, ColumnData, Liveness, Row, RowBuilder, flag};
use crate::Table;

/// Where a piece begins in a row: before a whole column, or at one of a complex column's cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellPlace<'a> {
    /// Index of the column in the table's current set.
    pub index: usize,
    /// The path of the cell; `None` is the place before the column's deletion and all its cells.
    pub path: Option<&'a [u8]>,
}

impl Row<'_> {
    /// Whether this is one of the pieces of a row (see [`RowCutter`]).
    pub fn is_piece(&self) -> bool {
        self.bytes.first().is_some_and(|flags| flags & flag::PIECE != 0)
    }

    /// Whether this piece, of simple columns only, has nothing that a reader of other columns needs, given the row's
    /// `liveness`: the row is live by its liveness, and whatever deletes that also deletes everything here.
    pub fn is_covered_by(&self, liveness: &Liveness) -> bool {
        !liveness.is_empty()
            && !liveness.is_expiring()
            && self.shared_times().is_some_and(|times| times.timestamp <= liveness.timestamp)
    }

    /// Whether the row has several cells, so that it can be cut.
    pub fn is_divisible(&self, table: &Table) -> bool {
        let mut cells = 0;
        for (_, data) in self.written_columns(table) {
            cells += match data {
                ColumnData::Simple(_) => 1,
                ColumnData::Complex(of_column) => 1 + of_column.take(1).count(),
            };
            if cells > 1 {
                return true;
            }
        }
        false
    }
}

/// The size of pieces after a cut.
#[derive(Clone, Copy, Debug)]
pub struct PieceSize {
    /// The approximate maximum length of a piece, in bytes.
    pub bytes: usize,
    /// The least bytes counted for a cell in addition to its path and value. A larger number puts fewer small cells in
    /// a piece.
    pub cell_bytes: usize,
}

/// Cuts rows. It reuses its buffers for all rows.
#[derive(Debug, Default)]
pub struct RowCutter {
    builder: RowBuilder,
    blob: Vec<u8>,
    /// The approximate size of the builder's contents in bytes.
    size: usize,
}

/// The capacity that the buffer for a piece may keep for the next one, in bytes. A piece of a single value may have
/// many megabytes.
const BLOB_BYTES_KEPT: usize = 64 << 10;
/// The bytes of a cell in a blob in addition to its path and value: its length and flags.
const CELL_BYTES: usize = 5;
/// The most bytes of a cell's own times.
const CELL_TIMES_BYTES: usize = 16;

impl RowCutter {
    /// Passes the parts of `row` to `piece`, each of about `size` or of a single cell, under the table's current
    /// columns: where it begins, and the blob. The first part begins where the row does, and has `None` for a place. If
    /// the row is newer than most of its cells, the first part has no cells, which would each need times of their own.
    pub fn cut(
        &mut self,
        table: &Table,
        row: Row<'_>,
        size: PieceSize,
        mut piece: impl FnMut(Option<CellPlace<'_>>, &mut Vec<u8>),
    ) {
        let usual = Shared::of_row(row);
        let is_static = row.is_static();
        let is_young = !row.liveness().is_empty() && is_unlike_most_cells(row, table, usual);
        let mut cut = Cut { cutter: self, table, is_static, size, usual, is_young, first: usual, place: None };
        cut.start();
        cut.cutter.builder.liveness(row.liveness());
        cut.cutter.builder.deletion(row.deletion());
        for (index, data) in row.written_columns(table) {
            match data {
                ColumnData::Simple(cell) => {
                    cut.make_room(&cell, CellPlace { index, path: None }, &mut piece);
                    cut.cutter.builder.cell(index, &cell);
                }
                ColumnData::Complex(cells) => {
                    let deletion = cells.deletion;
                    cut.make_room_for(0, usual, CellPlace { index, path: None }, &mut piece);
                    cut.cutter.builder.complex(index, deletion);
                    for cell in cells {
                        if cut.make_room(&cell, CellPlace { index, path: Some(cell.path) }, &mut piece) {
                            cut.cutter.builder.complex(index, deletion);
                        }
                        cut.cutter.builder.complex_cell(&cell);
                    }
                }
            }
        }
        cut.finish(&mut piece);
    }
}

/// Whether fewer than half of a row's cells have these times.
fn is_unlike_most_cells(row: Row<'_>, table: &Table, times: Shared) -> bool {
    if row.shared_times().is_some() {
        return false;
    }
    let (mut like, mut unlike) = (0, 0);
    let mut count = |cell: Cell<'_>| *if Shared::of_cell(&cell) == times { &mut like } else { &mut unlike } += 1;
    for (_, data) in row.written_columns(table) {
        match data {
            ColumnData::Simple(cell) => count(cell),
            ColumnData::Complex(cells) => cells.for_each(&mut count),
        }
    }
    like < unlike
}

struct Cut<'c, 'a> {
    cutter: &'c mut RowCutter,
    table: &'c Table,
    is_static: bool,
    size: PieceSize,
    /// The times that the row states for its cells.
    usual: Shared,
    /// Whether the row is newer than most of its cells.
    is_young: bool,
    /// The times of the first cell of the piece in the builder.
    first: Shared,
    /// Where the piece in the builder begins.
    place: Option<CellPlace<'a>>,
}

impl<'a> Cut<'_, 'a> {
    /// Called before a cell is added: begins a new piece, and returns true, if the cell would make this one too large.
    fn make_room(
        &mut self,
        cell: &Cell<'a>,
        place: CellPlace<'a>,
        piece: &mut impl FnMut(Option<CellPlace<'_>>, &mut Vec<u8>),
    ) -> bool {
        self.make_room_for(cell.path.len() + cell.value.len(), Shared::of_cell(cell), place, piece)
    }

    fn make_room_for(
        &mut self,
        bytes: usize,
        times: Shared,
        place: CellPlace<'a>,
        piece: &mut impl FnMut(Option<CellPlace<'_>>, &mut Vec<u8>),
    ) -> bool {
        let is_too_old = self.is_young && self.place.is_none() && times != self.usual;
        let is_full = self.cutter.size > 0 && self.cutter.size + self.beside(times) + bytes > self.size.bytes;
        if is_full || is_too_old {
            self.finish(piece);
            self.start();
            self.place = Some(place);
            self.first = times;
        }
        self.cutter.size += self.beside(times) + bytes;
        is_full || is_too_old
    }

    /// The approximate bytes of a cell in the builder's piece in addition to its path and value.
    fn beside(&self, times: Shared) -> usize {
        let has_own_times = times != self.usual && times != self.first;
        let bytes = CELL_BYTES + if has_own_times { CELL_TIMES_BYTES } else { 0 };
        bytes.max(self.size.cell_bytes)
    }

    fn start(&mut self) {
        self.cutter.builder.start(self.table.columns(self.is_static), self.is_static);
        self.cutter.builder.usual(self.usual);
        self.cutter.size = 0;
    }

    fn finish(&mut self, piece: &mut impl FnMut(Option<CellPlace<'_>>, &mut Vec<u8>)) {
        let RowCutter { builder, blob, .. } = &mut *self.cutter;
        blob.clear();
        builder.finish_piece(blob);
        piece(self.place, blob);
        blob.shrink_to(BLOB_BYTES_KEPT);
    }
}

/// Joins the pieces of a row. It reuses its buffers for all rows.
#[derive(Debug, Default)]
pub struct RowJoiner {
    builder: RowBuilder,
    /// The complex column in which the last piece ended.
    last_complex: Option<usize>,
}

impl RowJoiner {
    /// Begins a row whose first piece is `first`, without that piece's cells.
    pub fn start(&mut self, table: &Table, first: Row<'_>) {
        let is_static = first.is_static();
        self.builder.start(table.columns(is_static), is_static);
        self.builder.liveness(first.liveness());
        self.builder.deletion(first.deletion());
        self.builder.usual(Shared::of_row(first));
        self.last_complex = None;
    }

    /// Makes room for pieces of this many bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.builder.reserve(bytes);
    }

    /// Adds the cells of the next piece.
    pub fn add(&mut self, table: &Table, piece: Row<'_>) {
        if piece.plain_piece(table).is_some_and(|plain| self.builder.add_plain_piece(&plain)) {
            return;
        }
        for (index, data) in piece.written_columns(table) {
            match data {
                ColumnData::Simple(cell) => self.builder.cell(index, &cell),
                ColumnData::Complex(cells) => {
                    if self.last_complex != Some(index) {
                        self.builder.complex(index, cells.deletion);
                    }
                    self.last_complex = Some(index);
                    cells.for_each(|cell| self.builder.complex_cell(&cell));
                }
            }
        }
    }

    /// Appends the row to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.builder.finish(out);
    }
}
