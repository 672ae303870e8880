//! RESULT bodies.

use super::metadata::{PreparedMetadata, ResultMetadata};
use crate::Version;
use crate::message::{ResponseBody, Rows, SchemaChange};
use crate::wire::writer::{put_int, put_short_bytes, put_string};

const VOID: i32 = 1;
const ROWS: i32 = 2;
const SET_KEYSPACE: i32 = 3;
const PREPARED: i32 = 4;
const SCHEMA_CHANGE: i32 = 5;

impl ResponseBody {
    /// Writes the body of a RESULT.
    pub fn write(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            ResponseBody::Void => write_void(out),
            ResponseBody::Rows(rows) => rows.write(out, version),
            ResponseBody::SetKeyspace(keyspace) => write_set_keyspace(out, keyspace),
            ResponseBody::SchemaChange { change, .. } => write_schema_change(out, change, version),
        }
    }
}

impl Rows {
    fn write(&self, out: &mut Vec<u8>, version: Version) {
        let metadata = ResultMetadata {
            columns: &self.metadata,
            paging_state: self.paging_state.as_deref(),
            skip: self.form.skip,
            changed_id: self.form.changed_id.as_ref().map(|id| &id[..]),
        };
        let mut writer = RowsWriter::new(out, version, &metadata);
        writer.encoded_rows(self.row_count, &self.cells);
        writer.finish();
    }
}

/// Writes the result of a statement that returns nothing.
pub fn write_void(out: &mut Vec<u8>) {
    put_int(out, VOID);
}

/// Writes the result of USE.
fn write_set_keyspace(out: &mut Vec<u8>, keyspace: &str) {
    put_int(out, SET_KEYSPACE);
    put_string(out, keyspace);
}

/// Writes the result of a statement that changed the schema.
fn write_schema_change(out: &mut Vec<u8>, change: &SchemaChange, version: Version) {
    put_int(out, SCHEMA_CHANGE);
    change.write(out, version);
}

/// Writes the result of PREPARE. `result` describes the rows that executing will return; `None` when there will be
/// none, or none that can be known beforehand.
pub fn write_prepared(
    out: &mut Vec<u8>,
    version: Version,
    id: &[u8],
    result_metadata_id: &[u8],
    markers: &PreparedMetadata<'_>,
    result: Option<&ResultMetadata<'_>>,
) {
    put_int(out, PREPARED);
    put_short_bytes(out, id);
    if version >= Version::V5 {
        put_short_bytes(out, result_metadata_id);
    }
    markers.write(out, version);
    let none = ResultMetadata { skip: true, ..ResultMetadata::default() };
    result.unwrap_or(&none).write(out, version);
}

/// Writes rows: metadata first, then cells one after another, then [`RowsWriter::finish`].
///
/// The writer counts cells: a row is complete when all its columns were written. It knows nothing of types.
#[derive(Debug)]
pub struct RowsWriter<'o> {
    out: &'o mut Vec<u8>,
    count_at: usize,
    columns: usize,
    cells: usize,
}

impl<'o> RowsWriter<'o> {
    /// Writes the metadata.
    pub fn new(out: &'o mut Vec<u8>, version: Version, metadata: &ResultMetadata<'_>) -> RowsWriter<'o> {
        put_int(out, ROWS);
        metadata.write(out, version);
        let count_at = out.len();
        put_int(out, 0);
        RowsWriter { out, count_at, columns: metadata.columns.specs().len(), cells: 0 }
    }

    /// One cell; `None` is null.
    pub fn cell(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => {
                put_int(self.out, value.len() as i32);
                self.out.extend_from_slice(value);
            }
            None => put_int(self.out, -1),
        }
        self.cells += 1;
    }

    /// One cell that is not null, appended by `write` to the buffer it gets.
    pub fn cell_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        put_int(self.out, 0);
        write(self.out);
        let size = (self.out.len() - start - 4) as i32;
        self.out[start..start + 4].copy_from_slice(&size.to_be_bytes());
        self.cells += 1;
    }

    /// Writes `count` complete rows whose cells are already in wire form: length and bytes, one after another.
    pub fn encoded_rows(&mut self, count: usize, cells: &[u8]) {
        self.out.extend_from_slice(cells);
        self.cells += count * self.columns;
    }

    /// Writes complete rows that `write` appends with cells in wire form; it returns how many. Returns false if it
    /// returns `None`.
    pub fn encoded_rows_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<usize>) -> bool {
        let count = write(self.out);
        self.cells += count.unwrap_or(0) * self.columns;
        count.is_some()
    }

    /// Rows that are complete so far.
    pub fn rows(&self) -> usize {
        self.cells.checked_div(self.columns).unwrap_or(0)
    }

    /// Fills in the number of rows.
    pub fn finish(self) {
        debug_assert!(self.columns == 0 || self.cells.is_multiple_of(self.columns), "the last row lacks cells");
        let rows = self.rows() as i32;
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&rows.to_be_bytes());
    }
}
