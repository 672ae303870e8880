//! A table as JSON, in the form of Cassandra's `sstabledump`.
//!
//! One difference: a counter cell shows the counter's value (sstabledump 5.0 shows bytes of its shards).

use std::fmt::Write as _;

use model::{
    Cell, Clusterings, ColumnData, DeletionTime, Liveness, Marker, PartitionKey, Row, Side, Table, Unfiltered,
    UnfilteredCursor,
};
use types::json::write_json_string;
use types::{CqlType, identifier::Quoted};

use crate::error::SSTableError;
use crate::reader::{SSTableCursor, SSTableReader};

/// The options of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// The time at which `expired` is decided, seconds since the epoch.
    pub now_seconds: u32,
    /// Times as numbers (`sstabledump -t`) instead of dates.
    pub raw_timestamps: bool,
    /// How the output is grouped.
    pub layout: DumpLayout,
}

/// How the output of a dump is grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DumpLayout {
    /// One array of partitions, as `sstabledump` prints.
    #[default]
    Array,
    /// A partition per line (`sstabledump -l`).
    PartitionPerLine,
    /// A row or marker per line, each with the head of its partition; a partition without rows is a line as well.
    RowPerLine,
}

/// Writes all partitions as JSON; `write` gets the text piece by piece.
pub fn dump_json(
    reader: &SSTableReader,
    options: DumpOptions,
    write: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> Result<(), DumpError> {
    let mut cursor = reader.scan()?;
    let table = reader.table().clone();
    let mut dump = Dump { table: &table, options, out: String::new() };
    let is_array = options.layout == DumpLayout::Array;
    let mut is_empty = true;
    while cursor.advance_partition().map_err(SSTableError::from)? {
        dump.out.clear();
        if is_array {
            dump.out.push_str(if is_empty { "[\n" } else { ",\n" });
        }
        is_empty = false;
        match options.layout {
            DumpLayout::RowPerLine => dump.rows_as_lines(&mut cursor, write)?,
            DumpLayout::Array => dump.whole_partition(&mut cursor)?,
            DumpLayout::PartitionPerLine => {
                dump.whole_partition(&mut cursor)?;
                dump.out.push('\n');
            }
        }
        write(&dump.out)?;
    }
    if is_array {
        write(if is_empty { "[]\n" } else { "\n]\n" })?;
    }
    Ok(())
}

/// A dump that did not finish.
#[derive(Debug)]
pub enum DumpError {
    /// The table could not be read.
    SSTable(SSTableError),
    /// The text could not be written.
    Io(std::io::Error),
}

impl std::fmt::Display for DumpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DumpError::SSTable(error) => error.fmt(f),
            DumpError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DumpError {}

impl From<SSTableError> for DumpError {
    fn from(error: SSTableError) -> Self {
        DumpError::SSTable(error)
    }
}

impl From<std::io::Error> for DumpError {
    fn from(error: std::io::Error) -> Self {
        DumpError::Io(error)
    }
}

struct Dump<'t> {
    table: &'t Table,
    options: DumpOptions,
    out: String,
}

