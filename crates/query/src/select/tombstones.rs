//! The warning or error for a read with many tombstones, which contains the read as CQL.

use std::fmt::Write as _;

use model::{Clusterings, ColumnKind, KeyBound, KeyRange, ReadRange, Side, Slice, Table};
use types::Token;
use types::identifier::Quoted;

use super::SelectPlan;
use super::read::Limits;
use crate::error::failures;
use crate::execution::Execution;
use crate::guardrail::Guardrail;
use crate::restrictions::RowFilter;
use crate::row_view::split_key;
use crate::{ErrorKind, FailureReason, QueryError};

/// A read and the counts of what it found.
pub(super) struct Scan<'a> {
    pub range: &'a ReadRange,
    pub filter: &'a RowFilter,
    pub limits: &'a Limits,
    pub live_rows: u64,
    pub tombstones: u64,
    /// The token of the partition that was read last.
    pub token: Token,
}

impl SelectPlan {
    /// Warns the client about a read that found many tombstones.
    pub(super) fn warn_of_tombstones(&self, scan: &Scan<'_>, execution: &Execution<'_>) {
        let mut text = format!("Read {} live rows and {} tombstone cells for query ", scan.live_rows, scan.tombstones);
        self.write_cql(scan, &mut text);
        let _ = write!(text, "; token {} (see tombstone_warn_threshold)", scan.token.0);
        execution.warn(text);
    }

    /// The error of a read that found more tombstones than are allowed.
    pub(super) fn too_many_tombstones(&self, execution: &Execution<'_>) -> QueryError {
        failed_read(FailureReason::ReadTooManyTombstones, "READ_TOO_MANY_TOMBSTONES", execution)
    }

    /// Warns the client about a read of many files of one index, or fails.
    pub(super) fn check_index_files(
        &self,
        count: usize,
        scan: &Scan<'_>,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let Guardrail { warn, fail } = execution.processor.options().guardrails.sai_sstable_indexes_per_query;
        let is_above = |threshold: Option<u64>| threshold.is_some_and(|threshold| count as u64 > threshold);
        let text = |what: &str, option: &str| {
            let mut text = format!("1 nodes {what} query ");
            self.write_cql(scan, &mut text);
            let (first, last) = tokens_between(&scan.range.keys);
            execution.warn(format!("{text} (see {option}) with token range: ({first}, {last}]"));
        };
        if is_above(fail) {
            let what = format!(
                "referenced {count} SSTable indexes for a query without restrictions on partition key and aborted the"
            );
            text(&what, "sai_sstable_indexes_per_query_fail_threshold");
            return Err(failed_read(FailureReason::ReadTooManyIndexes, "READ_TOO_MANY_INDEXES", execution));
        }
        if is_above(warn) {
            let what = format!(
                "referenced more than allowed number of indexes without restrictions on partition key, maximum on a \
                 node being {count} indexes, and issued warnings for"
            );
            text(&what, "sai_sstable_indexes_per_query_warn_threshold");
        }
        Ok(())
    }

    /// The read in Cassandra's words, which always allow filtering. Alternatives for clusterings are left out.
    pub(super) fn write_cql(&self, scan: &Scan<'_>, out: &mut String) {
        let table = &*self.table;
        let _ =
            write!(out, "SELECT {} FROM {}.{}", self.read_columns(scan), Quoted(&table.keyspace), Quoted(&table.name));
        let mut conditions = key_conditions(table, &scan.range.keys);
        if let [slice] = scan.range.slices.as_slice() {
            slice_conditions(table, slice, &mut conditions);
        }
        conditions.extend(scan.filter.conditions());
        if !conditions.is_empty() {
            let _ = write!(out, " WHERE {}", conditions.join(" AND "));
        }
        if scan.range.reversed {
            let direction = |reversed| if reversed { "ASC" } else { "DESC" };
            let columns = table.clustering().iter();
            let order: Vec<String> =
                columns.map(|column| format!("{} {}", Quoted(&column.name), direction(column.reversed))).collect();
            let _ = write!(out, " ORDER BY {}", order.join(", "));
        }
        self.write_limits(scan.limits, out);
        out.push_str(" ALLOW FILTERING");
    }

