//! Reading unfiltereds cell by cell into the model's row blobs.

use model::{
    Cell, DeletionTime, Liveness, NO_DELETION_TIME, RowBuilder, Side, TTL_NONE, Table, begin_plain_row, compare_paths,
};

use super::{FileColumn, FileColumns, LISTED_COLUMNS_MIN, STORED_ROW, UnfilteredForm, cell_flag, extended, flag};
use crate::clustering::{kind, read_value, read_values};
use crate::error::Decoded;
use crate::input::Input;
use crate::stats::EncodingBase;

/// The part of an unfiltered before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnfilteredHead {
    /// Flags; `END_OF_PARTITION` alone ends the partition.
    pub flags: u8,
    /// The extension byte.
    pub extended: u8,
    /// Kind of a marker.
    pub kind: u8,
    /// Bytes before the body.
    pub head_length: usize,
    /// Bytes of the body.
    pub body_length: usize,
}

impl UnfilteredHead {
    pub fn is_end(&self) -> bool {
        self.flags & flag::END_OF_PARTITION != 0
    }

    pub fn is_marker(&self) -> bool {
        self.flags & flag::IS_MARKER != 0
    }

    pub fn is_static(&self) -> bool {
        self.extended & extended::IS_STATIC != 0
    }

    /// Whether a row has its own deletion.
    pub fn has_deletion(&self) -> bool {
        self.flags & flag::HAS_DELETION != 0
    }

    /// The length of the whole unfiltered.
    pub fn length(&self) -> usize {
        self.head_length + self.body_length
    }

    /// -1 before everything with the prefix, 0 the row itself, 1 after.
    pub fn weight(&self) -> i8 {
        match (self.is_marker(), self.side()) {
            (false, _) => 0,
            (true, Side::Before) => -1,
            (true, Side::After) => 1,
        }
    }

    /// The side of its prefix on which a marker lies.
    pub fn side(&self) -> Side {
        if self.kind < kind::CLUSTERING { Side::Before } else { Side::After }
    }
}

/// Decodes the data of one file under one table.
#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a> {
    pub base: EncodingBase,
    pub columns: &'a FileColumns,
    pub table: &'a Table,
}

/// Timestamp, ttl and expiration that cells may refer to.
type RowLiveness = Liveness;

