//! Counter cells: a total kept in shards, one for each node that counted.
//!
//! The value of a live counter cell is a context: an i16 count of header entries, the entries (i16 each), then shards
//! in the order of their nodes: node id (16 bytes), clock (i64), count (i64). An entry refers to a shard by its index:
//! `index` for a local one, `index - 2^15` for a global one; shards without an entry are remote. Cassandra has only
//! written global shards since 2.1; the other kinds may remain in the tables of older nodes. Source: Cassandra's
//! `CounterContext`.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Cell, TTL_NONE};
use crate::NO_DELETION_TIME;

/// A node's count: the content of its shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCount {
    /// A later total has a larger clock.
    pub clock: i64,
    /// The total.
    pub count: i64,
}

impl NodeCount {
    /// The part of this node in the value of a counter cell.
    pub fn of(context: &[u8], node: [u8; 16]) -> Option<NodeCount> {
        let shard = shards(context).into_iter().find(|shard| shard.node == node)?;
        Some(NodeCount { clock: shard.clock, count: shard.count })
    }

    /// The total after an increment. As in Cassandra it wraps around, and its clock is the time, or larger.
    pub fn plus(self, increment: i64, now_micros: i64) -> NodeCount {
        let clock = now_micros.max(self.clock.saturating_add(1));
        NodeCount { clock, count: self.count.wrapping_add(increment) }
    }

    /// The value of a counter cell that has this total alone. Writing it again changes nothing.
    pub fn to_context(self, node: [u8; 16]) -> Vec<u8> {
        write_context(&[Shard { node, clock: self.clock, count: self.count, kind: Kind::Global }])
    }
}

/// The value of a cell that is an increment of a counter. Two increments are added when they are merged. An increment
/// is never stored: a total replaces it before it is written.
pub fn counter_increment(increment: i64) -> Vec<u8> {
    write_context(&[Shard { node: [0; 16], clock: 1, count: increment, kind: Kind::Local }])
}

/// The sum of all shards of a counter cell's value.
pub fn counter_total(context: &[u8]) -> i64 {
    let Some((entries, rest)) = context.split_first_chunk::<2>() else { return 0 };
    let entries = 2 * usize::from(i16::from_be_bytes(*entries).max(0).unsigned_abs());
    let shards = rest.get(entries..).unwrap_or_default().as_chunks::<SHARD_LENGTH>().0;
    shards.iter().fold(0, |total, shard| total.wrapping_add(read_shard(shard).count))
}

/// The size of a shard in bytes.
const SHARD_LENGTH: usize = 32;

/// How much a shard knows, least first. Of two shards of one node the one that knows more wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Another node's count, as last received.
    Remote,
    /// A part of the node's own count: two of them are added.
    Local,
    /// The node's complete count up to a clock.
    Global,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    node: [u8; 16],
    clock: i64,
    count: i64,
    kind: Kind,
}

impl Shard {
    /// Merges two shards of one node.
    fn merge(self, other: Shard) -> Shard {
        let order = match (self.kind, other.kind) {
            (Kind::Local, Kind::Local) => {
                let (clock, count) = (self.clock.wrapping_add(other.clock), self.count.wrapping_add(other.count));
                return Shard { clock, count, ..self };
            }
            (Kind::Remote, Kind::Remote) => compare_remote(&self, &other),
            (left, right) => left.cmp(&right).then(self.clock.cmp(&other.clock)),
        };
        match order.then(self.count.cmp(&other.count)) {
            Ordering::Less => other,
            _ => self,
        }
    }
}

/// Compares two remote shards. Clocks below 0 come from Cassandra's oldest nodes, which restarted a counter with a new,
/// lower one.
fn compare_remote(left: &Shard, right: &Shard) -> Ordering {
    let (left, right) = (left.clock, right.clock);
    let is_later = (left < 0 && left < right) || (right > 0 && left >= right);
    match left == right {
        true => Ordering::Equal,
        false if is_later => Ordering::Greater,
        false => Ordering::Less,
    }
}

/// The shards of a context. Incomplete shards are ignored, and so are entries for shards that do not exist.
fn shards(context: &[u8]) -> Vec<Shard> {
    let Some((count, rest)) = context.split_first_chunk::<2>() else { return Vec::new() };
    let entries = 2 * usize::from(i16::from_be_bytes(*count).max(0).unsigned_abs());
    let Some((header, body)) = rest.split_at_checked(entries) else { return Vec::new() };
    let mut shards: Vec<Shard> = body.as_chunks::<SHARD_LENGTH>().0.iter().map(read_shard).collect();
    for entry in header.as_chunks::<2>().0 {
        let entry = u16::from_be_bytes(*entry);
        let kind = if entry & 0x8000 == 0 { Kind::Local } else { Kind::Global };
        if let Some(shard) = shards.get_mut(usize::from(entry & 0x7fff)) {
            shard.kind = kind;
        }
    }
    shards
}

