//! The unfiltered cursor of a trie memtable: it yields what the filler copied.

use std::sync::Arc;

use bytecomp::decode_decorated_key;
use model::{
    DeletionTime, LargeRowLimit, Marker, PartitionHead, PartitionKey, ReadError, ReadRange, Row, RowRef, Table,
    Unfiltered, UnfilteredCursor,
};

use crate::fill::{Filler, Item, Stop};
use crate::plan::Plan;
use crate::trie_memtable::TrieMemtable;

pub(crate) struct TrieCursor {
    plan: Plan,
    filler: Filler,
    /// Where the next batch starts.
    stop: Stop,
    /// The first item of the batch that was not yielded yet.
    next: usize,
    /// The partition's key, unless it is the plan's only partition.
    key: Option<PartitionKey>,
    deletion: DeletionTime,
    static_row: Option<Vec<u8>>,
}

impl TrieCursor {
    /// With `live_only` it leaves out deletions of rows and ranges.
    pub fn new(memtable: Arc<TrieMemtable>, table: &Arc<Table>, range: &ReadRange, live_only: bool) -> TrieCursor {
        let plan = Plan::new(memtable, table, range, live_only);
        let stop = plan.first();
        TrieCursor {
            plan,
            filler: Filler::default(),
            stop,
            next: 0,
            key: None,
            deletion: DeletionTime::LIVE,
            static_row: None,
        }
    }

    fn refill(&mut self) -> Result<(), ReadError> {
        debug_assert_eq!(self.next, self.filler.batch.items.len(), "a batch is read to its end");
        self.next = 0;
        self.stop = self.filler.fill(&self.plan, std::mem::replace(&mut self.stop, Stop::End))?;
        Ok(())
    }

    fn enter(&mut self, index: usize) -> Result<(), ReadError> {
        let batch = &self.filler.batch;
        let Some(Item::Partition { path, deletion, static_row }) = batch.items.get(index) else { return Ok(()) };
        let path = &batch.bytes[path.clone()];
        self.deletion = *deletion;
        self.static_row = static_row.clone().map(|row| batch.bytes[row].to_vec());
        if self.plan.single.is_some() {
            return Ok(());
        }
        let (token, key) = decode_decorated_key(path).map_err(|error| ReadError::Corruption {
            table: None,
            file: "memtable".into(),
            offset: 0,
            expected: "the path of a partition".into(),
            got: format!("{path:02x?}: {error}"),
        })?;
        debug_assert!(self.key.as_ref().is_none_or(|last| last.token() <= token), "partitions come in token order");
        self.key = Some(PartitionKey::with_token(token, &key));
        Ok(())
    }
}

impl UnfilteredCursor for TrieCursor {
    fn table(&self) -> &Arc<Table> {
        &self.plan.table
    }

    fn expect_rows(&mut self, rows: usize) {
        self.filler.batch.expect_rows(rows);
    }

    fn expect_columns(&mut self, regulars: &Arc<[usize]>) {
        self.filler.columns_expected = Some(regulars.clone());
    }

    fn limit_large_rows(&mut self, limit: LargeRowLimit) {
        self.filler.batch.reservation.set_limit(limit);
    }

    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        loop {
            while let Some(item) = self.filler.batch.items.get(self.next) {
                self.next += 1;
                if matches!(item, Item::Partition { .. }) {
                    self.enter(self.next - 1)?;
                    return Ok(true);
                }
            }
            let stop = std::mem::replace(&mut self.stop, Stop::End);
            self.stop = self.plan.skip_partition(stop);
            if matches!(self.stop, Stop::End) {
                return Ok(false);
            }
            self.refill()?;
        }
    }

    fn partition(&self) -> PartitionHead<'_> {
        PartitionHead {
            key: self
                .plan
                .single
                .as_ref()
                .or(self.key.as_ref())
                .expect("partition() follows advance_partition() == true"),
            deletion: self.deletion,
            static_row: self.static_row.as_deref().map(Row::new),
        }
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        if self.next == self.filler.batch.items.len() && matches!(self.stop, Stop::Rows { .. }) {
            self.refill()?;
        }
        debug_assert!(self.next <= self.filler.batch.items.len(), "the next item is in the batch or behind it");
        match self.filler.batch.items.get(self.next) {
            None | Some(Item::Partition { .. }) => Ok(false),
            Some(Item::Row { .. } | Item::Marker { .. }) => {
                self.next += 1;
                Ok(true)
            }
        }
    }

    fn unfiltered(&self) -> Unfiltered<'_> {
        debug_assert!(self.next > 0, "unfiltered() follows advance() == true");
        let batch = &self.filler.batch;
        match &batch.items[self.next - 1] {
            Item::Row { clustering, row } => Unfiltered::Row(RowRef {
                clustering: &batch.bytes[clustering.clone()],
                row: Row::new(&batch.bytes[row.clone()]),
            }),
            Item::Marker { prefix, side, before, after } => Unfiltered::Marker(Marker {
                prefix: &batch.bytes[prefix.clone()],
                side: *side,
                before: *before,
                after: *after,
            }),
            Item::Partition { .. } => panic!("unfiltered() follows advance() == true"),
        }
    }
}