impl Decoder<'_> {
    fn timestamp(&self, input: &mut Input<'_>) -> Decoded<i64> {
        Ok(self.base.timestamp.wrapping_add(input.uvint("timestamp")? as i64))
    }

    fn local_deletion_time(&self, input: &mut Input<'_>) -> Decoded<u32> {
        Ok(self.base.local_deletion_time.wrapping_add(input.uvint("local deletion time")? as u32))
    }

    fn ttl(&self, input: &mut Input<'_>) -> Decoded<i32> {
        let ttl = self.base.ttl.wrapping_add(input.uvint("ttl")? as i32);
        if ttl < 0 {
            return Err(input.damaged("a ttl that is not negative", ttl.to_string()));
        }
        Ok(ttl)
    }

    /// Reads a deletion stored as deltas.
    pub fn deletion(&self, input: &mut Input<'_>) -> Decoded<DeletionTime> {
        let timestamp = self.timestamp(input)?;
        let local_deletion_time = self.local_deletion_time(input)?;
        Ok(match timestamp {
            i64::MIN => DeletionTime::LIVE,
            _ => DeletionTime::new(timestamp, local_deletion_time),
        })
    }

    /// Reads up to the body; the clustering or prefix goes into `clustering`.
    pub fn head(&self, input: &mut Input<'_>, clustering: &mut Vec<u8>) -> Decoded<UnfilteredHead> {
        clustering.clear();
        let start = input.consumed();
        let flags = input.u8("flags")?;
        let mut head = UnfilteredHead { flags, extended: 0, kind: kind::CLUSTERING, head_length: 1, body_length: 0 };
        if head.is_end() {
            if flags != flag::END_OF_PARTITION {
                return Err(input.damaged("an end-of-partition flag alone", format!("{flags:02x}")));
            }
            return Ok(head);
        }
        if head.is_marker() {
            if flags != flag::IS_MARKER {
                return Err(input.damaged("a marker flag alone", format!("{flags:02x}")));
            }
            head.kind = input.u8("marker kind")?;
            if !matches!(head.kind, 0..=2 | 5..=7) {
                return Err(input.damaged("a marker kind", head.kind.to_string()));
            }
            let count = usize::from(input.u16("clustering size")?);
            read_values(&self.columns.clustering, count, input, clustering)?;
        } else {
            if flags & flag::EXTENSION != 0 {
                head.extended = input.u8("extended flags")?;
            }
            if head.extended & extended::IS_STATIC == 0 {
                read_values(&self.columns.clustering, self.columns.clustering.len(), input, clustering)?;
            }
        }
        if self.columns.form == UnfilteredForm::File {
            head.body_length = input.length("row size")?;
        }
        head.head_length = input.consumed() - start;
        Ok(head)
    }

    /// The deletions before and after a marker, from its body.
    pub fn marker(&self, head: &UnfilteredHead, body: &mut Input<'_>) -> Decoded<(DeletionTime, DeletionTime)> {
        self.pass_previous_size(body)?;
        let first = self.deletion(body)?;
        let both = match head.kind {
            kind::EXCL_END_INCL_START_BOUNDARY | kind::INCL_END_EXCL_START_BOUNDARY => (first, self.deletion(body)?),
            kind::INCL_START_BOUND | kind::EXCL_START_BOUND => (DeletionTime::LIVE, first),
            _ => (first, DeletionTime::LIVE),
        };
        self.check_end(body)?;
        Ok(both)
    }

    /// The body of an unfiltered in a file begins with the size of the one before it.
    fn pass_previous_size(&self, body: &mut Input<'_>) -> Decoded<()> {
        match self.columns.form {
            UnfilteredForm::File => body.uvint("previous size").map(drop),
            UnfilteredForm::Message => Ok(()),
        }
    }

    /// Whether a body was read to its end. In a message the next unfiltered follows it.
    fn is_at_end(&self, body: &Input<'_>) -> bool {
        self.columns.form == UnfilteredForm::Message || body.is_empty()
    }

    fn check_end(&self, body: &Input<'_>) -> Decoded<()> {
        match body.remaining() {
            _ if self.is_at_end(body) => Ok(()),
            left => Err(body.damaged("the end of the row", format!("{left} more bytes"))),
        }
    }

    /// Reads a row's body into `builder`, which is started here. Skips what the reader does not use.
    pub fn row(
        &self,
        head: &UnfilteredHead,
        body: &mut Input<'_>,
        projection: Option<&Projection<'_>>,
        builder: &mut RowBuilder,
    ) -> Decoded<()> {
        let is_static = head.is_static();
        builder.start(self.table.columns(is_static), is_static);
        self.pass_previous_size(body)?;
        let mut liveness = Liveness::EMPTY;
        if head.flags & flag::HAS_TIMESTAMP != 0 {
            liveness.timestamp = self.timestamp(body)?;
            if head.flags & flag::HAS_TTL != 0 {
                liveness.ttl = self.ttl(body)?;
                liveness.expiration = self.local_deletion_time(body)?;
            }
            builder.liveness(liveness);
        }
        let mut deletion = DeletionTime::LIVE;
        if head.flags & flag::HAS_DELETION != 0 {
            deletion = self.deletion(body)?;
            builder.deletion(deletion);
        }
        if head.extended & extended::HAS_SHADOWABLE_DELETION != 0 {
            return Err(body.damaged("a row without shadowable deletion", "one of an old materialized view"));
        }
        let columns = self.columns.of(is_static);
        let has_complex_deletion = head.flags & flag::HAS_COMPLEX_DELETION != 0;
        if let Some(projection) = projection.filter(|part| !is_static && part.is_all_of(&liveness, deletion)) {
            return self.projected_columns(projection, head.flags, &liveness, body, builder);
        }
        if head.flags & flag::HAS_ALL_COLUMNS != 0 {
            let is_copied = !is_static && !liveness.is_empty() && !liveness.is_expiring();
            let copied = if is_copied { builder.slots_of_row(|slots| self.copy_cells(body, slots))? } else { 0 };
            for column in &columns[copied..] {
                self.column(column, &liveness, has_complex_deletion, body, builder)?;
            }
        } else {
            self.some_columns(columns, &liveness, has_complex_deletion, body, builder)?;
        }
        self.check_end(body)
    }

    /// Reads the body of a row into the blob `row`, if the row is of the most common kind: inserted, never expiring,
    /// with a cell as old as itself for each column. For all others it returns false, with arbitrary data in `row`;
    /// [`Decoder::row`] reads these, and reports what is wrong with them.
    pub fn plain_row(&self, head: &UnfilteredHead, body: &mut Input<'_>, row: &mut Vec<u8>) -> Decoded<bool> {
        if head.flags != STORED_ROW || !self.columns.are_alike {
            return Ok(false);
        }
        self.pass_previous_size(body)?;
        let timestamp = self.timestamp(body)?;
        row.clear();
        begin_plain_row(self.table.regulars(), timestamp, row);
        let copied = self.copy_cells(body, row)?;
        Ok(timestamp != i64::MIN && copied == self.columns.regulars.len() && self.is_at_end(body))
    }

    /// The timestamp of a row and where in its body its cells begin, if the row may be passed on in stored form: see
    /// [`model::StoredRow`]. A row that this crate's writer would encode differently may not.
    pub fn stored_row(&self, head: &UnfilteredHead, body: &mut Input<'_>) -> Decoded<Option<(i64, usize)>> {
        if head.flags != STORED_ROW || !self.columns.are_alike || self.columns.form != UnfilteredForm::File {
            return Ok(None);
        }
        body.uvint("previous size")?;
        let timestamp = self.timestamp(body)?;
        let cells = body.consumed();
        for column in &self.columns.regulars {
            const EMPTY: u8 = cell_flag::USE_ROW_TIMESTAMP | cell_flag::HAS_EMPTY_VALUE;
            match body.u8("cell flags")? {
                EMPTY => {}
                cell_flag::USE_ROW_TIMESTAMP => {
                    if read_value(column.fixed_length, body)?.is_empty() {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok((timestamp != i64::MIN && body.is_empty()).then_some((timestamp, cells)))
    }

    /// Reads the cells of the first regular columns while they have the row's timestamp, and appends them as slots of a
    /// row blob. Returns their number.
    fn copy_cells(&self, body: &mut Input<'_>, slots: &mut Vec<u8>) -> Decoded<usize> {
        let columns = &self.columns.regulars[..self.columns.copied_regulars];
        slots.reserve(body.remaining() + size_of::<i32>() * columns.len());
        for (copied, column) in columns.iter().enumerate() {
            if body.peek() != Some(cell_flag::USE_ROW_TIMESTAMP) {
                return Ok(copied);
            }
            body.u8("cell flags")?;
            let length = match column.fixed_length {
                Some(length) => length,
                None => body.length("value")?,
            };
            slots.extend_from_slice(&(length as i32).to_be_bytes());
            match body.take_in_block(length) {
                Some(block) => {
                    let end = slots.len() + length;
                    slots.extend_from_slice(block);
                    slots.truncate(end);
                }
                None => slots.extend_from_slice(body.take(length, "value")?),
            }
        }
        Ok(columns.len())
    }

    /// Reads the regular columns of a projection.
    fn projected_columns(
        &self,
        projection: &Projection<'_>,
        flags: u8,
        liveness: &RowLiveness,
        body: &mut Input<'_>,
        builder: &mut RowBuilder,
    ) -> Decoded<()> {
        let columns = &self.columns.regulars;
        let has_complex_deletion = flags & flag::HAS_COMPLEX_DELETION != 0;
        let mut read = |present: &mut dyn Iterator<Item = usize>, body: &mut Input<'_>| -> Decoded<()> {
            let mut places = projection.places.iter().copied().peekable();
            for place in present {
                while places.next_if(|wanted| *wanted < place).is_some() {}
                match places.peek() {
                    // What follows the last of them is not read.
                    None => break,
                    Some(wanted) if *wanted == place => {
                        self.column(&columns[place], liveness, has_complex_deletion, body, builder)?;
                    }
                    Some(_) => self.pass_column(&columns[place], liveness, has_complex_deletion, body)?,
                }
            }
            Ok(())
        };
        let mut all = 0..columns.len();
        if flags & flag::HAS_ALL_COLUMNS != 0 {
            read(&mut all, body)
        } else if columns.len() < LISTED_COLUMNS_MIN {
            let absent = self.absent_columns(columns, body)?;
            read(&mut all.filter(|place| absent >> place & 1 == 0), body)
        } else {
            let present = read_large_subset(columns.len(), body)?;
            read(&mut present.into_iter(), body)
        }
    }

    /// Skips a column's data.
    fn pass_column(
        &self,
        column: &FileColumn,
        liveness: &RowLiveness,
        has_complex_deletion: bool,
        body: &mut Input<'_>,
    ) -> Decoded<()> {
        if !column.complex {
            if body.peek() != Some(cell_flag::USE_ROW_TIMESTAMP) {
                return self.cell(column, liveness, body).map(|_| ());
            }
            body.u8("cell flags")?;
            return read_value(column.fixed_length, body).map(|_| ());
        }
        if has_complex_deletion {
            self.deletion(body)?;
        }
        let count = body.uvint("cell count")?;
        for _ in 0..body.checked_count(count, 1, "cells")? {
            self.cell(column, liveness, body)?;
        }
        Ok(())
    }

    /// The columns that a row lacks, as bits, in a file of few columns.
    fn absent_columns(&self, columns: &[FileColumn], body: &mut Input<'_>) -> Decoded<u64> {
        let absent = body.uvint("column subset")?;
        if absent >> columns.len() != 0 {
            return Err(body.damaged("a subset of the columns", format!("{absent:x}")));
        }
        Ok(absent)
    }

    fn some_columns(
        &self,
        columns: &[FileColumn],
        liveness: &RowLiveness,
        has_complex_deletion: bool,
        body: &mut Input<'_>,
        builder: &mut RowBuilder,
    ) -> Decoded<()> {
        if columns.len() < LISTED_COLUMNS_MIN {
            let absent = self.absent_columns(columns, body)?;
            for (index, column) in columns.iter().enumerate() {
                if absent >> index & 1 == 0 {
                    self.column(column, liveness, has_complex_deletion, body, builder)?;
                }
            }
            return Ok(());
        }
        for index in read_large_subset(columns.len(), body)? {
            self.column(&columns[index], liveness, has_complex_deletion, body, builder)?;
        }
        Ok(())
    }

    fn column(
        &self,
        column: &FileColumn,
        liveness: &RowLiveness,
        has_complex_deletion: bool,
        body: &mut Input<'_>,
        builder: &mut RowBuilder,
    ) -> Decoded<()> {
        if !column.complex {
            let cell = self.cell(column, liveness, body)?;
            if let Some(target) = column.target
                && !is_dropped(column, cell.timestamp)
            {
                builder.cell(target, &cell);
            }
            return Ok(());
        }
        let deletion = if has_complex_deletion { self.deletion(body)? } else { DeletionTime::LIVE };
        if let Some(target) = column.target {
            let dropped = is_dropped(column, deletion.marked_for_delete_at);
            builder.complex(target, if dropped { DeletionTime::LIVE } else { deletion });
        }
        let count = body.uvint("cell count")?;
        let mut last: Option<&[u8]> = None;
        for _ in 0..body.checked_count(count, 1, "cells")? {
            let cell = self.cell(column, liveness, body)?;
            if let Some(ty) = &column.ordered_by {
                if last.is_some_and(|last| compare_paths(ty, last, cell.path).is_ge()) {
                    return Err(body.damaged("cells in the order of their paths", "others"));
                }
                last = Some(cell.path);
            }
            if column.target.is_some() && !is_dropped(column, cell.timestamp) {
                builder.complex_cell(&cell);
            }
        }
        Ok(())
    }

    fn cell<'b>(&self, column: &FileColumn, liveness: &RowLiveness, body: &mut Input<'b>) -> Decoded<Cell<'b>> {
        let flags = body.u8("cell flags")?;
        let has = |bit: u8| flags & bit != 0;
        let timestamp = if has(cell_flag::USE_ROW_TIMESTAMP) { liveness.timestamp } else { self.timestamp(body)? };
        let (deleted, expiring) = (has(cell_flag::IS_DELETED), has(cell_flag::IS_EXPIRING));
        let (mut ttl, mut local_deletion_time) = (TTL_NONE, NO_DELETION_TIME);
        if has(cell_flag::USE_ROW_TTL) {
            (ttl, local_deletion_time) = (liveness.ttl, liveness.expiration);
        } else {
            if deleted || expiring {
                local_deletion_time = self.local_deletion_time(body)?;
            }
            if expiring {
                ttl = self.ttl(body)?;
            }
        }
        let path = if column.complex { body.vbytes("cell path")? } else { &[] };
        let value = match (has(cell_flag::HAS_EMPTY_VALUE), column.complex) {
            (true, _) => &[],
            (false, true) => body.vbytes("cell value")?,
            (false, false) => read_value(column.fixed_length, body)?,
        };
        Ok(Cell { timestamp, ttl, local_deletion_time, path, value })
    }
}