fn read_shard(bytes: &[u8; SHARD_LENGTH]) -> Shard {
    let mut node = [0; 16];
    let (mut clock, mut count) = ([0; 8], [0; 8]);
    node.copy_from_slice(&bytes[..16]);
    clock.copy_from_slice(&bytes[16..24]);
    count.copy_from_slice(&bytes[24..]);
    Shard { node, clock: i64::from_be_bytes(clock), count: i64::from_be_bytes(count), kind: Kind::Remote }
}

fn write_context(shards: &[Shard]) -> Vec<u8> {
    let entries: Vec<u16> = (0_u16..)
        .zip(shards)
        .filter_map(|(index, shard)| match shard.kind {
            Kind::Remote => None,
            Kind::Local => Some(index),
            Kind::Global => Some(index | 0x8000),
        })
        .collect();
    let mut context = Vec::with_capacity(2 + 2 * entries.len() + SHARD_LENGTH * shards.len());
    context.extend_from_slice(&(entries.len() as i16).to_be_bytes());
    entries.iter().for_each(|entry| context.extend_from_slice(&entry.to_be_bytes()));
    for shard in shards {
        context.extend_from_slice(&shard.node);
        context.extend_from_slice(&shard.clock.to_be_bytes());
        context.extend_from_slice(&shard.count.to_be_bytes());
    }
    context
}

/// Merges two contexts: for each node, the shard that knows more.
fn merge_contexts(left: &[u8], right: &[u8]) -> Vec<u8> {
    let (left, right) = (shards(left), shards(right));
    let mut merged = Vec::with_capacity(left.len().max(right.len()));
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(one), Some(other)) => one.node.cmp(&other.node),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return write_context(&merged),
        };
        let from_left = if order.is_le() { left.next() } else { None };
        let from_right = if order.is_ge() { right.next() } else { None };
        match (from_left, from_right) {
            (Some(one), Some(other)) => merged.push(one.merge(other)),
            (one, other) => merged.extend(one.or(other)),
        }
    }
}

/// A counter's cell during reconciliation.
#[derive(Clone, Debug)]
pub(super) struct CounterCell<'a> {
    timestamp: i64,
    local_deletion_time: u32,
    context: Cow<'a, [u8]>,
}

impl<'a> CounterCell<'a> {
    pub fn new(cell: Cell<'a>) -> Self {
        let (timestamp, local_deletion_time) = (cell.timestamp, cell.local_deletion_time);
        CounterCell { timestamp, local_deletion_time, context: Cow::Borrowed(cell.value) }
    }

    fn is_tombstone(&self) -> bool {
        self.local_deletion_time != NO_DELETION_TIME
    }

    /// Merges two cells of one counter: a deleted counter stays deleted, whatever the timestamps; of two deletions the
    /// later wins.
    pub fn merge(self, cell: Cell<'a>) -> Self {
        let other = CounterCell::new(cell);
        match (self.is_tombstone(), other.is_tombstone()) {
            (true, false) => self,
            (false, true) => other,
            (true, true) => {
                let rank = |cell: &Self| (cell.timestamp, cell.local_deletion_time);
                if rank(&self) < rank(&other) { other } else { self }
            }
            (false, false) => CounterCell {
                timestamp: self.timestamp.max(other.timestamp),
                context: Cow::Owned(merge_contexts(&self.context, &other.context)),
                ..self
            },
        }
    }

