//! The answer of a conditional modification, whose first column says whether it was applied.

use std::sync::Arc;

use model::Table;
use protocol::ResultColumns;
use types::{CqlType, collection};

use crate::{ColumnSpec, MetadataForm, ResponseBody, Rows};

/// The column `[applied]`.
pub(super) fn applied_spec(table: &Table) -> ColumnSpec {
    let (keyspace, table) = (table.keyspace.clone(), table.name.clone());
    ColumnSpec { keyspace, table, name: "[applied]".into(), ty: CqlType::Boolean }
}

/// Its value in one row.
pub(super) fn applied_cell(is_applied: bool) -> Vec<u8> {
    let mut cell = Vec::new();
    collection::write_part(Some(&[u8::from(is_applied)]), &mut cell);
    cell
}

/// The rows of the answer.
pub(super) fn answer(columns: ResultColumns, row_count: usize, cells: Vec<u8>) -> ResponseBody {
    let form = MetadataForm::default();
    ResponseBody::Rows(Rows { metadata: Arc::new(columns), form, paging_state: None, row_count, cells })
}
