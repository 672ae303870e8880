//! Writing the model's rows and markers as unfiltereds, cell by cell.

use std::sync::Arc;

use model::{Cell, ColumnData, ComplexCells, DeletionTime, Liveness, Marker, PlainRow, Row, Side, StoredRow, Table};
use types::vint;

use super::row_stats::RowStats;
use super::{LISTED_COLUMNS_MIN, STORED_ROW, UnfilteredForm, cell_flag, extended, flag};
use crate::clustering::{component_count, kind, write_value, write_values};
use crate::error::SSTableError;
use crate::stats::{EncodingBase, push_vbytes};

/// A column of the file being written.
#[derive(Clone, Debug)]
struct WrittenColumn {
    fixed_length: Option<usize>,
    complex: bool,
}

/// The static or regular columns of the file being written.
#[derive(Clone, Debug)]
struct WrittenColumns {
    columns: Vec<WrittenColumn>,
    /// The index in the file, for each index in the table's columns.
    places: Vec<Option<usize>>,
}

impl WrittenColumns {
    fn new(table: &Table, is_static: bool, included: &[usize]) -> Self {
        let all = &table.columns(is_static).columns;
        let mut places = vec![None; all.len()];
        let mut columns = Vec::with_capacity(included.len());
        for index in included {
            if let (Some(column), Some(place)) = (all.get(*index), places.get_mut(*index)) {
                *place = Some(columns.len());
                columns.push(WrittenColumn { fixed_length: column.ty.fixed_length(), complex: column.is_complex() });
            }
        }
        WrittenColumns { columns, places }
    }
}

/// The buffer for a row larger than this is made in one step, and not kept.
const LARGE_ROW_BYTES: usize = 256 << 10;

/// Encodes the data of one file.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    base: EncodingBase,
    layout: Arc<Layout>,
    form: UnfilteredForm,
    body: Vec<u8>,
    /// Indexes in the file of the row's columns.
    present: Vec<usize>,
}

/// The part of an encoder that does not change.
#[derive(Debug)]
struct Layout {
    statics: WrittenColumns,
    regulars: WrittenColumns,
    /// The fixed lengths of the clustering values.
    clustering: Vec<Option<usize>>,
}

impl Layout {
    fn of(&self, is_static: bool) -> &WrittenColumns {
        if is_static { &self.statics } else { &self.regulars }
    }
}

impl Encoder {
    /// Encodes the given columns (indexes among the table's static and regular ones) relative to `base`.
    pub fn new(table: &Table, base: EncodingBase, statics: &[usize], regulars: &[usize]) -> Self {
        Encoder::of_form(UnfilteredForm::File, table, base, statics, regulars)
    }

    /// Like `new`, for messages too. A message has only columns that the table has now.
    pub fn of_form(
        form: UnfilteredForm,
        table: &Table,
        base: EncodingBase,
        statics: &[usize],
        regulars: &[usize],
    ) -> Self {
        let layout = Layout {
            statics: WrittenColumns::new(table, true, statics),
            regulars: WrittenColumns::new(table, false, regulars),
            clustering: table.clustering().iter().map(|column| column.ty.fixed_length()).collect(),
        };
        Encoder { form, base, layout: Arc::new(layout), body: Vec::new(), present: Vec::new() }
    }

    /// Whether every partition has a static row.
    pub fn has_statics(&self) -> bool {
        !self.layout.statics.columns.is_empty()
    }

    fn timestamp(base: &EncodingBase, timestamp: i64, out: &mut Vec<u8>) {
        vint::write_uvint(timestamp.wrapping_sub(base.timestamp) as u64, out);
    }

    fn local_deletion_time(base: &EncodingBase, time: u32, out: &mut Vec<u8>) {
        vint::write_uvint(i64::from(time.wrapping_sub(base.local_deletion_time) as i32) as u64, out);
    }

    fn ttl(base: &EncodingBase, ttl: i32, out: &mut Vec<u8>) {
        vint::write_uvint(i64::from(ttl.wrapping_sub(base.ttl)) as u64, out);
    }

    fn deletion(base: &EncodingBase, deletion: DeletionTime, out: &mut Vec<u8>) {
        Self::timestamp(base, deletion.marked_for_delete_at, out);
        Self::local_deletion_time(base, deletion.local_deletion_time, out);
    }

