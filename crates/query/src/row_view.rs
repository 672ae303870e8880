//! A row as a SELECT reads it: partition key, clustering, static and regular columns together.

use std::borrow::Cow;
use std::sync::Arc;

use model::{Column, ColumnData, ColumnKind, ComplexCells, Table, counter_total};
use types::{CqlType, collection};

/// The place of a column's value in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    PartitionKey(usize),
    Clustering(usize),
    /// The index in the table's current static columns.
    Static(usize),
    /// The index in the table's current regular columns.
    Regular(usize),
}

impl Source {
    /// The place of the values of a column of this table.
    pub fn of(table: &Table, column: &Arc<Column>) -> Source {
        let place = column.position.max(0) as usize;
        let index = |is_static| table.columns(is_static).index_of(&column.name).unwrap_or(usize::MAX);
        match column.kind {
            ColumnKind::PartitionKey => Source::PartitionKey(place),
            ColumnKind::Clustering => Source::Clustering(place),
            ColumnKind::Static => Source::Static(index(true)),
            ColumnKind::Regular => Source::Regular(index(false)),
        }
    }
}

/// A row. Columns without content, and the clustering of a partition that has only static columns, are `None`.
#[derive(Clone, Copy)]
pub(crate) struct RowView<'a> {
    pub key: &'a [&'a [u8]],
    pub clustering: &'a [Option<&'a [u8]>],
    pub statics: &'a [Option<ColumnData<'a>>],
    pub regulars: &'a [Option<ColumnData<'a>>],
    pub now_seconds: u32,
}

impl<'a> RowView<'a> {
    /// The row's content in a static or regular column, live or not.
    pub fn data(&self, source: Source) -> Option<ColumnData<'a>> {
        match source {
            Source::Static(index) => self.statics.get(index).copied().flatten(),
            Source::Regular(index) => self.regulars.get(index).copied().flatten(),
            Source::PartitionKey(_) | Source::Clustering(_) => None,
        }
    }

    /// The serialized value of a column; `None` is null.
    pub fn value(&self, source: Source, ty: &CqlType) -> Option<Cow<'a, [u8]>> {
        match source {
            Source::PartitionKey(place) => self.key.get(place).copied().map(Cow::Borrowed),
            Source::Clustering(place) => self.clustering.get(place).copied().flatten().map(Cow::Borrowed),
            Source::Static(_) | Source::Regular(_) => match self.data(source)? {
                ColumnData::Simple(cell) => cell.is_live(self.now_seconds).then(|| simple_value(ty, cell.value)),
                ColumnData::Complex(cells) => {
                    let mut out = Vec::new();
                    write_complex(ty, cells, self.now_seconds, &mut out).then_some(Cow::Owned(out))
                }
            },
        }
    }
}

/// The value of a cell that clients see. For a counter it is the sum of its shards.
pub(crate) fn simple_value<'a>(ty: &CqlType, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    match ty {
        CqlType::Counter if bytes.len() != 8 => Cow::Owned(counter_total(bytes).to_be_bytes().to_vec()),
        _ => Cow::Borrowed(bytes),
    }
}

/// Appends the serialized collection or user type of the live cells. Returns false, and appends nothing, if there are
/// none.
pub(crate) fn write_complex(ty: &CqlType, cells: ComplexCells<'_>, now_seconds: u32, out: &mut Vec<u8>) -> bool {
    let live = cells.filter(|cell| cell.is_live(now_seconds));
    if let CqlType::Udt { definition, .. } = ty {
        let mut fields = vec![None; definition.fields().len()];
        for cell in live {
            let place = cell.path.first_chunk::<2>().map_or(usize::MAX, |place| u16::from_be_bytes(*place).into());
            if let Some(field) = fields.get_mut(place) {
                *field = Some(cell.value);
            }
        }
        let any = fields.iter().any(Option::is_some);
        if any {
            fields.iter().for_each(|field| collection::write_part(*field, out));
        }
        return any;
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0i32;
    for cell in live {
        count += 1;
        match ty {
            CqlType::Set { .. } => collection::write_part(Some(cell.path), out),
            CqlType::Map { .. } => {
                collection::write_part(Some(cell.path), out);
                collection::write_part(Some(cell.value), out);
            }
            _ => collection::write_part(Some(cell.value), out),
        }
    }
    if count == 0 {
        out.truncate(start);
        return false;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    true
}

/// The components of a serialized partition key, one per column.
pub(crate) fn split_key<'k>(table: &Table, key: &'k [u8], out: &mut Vec<&'k [u8]>) {
    out.clear();
    if table.partition_key().len() == 1 {
        out.push(key);
        return;
    }
    let mut rest = key;
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((value, tail)) = tail.split_at_checked(length) else { return };
        out.push(value);
        rest = tail.get(1..).unwrap_or_default();
    }
}