    /// The cell.
    pub fn cell(&self) -> Cell<'_> {
        Cell {
            timestamp: self.timestamp,
            ttl: TTL_NONE,
            local_deletion_time: self.local_deletion_time,
            path: &[],
            value: &self.context,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(node: u8, clock: i64, count: i64, kind: Kind) -> Shard {
        Shard { node: [node; 16], clock, count, kind }
    }

    fn merged(left: &[Shard], right: &[Shard]) -> Vec<Shard> {
        shards(&merge_contexts(&write_context(left), &write_context(right)))
    }

    /// Every combination of contexts of up to three nodes with small clocks.
    fn contexts(kinds: &[Kind]) -> Vec<Vec<Shard>> {
        let mut one: Vec<Option<(i64, i64, Kind)>> = vec![None];
        for clock in 1..3 {
            one.extend(kinds.iter().map(|kind| Some((clock, clock * 10, *kind))));
        }
        let mut all = Vec::new();
        for a in &one {
            for b in &one {
                let made = [(1, a), (2, b)].into_iter();
                all.push(
                    made.filter_map(|(node, of)| of.map(|(clock, n, kind)| shard(node, clock, n, kind))).collect(),
                );
            }
        }
        all
    }

    #[test]
    fn a_context_that_is_written_reads_the_same() {
        let kinds = [Kind::Global, Kind::Remote, Kind::Local, Kind::Global];
        let all: Vec<_> = (1..).zip(kinds).map(|(node, kind)| shard(node, 5, -3, kind)).collect();
        assert_eq!(shards(&write_context(&all)), all);
        // One global shard, as Cassandra 5.0.8 writes it.
        let mut context = vec![0, 1, 0x80, 0];
        context.extend_from_slice(&[7; 16]);
        context.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(shards(&context), [shard(7, 2, 9, Kind::Global)]);
        assert_eq!(write_context(&shards(&context)), context);
    }

    #[test]
    fn merging_is_associative_commutative_and_idempotent() {
        let all = contexts(&[Kind::Global, Kind::Remote]);
        for left in &all {
            assert_eq!(merged(left, left), *left);
            for right in &all {
                let both = merged(left, right);
                assert_eq!(both, merged(right, left));
                for third in &all {
                    assert_eq!(merged(&both, third), merged(left, &merged(right, third)));
                }
            }
        }
    }

    #[test]
    fn the_shard_with_the_later_clock_stays_and_local_shards_are_added() {
        let global = shard(1, 2, 5, Kind::Global);
        assert_eq!(merged(&[global], &[shard(1, 3, 4, Kind::Global)]), [shard(1, 3, 4, Kind::Global)]);
        assert_eq!(merged(&[global], &[shard(1, 2, 7, Kind::Global)]), [shard(1, 2, 7, Kind::Global)]);
        assert_eq!(merged(&[global], &[shard(1, 9, 9, Kind::Local)]), [global]);
        let local = shard(1, 1, 5, Kind::Local);
        assert_eq!(merged(&[local], &[shard(1, 2, 6, Kind::Local)]), [shard(1, 3, 11, Kind::Local)]);
        assert_eq!(merged(&[local], &[shard(1, 9, 9, Kind::Remote)]), [local]);
        let remote = |clock| shard(1, clock, 1, Kind::Remote);
        assert_eq!(merged(&[remote(2)], &[remote(3)]), [remote(3)]);
        assert_eq!(merged(&[remote(-2)], &[remote(3)]), [remote(-2)]);
        let far = shard(9, 1, 1, Kind::Global);
        assert_eq!(merged(&[global], &[far]), [global, far]);
    }

    #[test]
    fn a_total_replaces_the_nodes_earlier_total_and_keeps_those_of_others() {
        let (own, other) = ([1; 16], shard(2, 9, 4, Kind::Global));
        let stored = write_context(&[shard(1, 50, 7, Kind::Global), other]);
        let before = NodeCount::of(&stored, own).unwrap();
        assert_eq!(before, NodeCount { clock: 50, count: 7 });
        assert_eq!(before.plus(-10, 40), NodeCount { clock: 51, count: -3 });
        assert_eq!(before.plus(1, 60).clock, 60);
        let written = before.plus(-10, 40).to_context(own);
        let once = merge_contexts(&stored, &written);
        assert_eq!(shards(&once), [shard(1, 51, -3, Kind::Global), other]);
        assert_eq!(merge_contexts(&once, &written), once);
        assert_eq!(counter_total(&once), 1);
        assert_eq!(NodeCount::of(&stored, [3; 16]), None);
        assert_eq!(NodeCount { clock: i64::MAX, count: i64::MAX }.plus(1, 0).count, i64::MIN);
    }

    #[test]
    fn increments_are_added_when_they_are_merged() {
        let merged = merge_contexts(&counter_increment(5), &counter_increment(-7));
        assert_eq!(counter_total(&merged), -2);
    }

    #[test]
    fn a_deleted_counter_stays_deleted() {
        let context = write_context(&[shard(1, 1, 1, Kind::Global)]);
        let live = Cell::live(20, &context);
        let gone = Cell::tombstone(10, 100);
        for merged in [CounterCell::new(live).merge(gone), CounterCell::new(gone).merge(live)] {
            assert_eq!(merged.cell(), gone);
        }
        let later = Cell::tombstone(11, 90);
        assert_eq!(CounterCell::new(gone).merge(later).cell(), later);
    }

    #[test]
    fn invalid_contexts_do_no_harm() {
        let whole = write_context(&[shard(1, 1, 1, Kind::Global), shard(2, 1, 1, Kind::Local)]);
        for length in 0..whole.len() {
            merge_contexts(&whole[..length], &whole);
            merge_contexts(&whole, &[&[0xff; 2], &whole[..length]].concat());
        }
    }
}
