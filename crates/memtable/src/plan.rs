//! The range of a cursor, as paths and positions.

use std::sync::Arc;

use bytecomp::{Side as KeySide, encode_key_bound, encode_token_bound};
use model::{ClusteringBound, KeyBound, KeyRange, PartitionKey, ReadRange, Side, Table};
use types::Token;

use crate::branch::after_partition;
use crate::fill::Stop;
use crate::layout::{Layout, partition_path};
use crate::trie_memtable::TrieMemtable;

/// A bound between rows.
#[derive(Clone, Debug)]
pub(crate) struct ReadPosition {
    pub position: Vec<u8>,
    pub prefix: Vec<u8>,
    pub side: Side,
}

impl ReadPosition {
    fn new(layout: &Layout, bound: &ClusteringBound) -> ReadPosition {
        let mut position = Vec::with_capacity(bound.prefix.len() + 8);
        layout.push_bound(&bound.prefix, bound.side, &mut position);
        ReadPosition { position, prefix: bound.prefix.clone(), side: bound.side }
    }
}

/// A slice in reading order: `from` comes after `to` in clustering order when reversed.
pub(crate) struct Slice {
    pub from: ReadPosition,
    pub to: ReadPosition,
    /// The position of the only row that can be in the slice, if it selects one row.
    pub row: Option<Vec<u8>>,
}

impl Slice {
    fn new(layout: &Layout, slice: &model::Slice, reversed: bool) -> Slice {
        if !layout.has_clustering() {
            // The partition's only row is read with the partition.
            let place =
                |bound: &ClusteringBound| ReadPosition { position: Vec::new(), prefix: Vec::new(), side: bound.side };
            return Slice { from: place(&slice.start), to: place(&slice.end), row: None };
        }
        Slice::of_positions(layout, slice, reversed)
    }

    /// The slice in terms of row positions, including the one row of a table without clustering.
    pub fn of_positions(layout: &Layout, slice: &model::Slice, reversed: bool) -> Slice {
        let (start, end) = (ReadPosition::new(layout, &slice.start), ReadPosition::new(layout, &slice.end));
        debug_assert!(start.position <= end.position, "a slice from {start:?} to {end:?}");
        let is_one_row = start.prefix == end.prefix && start.side != end.side && layout.is_whole(&start.prefix);
        let row = is_one_row.then(|| {
            let mut position = Vec::with_capacity(start.position.len());
            layout.push_row(&start.prefix, &mut position);
            position
        });
        debug_assert!(
            row.as_ref().is_none_or(|row| start.position < *row && *row < end.position),
            "a row lies between its bounds",
        );
        if reversed { Slice { from: end, to: start, row } } else { Slice { from: start, to: end, row } }
    }
}

/// The bytes of a partition's path in addition to its key, if the key has no zero bytes.
const PATH_OVERHEAD_BYTES: usize = 12;

pub(crate) struct Plan {
    pub memtable: Arc<TrieMemtable>,
    pub table: Arc<Table>,
    pub reversed: bool,
    pub slices: Vec<Slice>,
    /// All rows in forward order, as the trie has them.
    pub is_plain: bool,
    /// Deletions of rows and ranges are left out.
    pub live_only: bool,
    pub single: Option<PartitionKey>,
    pub first_shard: usize,
    pub last_shard: usize,
    /// The path of the first partition, or one before it.
    pub start: Vec<u8>,
    /// A path after the last partition's; empty for no end.
    pub end: Vec<u8>,
}

impl Plan {
    pub fn new(memtable: Arc<TrieMemtable>, table: &Arc<Table>, range: &ReadRange, live_only: bool) -> Plan {
        let layout = memtable.layout();
        let slices = range.slices.as_slice().iter().map(|slice| Slice::new(layout, slice, range.reversed));
        let mut slices: Vec<Slice> = slices.collect();
        if range.reversed {
            slices.reverse();
        }
        debug_assert!(
            slices.is_sorted_by(|a, b| match range.reversed {
                false => a.to.position <= b.from.position,
                true => a.to.position >= b.from.position,
            }),
            "slices are read one behind the other",
        );
        let mut plan = Plan {
            table: table.clone(),
            reversed: range.reversed,
            slices,
            live_only,
            is_plain: !range.reversed && range.slices.is_all(),
            single: None,
            first_shard: 0,
            last_shard: memtable.shards().len() - 1,
            start: Vec::new(),
            end: Vec::new(),
            memtable,
        };
        let memtable = &plan.memtable;
        match &range.keys {
            KeyRange::Single(key) => {
                plan.first_shard = memtable.shard_of(key.token());
                plan.last_shard = plan.first_shard;
                plan.start = Vec::with_capacity(key.bytes().len() + PATH_OVERHEAD_BYTES);
                partition_path(key, &mut plan.start);
                plan.single = Some(key.clone());
            }
            KeyRange::Range { start, end } => {
                if let Some(token) = push_key_bound(start, KeySide::Before, &mut plan.start) {
                    plan.first_shard = memtable.shard_of(token);
                }
                if let Some(token) = push_key_bound(end, KeySide::After, &mut plan.end) {
                    plan.last_shard = memtable.shard_of(token);
                }
            }
        }
        let shard_count = plan.memtable.shards().len();
        debug_assert!(plan.first_shard < shard_count && plan.last_shard < shard_count, "the shards of the range");
        debug_assert!(plan.single.is_none() || !plan.start.is_empty(), "a partition has a path");
        plan
    }

    /// Where the first fill starts.
    pub fn first(&self) -> Stop {
        if self.single.is_some() {
            return Stop::Only;
        }
        if self.first_shard > self.last_shard {
            return Stop::End;
        }
        Stop::Partition { shard: self.first_shard, path: self.start.clone() }
    }

    /// The stop after the partition that `stop` is in.
    pub fn skip_partition(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Rows { .. } if self.single.is_some() => Stop::End,
            Stop::Rows { shard, mut path, .. } => {
                after_partition(&mut path);
                Stop::Partition { shard, path }
            }
            stop => stop,
        }
    }
}

/// Appends the path of a bound that includes its key or token from `inclusive_side`. Returns its token, if it is a
/// bound.
fn push_key_bound(bound: &KeyBound, inclusive_side: KeySide, out: &mut Vec<u8>) -> Option<Token> {
    debug_assert!(out.is_empty(), "a path begins with its bound");
    let side = |inclusive: bool| match (inclusive, inclusive_side) {
        (true, side) => side,
        (false, KeySide::Before) => KeySide::After,
        (false, KeySide::After) => KeySide::Before,
    };
    match bound {
        KeyBound::Unbounded => None,
        // The minimum token is also the token of one possible key, the empty one. The bound after it therefore has a
        // path of its own.
        KeyBound::Token { token, inclusive } => {
            encode_token_bound(*token, side(*inclusive), out);
            Some(*token)
        }
        KeyBound::Key { key, inclusive } => {
            encode_key_bound(key.token(), key.bytes(), side(*inclusive), out);
            Some(key.token())
        }
    }
}
