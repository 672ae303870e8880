//! The updates that are in the log but not visible yet, which a write that reads first must see in addition to
//! memtables and SSTables.

use std::sync::Arc;

use commitlog::LogPosition;
use memtable::{Memtable, SkipListMemtable};
use model::{BoxCursor, Mutation, PartitionUpdate, ReadRange, Table};

/// The updates of the writes before a write that reads first, in the order of their records.
#[derive(Debug, Default)]
pub struct Unsettled {
    /// Mutations, and the index of an update in each.
    updates: Vec<(Arc<Mutation>, usize)>,
    /// The end of the last record; `None` if there is none.
    end: Option<LogPosition>,
}

impl Unsettled {
    /// Adds those updates of a write that are wanted.
    pub(crate) fn add(
        &mut self,
        mutation: &Arc<Mutation>,
        end: Option<LogPosition>,
        is_wanted: impl Fn(&PartitionUpdate) -> bool,
    ) {
        self.end = self.end.max(end);
        let wanted = mutation.updates().iter().enumerate().filter(|(_, update)| is_wanted(update));
        self.updates.extend(wanted.map(|(index, _)| (Arc::clone(mutation), index)));
    }

    /// Whether there are no such writes.
    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// The end of the last record of these writes; `None` if none of them is logged.
    pub(crate) fn end(&self) -> Option<LogPosition> {
        self.end
    }

    /// Whether one of the updates is in this range of the table.
    pub(crate) fn has_any(&self, table: &Table, range: &ReadRange) -> bool {
        self.of(table, range).next().is_some()
    }

    /// A source of the rows that the updates make; `None` if none is in this range of the table.
    pub(crate) fn cursor(&self, table: &Arc<Table>, range: &ReadRange) -> Option<BoxCursor<'static>> {
        if !self.has_any(table, range) {
            return None;
        }
        let memtable = Arc::new(SkipListMemtable::sharded(table, 1, true));
        for update in self.of(table, range) {
            // Such a memtable is never full.
            memtable.apply(update, None).ok()?;
        }
        Some(memtable.cursor(table, range))
    }

    fn of<'s>(&'s self, table: &Table, range: &'s ReadRange) -> impl Iterator<Item = &'s PartitionUpdate> + use<'s> {
        let id = table.id;
        let updates = self.updates.iter().map(|(mutation, index)| &mutation.updates()[*index]);
        updates.filter(move |update| update.table().id == id && range.keys.contains(update.key()))
    }
}