impl Dump<'_> {
    /// The current partition with its rows.
    fn whole_partition(&mut self, cursor: &mut SSTableCursor) -> Result<(), SSTableError> {
        let rows_position = cursor.rows_position();
        let head = cursor.partition();
        self.partition(head.key, head.deletion, rows_position);
        self.out.push_str(",\"rows\":[");
        let mut is_first = true;
        if let Some(row) = head.static_row {
            self.row(None, row, rows_position);
            is_first = false;
        }
        while cursor.advance()? {
            if !std::mem::replace(&mut is_first, false) {
                self.out.push(',');
            }
            self.unfiltered(cursor);
        }
        self.out.push_str("]}");
        Ok(())
    }

    /// The current partition as lines of one row each.
    fn rows_as_lines(
        &mut self,
        cursor: &mut SSTableCursor,
        write: &mut dyn FnMut(&str) -> std::io::Result<()>,
    ) -> Result<(), DumpError> {
        let rows_position = cursor.rows_position();
        let head = cursor.partition();
        self.partition(head.key, head.deletion, rows_position);
        let start = self.out.len();
        let mut is_empty = true;
        if let Some(row) = head.static_row {
            self.out.push_str(",\"row\":");
            self.row(None, row, rows_position);
            is_empty = false;
        }
        while cursor.advance().map_err(SSTableError::from)? {
            if !std::mem::replace(&mut is_empty, false) {
                self.out.push_str("}\n");
                write(&self.out)?;
                self.out.truncate(start);
            }
            self.out.push_str(",\"row\":");
            self.unfiltered(cursor);
        }
        self.out.push_str("}\n");
        Ok(())
    }

    fn unfiltered(&mut self, cursor: &SSTableCursor) {
        match cursor.unfiltered() {
            Unfiltered::Row(row) => self.row(Some(row.clustering), row.row, cursor.item_position()),
            Unfiltered::Marker(marker) => self.marker(&marker),
        }
    }

    /// Opens the object of a partition and writes its head.
    fn partition(&mut self, key: &PartitionKey, deletion: DeletionTime, position: u64) {
        self.out.push_str("{\"table kind\":\"REGULAR\",\"partition\":{\"key\":[");
        let columns = self.table.partition_key();
        for (index, (column, value)) in columns.iter().zip(key.parts(columns.len())).enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.text_of(&column.ty, value);
        }
        let _ = write!(self.out, "],\"position\":{position}");
        if !deletion.is_live() {
            self.out.push(',');
            self.deletion_info(deletion);
        }
        self.out.push('}');
    }

    /// Writes a value as a JSON string.
    fn text_of(&mut self, ty: &CqlType, value: &[u8]) {
        let json = ty.to_json(value);
        match json.starts_with('"') {
            true => self.out.push_str(&json),
            false => write_json_string(&json, &mut self.out),
        }
    }

    /// Writes a timestamp in microseconds.
    fn timestamp(&mut self, micros: i64) {
        match self.options.raw_timestamps {
            true => {
                let _ = write!(self.out, "\"{micros}\"");
            }
            false => self.date(micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000)),
        }
    }

    /// Writes a time in seconds.
    fn seconds(&mut self, seconds: u32) {
        match self.options.raw_timestamps {
            true => {
                let _ = write!(self.out, "\"{seconds}\"");
            }
            false => self.date(i64::from(seconds), 0),
        }
    }

    /// Writes an instant as Java prints it: with a fraction only if it is not zero, in groups of three digits.
    fn date(&mut self, seconds: i64, micros: i64) {
        let text = types::text::format_timestamp(seconds.saturating_mul(1000), types::text::Separator::Literal);
        let whole = text.split('.').next().unwrap_or_default();
        let _ = match (micros, micros % 1000) {
            (0, _) => write!(self.out, "\"{whole}Z\""),
            (_, 0) => write!(self.out, "\"{whole}.{:03}Z\"", micros / 1000),
            _ => write!(self.out, "\"{whole}.{micros:06}Z\""),
        };
    }

    fn deletion_info(&mut self, deletion: DeletionTime) {
        self.out.push_str("\"deletion_info\":{\"marked_deleted\":");
        self.timestamp(deletion.marked_for_delete_at);
        self.out.push_str(",\"local_delete_time\":");
        self.seconds(deletion.local_deletion_time);
        self.out.push('}');
    }

    fn expiry(&mut self, ttl: i32, expiration: u32) {
        let _ = write!(self.out, ",\"ttl\":{ttl},\"expires_at\":");
        self.seconds(expiration);
        let _ = write!(self.out, ",\"expired\":{}", expiration <= self.options.now_seconds);
    }

    fn row(&mut self, clustering: Option<&[u8]>, row: Row<'_>, position: u64) {
        let kind = if clustering.is_some() { "row" } else { "static_block" };
        let _ = write!(self.out, "{{\"type\":\"{kind}\",\"position\":{position}");
        if let Some(clustering) = clustering.filter(|_| !self.table.clustering().is_empty()) {
            self.out.push(',');
            self.clustering(clustering);
        }
        let liveness = row.liveness();
        if !liveness.is_empty() {
            self.out.push_str(",\"liveness_info\":{\"tstamp\":");
            self.timestamp(liveness.timestamp);
            if liveness.is_expiring() {
                self.expiry(liveness.ttl, liveness.expiration);
            }
            self.out.push('}');
        }
        if !row.deletion().is_live() {
            self.out.push(',');
            self.deletion_info(row.deletion());
        }
        self.out.push_str(",\"cells\":[");
        let start = self.out.len();
        for (index, data) in row.kept_columns(self.table) {
            self.column(index, data, row.is_static(), &liveness);
        }
        // Every cell ends with a comma.
        if self.out.len() > start {
            self.out.pop();
        }
        self.out.push_str("]}");
    }

    fn column(&mut self, index: usize, data: ColumnData<'_>, is_static: bool, liveness: &Liveness) {
        let table = self.table;
        let column = &table.columns(is_static).columns[index];
        let mut name = String::new();
        write_json_string(&Quoted(&column.name).to_string(), &mut name);
        match data {
            ColumnData::Simple(cell) => self.cell(&name, &column.ty, None, &cell, liveness),
            ColumnData::Complex(cells) => {
                if !cells.deletion.is_live() {
                    let _ = write!(self.out, "{{\"name\":{name},");
                    self.deletion_info(cells.deletion);
                    self.out.push_str("},");
                }
                for cell in cells {
                    let (path, value) = element_types(&column.ty, cell.path);
                    self.cell(&name, &value, Some(path), &cell, liveness);
                }
            }
        }
    }

    fn cell(&mut self, name: &str, ty: &CqlType, path: Option<Path>, cell: &Cell<'_>, liveness: &Liveness) {
        let _ = write!(self.out, "{{\"name\":{name}");
        match path {
            Some(Path::Value(ty)) => {
                self.out.push_str(",\"path\":[");
                self.text_of(&ty, cell.path);
                self.out.push(']');
            }
            Some(Path::Field(name)) => {
                self.out.push_str(",\"path\":[");
                write_json_string(&name, &mut self.out);
                self.out.push(']');
            }
            None => {}
        }
        if cell.is_tombstone() {
            self.out.push_str(",\"deletion_info\":{\"local_delete_time\":");
            self.seconds(cell.local_deletion_time);
            self.out.push('}');
        } else {
            self.out.push_str(",\"value\":");
            match ty {
                CqlType::Counter => {
                    let _ = write!(self.out, "{}", crate::counter::value(cell.value));
                }
                CqlType::Empty => self.out.push_str("\"\""),
                ty => ty.write_json(cell.value, &mut self.out),
            }
        }
        if liveness.is_empty() || cell.timestamp != liveness.timestamp {
            self.out.push_str(",\"tstamp\":");
            self.timestamp(cell.timestamp);
        }
        if cell.is_expiring() && (liveness.is_empty() || cell.ttl != liveness.ttl) {
            self.expiry(cell.ttl, cell.local_deletion_time);
        }
        self.out.push_str("},");
    }

    /// Writes clustering values; a prefix is padded with `*`.
    fn clustering(&mut self, serialized: &[u8]) {
        self.out.push_str("\"clustering\":[");
        let mut values = Clusterings(serialized);
        for (index, column) in self.table.clustering().iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            match values.next() {
                Some(Some(value)) => column.ty.write_json(value, &mut self.out),
                Some(None) => self.out.push_str("null"),
                None => self.out.push_str("\"*\""),
            }
        }
        self.out.push(']');
    }

    fn marker(&mut self, marker: &Marker<'_>) {
        let kind = match (marker.before.is_live(), marker.after.is_live()) {
            (false, false) => "range_tombstone_boundary",
            _ => "range_tombstone_bound",
        };
        let _ = write!(self.out, "{{\"type\":\"{kind}\"");
        if !marker.after.is_live() {
            self.bound("start", marker.side == Side::Before, marker.prefix, marker.after);
        }
        if !marker.before.is_live() {
            self.bound("end", marker.side == Side::After, marker.prefix, marker.before);
        }
        self.out.push('}');
    }

    fn bound(&mut self, name: &str, inclusive: bool, prefix: &[u8], deletion: DeletionTime) {
        let kind = if inclusive { "inclusive" } else { "exclusive" };
        let _ = write!(self.out, ",\"{name}\":{{\"type\":\"{kind}\",");
        if !prefix.is_empty() {
            self.clustering(prefix);
            self.out.push(',');
        }
        self.deletion_info(deletion);
        self.out.push('}');
    }
}

/// How the path of a complex column's cell is printed.
enum Path {
    /// As a value of this type.
    Value(CqlType),
    /// As the name of a field.
    Field(String),
}

/// The path's form and the type of the value, for a cell of a complex column.
fn element_types(ty: &CqlType, path: &[u8]) -> (Path, CqlType) {
    match ty {
        CqlType::List { element, .. } => (Path::Value(CqlType::Timeuuid), (**element).clone()),
        CqlType::Set { element, .. } => (Path::Value((**element).clone()), CqlType::Empty),
        CqlType::Map { key, value, .. } => (Path::Value((**key).clone()), (**value).clone()),
        CqlType::Udt { definition, .. } => {
            let index = <[u8; 2]>::try_from(path).map_or(usize::MAX, |index| usize::from(u16::from_be_bytes(index)));
            match definition.fields().get(index) {
                Some((name, ty)) => (Path::Field(name.to_string()), ty.clone()),
                None => (Path::Field(format!("field {index}")), CqlType::Blob),
            }
        }
        _ => (Path::Value(CqlType::Blob), CqlType::Blob),
    }
}
