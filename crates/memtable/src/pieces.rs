//! Rows too large for one content. They are cut into pieces below the row's key, so that a change copies only the
//! pieces that it touches (`FORMAT.md`).
//!
//! Pieces are changed only by [`memtrie::Writer::apply`] at or above the row's key, so that a reader sees one version
//! of all of them under one tail.

use std::ops::{Bound, Range};

use bytecomp::encode_value;
use bytecomp::separator::TERMINATOR;
use memtrie::{Bounds, Direction, Tail};
use model::{
    CellPlace, ColumnData, ColumnSet, DeletionTime, PieceSize, ReadError, Row, RowBuilder, RowCutter, RowJoiner,
    RowMerger, RowReservation, Table,
};
use types::{CqlType, steps};

use crate::apply::merge;
use crate::layout::{Layout, RowEdits};

/// Rows larger than this are cut if they have several cells. The limit is such that an update copies no more than 4
/// KiB, whether the row is whole or in pieces with the nodes that lead to them.
const WHOLE_ROW_BYTES_MAX: usize = 3584;
/// The extra bytes of each cell once one cell of the row has times of its own: all cells then have flags.
const CELL_FLAGS_BYTES: usize = 1;
/// The least bytes that a value takes in addition to its own.
const SLOT_BYTES_MIN: usize = 4;
/// A piece larger than this is cut again if it has several cells.
const PIECE_BYTES_MAX: usize = 2 << 10;
/// A piece of more cells than this is cut again, because each change of one cell merges the whole piece.
const PIECE_CELLS_MAX: usize = 192;
/// The approximate size of pieces after a cut, which leaves room to grow.
const PIECE_SIZE: PieceSize = PieceSize { bytes: 1536, cell_bytes: 30 };
/// The size for a row that was whole before. It makes few pieces, so that the nodes that lead to them stay small.
const PIECE_SIZE_FIRST: PieceSize = PieceSize { bytes: 1984, cell_bytes: 5 };
/// Precedes an encoded path; nothing follows the key at the start of a column.
const PATH_FOLLOWS: u8 = 0x01;

/// A row as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct StoredRow<'t> {
    /// The row, or its first piece.
    pub head: Row<'t>,
    /// Access to the other pieces.
    pub pieces: Tail<'t>,
}

impl<'t> StoredRow<'t> {
    /// Passes each piece to `visit` with the columns that it may have cells of, of `columns_end` columns.
    fn visit(
        &self,
        layout: &Layout,
        columns_end: usize,
        mut visit: impl FnMut(Row<'t>, Range<usize>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut cursor = self.pieces.cursor(ALL_PIECES, Direction::Forward);
        let (mut start, mut piece) = (0, self.head);
        while cursor.advance() {
            steps::count(1);
            let next = columns_before(cursor.key());
            debug_assert!(start <= next.part, "pieces come in the order of their columns");
            visit(piece, start..next.part)?;
            (start, piece) = (next.whole, Row::new(layout.split_content(cursor.content()).1));
        }
        visit(piece, start..columns_end)
    }

    /// The bytes of the wanted pieces.
    fn size_bytes(
        &self,
        layout: &Layout,
        columns_end: usize,
        is_wanted: impl Fn(Row<'_>, Range<usize>) -> bool,
    ) -> usize {
        let mut bytes = 0;
        let visited = self.visit(layout, columns_end, |piece, columns| {
            bytes += if is_wanted(piece, columns) { piece.as_bytes().len() } else { 0 };
            Ok(())
        });
        debug_assert!(visited.is_ok(), "nothing fails");
        bytes
    }
}

/// How many times the pieces of a row are held while it is joined: as cells, and as a row.
const JOINED_COPIES: usize = 2;
/// A row may be longer than its pieces by its head and by the lengths of its columns.
const HEADS_BYTES: usize = 1 << 10;

/// A change to a stored row.
#[derive(Clone, Copy)]
pub(crate) struct RowChange<'u> {
    pub new: Option<Row<'u>>,
    /// The deletion that applies to the new version, and to the stored one if `deletes_stored`.
    pub active: DeletionTime,
    /// Whether the stored row may hold something that `active` deletes.
    pub deletes_stored: bool,
}

/// Whether a row has to be cut.
pub(crate) fn is_large(row: Row<'_>, table: &Table) -> bool {
    let length = row.as_bytes().len();
    let flags_to_come = || match row.shared_times() {
        Some(_) => CELL_FLAGS_BYTES * table.columns(row.is_static()).columns.len().min(length / SLOT_BYTES_MIN),
        None => 0,
    };
    let is_long = |length: usize| length > WHOLE_ROW_BYTES_MAX;
    is_long(length + length / SLOT_BYTES_MIN) && is_long(length + flags_to_come()) && row.is_divisible(table)
}

/// Changes and joins rows in pieces. It reuses its buffers for all rows.
pub(crate) struct LargeRows {
    merger: RowMerger,
    cutter: RowCutter,
    joiner: RowJoiner,
    builder: RowBuilder,
    joined: Vec<u8>,
    merged: Vec<u8>,
    part: Vec<u8>,
}

impl LargeRows {
    pub fn new() -> LargeRows {
        LargeRows {
            merger: RowMerger::of_all_written(),
            cutter: RowCutter::default(),
            joiner: RowJoiner::default(),
            builder: RowBuilder::default(),
            joined: Vec::new(),
            merged: Vec::new(),
            part: Vec::new(),
        }
    }

