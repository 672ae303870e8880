//! Rows in pieces: how a large row is cut into blobs that are changed one without the other, and joined again.
//!
//! A piece is a row blob, of the same column set as the others, that holds the cells between two places of the row. The
//! first one also has the liveness. Where a cut goes through a complex column, every part of it says the column's
//! deletion.

use super::builder::Shared;
use super::{Cell, ColumnData, Liveness, Row, RowBuilder, flag};
use crate::Table;

/// Where in a row a piece begins: before all of a column, or at one of a complex column's cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellPlace<'a> {
    /// Index of the column in the table's current set.
    pub index: usize,
    /// The path of the cell; `None` stands before the column's deletion and all its cells.
    pub path: Option<&'a [u8]>,
}

impl Row<'_> {
    /// Whether this is one of the pieces of a row (see [`RowCutter`]).
    pub fn is_piece(&self) -> bool {
        self.bytes.first().is_some_and(|flags| flags & flag::PIECE != 0)
    }

    /// Whether this piece, of simple columns alone, says nothing that a reader of other columns has to know, where
    /// `liveness` is the row's: the row is live by that, and whatever deletes that deletes all of this.
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

/// How large pieces are cut.
#[derive(Clone, Copy, Debug)]
pub struct PieceSize {
    /// About how long a piece is at most, bytes.
    pub bytes: usize,
    /// So much is counted for a cell beside its path and value, at least, bytes: the more, the fewer small cells are
    /// in a piece.
    pub cell_bytes: usize,
}

/// Cuts rows. Keeps its buffers from row to row.
#[derive(Debug, Default)]
pub struct RowCutter {
    builder: RowBuilder,
    blob: Vec<u8>,
    /// What is in the builder, about, in bytes.
    size: usize,
}

/// What a cell takes in a blob beside its path and value: its length and flags, bytes ...
const CELL_BYTES: usize = 5;
/// ... and times of its own, at most.
const CELL_TIMES_BYTES: usize = 16;

impl RowCutter {
    /// Gives `piece` the parts of `row`, each of about `size` or of a single cell, under the table's current columns:
    /// where it begins, and the blob. The first begins where the row does, and has `None` for a place; of a row that is
    /// younger than most of its cells it has none that would have to say so.
    pub fn cut(
        &mut self,
        table: &Table,
        row: Row<'_>,
        size: PieceSize,
        mut piece: impl FnMut(Option<CellPlace<'_>>, &[u8]),
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

/// Whether less than half of a row's cells have these times.
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
    /// What the row says for its cells.
    usual: Shared,
    /// Whether it is younger than most of them.
    is_young: bool,
    /// What the first cell of the piece in the builder has.
    first: Shared,
    /// Where the piece in the builder begins.
    place: Option<CellPlace<'a>>,
}

impl<'a> Cut<'_, 'a> {
    /// Before a cell is added: begins a new piece, and says so, if it would make this one too large.
    fn make_room(
        &mut self,
        cell: &Cell<'a>,
        place: CellPlace<'a>,
        piece: &mut impl FnMut(Option<CellPlace<'_>>, &[u8]),
    ) -> bool {
        self.make_room_for(cell.path.len() + cell.value.len(), Shared::of_cell(cell), place, piece)
    }

    fn make_room_for(
        &mut self,
        bytes: usize,
        times: Shared,
        place: CellPlace<'a>,
        piece: &mut impl FnMut(Option<CellPlace<'_>>, &[u8]),
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

    /// What a cell takes in the piece in the builder beside its path and value, about.
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

    fn finish(&mut self, piece: &mut impl FnMut(Option<CellPlace<'_>>, &[u8])) {
        let RowCutter { builder, blob, .. } = &mut *self.cutter;
        blob.clear();
        builder.finish_piece(blob);
        piece(self.place, blob);
    }
}

/// Joins the pieces of a row. Keeps its buffers from row to row.
#[derive(Debug, Default)]
pub struct RowJoiner {
    builder: RowBuilder,
    /// The complex column that the last piece ended in.
    last_complex: Option<usize>,
}

impl RowJoiner {
    /// Begins a row with its first piece.
    pub fn start(&mut self, table: &Table, first: Row<'_>) {
        let is_static = first.is_static();
        self.builder.start(table.columns(is_static), is_static);
        self.builder.liveness(first.liveness());
        self.builder.deletion(first.deletion());
        self.builder.usual(Shared::of_row(first));
        self.last_complex = None;
        self.add(table, first);
    }

    /// Adds the next piece.
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
