//! Result rows of plain columns, copied straight from stored rows.

use model::{Cells, ColumnData, Row, Table};
use types::{CqlType, collection};

use super::read::Position;
use crate::row_view::{Source, simple_value, write_complex};
use crate::selection::{Selection, Selector};

/// Writes rows whose columns are selected as they are.
#[derive(Debug)]
pub(super) struct PlainWriter {
    columns: Vec<(Source, CqlType)>,
    /// Whether regular columns are wanted in the order in which rows hold them.
    regulars_ascend: bool,
}

impl PlainWriter {
    pub fn new(selection: &Selection) -> Self {
        let column = |selector: &Selector| match selector {
            Selector::Column { source, ty, .. } => Some((*source, ty.clone())),
            _ => None,
        };
        let columns: Vec<(Source, CqlType)> = selection.selectors().iter().filter_map(column).collect();
        let regular = |(source, _): &(Source, CqlType)| match source {
            Source::Regular(index) => Some(*index),
            _ => None,
        };
        let regulars: Vec<usize> = columns.iter().filter_map(regular).collect();
        let regulars_ascend = regulars.windows(2).all(|pair| pair[0] < pair[1]);
        PlainWriter { columns, regulars_ascend }
    }

    /// Whether rows can be written from their stored form alone.
    pub fn streams(&self) -> bool {
        self.regulars_ascend
    }

    /// Appends a row. Returns how many deleted or expired cells it met.
    pub fn write(
        &self,
        table: &Table,
        position: &Position<'_>,
        row: Option<Row<'_>>,
        now_seconds: u32,
        out: &mut Vec<u8>,
    ) -> u64 {
        let mut regulars = row.map(|row| Regulars { cells: row.columns(table), next: None });
        let mut tombstones = 0;
        for (source, ty) in &self.columns {
            match source {
                Source::PartitionKey(place) => collection::write_part(position.key.get(*place).copied(), out),
                Source::Clustering(place) => {
                    let value = position.clustering.get(*place).copied().flatten();
                    collection::write_part(value, out);
                }
                Source::Static(index) => {
                    let data = position.statics.get(*index).copied().flatten();
                    tombstones += write_data(ty, data, now_seconds, out);
                }
                Source::Regular(index) => {
                    let data = regulars.as_mut().and_then(|regulars| regulars.take(*index));
                    tombstones += write_data(ty, data, now_seconds, out);
                }
            }
        }
        tombstones
    }
}

/// The columns of a row, taken in ascending order.
struct Regulars<'r, 't> {
    cells: Cells<'r, 't>,
    next: Option<(usize, ColumnData<'r>)>,
}

impl<'r> Regulars<'r, '_> {
    fn take(&mut self, index: usize) -> Option<ColumnData<'r>> {
        loop {
            let (found, data) = self.next.take().or_else(|| self.cells.next())?;
            if found == index {
                return Some(data);
            }
            if found > index {
                self.next = Some((found, data));
                return None;
            }
        }
    }
}

/// Appends a column's value; 1 if a deleted or expired cell stands in its place.
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
