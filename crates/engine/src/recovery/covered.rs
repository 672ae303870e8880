//! What of the log need not be replayed, because tables have it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use commitlog::{IntervalSet, LogPosition, PositionInterval};
use model::TableId;

use crate::lock::lock;

/// What of the log each table has in its SSTables already.
#[derive(Default)]
pub(crate) struct Covered {
    by_table: HashMap<TableId, IntervalSet>,
    /// The last segment that an SSTable of ours or a truncation names. They may be older than the log: then it must
    /// never come to such ids, for its records would be taken for theirs.
    last_segment: i64,
    /// For each segment that SSTables cover, the greatest offset that they name. A flush syncs the log before it writes
    /// an SSTable, so that the log was durable up to there.
    ends: BTreeMap<i64, i32>,
    /// Tables of which the log has records, and the schema nothing.
    unknown: Mutex<BTreeSet<TableId>>,
}

impl Covered {
    /// The log has records of this table, and the schema nothing.
    pub fn note_unknown(&self, table: TableId) {
        lock(&self.unknown).insert(table);
    }

    /// Tables of which the log has records, and the schema nothing.
    pub fn unknown(&self) -> BTreeSet<TableId> {
        lock(&self.unknown).clone()
    }

    /// An SSTable of the table has these intervals.
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

    /// An SSTable or a truncation names this place in the log, whether it has any record or not.
    pub fn note(&mut self, position: LogPosition) {
        self.last_segment = self.last_segment.max(position.segment);
    }

    /// The last segment that is named.
    pub fn last_segment(&self) -> i64 {
        self.last_segment
    }

    /// What the table has of the log.
    pub fn of_table(&self, table: TableId) -> Option<&IntervalSet> {
        self.by_table.get(&table)
    }

    /// Whether the table has what is logged up to `position`.
    pub fn contains(&self, table: TableId, position: LogPosition) -> bool {
        self.by_table.get(&table).is_some_and(|set| set.contains(position))
    }

    /// Everything up to `position` was truncated.
    pub fn add_truncation(&mut self, table: TableId, position: LogPosition) {
        self.note(position);
        let interval = PositionInterval { start: LogPosition::NONE, end: position };
        self.by_table.entry(table).or_default().add(interval);
    }
}