    /// Appends a stored row in one piece.
    pub fn join(&mut self, layout: &Layout, table: &Table, stored: StoredRow<'_>, out: &mut Vec<u8>) {
        let joined = self.join_some(layout, table, stored, |_, _| true, &mut RowReservation::default(), out);
        debug_assert!(joined.is_ok(), "there is no limit");
    }

    /// Like `join`, for a reader with limited memory for copies of large rows. If the wanted columns are given, it
    /// skips the pieces that have none of them and nothing else that the reader needs.
    ///
    /// # Errors
    ///
    /// There is too little memory for the row. Nothing was appended.
    pub fn join_within(
        &mut self,
        layout: &Layout,
        table: &Table,
        stored: StoredRow<'_>,
        wanted: Option<&WantedColumns<'_>>,
        reservation: &mut RowReservation,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let liveness = stored.head.liveness();
        let is_wanted = |piece: Row<'_>, columns| {
            wanted.is_none_or(|wanted| wanted.are_among(columns) || !piece.is_covered_by(&liveness))
        };
        self.join_some(layout, table, stored, is_wanted, reservation, out)
    }

    /// Joins the pieces that `is_wanted` selects by their blob and the columns that they may have cells of. The size of
    /// a row is not known before its pieces were visited, so that memory is reserved when it turns out to be large.
    fn join_some(
        &mut self,
        layout: &Layout,
        table: &Table,
        stored: StoredRow<'_>,
        is_wanted: impl Fn(Row<'_>, Range<usize>) -> bool,
        reservation: &mut RowReservation,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        if !stored.head.is_piece() {
            out.extend_from_slice(stored.head.as_bytes());
            return Ok(());
        }
        let end = table.columns(stored.head.is_static()).columns.len();
        self.joiner.start(table, stored.head);
        let (mut bytes, mut is_reserved) = (0, false);
        stored.visit(layout, end, |piece, columns| {
            if !is_wanted(piece, columns) {
                return Ok(());
            }
            bytes += piece.as_bytes().len();
            if RowReservation::is_large(bytes) && !is_reserved {
                is_reserved = true;
                let total = stored.size_bytes(layout, end, &is_wanted);
                reservation.take(JOINED_COPIES * total)?;
                self.joiner.reserve(total);
                out.reserve_exact(total + total / 64 + HEADS_BYTES);
            }
            self.joiner.add(table, piece);
            Ok(())
        })?;
        self.joiner.finish(out);
        Ok(())
    }

    /// The changes to a row that is in pieces, or will be; empty if there are none.
    pub fn change(
        &mut self,
        layout: &Layout,
        table: &Table,
        stored: Option<StoredRow<'_>>,
        change: RowChange<'_>,
    ) -> RowEdits {
        // All pieces have the same column set, and none has a deletion of the whole row.
        let is_current = |row: Row<'_>| row.column_set_version() == table.columns(row.is_static()).version;
        let is_plain = |row: Row<'_>| is_current(row) && !row.has_deletion();
        match (stored, change.new) {
            (Some(stored), Some(new))
                if stored.head.is_piece() && is_plain(stored.head) && !new.has_deletion() && !change.deletes_stored =>
            {
                let mut left = Vec::new();
                let new = merge(&mut self.merger, table, None, Some(new), change.active, &mut left);
                new.map_or_else(RowEdits::new, |new| self.change_pieces(layout, table, stored, new))
            }
            _ => self.rewrite(layout, table, stored, change),
        }
    }

    /// Joins the row, merges the change and cuts the result again.
    fn rewrite(
        &mut self,
        layout: &Layout,
        table: &Table,
        stored: Option<StoredRow<'_>>,
        change: RowChange<'_>,
    ) -> RowEdits {
        let mut edits = stored.map_or_else(RowEdits::new, without);
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        if let Some(stored) = stored {
            self.join(layout, table, stored, &mut joined);
        }
        let existing = stored.map(|_| Row::new(&joined));
        let size = if stored.is_some_and(|row| !row.head.is_piece()) { PIECE_SIZE_FIRST } else { PIECE_SIZE };
        match merge(&mut self.merger, table, existing, change.new, change.active, &mut self.merged) {
            None => {}
            Some(row) if change.new.is_none() && existing == Some(row) => edits.clear(),
            Some(row) if is_large(row, table) => cut(&mut self.cutter, table, row, size, &[], &mut edits),
            Some(row) => drop(edits.insert(Vec::new(), Some(row.as_bytes().to_vec()))),
        }
        joined.clear();
        joined.shrink_to(BUFFER_BYTES_MAX);
        self.joined = joined;
        self.merged.shrink_to(BUFFER_BYTES_MAX);
        edits
    }

    /// Replaces a stored row with `row`.
    pub fn replace(&mut self, table: &Table, stored: StoredRow<'_>, row: Option<Row<'_>>) -> RowEdits {
        let mut edits = without(stored);
        match row {
            None => {}
            Some(row) if is_large(row, table) => cut(&mut self.cutter, table, row, PIECE_SIZE, &[], &mut edits),
            Some(row) => drop(edits.insert(Vec::new(), Some(row.as_bytes().to_vec()))),
        }
        edits
    }

    /// Merges the cells of `new` into the pieces they belong to. Only deletions of complex columns remove anything of
    /// the stored row.
    fn change_pieces(&mut self, layout: &Layout, table: &Table, stored: StoredRow<'_>, new: Row<'_>) -> RowEdits {
        let is_static = new.is_static();
        let (at, current) = (Vec::new(), Some(stored.head));
        let mut distributor =
            PieceDistributor { rows: self, layout, table, stored, at, current, next: None, edits: RowEdits::new() };
        distributor.next = distributor.after(&[]);
        distributor.start(is_static);
        distributor.rows.builder.liveness(new.liveness());
        let mut key = Vec::new();
        for (index, data) in new.written_columns(table) {
            piece_key(table, is_static, CellPlace { index, path: None }, &mut key);
            distributor.go_to(&key, is_static);
            match data {
                ColumnData::Simple(cell) => distributor.rows.builder.cell(index, &cell),
                ColumnData::Complex(cells) => {
                    let deletion = cells.deletion;
                    distributor.rows.builder.complex(index, deletion);
                    for cell in cells {
                        piece_key(table, is_static, CellPlace { index, path: Some(cell.path) }, &mut key);
                        if deletion.is_live() {
                            if distributor.go_to(&key, is_static) {
                                distributor.rows.builder.complex(index, deletion);
                            }
                        } else {
                            // The deletion affects every piece up to there.
                            while distributor.next.as_ref().is_some_and(|next| *next <= key) {
                                distributor.go_to_next_piece(is_static);
                                distributor.rows.builder.complex(index, deletion);
                            }
                        }
                        distributor.rows.builder.complex_cell(&cell);
                    }
                    piece_key(table, is_static, CellPlace { index, path: None }, &mut key);
                    while !deletion.is_live() && distributor.next.as_ref().is_some_and(|next| next.starts_with(&key)) {
                        distributor.go_to_next_piece(is_static);
                        distributor.rows.builder.complex(index, deletion);
                    }
                }
            }
        }
        distributor.finish_piece();
        distributor.edits
    }
}

/// Buffers that have grown larger than this are not kept.
const BUFFER_BYTES_MAX: usize = 64 << 10;

const _: () = {
    assert!(PIECE_SIZE.bytes <= PIECE_BYTES_MAX && PIECE_SIZE_FIRST.bytes <= PIECE_BYTES_MAX, "a new piece may grow");
    assert!(PIECE_BYTES_MAX < WHOLE_ROW_BYTES_MAX, "a row that is not cut is larger than a piece");
    assert!(PATH_FOLLOWS < TERMINATOR, "a column's first piece comes before its cells' pieces");
};

/// All keys except the row's own content.
const ALL_PIECES: Bounds<'static> = Bounds { start: Bound::Excluded(&[]), end: Bound::Unbounded };

/// The edits that remove a stored row.
fn without(stored: StoredRow<'_>) -> RowEdits {
    let mut edits = RowEdits::from([(Vec::new(), None)]);
    let mut cursor = stored.pieces.cursor(ALL_PIECES, Direction::Forward);
    while stored.head.is_piece() && cursor.advance() {
        edits.insert(cursor.key().to_vec(), None);
    }
    edits
}

/// Replaces `out` with the key, below the row's, of the piece that begins at `place`.
fn piece_key(table: &Table, is_static: bool, place: CellPlace<'_>, out: &mut Vec<u8>) {
    debug_assert!(u32::try_from(place.index).is_ok(), "column {}", place.index);
    out.clear();
    out.extend_from_slice(&(place.index as u32).to_be_bytes());
    let Some(path) = place.path else { return };
    out.push(PATH_FOLLOWS);
    match table.columns(is_static).columns.get(place.index).map(|column| &column.ty) {
        Some(CqlType::List { .. }) => drop(encode_value(&CqlType::Timeuuid, path, out)),
        Some(CqlType::Set { element, .. }) => drop(encode_value(element, path, out)),
        Some(CqlType::Map { key, .. }) => drop(encode_value(key, path, out)),
        // Fields of a user type are identified by a big-endian u16.
        _ => out.extend_from_slice(path),
    }
    out.push(TERMINATOR);
}

/// Cuts a row, or a piece that begins at the key `first`.
fn cut(cutter: &mut RowCutter, table: &Table, row: Row<'_>, size: PieceSize, first: &[u8], edits: &mut RowEdits) {
    let is_static = row.is_static();
    cutter.cut(table, row, size, |place, blob| {
        let mut key = first.to_vec();
        if let Some(place) = place {
            piece_key(table, is_static, place, &mut key);
        }
        debug_assert!(!blob.is_empty(), "a piece has content");
        edits.insert(key, Some(take_or_copy(blob)));
    });
}

/// The regular columns that a reader uses.
pub(crate) struct WantedColumns<'c> {
    /// Ascending indexes in `set`.
    pub columns: &'c [usize],
    pub set: &'c ColumnSet,
}

