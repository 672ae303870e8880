//! Result rows of plain columns, copied straight from stored rows.

use std::collections::HashSet;
use std::ops::Range;

use model::{ColumnData, Row, Table, ValuePlaces};
use types::{CqlType, collection};

use super::read::Position;
use crate::execution::Execution;
use crate::row_view::{Source, simple_value, write_complex};
use crate::selection::{Selection, Selector};

/// Writes rows whose selectors are plain columns.
#[derive(Debug)]
pub(super) struct PlainWriter {
    pieces: Vec<Piece>,
    /// The number of columns that are looked up in a row. They are the first regular columns, and all simple.
    looked_up: usize,
    /// Whether all regular columns are selected side by side, and all are simple.
    takes_whole_rows: bool,
    /// The selected regular columns whose stored form is not the form of the result.
    made: Vec<usize>,
    /// Whether these columns are all complex.
    made_are_complex: bool,
    /// Whether a column is selected more than once, so that a result row may be many times as large as the stored one.
    repeats: bool,
}

/// The context that is the same for all rows of a statement.
#[derive(Clone, Copy)]
pub(super) struct RowContext<'a> {
    pub table: &'a Table,
    pub now_seconds: u32,
    /// The bytes of cells after which the rest of a row may be left out, because the statement fails.
    pub cells_max: usize,
    /// The statement that takes more memory for a row that reaches `cells_max`.
    pub grown_by: Option<&'a Execution<'a>>,
}

/// Adjacent columns of the result that have the same source.
#[derive(Debug)]
enum Piece {
    PartitionKey(usize),
    Clustering(usize),
    Static {
        index: usize,
        ty: CqlType,
    },
    /// Regular columns whose values are stored in the form of the result, as runs of columns that are adjacent in
    /// stored rows too.
    Copied(Vec<Range<usize>>),
    /// A regular column whose value is computed from its cells.
    Made {
        index: usize,
        ty: CqlType,
    },
}

impl PlainWriter {
    /// `None` unless all selectors are columns.
    pub fn new(selection: &Selection, table: &Table) -> Option<Self> {
        let regulars = table.regulars();
        let first_complex = regulars.first_complex();
        let mut pieces = Vec::new();
        let mut seen = HashSet::new();
        let mut repeats = false;
        for selector in selection.selectors() {
            let Selector::Column { source, ty, .. } = selector else { return None };
            let is_repeated = !seen.insert(*source);
            repeats |= is_repeated;
            // A piece has no column twice, so that it is never larger than the row.
            match (pieces.last_mut().filter(|_| !is_repeated), *source) {
                (_, Source::PartitionKey(place)) => pieces.push(Piece::PartitionKey(place)),
                (_, Source::Clustering(place)) => pieces.push(Piece::Clustering(place)),
                (_, Source::Static(index)) => pieces.push(Piece::Static { index, ty: ty.clone() }),
                (_, Source::Regular(index)) if index >= first_complex || *ty == CqlType::Counter => {
                    pieces.push(Piece::Made { index, ty: ty.clone() });
                }
                (Some(Piece::Copied(runs)), Source::Regular(index)) => match runs.last_mut() {
                    Some(run) if run.end == index => run.end += 1,
                    _ => runs.push(index..index + 1),
                },
                (_, Source::Regular(index)) => {
                    let run = index..index + 1;
                    pieces.push(Piece::Copied(vec![run]));
                }
            }
        }
        let made_index = |piece: &Piece| if let Piece::Made { index, .. } = piece { Some(*index) } else { None };
        let mut made: Vec<usize> = pieces.iter().filter_map(made_index).collect();
        made.sort_unstable();
        let runs = |piece: &Piece| if let Piece::Copied(runs) = piece { runs.clone() } else { Vec::new() };
        let end = pieces.iter().flat_map(runs).map(|run| run.end).max();
        let everything = 0..regulars.columns.len();
        let is_everything = |piece: &Piece| !matches!(piece, Piece::Copied(runs) if *runs != [everything.clone()]);
        Some(PlainWriter {
            looked_up: end.unwrap_or(0),
            takes_whole_rows: pieces.iter().all(is_everything),
            made_are_complex: made.iter().all(|index| *index >= first_complex),
            made,
            pieces,
            repeats,
        })
    }

    /// Appends a row. Returns the number of deleted or expired cells in it. `places` keeps its memory between rows.
    pub fn write(
        &self,
        context: RowContext<'_>,
        position: &Position<'_>,
        row: Option<Row<'_>>,
        places: &mut ValuePlaces,
        out: &mut Vec<u8>,
    ) -> u64 {
        let RowContext { table, now_seconds, mut cells_max, grown_by } = context;
        let whole = row.filter(|_| self.takes_whole_rows).and_then(|row| row.slots(table, now_seconds));
        if let (Some(row), None) = (row, whole) {
            places.locate(row, table, now_seconds, self.looked_up);
        }
        let made = row.filter(|_| !self.made.is_empty()).map_or_else(Vec::new, |row| self.made_from(row, table));
        let mut tombstones = 0;
        for piece in &self.pieces {
            match piece {
                Piece::PartitionKey(place) => collection::write_part(position.key.get(*place).copied(), out),
                Piece::Clustering(place) => {
                    let value = position.clustering.get(*place).copied().flatten();
                    collection::write_part(value, out);
                }
                Piece::Static { index, ty } => {
                    let data = position.statics.get(*index).copied().flatten();
                    tombstones += write_data(ty, data, now_seconds, out);
                }
                Piece::Copied(runs) => match (row, whole) {
                    (_, Some(slots)) => out.extend_from_slice(slots),
                    (Some(row), None) => tombstones += places.copy(row, runs, out),
                    (None, None) => runs.iter().cloned().flatten().for_each(|_| collection::write_part(None, out)),
                },
                Piece::Made { index, ty } => {
                    let place = made.binary_search_by_key(index, |(found, _)| *found);
                    let data = place.ok().map(|place| made[place].1);
                    tombstones += write_data(ty, data, now_seconds, out);
                }
            }
            if self.repeats && out.len() > cells_max {
                let Some(execution) = grown_by.filter(|execution| execution.check_room(out.len()).is_ok()) else {
                    break;
                };
                cells_max = execution.room_bytes();
            }
        }
        tombstones
    }

    fn made_from<'r>(&self, row: Row<'r>, table: &Table) -> Vec<(usize, ColumnData<'r>)> {
        let cells = if self.made_are_complex { row.columns(table).complex() } else { row.columns(table) };
        cells.filter(|(index, _)| self.made.binary_search(index).is_ok()).collect()
    }
}

/// Appends the value of a column. Returns 1 if its cell is deleted or expired.
fn write_data(ty: &CqlType, data: Option<ColumnData<'_>>, now_seconds: u32, out: &mut Vec<u8>) -> u64 {
    match data {
        Some(ColumnData::Simple(cell)) if cell.is_live(now_seconds) => {
            collection::write_part(Some(&simple_value(ty, cell.value)), out);
            0
        }
        Some(ColumnData::Simple(_)) => {
            collection::write_part(None, out);
            1
        }
        Some(ColumnData::Complex(cells)) => {
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            if write_complex(ty, cells, now_seconds, out) {
                let length = (out.len() - start - 4) as i32;
                out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            } else {
                out.truncate(start);
                collection::write_part(None, out);
            }
            0
        }
        None => {
            collection::write_part(None, out);
            0
        }
    }
}
