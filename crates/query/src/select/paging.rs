//! The paging state, which says where a page ended. It is opaque to clients, and checked when a client sends it.
//!
//! A state belongs to one table and one kind of statement: see [`shape`]. Cassandra takes the state of any statement,
//! and answers rows of the wrong place.
//!
//! ```text
//! state := u8 2 (version), u8 flags: 1 partition done, 2 clustering follows
//!          u64 shape of the statement
//!          u64 rows left of LIMIT, u64 rows left of PER PARTITION LIMIT in this partition
//!          u16 length, partition key
//!          [u32 length, clustering]
//! ```
//!
//! Integers are big-endian. Without a clustering, and if the partition is not done, it is read from its first row.

use std::fmt::Write;

use cql::ast::Select;
use model::{Clusterings, Table};

use crate::QueryError;
use crate::fnv::Fnv;

const VERSION: u8 = 2;
const PARTITION_DONE: u8 = 1;
const CLUSTERING: u8 = 2;

/// The last row returned, and what is left to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PagingState {
    pub key: Vec<u8>,
    /// The clustering of the last row returned from the partition; `None` in tables without clustering columns.
    pub clustering: Option<Vec<u8>>,
    /// Whether the partition has no further rows to return.
    pub partition_done: bool,
    pub remaining: u64,
    pub remaining_in_partition: u64,
}

impl PagingState {
    /// The state for the client that sent a statement of this shape.
    pub fn to_bytes(&self, shape: u64) -> Vec<u8> {
        let mut flags = 0;
        if self.partition_done {
            flags |= PARTITION_DONE;
        }
        if self.clustering.is_some() {
            flags |= CLUSTERING;
        }
        let mut out = vec![VERSION, flags];
        out.extend_from_slice(&shape.to_be_bytes());
        out.extend_from_slice(&self.remaining.to_be_bytes());
        out.extend_from_slice(&self.remaining_in_partition.to_be_bytes());
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.key);
        if let Some(clustering) = &self.clustering {
            out.extend_from_slice(&(clustering.len() as u32).to_be_bytes());
            out.extend_from_slice(clustering);
        }
        out
    }

    /// Reads a state that a client sent with a statement of this shape, which reads this table.
    pub fn from_bytes(bytes: &[u8], shape: u64, table: &Table) -> Result<PagingState, QueryError> {
        parse(bytes, shape, table).ok_or_else(|| QueryError::protocol("Invalid value for the paging state"))
    }
}

/// A hash of what a SELECT reads and in which order: the table, the columns and operators of WHERE, GROUP BY, ORDER
/// BY and DISTINCT. Values, limits and selected columns are left out: a client may page on with another of these, as in
/// Cassandra, and a prepared statement is the same as its text with values.
pub(super) fn shape(select: &Select, table: &Table) -> u64 {
    let mut hash = Fnv::new();
    let mut write = |part: std::fmt::Arguments<'_>| {
        // A hash takes everything.
        let _ = hash.write_fmt(part);
    };
    write(format_args!("{} {}", table.id.0, select.is_distinct));
    select.group_by.iter().for_each(|column| write(format_args!(" group {column}")));
    select.order_by.iter().for_each(|ordering| write(format_args!(" order {ordering:?}")));
    for relation in &select.where_clause.relations {
        relation.columns().iter().for_each(|column| write(format_args!(" {column}")));
        write(format_args!(" {:?}", relation.operator()));
    }
    hash.value()
}

fn parse(bytes: &[u8], shape: u64, table: &Table) -> Option<PagingState> {
    let ([version, flags], rest) = bytes.split_first_chunk()?;
    let (of_statement, rest) = rest.split_first_chunk()?;
    let is_known = *version == VERSION && flags & !(PARTITION_DONE | CLUSTERING) == 0;
    if !is_known || u64::from_be_bytes(*of_statement) != shape {
        return None;
    }
    let (remaining, rest) = rest.split_first_chunk()?;
    let (remaining_in_partition, rest) = rest.split_first_chunk()?;
    let (remaining, remaining_in_partition) =
        (u64::from_be_bytes(*remaining), u64::from_be_bytes(*remaining_in_partition));
    // There is no next page once all rows of the LIMIT are returned, and no further row of a partition once all of its
    // own limit are.
    let has_rows_left = remaining > 0 && (remaining_in_partition > 0 || flags & PARTITION_DONE != 0);
    let (length, rest) = rest.split_first_chunk()?;
    let (key, mut rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let mut clustering = None;
    if flags & CLUSTERING != 0 {
        let (length, tail) = rest.split_first_chunk()?;
        let (bytes, tail) = tail.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        check_clustering(bytes, table)?;
        clustering = Some(bytes.to_vec());
        rest = tail;
    }
    if key.is_empty() || !rest.is_empty() || !has_rows_left {
        return None;
    }
    Some(PagingState {
        key: key.to_vec(),
        clustering,
        partition_done: flags & PARTITION_DONE != 0,
        remaining,
        remaining_in_partition,
    })
}

/// Checks for a complete clustering of the table, with values of its types.
fn check_clustering(bytes: &[u8], table: &Table) -> Option<()> {
    let mut components = Clusterings(bytes);
    for column in table.clustering() {
        if let Some(value) = components.next()? {
            column.ty.validate(value).ok()?;
        }
    }
    components.0.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use model::{TableBuilder, TableId, push_component};
    use types::CqlType;

    use super::*;

    #[test]
    fn states_come_back_and_damaged_ones_are_refused() {
        let table = TableBuilder::new("k", "t", TableId(uuid::Uuid::nil()))
            .partition_key("p", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .build();
        let mut clustering = Vec::new();
        push_component(Some(&7i32.to_be_bytes()), &mut clustering);
        let state = PagingState {
            key: vec![0, 0, 0, 1],
            clustering: Some(clustering),
            partition_done: false,
            remaining: 17,
            remaining_in_partition: u64::MAX,
        };
        let bytes = state.to_bytes(77);
        assert_eq!(PagingState::from_bytes(&bytes, 77, &table).as_ref(), Ok(&state));
        let of_done = PagingState { partition_done: true, remaining_in_partition: 0, ..state.clone() };
        assert_eq!(PagingState::from_bytes(&of_done.to_bytes(77), 77, &table).as_ref(), Ok(&of_done));
        for forged in [
            PagingState { remaining: 0, ..state.clone() },
            PagingState { remaining_in_partition: 0, ..state.clone() },
            PagingState { remaining: 0, ..of_done },
        ] {
            let bytes = forged.to_bytes(77);
            assert!(PagingState::from_bytes(&bytes, 77, &table).is_err(), "a page that ended too late: {forged:?}");
        }
        assert!(PagingState::from_bytes(&bytes, 78, &table).is_err(), "a state of another statement");
        for cut in 0..bytes.len() {
            assert!(PagingState::from_bytes(&bytes[..cut], 77, &table).is_err(), "cut at {cut}");
        }
        for flipped in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[flipped] ^= 0xff;
            // Some damage only leads to another place. None may cause a panic.
            let _ = PagingState::from_bytes(&damaged, 77, &table);
        }
    }
}