    /// Appends a marker.
    pub fn marker(
        &mut self,
        marker: &Marker<'_>,
        previous_size: u64,
        stats: &mut impl RowStats,
        out: &mut Vec<u8>,
    ) -> Result<(), SSTableError> {
        let kind = marker_kind(marker);
        out.extend_from_slice(&[flag::IS_MARKER, kind]);
        let count = component_count(marker.prefix) as u16;
        out.extend_from_slice(&count.to_be_bytes());
        write_values(&self.layout.clustering, marker.prefix, out)?;
        self.begin_body(previous_size);
        for deletion in [marker.before, marker.after].iter().filter(|deletion| !deletion.is_live()) {
            Self::deletion(&self.base, *deletion, &mut self.body);
            stats.deletion(*deletion);
        }
        self.push_body(out);
        Ok(())
    }

    /// Empties the body and begins it with the size of the unfiltered before.
    fn begin_body(&mut self, previous_size: u64) {
        self.body.clear();
        if self.form == UnfilteredForm::File {
            vint::write_uvint(previous_size, &mut self.body);
        }
    }

    /// Appends the body, in files after its length.
    fn push_body(&self, out: &mut Vec<u8>) {
        match self.form {
            UnfilteredForm::File => push_vbytes(&self.body, out),
            UnfilteredForm::Message => out.extend_from_slice(&self.body),
        }
    }

    /// Appends the static row of a partition, empty if there is none.
    pub fn static_row(
        &mut self,
        table: &Table,
        row: Option<Row<'_>>,
        stats: &mut impl RowStats,
        out: &mut Vec<u8>,
    ) -> Result<(), SSTableError> {
        match row {
            Some(row) => self.any_row(table, true, &[], row, 0, stats, out),
            None => {
                self.begin_body(0);
                let mut flags = flag::EXTENSION;
                self.present.clear();
                self.write_subset(true, &mut flags);
                out.extend_from_slice(&[flags, extended::IS_STATIC]);
                self.push_body(out);
                Ok(())
            }
        }
    }

    /// Appends a row.
    pub fn row(
        &mut self,
        table: &Table,
        clustering: &[u8],
        row: Row<'_>,
        previous_size: u64,
        stats: &mut impl RowStats,
        out: &mut Vec<u8>,
    ) -> Result<(), SSTableError> {
        match row.plain(table) {
            Some(plain) if self.plain_row(clustering, plain, previous_size, stats, out)? => Ok(()),
            _ => self.any_row(table, false, clustering, row, previous_size, stats, out),
        }
    }

    /// Appends a plain row, value by value. Returns false, with nothing appended, if a value is missing.
    fn plain_row(
        &self,
        clustering: &[u8],
        row: PlainRow<'_>,
        previous_size: u64,
        stats: &mut impl RowStats,
        out: &mut Vec<u8>,
    ) -> Result<bool, SSTableError> {
        let columns = &self.layout.regulars.columns;
        // The file may omit columns of which no row has a cell.
        if columns.len() != row.values.len() {
            return Ok(false);
        }
        let timestamp = row.timestamp.wrapping_sub(self.base.timestamp) as u64;
        let mut size = vint::uvint_size(previous_size) + vint::uvint_size(timestamp);
        for (column, value) in columns.iter().zip(row.values) {
            let Some(value) = value else { return Ok(false) };
            let length = if column.fixed_length.is_some() { 0 } else { vint::uvint_size(value.len() as u64) };
            size += 1 + if value.is_empty() { 0 } else { length + value.len() };
        }
        self.check_clustering(clustering)?;
        out.push(flag::HAS_TIMESTAMP | flag::HAS_ALL_COLUMNS);
        write_values(&self.layout.clustering, clustering, out)?;
        if self.form == UnfilteredForm::File {
            vint::write_uvint(size as u64, out);
            out.reserve(size);
            vint::write_uvint(previous_size, out);
        }
        vint::write_uvint(timestamp, out);
        for (column, value) in columns.iter().zip(row.values) {
            match value {
                Some(value) if !value.is_empty() => {
                    out.push(cell_flag::USE_ROW_TIMESTAMP);
                    write_value(column.fixed_length, value, out)?;
                }
                _ => out.push(cell_flag::USE_ROW_TIMESTAMP | cell_flag::HAS_EMPTY_VALUE),
            }
        }
        stats.plain_row(row.timestamp, columns.len());
        Ok(true)
    }

