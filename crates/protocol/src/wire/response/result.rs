//! RESULT bodies: rows, and the metadata of results and of bind markers.

use super::type_option::put_type;
use crate::Version;
use crate::message::{ColumnSpec, ResponseBody, Rows, SchemaChange};
use crate::wire::writer::{put_bytes, put_int, put_short, put_short_bytes, put_string};
use std::sync::OnceLock;

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

/// The columns of a result. For a statement that is executed often they are encoded once for each version.
#[derive(Debug)]
pub struct ResultColumns {
    specs: Vec<ColumnSpec>,
    encoded: [OnceLock<EncodedColumns>; Version::COUNT],
}

#[derive(Debug)]
struct EncodedColumns {
    /// Whether the keyspace and table are written once before all columns.
    has_global_table: bool,
    bytes: Vec<u8>,
}

static NO_COLUMNS: ResultColumns = ResultColumns::none();

impl PartialEq for ResultColumns {
    fn eq(&self, other: &ResultColumns) -> bool {
        self.specs == other.specs
    }
}

impl Eq for ResultColumns {}

impl ResultColumns {
    /// A RESULT with these columns, in this order.
    pub fn new(specs: Vec<ColumnSpec>) -> ResultColumns {
        ResultColumns { specs, ..ResultColumns::none() }
    }

    const fn none() -> ResultColumns {
        ResultColumns { specs: Vec::new(), encoded: [const { OnceLock::new() }; Version::COUNT] }
    }

    /// The columns.
    pub fn specs(&self) -> &[ColumnSpec] {
        &self.specs
    }

    fn encoded(&self, version: Version) -> &EncodedColumns {
        self.encoded[version.place()].get_or_init(|| {
            let global = one_table(&self.specs);
            let mut bytes = Vec::new();
            put_columns(&mut bytes, &self.specs, global, version);
            EncodedColumns { has_global_table: global.is_some(), bytes }
        })
    }
}

/// The metadata in front of rows.
#[derive(Clone, Copy, Debug)]
pub struct ResultMetadata<'a> {
    /// The columns.
    pub columns: &'a ResultColumns,
    /// Present when there are more pages.
    pub paging_state: Option<&'a [u8]>,
    /// Omits names and types. Only if the client has them.
    pub skip: bool,
    /// The new id of metadata that changed since the client prepared the statement (v5); not together with `skip`.
    pub changed_id: Option<&'a [u8]>,
}

const GLOBAL_TABLES_SPEC: i32 = 0x01;
const HAS_MORE_PAGES: i32 = 0x02;
const NO_METADATA: i32 = 0x04;
const METADATA_CHANGED: i32 = 0x08;

impl Default for ResultMetadata<'_> {
    fn default() -> Self {
        ResultMetadata { columns: &NO_COLUMNS, paging_state: None, skip: false, changed_id: None }
    }
}

impl ResultMetadata<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>, version: Version) {
        let changed_id = self.changed_id.filter(|_| version >= Version::V5);
        let columns = self.columns.encoded(version);
        let mut flags = 0;
        if columns.has_global_table {
            flags |= GLOBAL_TABLES_SPEC;
        }
        if self.paging_state.is_some() {
            flags |= HAS_MORE_PAGES;
        }
        if self.skip {
            flags |= NO_METADATA;
        }
        if changed_id.is_some() {
            flags |= METADATA_CHANGED;
        }
        put_int(out, flags);
        put_int(out, self.columns.specs.len() as i32);
        if let Some(state) = self.paging_state {
            put_bytes(out, state);
        }
        if let Some(id) = changed_id {
            put_short_bytes(out, id);
        }
        if !self.skip {
            out.extend_from_slice(&columns.bytes);
        }
    }
}

/// The bind markers of a prepared statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct PreparedMetadata<'a> {
    /// The markers in order.
    pub markers: &'a [ColumnSpec],
    /// For each partition key column the marker bound to it; empty unless all are bound (v4 and later).
    pub partition_key: &'a [u16],
}

impl PreparedMetadata<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>, version: Version) {
        let global = one_table(self.markers);
        put_int(out, if global.is_some() { GLOBAL_TABLES_SPEC } else { 0 });
        put_int(out, self.markers.len() as i32);
        if version >= Version::V4 {
            put_int(out, self.partition_key.len() as i32);
            for index in self.partition_key {
                put_short(out, *index);
            }
        }
        put_columns(out, self.markers, global, version);
    }
}

/// The table of all columns, if it is the same one.
fn one_table(columns: &[ColumnSpec]) -> Option<&ColumnSpec> {
    let (first, rest) = columns.split_first()?;
    let same = |column: &ColumnSpec| column.keyspace == first.keyspace && column.table == first.table;
    rest.iter().all(same).then_some(first)
}

fn put_columns(out: &mut Vec<u8>, columns: &[ColumnSpec], global: Option<&ColumnSpec>, version: Version) {
    if let Some(column) = global {
        put_string(out, &column.keyspace);
        put_string(out, &column.table);
    }
    for column in columns {
        if global.is_none() {
            put_string(out, &column.keyspace);
            put_string(out, &column.table);
        }
        put_string(out, &column.name);
        put_type(out, &column.ty, version);
    }
}
