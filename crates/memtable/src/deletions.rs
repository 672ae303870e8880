//! Deleted ranges: making those of one update disjoint, and merging them into those of a partition.

use std::collections::BTreeMap;
use std::ops::Bound;

use memtrie::{Bounds, Direction, Tail};
use model::{DeletionTime, PartitionUpdate, Side};
use types::steps;

use crate::layout::{Layout, RANGE_BRANCH};
use crate::ranges::DeletedRange;

/// A position where the deletion of ranges changes.
struct Step {
    /// The bound's position, after the branch's lead byte.
    position: Vec<u8>,
    /// Serialized prefix of the bound.
    prefix: Vec<u8>,
    /// The deletion from here to the next step.
    after: DeletionTime,
}

impl Step {
    /// Position and prefix.
    fn bound(&self) -> (&[u8], &[u8]) {
        (&self.position, &self.prefix)
    }
}

/// The ranges of one update, disjoint and in order.
pub(crate) struct UpdateRanges {
    steps: Vec<Step>,
}

/// The new state of the range that begins at a position: its content, or `None` where no range begins any more.
pub(crate) type RangeEdit = (Vec<u8>, Option<Vec<u8>>);

impl UpdateRanges {
    /// The ranges of an update. With `everywhere`, `merge` examines all ranges of the partition, because the
    /// partition's deletion changes.
    ///
    /// Costs n log n for n ranges: it runs under the shard's lock.
    pub fn new(layout: &Layout, update: &PartitionUpdate, everywhere: bool) -> UpdateRanges {
        let mut edges: Vec<Edge<Deletion>> = Vec::with_capacity(2 * update.range_deletion_count() + 2);
        let edge = |prefix: &[u8], side: Side, change| {
            let mut position = Vec::new();
            layout.push_bound(prefix, side, &mut position);
            Edge { position, prefix: prefix.to_vec(), change }
        };
        for range in update.range_deletions() {
            let [start, end] = [(&range.slice.start, true), (&range.slice.end, false)]
                .map(|(bound, begins)| edge(&bound.prefix, bound.side, Some((order_of(range.deletion), begins))));
            if start.position < end.position && !range.deletion.is_live() {
                edges.extend([start, end]);
            }
        }
        if everywhere {
            edges.extend([Side::Before, Side::After].map(|side| edge(&[], side, None)));
        }
        let step = |(position, prefix, (marked_for_delete_at, local_deletion_time))| Step {
            position,
            prefix,
            after: DeletionTime { marked_for_delete_at, local_deletion_time },
        };
        let steps: Vec<Step> = sweep(edges, order_of(DeletionTime::LIVE)).into_iter().map(step).collect();
        debug_assert!(steps.is_sorted_by(|a, b| a.position < b.position), "one step at each position");
        debug_assert!(steps.last().is_none_or(|step| step.after.is_live()), "the last range ends");
        UpdateRanges { steps }
    }

    /// The deletion of the update's ranges at a row's position.
    pub fn at(&self, position: &[u8]) -> DeletionTime {
        let after = self.steps.partition_point(|step| step.position.as_slice() < position);
        after.checked_sub(1).map_or(DeletionTime::LIVE, |index| self.steps[index].after)
    }

    /// The intervals that the update deletes: the positions of their ends, and the deletion.
    pub fn intervals(&self) -> impl Iterator<Item = (&[u8], &[u8], DeletionTime)> {
        let pairs = self.steps.iter().zip(self.steps.iter().skip(1));
        pairs
            .filter(|(start, _)| !start.after.is_live())
            .map(|(start, end)| (start.position.as_slice(), end.position.as_slice(), start.after))
    }