    /// Appends a row in the stored form of another file, in which all columns of the table are written.
    pub fn stored_row(
        &self,
        row: &StoredRow<'_>,
        previous_size: u64,
        stats: &mut impl RowStats,
        out: &mut Vec<u8>,
    ) -> Result<(), SSTableError> {
        let WrittenColumns { columns, places } = &self.layout.regulars;
        if columns.len() != places.len() {
            let what = format!("a row of {} columns as it is stored, in a file of {}", places.len(), columns.len());
            return Err(SSTableError::Unwritable { what });
        }
        self.check_clustering(row.clustering)?;
        let timestamp = row.timestamp.wrapping_sub(self.base.timestamp) as u64;
        let size = vint::uvint_size(previous_size) + vint::uvint_size(timestamp) + row.cells.len();
        out.push(STORED_ROW);
        write_values(&self.layout.clustering, row.clustering, out)?;
        vint::write_uvint(size as u64, out);
        vint::write_uvint(previous_size, out);
        vint::write_uvint(timestamp, out);
        out.extend_from_slice(row.cells);
        stats.plain_row(row.timestamp, columns.len());
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "it is the one straight function behind the two above")]
    fn any_row(
        &mut self,
        table: &Table,
        is_static: bool,
        clustering: &[u8],
        row: Row<'_>,
        previous_size: u64,
        stats: &mut impl RowStats,
        out: &mut Vec<u8>,
    ) -> Result<(), SSTableError> {
        let (liveness, deletion) = (row.liveness(), row.deletion());
        let mut flags = self.survey(table, is_static, row)?;
        self.begin_body(previous_size);
        let is_large = row.as_bytes().len() > LARGE_ROW_BYTES;
        if is_large {
            // In steps it would become twice as large.
            self.body.reserve_exact(row.as_bytes().len() + row.as_bytes().len() / 8);
        }
        if !liveness.is_empty() {
            flags |= flag::HAS_TIMESTAMP;
            Self::timestamp(&self.base, liveness.timestamp, &mut self.body);
            if liveness.is_expiring() {
                flags |= flag::HAS_TTL;
                Self::ttl(&self.base, liveness.ttl, &mut self.body);
                Self::local_deletion_time(&self.base, liveness.expiration, &mut self.body);
            }
        }
        if !deletion.is_live() {
            flags |= flag::HAS_DELETION;
            Self::deletion(&self.base, deletion, &mut self.body);
        }
        self.write_subset(is_static, &mut flags);
        let columns_set = self.write_columns(table, is_static, row, &liveness, flags, stats)?;
        if !(is_static && self.present.is_empty() && liveness.is_empty() && deletion.is_live()) {
            stats.liveness(&liveness);
            stats.deletion(deletion);
            stats.row(columns_set);
        }
        if is_static {
            out.extend_from_slice(&[flags | flag::EXTENSION, extended::IS_STATIC]);
        } else {
            out.push(flags);
            self.check_clustering(clustering)?;
            write_values(&self.layout.clustering, clustering, out)?;
        }
        self.push_body(out);
        if is_large {
            self.body = Vec::new();
        }
        Ok(())
    }

    fn check_clustering(&self, clustering: &[u8]) -> Result<(), SSTableError> {
        let count = component_count(clustering);
        if count == self.layout.clustering.len() {
            return Ok(());
        }
        let what = format!("a row with {count} clustering values in a table of {}", self.layout.clustering.len());
        Err(SSTableError::Unwritable { what })
    }

    /// Records which columns are present. Returns the flag for complex deletions if there is one.
    fn survey(&mut self, table: &Table, is_static: bool, row: Row<'_>) -> Result<u8, SSTableError> {
        self.present.clear();
        let written = self.layout.of(is_static);
        let mut flags = 0;
        for (index, data) in self.form.columns(row, table) {
            let Some(place) = written.places.get(index).copied().flatten() else {
                let what = format!("column {index}, which the table being written does not include");
                return Err(SSTableError::Unwritable { what });
            };
            self.present.push(place);
            if let ColumnData::Complex(cells) = data
                && !cells.deletion.is_live()
            {
                flags = flag::HAS_COMPLEX_DELETION;
            }
        }
        Ok(flags)
    }

    /// Appends the column subset to the body, or sets the flag that all columns are present.
    fn write_subset(&mut self, is_static: bool, flags: &mut u8) {
        let count = self.layout.of(is_static).columns.len();
        let present = self.present.len();
        if present == count {
            *flags |= flag::HAS_ALL_COLUMNS;
            return;
        }
        if count < LISTED_COLUMNS_MIN {
            let all = (1_u64 << count) - 1;
            let absent = self.present.iter().fold(all, |absent, index| absent & !(1 << index));
            vint::write_uvint(absent, &mut self.body);
            return;
        }
        vint::write_uvint((count - present) as u64, &mut self.body);
        if present < count / 2 {
            for index in &self.present {
                vint::write_uvint(*index as u64, &mut self.body);
            }
            return;
        }
        let mut listed = self.present.iter().peekable();
        for index in 0..count {
            if listed.next_if_eq(&&index).is_none() {
                vint::write_uvint(index as u64, &mut self.body);
            }
        }
    }

    /// Appends the cells. Returns how many columns have one.
    fn write_columns(
        &mut self,
        table: &Table,
        is_static: bool,
        row: Row<'_>,
        liveness: &Liveness,
        flags: u8,
        stats: &mut impl RowStats,
    ) -> Result<usize, SSTableError> {
        let Encoder { base, layout, form, body, .. } = self;
        let written = layout.of(is_static);
        let mut columns_set = 0;
        for (index, data) in form.columns(row, table) {
            let Some(place) = written.places[index] else { continue };
            let column = &written.columns[place];
            match data {
                ColumnData::Simple(cell) => {
                    columns_set += 1;
                    stats.cell(&cell);
                    write_cell(base, column, &cell, liveness, body)?;
                }
                ColumnData::Complex(cells) => {
                    let with_deletion = flags & flag::HAS_COMPLEX_DELETION != 0;
                    let count = write_complex(base, column, cells, liveness, with_deletion, stats, body)?;
                    columns_set += usize::from(count > 0);
                }
            }
        }
        Ok(columns_set)
    }
}