    /// The columns that are read besides the key, or all if there are none.
    fn read_columns(&self, scan: &Scan<'_>) -> String {
        let is_data = |kind: ColumnKind| matches!(kind, ColumnKind::Static | ColumnKind::Regular);
        let used = self.selection.used_columns().iter().filter(|column| is_data(column.kind));
        let mut names: Vec<&str> = used.map(|column| &*column.name).collect();
        let filtered = |name: &&str| self.table.column(name).is_some_and(|column| is_data(column.kind));
        names.extend(scan.filter.column_names().filter(filtered));
        if names.is_empty() || self.selection.is_wildcard() {
            return "*".to_owned();
        }
        names.sort_unstable();
        names.dedup();
        names.iter().map(|name| Quoted(name).to_string()).collect::<Vec<_>>().join(", ")
    }

    fn write_limits(&self, limits: &Limits, out: &mut String) {
        if self.is_grouping() {
            // An aggregation over everything adds no words.
            return out.push(' ');
        }
        let rows = limits.remaining.min(limits.page);
        if rows != u64::MAX {
            let _ = write!(out, " LIMIT {rows}");
        }
        let per_partition = if self.is_distinct { 1 } else { limits.per_partition };
        if per_partition != u64::MAX {
            let _ = write!(out, " PER PARTITION LIMIT {per_partition}");
        }
    }
}

/// The error of a read that the node aborts.
fn failed_read(reason: FailureReason, name: &str, execution: &Execution<'_>) -> QueryError {
    let kind = ErrorKind::ReadFailure {
        consistency: execution.options.consistency,
        received: 0,
        block_for: 1,
        failures: failures(reason),
        data_present: false,
    };
    let node = &execution.processor.options().node;
    let address = std::net::SocketAddr::new(node.broadcast_address, node.storage_port);
    let text = format!("Operation failed - received 0 responses and 1 failures: {name} from /{address}");
    QueryError::new(kind, text)
}

/// The tokens at both ends of a range of partitions.
fn tokens_between(keys: &KeyRange) -> (i64, i64) {
    let token = |bound: &KeyBound| match bound {
        KeyBound::Unbounded => Token::MINIMUM.0,
        KeyBound::Token { token, .. } => token.0,
        KeyBound::Key { key, .. } => key.token().0,
    };
    match keys {
        KeyRange::Single(key) => (key.token().0, key.token().0),
        KeyRange::Range { start, end } => (token(start), token(end)),
    }
}

fn key_conditions(table: &Table, keys: &KeyRange) -> Vec<String> {
    let (start, end) = match keys {
        KeyRange::Single(key) => {
            let mut values = Vec::new();
            split_key(table, key.bytes(), &mut values);
            let columns = table.partition_key().iter().zip(values);
            let equal = columns
                .map(|(column, value)| format!("{} = {}", Quoted(&column.name), column.ty.to_cql_literal(value)));
            return equal.collect();
        }
        KeyRange::Range { start, end } => (start, end),
    };
    let names: Vec<String> = table.partition_key().iter().map(|column| Quoted(&column.name).to_string()).collect();
    let names = names.join(", ");
    let condition = |bound: &KeyBound, open: char| {
        match bound {
            KeyBound::Unbounded => None,
            KeyBound::Token { token, inclusive } => Some((token.0, *inclusive)),
            KeyBound::Key { key, inclusive } => Some((key.token().0, *inclusive)),
        }
        .map(|(token, inclusive)| format!("token({names}) {open}{} {token}", if inclusive { "=" } else { "" }))
    };
    condition(start, '>').into_iter().chain(condition(end, '<')).collect()
}

/// Adds the conditions for the rows of a slice, column by column.
fn slice_conditions(table: &Table, slice: &Slice, conditions: &mut Vec<String>) {
    let starts: Vec<Option<&[u8]>> = Clusterings(&slice.start.prefix).collect();
    let ends: Vec<Option<&[u8]>> = Clusterings(&slice.end.prefix).collect();
    let mut same = true;
    for (place, column) in table.clustering().iter().enumerate() {
        let name = Quoted(&column.name);
        let literal = |value: &Option<&[u8]>| value.map_or("null".to_owned(), |value| column.ty.to_cql_literal(value));
        let (start, end) = (starts.get(place), ends.get(place));
        same &= start.is_some() && start == end;
        if let (true, Some(value)) = (same, start) {
            conditions.push(format!("{name} = {}", literal(value)));
            continue;
        }
        let (above, below) = if column.reversed { ('<', '>') } else { ('>', '<') };
        let equal = |inclusive| if inclusive { "=" } else { "" };
        if let Some(value) = start {
            conditions.push(format!("{name} {above}{} {}", equal(slice.start.side == Side::Before), literal(value)));
        }
        if let Some(value) = end {
            conditions.push(format!("{name} {below}{} {}", equal(slice.end.side == Side::After), literal(value)));
        }
    }
}
