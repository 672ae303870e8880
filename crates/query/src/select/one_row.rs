//! A fast path for a SELECT of one row in memory, which is the most frequent statement: it is answered without a
//! cursor.
//!
//! Everything else is left to [`SelectPlan::execute`]: a value that is null or invalid, and a row that is deleted,
//! expires or has several sources.

use std::cell::RefCell;

use engine::{Lookup, RowPlace};
use model::{Table, ValuePlaces, push_component};
use types::murmur3;

use super::SelectPlan;
use super::read::Position;
use super::writer::{PlainWriter, RowContext};
use crate::consistency;
use crate::execution::Execution;
use crate::restrictions::{ROW_VALUES_MAX, RowValues, check_key, push_key};

/// Buffers that keep their memory from statement to statement.
#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    clustering: Vec<u8>,
    places: ValuePlaces,
}

/// The memory that a thread may keep for a key or a clustering for the next statement, bytes.
const SCRATCH_BYTES_MAX: usize = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether rows of the table can be looked up.
pub(super) fn applies(table: &Table) -> bool {
    let columns_max = table.partition_key().len().max(table.clustering().len());
    !table.has_statics() && columns_max <= ROW_VALUES_MAX
}

impl SelectPlan {
    /// Appends the cells of the row, if the statement selects one row and it is found without waiting. Returns how many
    /// rows that are. Returns `None`, and appends nothing, if [`SelectPlan::execute`] must answer.
    pub fn find_row(&self, execution: &Execution<'_>, cells: &mut Vec<u8>) -> Option<usize> {
        let (target, plain) = (self.one_row.as_ref()?, self.plain.as_ref()?);
        // A page of one row must say where the next one starts.
        if execution.options.page_size == Some(1) || !self.is_looked_up(execution) {
            return None;
        }
        let values = RowValues::bind(target, execution)?;
        SCRATCH.with_borrow_mut(|scratch| {
            let found = self.find(plain, &values, execution, scratch, cells);
            scratch.key.shrink_to(SCRATCH_BYTES_MAX);
            scratch.clustering.shrink_to(SCRATCH_BYTES_MAX);
            found
        })
    }

    /// Whether the client's options allow a look-up: no tracing, no page except the first, and a possible consistency
    /// level.
    pub(super) fn is_looked_up(&self, execution: &Execution<'_>) -> bool {
        let options = execution.options;
        let (level, data_center) = (options.consistency, &execution.processor.options().node.data_center);
        options.trace.is_none()
            && options.paging_state.is_none()
            && consistency::validate_read(level).is_ok()
            && consistency::check_read(level, execution.schema, &self.table.keyspace, data_center).is_ok()
    }

    /// A larger answer is built with a cursor, which can divide it into pages.
    pub(super) fn page_max_bytes(&self, execution: &Execution<'_>) -> usize {
        execution.processor.options().page_max_bytes
    }

    fn find(
        &self,
        plain: &PlainWriter,
        values: &RowValues<'_>,
        execution: &Execution<'_>,
        scratch: &mut Scratch,
        cells: &mut Vec<u8>,
    ) -> Option<usize> {
        let Scratch { key, clustering, places } = scratch;
        let (table, now_seconds) = (&*self.table, execution.now_seconds);
        let (of_key, of_clustering) = (values.key(), values.clustering());
        let position = Position {
            key: &of_key[..table.partition_key().len()],
            clustering: &of_clustering[..table.clustering().len()],
            statics: &[],
        };
        clustering.clear();
        position.clustering.iter().for_each(|value| push_component(*value, clustering));
        let key = serialized_key(position.key, key)?;
        let place = RowPlace { token: murmur3::token(key), key, clustering };
        let before = cells.len();
        let context =
            RowContext { table, now_seconds, cells_max: before.saturating_add(self.page_max_bytes(execution)) };
        let mut is_answered = true;
        let lookup = execution.processor.engine().find_row(table, place, &mut |row| {
            is_answered = (row.is_permanent(table) || row.is_live(table, now_seconds))
                && plain.write(context, &position, Some(row), places, cells) == 0
                && cells.len() <= context.cells_max;
        });
        match lookup {
            Lookup::Found if is_answered => Some(1),
            Lookup::Absent => Some(0),
            Lookup::Found | Lookup::Unknown => {
                cells.truncate(before);
                None
            }
        }
    }
}

/// The serialized partition key of these values, if they are valid. It may be built in `key`.
pub(super) fn serialized_key<'k>(values: &[&'k [u8]], key: &'k mut Vec<u8>) -> Option<&'k [u8]> {
    check_key(values).ok()?;
    if let [only] = values {
        return Some(only);
    }
    key.clear();
    push_key(values, key);
    Some(key)
}
