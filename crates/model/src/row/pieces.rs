//! Rows in pieces: how a large row is cut into blobs that are changed one without the other, and joined again.
//!
//! A piece is a row blob, of the same column set as the others, that holds the cells between two places of the row. The first
//! one also has the liveness. Where a cut goes through a complex column, every part of it says the column's deletion.

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

    /// Whether this piece, of simple columns alone, says nothing that a reader of other columns has to know, where `liveness` is the
    /// row's: the row is live by that, and whatever deletes that deletes all of this.
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

/// Says of a blob that it is a piece of a row.
pub fn mark_piece(blob: &mut [u8]) {
    if let Some(flags) = blob.first_mut() {
        *flags |= flag::PIECE;
    }
}

/// Cuts rows. Keeps its buffers from row to row.
#[derive(Debug, Default)]
pub struct RowCutter {
    builder: RowBuilder,
    blob: Vec<u8>,
    /// What is in the builder, about, in bytes.
    size: usize,
}

/// What a cell takes in a blob beside its path and value, at most, bytes.
const CELL_BYTES: usize = 30;

impl RowCutter {
    /// Gives `piece` the parts of `row`, each of about `bytes` at most or of a single cell, under the table's current columns:
    /// where it begins, and the blob. The first begins where the row does, and has `None` for a place.
    pub fn cut(
        &mut self,
        table: &Table,
        row: Row<'_>,
        bytes: usize,
        mut piece: impl FnMut(Option<CellPlace<'_>>, &[u8]),
    ) {
        let mut cut = Cut { cutter: self, table, is_static: row.is_static(), bytes, place: None };
        cut.cutter.builder.start(table.columns(cut.is_static), cut.is_static);
        cut.cutter.builder.liveness(row.liveness());
        cut.cutter.builder.deletion(row.deletion());
        cut.cutter.size = 0;
        for (index, data) in row.written_columns(table) {
            match data {
                ColumnData::Simple(cell) => {
                    cut.make_room(&cell, CellPlace { index, path: None }, &mut piece);
                    cut.cutter.builder.cell(index, &cell);
                }
                ColumnData::Complex(cells) => {
                    let deletion = cells.deletion;
                    cut.make_room(&Cell::tombstone(0, 0), CellPlace { index, path: None }, &mut piece);
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

struct Cut<'c, 'a> {
    cutter: &'c mut RowCutter,
    table: &'c Table,
    is_static: bool,
    bytes: usize,
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
        let size = CELL_BYTES + cell.path.len() + cell.value.len();
        let is_full = self.cutter.size > 0 && self.cutter.size + size > self.bytes;
        if is_full {
            self.finish(piece);
            self.cutter.builder.start(self.table.columns(self.is_static), self.is_static);
            self.cutter.size = 0;
            self.place = Some(place);
        }
        self.cutter.size += size;
        is_full
    }

    fn finish(&mut self, piece: &mut impl FnMut(Option<CellPlace<'_>>, &[u8])) {
        let RowCutter { builder, blob, .. } = &mut *self.cutter;
        blob.clear();
        builder.finish(blob);
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
        self.last_complex = None;
        self.add(table, first);
    }

    /// Adds the next piece.
    pub fn add(&mut self, table: &Table, piece: Row<'_>) {
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