/// The part of a row that a reader uses.
#[derive(Clone, Copy)]
pub(crate) struct Projection<'w> {
    /// The indexes in the file of the regular columns that it uses, ascending.
    pub places: &'w [usize],
    /// The deletion of the file's partition or ranges that applies to the row, `LIVE` if none.
    pub active: DeletionTime,
}

impl Projection<'_> {
    /// Whether the rest of a row does not matter: the row never expires by itself, and nothing in this file, the
    /// reader's only source, deletes it.
    fn is_all_of(&self, liveness: &Liveness, deletion: DeletionTime) -> bool {
        let is_for_ever = !liveness.is_empty() && !liveness.is_expiring();
        is_for_ever && !self.active.max(deletion).deletes(liveness.timestamp)
    }
}

/// Whether data written at `timestamp` was dropped with its column.
fn is_dropped(column: &FileColumn, timestamp: i64) -> bool {
    column.dropped_until != i64::MIN && timestamp <= column.dropped_until
}

/// The present columns of a row of a table with many columns.
fn read_large_subset(column_count: usize, body: &mut Input<'_>) -> Decoded<Vec<usize>> {
    let absent = body.uvint("absent column count")?;
    let absent = usize::try_from(absent).ok().filter(|absent| *absent <= column_count);
    let Some(absent) = absent else {
        return Err(body.damaged("at most as many absent columns as columns", "more"));
    };
    let present = column_count - absent;
    if absent == 0 {
        return Ok((0..column_count).collect());
    }
    let lists_present = present < column_count / 2;
    let count = if lists_present { present } else { absent };
    let mut listed = Vec::with_capacity(count);
    for _ in 0..count {
        let index = body.length("column index")?;
        if index >= column_count || listed.last().is_some_and(|last| *last >= index) {
            return Err(body.damaged("ascending column indexes", index.to_string()));
        }
        listed.push(index);
    }
    if lists_present {
        return Ok(listed);
    }
    let mut listed = listed.into_iter().peekable();
    Ok((0..column_count).filter(|index| listed.next_if_eq(index).is_none()).collect())
}