    /// The changes to the partition's ranges after which each position has the newest of the old and new deletions, and
    /// none where the partition's deletion is at least as new. Adjacent ranges of one deletion become one.
    pub fn merge(&self, layout: &Layout, partition: Tail<'_>, deletion: DeletionTime) -> Vec<RangeEdit> {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return Vec::new() };
        let (old, stored) = touching(layout, partition, &first.position, &last.position);
        let mut edits: BTreeMap<&[u8], Option<Vec<u8>>> =
            stored.keys().map(|position| (position.as_slice(), None)).collect();
        let mut begun: Option<&Step> = None;
        let mut open = DeletionTime::LIVE;
        let (mut old_steps, mut new_steps) = (old.iter().peekable(), self.steps.iter().peekable());
        let (mut old_open, mut new_open) = (DeletionTime::LIVE, DeletionTime::LIVE);
        while let Some(position) = least(old_steps.peek(), new_steps.peek()) {
            let mut step = None;
            if let Some(new) = new_steps.next_if(|step| step.position == position) {
                new_open = new.after;
                step = Some(new);
            }
            // If the same prefix has two serialized forms, the first one stays.
            if let Some(old) = old_steps.next_if(|step| step.position == position) {
                old_open = old.after;
                step = Some(old);
            }
            debug_assert!(step.is_some(), "the least position belongs to a step");
            let newest = old_open.max(new_open);
            let after = if newest.supersedes(&deletion) { newest } else { DeletionTime::LIVE };
            if after == open {
                continue;
            }
            if let (Some(start), Some(end)) = (begun, step) {
                let mut content = Vec::new();
                DeletedRange::new(start.bound(), end.bound(), open).write(layout, &mut content);
                edits.insert(&start.position, Some(content));
            }
            begun = step.filter(|_| !after.is_live());
            open = after;
        }
        // A range that stays the same is not a change.
        debug_assert!(open.is_live() && begun.is_none(), "the last range ends");
        let is_new = |(position, content): &(&[u8], Option<Vec<u8>>)| {
            content.as_ref() != stored.get(*position) || content.is_none()
        };
        edits.into_iter().filter(is_new).map(|(position, content)| (position.to_vec(), content)).collect()
    }
}

/// A deletion as its fields, which order deletions as [`DeletionTime::supersedes`] does.
type Deletion = (i64, u32);

fn order_of(deletion: DeletionTime) -> Deletion {
    (deletion.marked_for_delete_at, deletion.local_deletion_time)
}

/// An end of a range that an update deletes, or a place where nothing changes.
struct Edge<D> {
    position: Vec<u8>,
    prefix: Vec<u8>,
    /// The deletion that begins (true) or ends here.
    change: Option<(D, bool)>,
}

/// The edges' positions in order, each with its prefix and the newest deletion from there to the next position. Of two
/// edges at one position the first one's prefix is kept.
fn sweep<D: Ord + Copy>(mut edges: Vec<Edge<D>>, none: D) -> Vec<(Vec<u8>, Vec<u8>, D)> {
    edges.sort_by(|a, b| a.position.cmp(&b.position));
    let mut open: BTreeMap<D, usize> = BTreeMap::new();
    let mut places: Vec<(Vec<u8>, Vec<u8>, D)> = Vec::with_capacity(edges.len());
    for Edge { position, prefix, change } in edges {
        steps::count(1);
        match change {
            Some((deletion, true)) => *open.entry(deletion).or_default() += 1,
            Some((deletion, false)) => close(&mut open, deletion),
            None => {}
        }
        let newest = open.last_key_value().map_or(none, |(deletion, _)| *deletion);
        match places.last_mut() {
            Some((last, _, after)) if *last == position => *after = newest,
            _ => places.push((position, prefix, newest)),
        }
    }
    debug_assert!(open.is_empty(), "every range ends");
    places
}

/// Removes one of the open ranges of this deletion. Where a range ends at the place at which an equal one begins, the
/// order of the two does not matter, since no range ends where it begins.
fn close<D: Ord>(open: &mut BTreeMap<D, usize>, deletion: D) {
    debug_assert!(open.contains_key(&deletion), "a range begins before it ends");
    let count = open.get_mut(&deletion).map_or(0, |count| {
        *count -= 1;
        *count
    });
    if count == 0 {
        open.remove(&deletion);
    }
}

fn least<'s>(old: Option<&&'s Step>, new: Option<&&'s Step>) -> Option<&'s [u8]> {
    let position = |step: &&'s Step| -> &'s [u8] { &step.position };
    [old.map(position), new.map(position)].into_iter().flatten().min()
}

