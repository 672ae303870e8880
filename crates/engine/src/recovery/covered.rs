//! The parts of the log that need not be replayed, because SSTables cover them or truncations deleted them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use commitlog::{IntervalSet, LogPosition, PositionInterval};
use model::TableId;

use crate::lock::lock;

/// The parts of the log that each table's SSTables and truncations cover.
#[derive(Default)]
pub(crate) struct Covered {
    by_table: HashMap<TableId, IntervalSet>,
    /// The last segment that an SSTable of ours or a truncation names. If the log is new, its ids must begin above it:
    /// otherwise its records would appear to be covered.
    last_segment: i64,
    /// For each segment that SSTables cover, the greatest offset that they name. A flush syncs the log before it writes
    /// an SSTable, so that the log was durable up to there.
    ends: BTreeMap<i64, i32>,
    /// Tables with records in the log that the schema does not have.
    unknown: Mutex<BTreeSet<TableId>>,
}

impl Covered {
    /// Notes a table with records in the log that the schema does not have.
    pub fn note_unknown(&self, table: TableId) {
        lock(&self.unknown).insert(table);
    }

    /// Tables with records in the log that the schema does not have.
    pub fn unknown(&self) -> BTreeSet<TableId> {
        lock(&self.unknown).clone()
    }

    /// Adds the intervals of an SSTable of the table.
    pub fn add(&mut self, table: TableId, intervals: &IntervalSet) {
        let set = self.by_table.entry(table).or_default();
        for interval in intervals.intervals() {
            set.add(*interval);
            let end = self.ends.entry(interval.end.segment).or_default();
            *end = interval.end.offset.max(*end);
        }
    }

    /// Positions up to which the log was durable when SSTables were written.
    pub fn durable(&self) -> impl Iterator<Item = LogPosition> {
        self.ends.iter().map(|(segment, offset)| LogPosition { segment: *segment, offset: *offset })
    }

    /// Notes a position that an SSTable or a truncation names, whether it covers any record or not.
    pub fn note(&mut self, position: LogPosition) {
        self.last_segment = self.last_segment.max(position.segment);
    }

    /// The last segment that an SSTable or a truncation names.
    pub fn last_segment(&self) -> i64 {
        self.last_segment
    }

    /// The intervals of the log that the table covers.
    pub fn of_table(&self, table: TableId) -> Option<&IntervalSet> {
        self.by_table.get(&table)
    }

    /// Whether the table covers the record that ends at `position`.
    pub fn contains(&self, table: TableId, position: LogPosition) -> bool {
        self.by_table.get(&table).is_some_and(|set| set.contains(position))
    }

    /// Adds a truncation of everything up to `position`.
    pub fn add_truncation(&mut self, table: TableId, position: LogPosition) {
        self.note(position);
        let interval = PositionInterval { start: LogPosition::NONE, end: position };
        self.by_table.entry(table).or_default().add(interval);
    }
}
