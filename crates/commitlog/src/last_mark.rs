//! Finding the segment of a new record, and marking that the record's tables need the segment. A thread usually appends
//! to the same segment and the same table as before, so it caches what it found. Threads then share only the word that
//! holds the end of the table's records.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use uuid::Uuid;

use crate::segment::DirtyRange;
use crate::shared::Shared;
use crate::{Appended, LogError, LogPosition};

/// The segment and range that a thread used for its last record of a single table.
struct LastMark {
    /// Identifies the log in this process, and the segment in this run of it.
    log: u64,
    number: u64,
    segment_id: i64,
    table: Uuid,
    range: Arc<DirtyRange>,
}

thread_local! {
    static LAST: RefCell<Option<LastMark>> = const { RefCell::new(None) };
}

/// Marks that the record between two ring positions touches the tables. Returns the record's place.
pub(crate) fn mark(shared: &Shared, tables: &[Uuid], record: Range<u64>) -> Result<Appended, LogError> {
    let number = record.start / shared.segment_size();
    let offset = |position: u64| (position - number * shared.segment_size()) as i32;
    let end = offset(record.end);
    debug_assert!(record.start < record.end && 0 < end, "a record ends behind its segment's start");
    debug_assert!(record.end <= (number + 1) * shared.segment_size(), "a record is in one segment");
    let segment_id = match tables {
        [table] => LAST.with_borrow_mut(|last| -> Result<i64, LogError> {
            let is_same =
                |last: &LastMark| last.number == number && last.table == *table && last.log == shared.instance;
            let last = match last {
                Some(last) if is_same(last) => last,
                last => last.insert(look_up(shared, number, *table)?),
            };
            last.range.extend(end);
            Ok(last.segment_id)
        })?,
        tables => {
            let segment = shared.recent_segment(number).ok_or_else(lost)?;
            shared.withdraw_promise(&segment, tables)?;
            segment.mark_dirty(tables, end);
            segment.id
        }
    };
    let at = |offset| LogPosition { segment: segment_id, offset };
    debug_assert!(offset(record.start) < end);
    Ok(Appended { start: at(offset(record.start)), position: at(end) })
}

fn look_up(shared: &Shared, number: u64, table: Uuid) -> Result<LastMark, LogError> {
    let segment = shared.recent_segment(number).ok_or_else(lost)?;
    shared.withdraw_promise(&segment, &[table])?;
    Ok(LastMark { log: shared.instance, number, segment_id: segment.id, table, range: segment.range_of(table) })
}

fn lost() -> LogError {
    LogError::Closed("a segment was lost from memory".into())
}