impl WantedColumns<'_> {
    /// Whether any of them, or any complex column, is within `range`. Cells of complex columns have times of their own.
    fn are_among(&self, range: Range<usize>) -> bool {
        debug_assert!(self.columns.is_sorted(), "the expected columns are in order");
        let next = self.columns.partition_point(|column| *column < range.start);
        self.columns.get(next).is_some_and(|column| *column < range.end) || range.end > self.set.first_complex()
    }
}

/// The number of columns before a place in a row.
struct ColumnsBefore {
    /// Those that are completely before it.
    whole: usize,
    /// Those, plus the column that the place is inside of, if it is inside one.
    part: usize,
}

/// The number of columns before the piece at a key below the row's.
fn columns_before(key: &[u8]) -> ColumnsBefore {
    let whole = key.first_chunk().map_or(0, |index| u32::from_be_bytes(*index) as usize);
    ColumnsBefore { whole, part: whole + usize::from(key.len() > size_of::<u32>()) }
}

/// Distributes the cells of a new version to the pieces that they belong to, in the order of pieces.
struct PieceDistributor<'r, 't> {
    rows: &'r mut LargeRows,
    layout: &'r Layout,
    table: &'r Table,
    stored: StoredRow<'t>,
    /// The key of the piece whose part is in the builder; empty for the first piece.
    at: Vec<u8>,
    /// The stored piece; `None` if it is new.
    current: Option<Row<'t>>,
    /// The key of the next piece.
    next: Option<Vec<u8>>,
    edits: RowEdits,
}

