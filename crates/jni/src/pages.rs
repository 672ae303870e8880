//! What a read returns, page by page.
//!
//! ```text
//! read of a partition := partition
//! read of a range := (i64 token, u32 length, key, partition)...
//! partition := u8 has deletion [i64 timestamp, i64 local deletion time] u8 has static row [static row]
//!              unfiltereds, 0x01
//! ```
//!
//! Pages cut these bytes anywhere. So small partitions share a page, and a large row takes several.

use model::{BoxCursor, Unfiltered, UnfilteredCursor};
use sstable::MessageEncoder;

use crate::reply::Reply;

/// A read that is not at its end. It pins nothing: each page seeks its place again.
pub struct Pages {
    cursor: BoxCursor<'static>,
    encoder: MessageEncoder,
    /// Whether the read is of a range.
    is_range: bool,
    next: Next,
    /// The item that was encoded last: the head of a partition with its key, an unfiltered, or an end.
    item: Vec<u8>,
    /// How many bytes of it are in pages.
    written: usize,
}

/// What follows the item that was encoded last.
#[derive(Clone, Copy)]
enum Next {
    Partition,
    Unfiltered,
    Nothing,
    /// What follows could not be read.
    Failure,
}

/// The capacity that is kept of an item's buffer. A large row must not stay in memory for the rest of a read.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Pages {
    fn new(cursor: BoxCursor<'static>, encoder: MessageEncoder, is_range: bool) -> Pages {
        Pages { cursor, encoder, is_range, next: Next::Partition, item: Vec::with_capacity(64), written: 0 }
    }

    /// All partitions that a cursor finds.
    pub(crate) fn of_range(cursor: BoxCursor<'static>, encoder: MessageEncoder) -> Pages {
        Pages::new(cursor, encoder, true)
    }

    /// The only partition that a cursor finds; `None` if it finds none.
    pub(crate) fn of_partition(cursor: BoxCursor<'static>, encoder: MessageEncoder) -> Result<Option<Pages>, String> {
        let mut pages = Pages::new(cursor, encoder, false);
        Ok(pages.advance()?.then_some(pages))
    }

    /// Encodes the next item. Returns false at the end.
    fn advance(&mut self) -> Result<bool, String> {
        self.clear_item();
        // If this fails or panics, the item is incomplete, and later calls fail too.
        let following = match std::mem::replace(&mut self.next, Next::Failure) {
            Next::Partition => self.enter_partition()?,
            Next::Unfiltered => self.push_unfiltered()?,
            Next::Nothing => None,
            Next::Failure => return Err("an earlier page of this read has failed".into()),
        };
        self.next = following.unwrap_or(Next::Nothing);
        Ok(following.is_some())
    }

    fn clear_item(&mut self) {
        self.item.clear();
        self.item.shrink_to(KEPT_BYTES_MAX);
        self.written = 0;
    }

    /// Encodes the head of a partition, if there is one. Returns what follows it.
    fn enter_partition(&mut self) -> Result<Option<Next>, String> {
        if !self.cursor.advance_partition().map_err(|error| error.to_string())? {
            return Ok(None);
        }
        let head = self.cursor.partition();
        if self.is_range {
            self.item.extend_from_slice(&head.key.token().0.to_be_bytes());
            self.item.extend_from_slice(&(head.key.bytes().len() as u32).to_be_bytes());
            self.item.extend_from_slice(head.key.bytes());
        }
        self.item.push(u8::from(!head.deletion.is_live()));
        if !head.deletion.is_live() {
            self.item.extend_from_slice(&head.deletion.marked_for_delete_at.to_be_bytes());
            self.item.extend_from_slice(&i64::from(head.deletion.local_deletion_time).to_be_bytes());
        }
        self.item.push(u8::from(head.static_row.is_some()));
        if head.static_row.is_some() {
            self.encoder.static_row(head.static_row, &mut self.item).map_err(|error| error.to_string())?;
        }
        Ok(Some(Next::Unfiltered))
    }

    /// Encodes the next row or marker, or the end of the partition. Returns what follows it.
    fn push_unfiltered(&mut self) -> Result<Option<Next>, String> {
        if !self.cursor.advance().map_err(|error| error.to_string())? {
            self.encoder.end(&mut self.item);
            return Ok(Some(self.after_partition()));
        }
        let written = match self.cursor.unfiltered() {
            Unfiltered::Row(row) => self.encoder.row(row, &mut self.item),
            Unfiltered::Marker(marker) => self.encoder.marker(&marker, &mut self.item),
        };
        written.map_err(|error| error.to_string())?;
        Ok(Some(Next::Unfiltered))
    }

    fn after_partition(&self) -> Next {
        if self.is_range { Next::Partition } else { Next::Nothing }
    }

    /// Writes the next page without the head of the reply. Returns whether there is more. The page is full then, and
    /// has at least a byte if there is room for one.
    ///
    /// Fails if the memtable cannot be read, and always after it has failed or panicked.
    pub fn fill(&mut self, reply: &mut Reply<'_>) -> Result<bool, String> {
        loop {
            self.written += reply.append(&self.item[self.written..]);
            if self.written < self.item.len() {
                return Ok(true);
            }
            if !self.advance()? {
                return Ok(false);
            }
        }
    }

    /// Passes over what is left of the partition in which the last page ended: its own end was not in the page.
    pub fn pass_partition(&mut self) {
        self.clear_item();
        if !matches!(self.next, Next::Failure) {
            self.next = self.after_partition();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use model::{
        DeletionTime, Liveness, PartitionHead, PartitionKey, ReadError, Row, RowBuilder, RowRef, Table, TableBuilder,
        TableId,
    };
    use types::CqlType;
    use uuid::Uuid;

    use super::*;

    /// Partitions that have rows without end.
    struct Endless {
        table: Arc<Table>,
        keys: Vec<PartitionKey>,
        row: Vec<u8>,
        /// How many partitions and how many rows were entered.
        entered: usize,
        rows: Arc<AtomicUsize>,
        /// The rows that can be read. The next one is an error.
        readable: usize,
    }

    impl Endless {
        fn new(count: u8, rows: &Arc<AtomicUsize>) -> Endless {
            let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_u128(1)));
            let table = builder.partition_key("k", CqlType::Int).clustering("c", CqlType::Int, false).build();
            let (mut builder, mut row) = (RowBuilder::default(), Vec::new());
            builder.start(table.regulars(), false);
            builder.liveness(Liveness::at(1));
            builder.finish(&mut row);
            let keys = (0..count).map(|key| PartitionKey::new(&[0, 0, 0, key])).collect();
            Endless { table: Arc::new(table), keys, row, entered: 0, rows: rows.clone(), readable: usize::MAX }
        }

        fn pages(self, is_range: bool) -> Pages {
            let encoder = MessageEncoder::new(&self.table);
            Pages::new(Box::new(self), encoder, is_range)
        }
    }

    impl UnfilteredCursor for Endless {
        fn table(&self) -> &Arc<Table> {
            &self.table
        }

        fn advance_partition(&mut self) -> Result<bool, ReadError> {
            self.entered += 1;
            Ok(self.entered <= self.keys.len())
        }

        fn partition(&self) -> PartitionHead<'_> {
            PartitionHead { key: &self.keys[self.entered - 1], deletion: DeletionTime::LIVE, static_row: None }
        }

        fn advance(&mut self) -> Result<bool, ReadError> {
            if self.rows.fetch_add(1, Ordering::Relaxed) == self.readable {
                return Err(ReadError::Closed);
            }
            Ok(true)
        }

        fn unfiltered(&self) -> Unfiltered<'_> {
            Unfiltered::Row(RowRef { clustering: &[0, 0, 0, 4, 0, 0, 0, 9], row: Row::new(&self.row) })
        }
    }

    #[test]
    fn what_is_passed_over_is_not_read() {
        for (is_range, count) in [(true, 5), (false, 1)] {
            let rows = Arc::new(AtomicUsize::new(0));
            let mut pages = Endless::new(count, &rows).pages(is_range);
            let mut buffer = [0; 16 + 100];
            for partition in 0..count {
                assert_eq!(pages.fill(&mut Reply::new(&mut buffer)), Ok(true));
                let key = [&4u32.to_be_bytes()[..], &[0, 0, 0, partition]].concat();
                assert!(!is_range || buffer[24..32] == key, "partition {partition}: {buffer:?}");
                pages.pass_partition();
            }
            assert_eq!(pages.fill(&mut Reply::new(&mut buffer)), Ok(false));
            let rows = rows.load(Ordering::Relaxed);
            assert!(rows < 20 * usize::from(count), "{rows} rows were read for {count} pages of 100 bytes");
        }
    }

    #[test]
    fn a_read_that_has_failed_fails_again() {
        for readable in 0..12 {
            for passes in [false, true] {
                let mut rows = Endless::new(2, &Arc::default());
                rows.readable = readable;
                let mut pages = rows.pages(true);
                let mut buffer = [0; 16 + 100];
                let mut filled = Ok(true);
                while filled == Ok(true) {
                    filled = pages.fill(&mut Reply::new(&mut buffer));
                }
                assert!(filled.is_err(), "{readable} rows: {filled:?}");
                if passes {
                    pages.pass_partition();
                }
                assert!(pages.fill(&mut Reply::new(&mut buffer)).is_err(), "{readable} rows");
            }
        }
    }
}
