//! The cursor over an open table: its state, and what it returns.

use std::ops::Range;
use std::sync::Arc;

use blockio::ReadAhead;
use model::{
    DeletionTime, LargeRowLimit, Marker, PartitionHead, ReadError, ReadRange, Row, RowBuilder, RowRef, RowReservation,
    Side, Slices, StoredRow, Table, Unfiltered, UnfilteredCursor,
};

use super::partitions::{Partition, Plan};
use super::stored::Stored;
use super::waypoints::Trail;
use super::{DataWindow, ReadMode, SSTableReader};
use crate::data::{Projection, UnfilteredHead};
use crate::error::{Corruption, SSTableError};
use crate::row_index::Block;

/// How many bytes of rows are skipped one by one before the row index is used: an index block of the default size.
pub(super) const WALK_BYTES: u64 = 16 * 1024;

/// How many times the buffers of a cursor hold a row: as bytes of several blocks, as cells, and as a row.
const ROW_COPIES: usize = 3;

/// The result of `unfiltered`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Current {
    None,
    Row,
    /// A row that is not decoded.
    Stored(Stored),
    /// A marker of the file.
    Marker {
        side: Side,
        before: DeletionTime,
        after: DeletionTime,
    },
    /// The start (`true`) or end of a slice that cuts a range deletion.
    SliceBorder {
        slice: usize,
        start: bool,
        before: DeletionTime,
        after: DeletionTime,
    },
}

/// A cursor over a table's partitions and rows. It owns its resources and may outlive its reader.
pub struct SSTableCursor {
    pub(super) reader: SSTableReader,
    pub(super) window: DataWindow,
    pub(super) plan: Plan,
    pub(super) slices: Slices,
    pub(super) unbounded: bool,
    pub(super) reversed: bool,
    pub(super) partition: Option<Partition>,
    /// Data position of the next unfiltered.
    pub(super) position: u64,
    /// Data position of the unfiltered yielded last.
    pub(super) item: u64,
    /// The unfiltered at `position`, if its head was already read into `clustering`.
    pub(super) peeked: Option<UnfilteredHead>,
    /// Whether `position` is the end of the partition.
    pub(super) at_end: bool,
    pub(super) slice: usize,
    pub(super) slice_begun: bool,
    /// Whether something of the current slice was yielded.
    pub(super) entered: bool,
    /// The range deletion in force at `position`.
    pub(super) open: DeletionTime,
    /// In a reversed read, the place of the next unfiltered below; `None` at the start of the partition.
    pub(super) below: Option<Range<u64>>,
    pub(super) trail: Trail,
    /// The indexes in the file of the regular columns that the reader uses, if it said so.
    wanted: Option<Vec<usize>>,
    /// Whether rows are left in stored form where possible.
    pub(super) leaves_stored: bool,
    builder: RowBuilder,
    pub(super) clustering: Vec<u8>,
    pub(super) row: Vec<u8>,
    pub(super) current: Current,
    reservation: RowReservation,
}

impl SSTableCursor {
    pub(super) fn open(reader: SSTableReader, range: &ReadRange, mode: ReadMode) -> Result<Self, SSTableError> {
        let window = DataWindow::new(reader.files().data.clone(), mode);
        reader.check_columns()?;
        let plan = Plan::of(&reader, &range.keys, mode)?;
        Ok(SSTableCursor {
            window,
            reader,
            plan,
            unbounded: range.slices.is_all(),
            slices: range.slices.clone(),
            reversed: range.reversed,
            partition: None,
            position: 0,
            item: 0,
            peeked: None,
            at_end: true,
            slice: 0,
            slice_begun: false,
            entered: false,
            open: DeletionTime::LIVE,
            below: None,
            trail: Trail::default(),
            wanted: None,
            leaves_stored: false,
            builder: RowBuilder::default(),
            clustering: Vec::new(),
            row: Vec::new(),
            current: Current::None,
            reservation: RowReservation::default(),
        })
    }

    /// Reads with `reader`, if nothing was read yet.
    pub(super) fn read_by(&mut self, reader: ReadAhead) {
        self.window.read_by(reader);
    }

    /// Data position of the current partition.
    pub(crate) fn partition_position(&self) -> u64 {
        self.partition.as_ref().map_or(0, |partition| partition.start)
    }

    /// Data position of the current partition's first row or marker, or its end.
    pub(crate) fn rows_position(&self) -> u64 {
        self.partition.as_ref().map_or(0, |partition| partition.rows_start.unwrap_or(partition.start))
    }

    /// The data position of the current row or marker, in forward order.
    pub(crate) fn item_position(&self) -> u64 {
        self.item
    }

    /// The data position after the current row or marker; at the end of a partition, that of its last byte.
    pub(crate) fn next_position(&self) -> u64 {
        self.position
    }

    /// The range deletion in force after the last yielded item.
    pub(crate) fn open_deletion(&self) -> DeletionTime {
        self.open
    }

    /// Continues at the start of a block of the current partition.
    pub(crate) fn resume_at(&mut self, block: Block) {
        let Some(partition) = &self.partition else { return };
        self.position = partition.start.saturating_add(block.offset);
        self.peeked = None;
        self.at_end = false;
        self.open = block.open;
    }