impl<'t> PieceDistributor<'_, 't> {
    fn start(&mut self, is_static: bool) {
        self.rows.builder.start(self.table.columns(is_static), is_static);
    }

    /// The key of the piece after the one at `key`.
    fn after(&self, key: &[u8]) -> Option<Vec<u8>> {
        let bounds = Bounds { start: Bound::Excluded(key), end: Bound::Unbounded };
        let mut cursor = self.stored.pieces.cursor(bounds, Direction::Forward);
        cursor.advance().then(|| cursor.key().to_vec())
    }

    /// The stored content at a key below the row's, which is not empty.
    fn piece(&self, key: &[u8]) -> Option<Row<'t>> {
        self.stored.pieces.get(key).map(|content| Row::new(self.layout.split_content(content).1))
    }

    /// Moves to the piece that contains `key`, which is not before the current one. Returns true if it is another
    /// piece.
    fn go_to(&mut self, key: &[u8], is_static: bool) -> bool {
        debug_assert!(self.at.as_slice() <= key, "the cells of an update come in order");
        let is_further = self.go_to_stored(key, is_static);
        if !self.is_after_large_value(key) {
            return is_further;
        }
        self.finish_piece();
        (self.at, self.current) = (key.to_vec(), None);
        self.start(is_static);
        true
    }

    /// Whether the current piece is so large that it holds a single value, and `key` is of a later column. The cell of
    /// `key` then begins a new piece, so that the large value is not copied.
    fn is_after_large_value(&self, key: &[u8]) -> bool {
        let large = self.current.filter(|piece| piece.as_bytes().len() > PIECE_BYTES_MAX);
        large.is_some_and(|piece| {
            let last = piece.written_columns(self.table).last();
            last.is_some_and(|(index, _)| index < columns_before(key).whole)
        })
    }

    fn go_to_stored(&mut self, key: &[u8], is_static: bool) -> bool {
        if self.next.as_ref().is_none_or(|next| key < next.as_slice()) {
            return false;
        }
        self.finish_piece();
        let bounds = Bounds { start: Bound::Excluded(&self.at), end: Bound::Included(key) };
        let mut cursor = self.stored.pieces.cursor(bounds, Direction::Reverse);
        if cursor.advance() {
            let at = cursor.key().to_vec();
            self.next = self.after(&at);
            self.current = self.piece(&at);
            self.at = at;
        }
        debug_assert!(self.at.as_slice() <= key, "the piece begins at the cell or before it");
        debug_assert!(self.next.as_ref().is_none_or(|next| key < next.as_slice()), "the next piece begins behind it");
        self.start(is_static);
        true
    }

    /// Moves to the next piece.
    fn go_to_next_piece(&mut self, is_static: bool) {
        debug_assert!(self.next.as_ref().is_none_or(|next| self.at < *next), "the next piece begins behind this one");
        self.finish_piece();
        if let Some(at) = self.next.take() {
            self.next = self.after(&at);
            self.current = self.piece(&at);
            self.at = at;
        }
        self.start(is_static);
    }

    /// Merges the part in the builder into its piece.
    fn finish_piece(&mut self) {
        steps::count(1);
        let LargeRows { merger, cutter, builder, merged, part, .. } = &mut *self.rows;
        if builder.is_empty() {
            return;
        }
        part.clear();
        builder.finish(part);
        let part = Row::new(part);
        merged.clear();
        let bytes = part.as_bytes().len() + self.current.map_or(0, |stored| stored.as_bytes().len());
        if bytes > BUFFER_BYTES_MAX {
            merger.reserve(bytes);
        }
        let cells = match self.current {
            Some(stored) => merger.merge_piece(self.table, &[stored, part], merged),
            None => merger.merge_piece(self.table, &[part], merged),
        };
        let piece = Row::new(merged);
        if piece.as_bytes().is_empty() {
            return;
        }
        let is_large = cells > PIECE_CELLS_MAX || piece.as_bytes().len() > PIECE_BYTES_MAX;
        if only_repeats_deletion(&self.at, piece, self.table) {
            self.edits.insert(self.at.clone(), None);
        } else if is_large && piece.is_divisible(self.table) {
            cut(cutter, self.table, piece, PIECE_SIZE, &self.at, &mut self.edits);
        } else {
            self.edits.insert(self.at.clone(), Some(take_or_copy(merged)));
        }
        self.rows.merged.shrink_to(BUFFER_BYTES_MAX);
        self.rows.part.shrink_to(BUFFER_BYTES_MAX);
    }
}

/// The bytes of a buffer. A large buffer is given away, and a small one is kept for the next piece.
fn take_or_copy(buffer: &mut Vec<u8>) -> Vec<u8> {
    if buffer.len() > BUFFER_BYTES_MAX { std::mem::take(buffer) } else { buffer.clone() }
}

/// Whether a piece that begins, at the key `at`, inside a complex column holds only that column's deletion, which an
/// earlier piece repeats.
fn only_repeats_deletion(at: &[u8], piece: Row<'_>, table: &Table) -> bool {
    let begins_within = at.get(size_of::<u32>()) == Some(&PATH_FOLLOWS);
    let is_bare = |data: ColumnData<'_>| match data {
        ColumnData::Simple(_) => false,
        ColumnData::Complex(mut cells) => cells.next().is_none(),
    };
    let mut columns = piece.written_columns(table);
    begins_within && columns.next().is_none_or(|(_, data)| is_bare(data)) && columns.next().is_none()
}
