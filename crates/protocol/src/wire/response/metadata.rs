//! Metadata of results and of bind markers.

use super::type_option::put_type;
use crate::Version;
use crate::message::ColumnSpec;
use crate::wire::writer::{put_bytes, put_int, put_short, put_short_bytes, put_string};
use std::sync::OnceLock;

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
    /// These columns in this order.
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

/// The table that all columns are of, if they are all of one.
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