/// The stored ranges that overlap the interval between two positions. Returns the positions where they change the
/// deletion, and the ranges' contents by start position.
fn touching(
    layout: &Layout,
    partition: Tail<'_>,
    first: &[u8],
    last: &[u8],
) -> (Vec<Step>, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (start, end) = (branch_key(first), branch_key(last));
    let before = Bounds { start: Bound::Included(&[RANGE_BRANCH]), end: Bound::Excluded(&start) };
    let mut steps: Vec<Step> = Vec::new();
    let mut stored = BTreeMap::new();
    let mut take = |key: &[u8], content: &[u8]| {
        steps::count(1);
        let range = DeletedRange::read(layout, content);
        let (start, end) = (key[1..].to_vec(), range.end(&key[1..]));
        if end.as_slice() < first {
            return;
        }
        stored.insert(start.clone(), content.to_vec());
        // A range may begin where the previous one ends.
        steps.pop_if(|step| step.position == start);
        let prefix = |kept: Option<&[u8]>| kept.unwrap_or_default().to_vec();
        steps.push(Step { position: start, prefix: prefix(range.start_kept), after: range.deletion });
        steps.push(Step { position: end, prefix: prefix(range.end_kept), after: DeletionTime::LIVE });
    };
    let mut cursor = partition.cursor(before, Direction::Reverse);
    if cursor.advance() {
        take(cursor.key(), cursor.content());
    }
    let mut cursor = partition.cursor(Bounds::inclusive(&start, &end), Direction::Forward);
    while cursor.advance() {
        take(cursor.key(), cursor.content());
    }
    debug_assert!(steps.is_sorted_by(|a, b| a.position < b.position), "stored ranges do not overlap");
    (steps, stored)
}

/// The key of a position in the branch of ranges.
fn branch_key(position: &[u8]) -> Vec<u8> {
    [&[RANGE_BRANCH], position].concat()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use testkit::Random;

    use super::*;

    type Ranges = Vec<(u16, u16, u64)>;

    fn edges<D>(ranges: &Ranges, deletion: impl Fn(u64) -> D) -> Vec<Edge<D>> {
        let edge = |place: u16, change| Edge { position: place.to_be_bytes().to_vec(), prefix: vec![], change };
        let ends = |&(start, end, time): &(u16, u16, u64)| {
            [edge(start, Some((deletion(time), true))), edge(end, Some((deletion(time), false)))]
        };
        ranges.iter().flat_map(ends).collect()
    }

    fn random_ranges(random: &mut Random, count: usize, places: usize, times: usize) -> Ranges {
        let range = |_| {
            let start = random.below(places) as u16;
            (start, start + 1 + random.below(places) as u16, 1 + random.below(times) as u64)
        };
        (0..count).map(range).collect()
    }

    #[test]
    fn every_place_has_the_newest_of_the_ranges_that_cover_it() {
        let random = &mut Random(6);
        for _ in 0..2_000 {
            let count = random.below(8);
            let ranges = random_ranges(random, count, 12, 4);
            for (position, _, after) in sweep(edges(&ranges, |time| time), 0) {
                let place = u16::from_be_bytes([position[0], position[1]]);
                let covering = ranges.iter().filter(|(start, end, _)| (*start..*end).contains(&place));
                assert_eq!(after, covering.map(|range| range.2).max().unwrap_or(0), "{place} of {ranges:?}");
            }
        }
    }

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// A deletion that counts how often it is compared.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Counting(u64);

    impl Ord for Counting {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counting {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn deletions_are_compared_n_log_n_times() {
        let compared = |count: usize| {
            let ranges = random_ranges(&mut Random(7), count, 30_000, 1 << 20);
            COMPARED.set(0);
            sweep(edges(&ranges, Counting), Counting(0));
            COMPARED.get()
        };
        let (some, twice) = (compared(4_000), compared(8_000));
        assert!(twice < some * 5 / 2, "{some} comparisons for 4,000 ranges, {twice} for 8,000");
    }
}