    /// Reads the head of the unfiltered at a data position; its clustering goes into `clustering`.
    pub(super) fn read_head(&mut self, position: u64) -> Result<UnfilteredHead, SSTableError> {
        let Self { window, reader, clustering, .. } = self;
        let decoder = reader.decoder();
        let head = window.decode(position, |input| decoder.head(input, clustering))?;
        let data = window.data();
        if position + head.length() as u64 > data.length {
            let got = format!("the end of the data at {}", data.length);
            return Err(Corruption::new(&data.name, position, format!("a row of {} bytes", head.length()), got).into());
        }
        if RowReservation::is_large(head.body_length) {
            self.reservation.take(ROW_COPIES.saturating_mul(head.body_length)).map_err(SSTableError::Source)?;
        }
        Ok(head)
    }

    /// Decodes the row at a data position into `row`. Returns false if it is empty.
    pub(super) fn decode_row(
        &mut self,
        position: u64,
        head: &UnfilteredHead,
        is_static: bool,
    ) -> Result<bool, SSTableError> {
        let Self { window, reader, builder, row, partition, open, wanted, .. } = self;
        if is_static != (head.extended & crate::data::extended::IS_STATIC != 0) {
            let name = &window.data().name;
            return Err(
                Corruption::new(name, position, "a static row only before all others", "one among the rows").into()
            );
        }
        let decoder = reader.decoder();
        let start = position + head.head_length as u64;
        let deletion = partition.as_ref().map_or(DeletionTime::LIVE, |partition| partition.deletion);
        let projection = wanted.as_ref().map(|places| Projection { places, active: deletion.max(*open) });
        let is_large = RowReservation::is_large(head.body_length);
        let is_done = window.decode_sized(start, head.body_length, |input| {
            if projection.is_none() && !is_static && decoder.plain_row(head, &mut input.clone(), row)? {
                return Ok(true);
            }
            if is_large && projection.is_none() {
                builder.reserve(head.body_length);
            }
            decoder.row(head, input, projection.as_ref(), builder).map(|()| false)
        })?;
        if is_large {
            window.free_row(start + head.body_length as u64);
        }
        if is_done {
            if is_large {
                self.reservation.keep(self.row.len());
            }
            return Ok(true);
        }
        row.clear();
        if builder.is_empty() {
            return Ok(false);
        }
        builder.finish(row);
        if is_large && !is_static {
            self.reservation.keep(self.row.len());
        }
        Ok(true)
    }

    /// The deletions before and after the marker at a data position.
    pub(super) fn decode_marker(
        &mut self,
        position: u64,
        head: &UnfilteredHead,
    ) -> Result<(DeletionTime, DeletionTime), SSTableError> {
        let Self { window, reader, .. } = self;
        let decoder = reader.decoder();
        let start = position + head.head_length as u64;
        window.decode_sized(start, head.body_length, |input| decoder.marker(head, input))
    }

    /// Reads the head at `position` if that was not done yet, and detects the end of the partition.
    pub(super) fn peek(&mut self) -> Result<(), SSTableError> {
        if self.peeked.is_none() && !self.at_end {
            let head = self.read_head(self.position)?;
            if head.is_end() {
                self.at_end = true;
            } else {
                self.peeked = Some(head);
            }
        }
        Ok(())
    }
}

impl UnfilteredCursor for SSTableCursor {
    fn table(&self) -> &Arc<Table> {
        self.reader.table()
    }

    fn expect_columns(&mut self, regulars: &Arc<[usize]>) {
        self.wanted = Some(self.reader.decoder().columns.places_of(regulars));
    }

    fn expect_stored(&mut self) {
        let are_alike = self.reader.decoder().columns.are_alike;
        self.leaves_stored = self.wanted.is_none() && !self.reversed && are_alike;
    }

    fn limit_large_rows(&mut self, limit: LargeRowLimit) {
        self.reservation.set_limit(limit);
    }

    #[inline]
    fn stored(&self) -> Option<StoredRow<'_>> {
        self.current_stored()
    }

    fn decode(&mut self) -> Result<(), ReadError> {
        if let Current::Stored(stored) = self.current {
            let decoded = self.decode_row(self.item, &stored.head, false);
            decoded.map_err(|error| self.reader.record_error(error))?;
            self.current = Current::Row;
        }
        Ok(())
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        Ok(self.try_advance_partition().map_err(|error| self.reader.record_error(error))?)
    }

    #[inline]
    fn partition(&self) -> PartitionHead<'_> {
        let partition = self.partition.as_ref().expect("partition() follows advance_partition() == true");
        PartitionHead {
            key: &partition.key,
            deletion: partition.deletion,
            static_row: partition.has_static_row.then(|| Row::new(&partition.static_row)),
        }
    }

    fn data_position(&self) -> Option<u64> {
        self.partition.as_ref().map(|partition| partition.start)
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        Ok(self.try_advance().map_err(|error| self.reader.record_error(error))?)
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        match self.current {
            Current::None => panic!("unfiltered() follows advance() == true"),
            Current::Row => Unfiltered::Row(RowRef { clustering: &self.clustering, row: Row::new(&self.row) }),
            Current::Stored(_) => Unfiltered::Row(RowRef { clustering: &self.clustering, row: Row::new(&[]) }),
            Current::Marker { side, before, after } => {
                Unfiltered::Marker(Marker { prefix: &self.clustering, side, before, after })
            }
            Current::SliceBorder { slice, start, before, after } => {
                let slice = &self.slices.as_slice()[slice];
                let bound = if start { &slice.start } else { &slice.end };
                Unfiltered::Marker(Marker { prefix: &bound.prefix, side: bound.side, before, after })
            }
        }
    }

    fn max_timestamp(&self) -> i64 {
        self.reader.statistics().stats.max_timestamp
    }

    fn pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        Ok(self.try_pass_to(prefix, weight).map_err(|error| self.reader.record_error(error))?)
    }
}
