//! Translating rows for readers whose schema is older than the rows.

use model::{ColumnData, DeletionTime, Row, RowBuilder, Table};

/// Appends `row`, written under `newest`, as a row of the columns that `table` has; others are left out.
pub(crate) fn translate(row: Row<'_>, newest: &Table, table: &Table, out: &mut Vec<u8>) {
    let is_static = row.is_static();
    let target = table.columns(is_static);
    let mut columns: Vec<_> = row
        .written_columns(newest)
        .filter_map(|(index, data)| {
            let column = newest.columns(is_static).columns.get(index)?;
            let place = target.index_of_kind(&column.name, column.is_complex())?;
            (target.columns[place].id == column.id).then_some((place, data))
        })
        .collect();
    columns.sort_by_key(|(index, _)| *index);
    debug_assert!(columns.is_sorted_by(|a, b| a.0 < b.0), "no two columns share an id");
    let mut builder = RowBuilder::default();
    builder.start(target, is_static);
    builder.liveness(row.liveness());
    builder.deletion(row.deletion());
    for (index, data) in columns {
        match data {
            ColumnData::Simple(cell) => builder.cell(index, &cell),
            ColumnData::Complex(cells) => {
                builder.complex(index, cells.deletion);
                cells.for_each(|cell| builder.complex_cell(&cell));
            }
        }
    }
    builder.finish(out);
}

/// Appends a row that holds only a deletion.
pub(crate) fn deletion_only(table: &Table, deletion: DeletionTime, out: &mut Vec<u8>) {
    let mut builder = RowBuilder::default();
    builder.start(table.regulars(), false);
    debug_assert!(!deletion.is_live(), "a row's deletion deletes something");
    builder.deletion(deletion);
    builder.finish(out);
}