fn write_complex(
    base: &EncodingBase,
    column: &WrittenColumn,
    cells: ComplexCells<'_>,
    liveness: &Liveness,
    with_deletion: bool,
    stats: &mut impl RowStats,
    body: &mut Vec<u8>,
) -> Result<usize, SSTableError> {
    if with_deletion {
        Encoder::deletion(base, cells.deletion, body);
        stats.deletion(cells.deletion);
    }
    let count = cells.count();
    vint::write_uvint(count as u64, body);
    for cell in cells {
        stats.cell(&cell);
        write_cell(base, column, &cell, liveness, body)?;
    }
    Ok(count)
}

fn write_cell(
    base: &EncodingBase,
    column: &WrittenColumn,
    cell: &Cell<'_>,
    liveness: &Liveness,
    body: &mut Vec<u8>,
) -> Result<(), SSTableError> {
    let row_timestamp = !liveness.is_empty() && liveness.timestamp == cell.timestamp;
    let (deleted, expiring) = (cell.is_tombstone(), cell.is_expiring());
    let row_ttl = expiring
        && liveness.is_expiring()
        && liveness.ttl == cell.ttl
        && liveness.expiration == cell.local_deletion_time;
    let mut flags = 0;
    for (set, bit) in [
        (deleted, cell_flag::IS_DELETED),
        (expiring, cell_flag::IS_EXPIRING),
        (cell.value.is_empty(), cell_flag::HAS_EMPTY_VALUE),
        (row_timestamp, cell_flag::USE_ROW_TIMESTAMP),
        (row_ttl, cell_flag::USE_ROW_TTL),
    ] {
        flags |= if set { bit } else { 0 };
    }
    body.push(flags);
    if !row_timestamp {
        Encoder::timestamp(base, cell.timestamp, body);
    }
    if (deleted || expiring) && !row_ttl {
        Encoder::local_deletion_time(base, cell.local_deletion_time, body);
    }
    if expiring && !row_ttl {
        Encoder::ttl(base, cell.ttl, body);
    }
    if column.complex {
        push_vbytes(cell.path, body);
    }
    match (cell.value.is_empty(), column.complex) {
        (true, _) => Ok(()),
        (false, true) => {
            push_vbytes(cell.value, body);
            Ok(())
        }
        (false, false) => write_value(column.fixed_length, cell.value, body),
    }
}

fn marker_kind(marker: &Marker<'_>) -> u8 {
    match (marker.side, marker.before.is_live(), marker.after.is_live()) {
        (Side::Before, true, _) => kind::INCL_START_BOUND,
        (Side::Before, false, true) => kind::EXCL_END_BOUND,
        (Side::Before, false, false) => kind::EXCL_END_INCL_START_BOUNDARY,
        (Side::After, true, _) => kind::EXCL_START_BOUND,
        (Side::After, false, true) => kind::INCL_END_BOUND,
        (Side::After, false, false) => kind::INCL_END_EXCL_START_BOUNDARY,
    }
}
