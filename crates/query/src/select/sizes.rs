//! The sizes of a read and its answer, which are limited by pages, the memory of a statement, and Cassandra's
//! thresholds.
//!
//! Two sizes are counted: the bytes that one read takes from its sources (`local_read_size`: keys, clusterings and rows
//! as they are stored), and the bytes of the answer (`coordinator_read_size`: the values of the result's rows).

use model::{KeyBound, KeyRange, Table};
use types::Token;

use super::SelectPlan;
use super::tombstones::Scan;
use super::writer::RowContext;
use crate::QueryError;
use crate::budget::read_size_failure;
use crate::execution::Execution;
use crate::guardrail::Guardrail;
use crate::restrictions::Partitions;

/// The sizes of one statement's reads and answer.
pub(super) struct ReadSizes<'p> {
    plan: &'p SelectPlan,
    execution: &'p Execution<'p>,
    partitions: &'p Partitions,
    /// The page ends with the row that makes it reach this size; `usize::MAX` if the read has no pages.
    pub page_max_bytes: usize,
    local: Guardrail,
    coordinator: Guardrail,
    /// The bytes that the current read has taken from its sources.
    local_bytes: u64,
}

impl<'p> ReadSizes<'p> {
    pub fn new(plan: &'p SelectPlan, execution: &'p Execution<'p>, partitions: &'p Partitions) -> Self {
        let options = execution.processor.options();
        let has_pages = plan.ordering.sort.is_none() && (!plan.is_grouping() || plan.grouping.is_some());
        let is_paged = has_pages && execution.options.page_size.is_some_and(|size| size > 0);
        ReadSizes {
            plan,
            execution,
            partitions,
            page_max_bytes: if is_paged { options.page_max_bytes } else { usize::MAX },
            local: options.guardrails.read_thresholds.local,
            coordinator: options.guardrails.read_thresholds.coordinator,
            local_bytes: 0,
        }
    }

    /// The context that is the same for all rows of the answer.
    pub fn row_context(&self) -> RowContext<'p> {
        let (table, now_seconds) = (&*self.plan.table, self.execution.now_seconds);
        RowContext { table, now_seconds, cells_max: self.execution.room_bytes(), grown_by: Some(self.execution) }
    }

    /// Starts another read.
    pub fn begin_read(&mut self) {
        self.local_bytes = 0;
    }

    /// Counts the bytes that a read takes from its sources. Returns false if they exceed the failure threshold.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.local_bytes += bytes as u64;
        self.local.fail.is_none_or(|max| self.local_bytes <= max)
    }

    /// The error of a read that took too many bytes. Also adds a warning for the client.
    pub fn too_much_taken(&self, scan: &Scan<'_>) -> QueryError {
        let text = self.taken_text("and aborted the", "local_read_size_fail_threshold", scan);
        self.execution.warn(format!("{text} with {}", tokens_of_read(&scan.range.keys)));
        QueryError::new(read_size_failure(self.execution.options.consistency), text)
    }

    /// Warns about a read that took many bytes.
    pub fn end_read(&self, scan: &Scan<'_>) {
        if self.local.warn.is_some_and(|max| self.local_bytes > max) {
            let text =
                self.taken_text("and issued local read size warnings for", "local_read_size_warn_threshold", scan);
            self.execution.warn(format!("{text} with {}", tokens_of_read(&scan.range.keys)));
        }
    }

    fn taken_text(&self, what: &str, option: &str, scan: &Scan<'_>) -> String {
        let mut text = format!("1 nodes loaded over {} bytes {what} query ", self.local_bytes);
        self.plan.write_cql(scan, &mut text);
        format!("{text} (see {option})")
    }

    /// Refuses an answer that is too large, by the bytes of its cells and the number of its rows.
    pub fn check_answer(&self, cells_bytes: usize, rows: usize) -> Result<(), QueryError> {
        if cells_bytes > self.execution.room_bytes() {
            self.execution.check_room(cells_bytes)?;
        }
        match self.coordinator.fail {
            Some(max) if self.value_bytes(cells_bytes, rows) > max => {
                let text = self.answer_text("failure", max);
                self.execution.warn(text.clone());
                Err(QueryError::new(read_size_failure(self.execution.options.consistency), text))
            }
            _ => Ok(()),
        }
    }

    /// Warns about a large answer.
    pub fn end_answer(&self, cells_bytes: usize, rows: usize) {
        if let Some(max) = self.coordinator.warn
            && self.value_bytes(cells_bytes, rows) > max
        {
            self.execution.warn(self.answer_text("warning", max));
        }
    }

    /// The size of the cells without their lengths.
    fn value_bytes(&self, cells_bytes: usize, rows: usize) -> u64 {
        let lengths = rows * self.plan.selection.metadata().specs().len() * size_of::<i32>();
        cells_bytes.saturating_sub(lengths) as u64
    }

    fn answer_text(&self, kind: &str, threshold: u64) -> String {
        let Table { keyspace, name, .. } = &*self.plan.table;
        let (threshold, tokens) = (grouped(threshold), self.tokens());
        format!(
            "Read on table {keyspace}.{name} has exceeded the size {kind} threshold of {threshold} bytes with {tokens}"
        )
    }

    /// The partitions that the statement reads, for texts.
    fn tokens(&self) -> String {
        match self.partitions {
            Partitions::Keys(keys) => match keys.as_slice() {
                [only] => format!("token: {}", only.token().0),
                keys => {
                    let tokens: Vec<String> = keys.iter().map(|key| key.token().0.to_string()).collect();
                    format!("tokens: [{}]", tokens.join(", "))
                }
            },
            Partitions::Range(range) => token_range(range),
        }
    }
}

/// The partitions that one read covers, for texts.
fn tokens_of_read(keys: &KeyRange) -> String {
    match keys {
        KeyRange::Single(key) => format!("token={}", key.token().0),
        KeyRange::Range { .. } => token_range(keys),
    }
}

fn token_range(keys: &KeyRange) -> String {
    let bound = |bound: &KeyBound| match bound {
        KeyBound::Unbounded => (Token::MINIMUM, true),
        KeyBound::Token { token, inclusive } => (*token, *inclusive),
        KeyBound::Key { key, inclusive } => (key.token(), *inclusive),
    };
    let (start, end) = match keys {
        KeyRange::Single(key) => ((key.token(), true), (key.token(), true)),
        KeyRange::Range { start, end } => (bound(start), bound(end)),
    };
    let (open, close) = (if start.1 { '[' } else { '(' }, if end.1 { ']' } else { ')' });
    format!("token range: {open}{}, {}{close}", start.0.0, end.0.0)
}

/// A number with a comma before each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let texts = [0, 7, 999, 1_000, 268_435_456].map(grouped);
        assert_eq!(texts, ["0", "7", "999", "1,000", "268,435,456"]);
    }
}
