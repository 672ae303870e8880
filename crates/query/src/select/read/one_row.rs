//! Reading a row whose place is known. A row that is in one memtable, or in one SSTable's cached blocks, is read
//! without a cursor, which would cost several times as much.

use engine::{PartitionHint, RowLocation, RowSelection, Rows};
use model::{KeyRange, PartitionKey, ReadRange, Row, Slice, Slices};

use super::{Flow, Page, RowInput, recycle_parts};
use crate::QueryError;
use crate::budget::{FREE_ANSWER_BYTES, steps_of_bytes};
use crate::row_view::split_key;
use crate::select::lookup;

impl Page<'_> {
    /// Whether [`Page::read_row`] may read rows of the table.
    pub(in super::super) fn may_read_single_rows(&self) -> bool {
        lookup::applies(&self.plan.table) && self.group.is_none()
    }

    /// Reads the row of a partition with this serialized clustering, as [`Page::read_range`] does. An SSTable probably
    /// has it where the hint says.
    pub(in super::super) fn read_row(
        &mut self,
        (partition, hint): (PartitionKey, Option<PartitionHint>),
        clustering: &[u8],
        is_resumed: bool,
    ) -> Result<Flow, QueryError> {
        let (plan, execution) = (self.plan, self.execution);
        let mut bytes = std::mem::take(&mut self.scratch.row);
        bytes.clear();
        let (mut is_found, mut is_large) = (false, false);
        let location = RowLocation { token: partition.token(), key: partition.bytes(), clustering };
        let engine = execution.processor.engine();
        let rows = engine.rows(
            execution.schema,
            &plan.table,
            &RowSelection::Row(location, hint),
            execution.now_seconds,
            execution.turn(),
            &mut |row| {
                is_found = true;
                // A large row is copied with a cursor, which takes memory for it first.
                is_large = row.row.as_bytes().len() > FREE_ANSWER_BYTES;
                if !is_large {
                    bytes.extend_from_slice(row.row.as_bytes());
                }
                true
            },
        )?;
        let range = |partition| {
            let slices = Slices::new(vec![Slice::prefix(clustering)], plan.table.comparator());
            ReadRange { keys: KeyRange::Single(partition), slices, reversed: false }
        };
        let flow = match rows {
            Rows::Cursor(cursor) => self.read_cursor(cursor, range(partition), is_resumed),
            Rows::Taken if is_large => self.read_range(range(partition), is_resumed),
            Rows::Taken if is_found => self.take_row(&partition, clustering, Row::new(&bytes), is_resumed),
            Rows::Taken => Ok(Flow::Next),
        };
        self.scratch.row = bytes;
        flow
    }

    fn take_row(
        &mut self,
        partition: &PartitionKey,
        clustering: &[u8],
        row: Row<'_>,
        is_resumed: bool,
    ) -> Result<Flow, QueryError> {
        let (table, now) = (&*self.plan.table, self.execution.now_seconds);
        let row_bytes = clustering.len() + row.as_bytes().len();
        // As for the partition and for its row.
        self.execution.work(2 * self.steps_per_row + steps_of_bytes(row_bytes))?;
        self.token = partition.token();
        if !is_resumed {
            self.limits.remaining_in_partition = self.limits.per_partition;
        }
        if !self.sizes.take(partition.bytes().len() + row_bytes) {
            return Err(self.sizes.too_much_taken(&self.scan()));
        }
        if !row.is_live(table, now) {
            self.count_tombstones(1)?;
            return Ok(Flow::Next);
        }
        let mut key = recycle_parts(std::mem::take(&mut self.scratch.parts));
        split_key(table, partition.bytes(), &mut key);
        self.live_rows += 1;
        let (_, flow) = self.take(&RowInput { partition, key: &key, statics: &[], clustering, row: Some(row) })?;
        self.scratch.parts = recycle_parts(key);
        Ok(if flow == Flow::Stop { Flow::Stop } else { Flow::Next })
    }
}
