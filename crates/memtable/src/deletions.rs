//! Deleted ranges: those of one update made disjoint, and merged into those that a partition has.

use std::collections::BTreeMap;
use std::ops::Bound;

use memtrie::{Bounds, Direction, Tail};
use model::{DeletionTime, PartitionUpdate, Side};

use crate::layout::{Layout, RANGE_BRANCH};
use crate::ranges::DeletedRange;

/// A place where the deletion of ranges changes.
struct Step {
    /// The bound's position, after the branch's lead byte.
    position: Vec<u8>,
    /// Serialized prefix of the bound.
    prefix: Vec<u8>,
    /// What is deleted with from here to the next step.
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

/// What becomes of the range that begins at a position: its content, or none where there is no range any more.
pub(crate) type RangeEdit = (Vec<u8>, Option<Vec<u8>>);

impl UpdateRanges {
    /// `everywhere`: have `merge` look at all ranges of the partition, because its deletion changes.
    ///
    /// Quadratic in the ranges of one update, of which there are few.
    pub fn new(layout: &Layout, update: &PartitionUpdate, everywhere: bool) -> UpdateRanges {
        let mut ranges = Vec::with_capacity(update.range_deletion_count());
        let mut steps: Vec<Step> = Vec::with_capacity(2 * update.range_deletion_count());
        for range in update.range_deletions() {
            let mut ends = [&range.slice.start, &range.slice.end].map(|bound| {
                let mut position = Vec::new();
                layout.push_bound(&bound.prefix, bound.side, &mut position);
                Step { position, prefix: bound.prefix.clone(), after: DeletionTime::LIVE }
            });
            if ends[0].position >= ends[1].position || range.deletion.is_live() {
                continue;
            }
            let [start, end] = &mut ends;
            ranges.push((start.position.clone(), end.position.clone(), range.deletion));
            steps.extend(ends);
        }
        for side in [Side::Before, Side::After].into_iter().filter(|_| everywhere) {
            let mut position = Vec::new();
            layout.push_bound(&[], side, &mut position);
            steps.push(Step { position, prefix: Vec::new(), after: DeletionTime::LIVE });
        }
        steps.sort_by(|a, b| a.position.cmp(&b.position));
        steps.dedup_by(|a, b| a.position == b.position);
        for step in &mut steps {
            let covering = ranges.iter().filter(|(start, end, _)| *start <= step.position && step.position < *end);
            step.after = covering.fold(DeletionTime::LIVE, |newest, (_, _, deletion)| newest.max(*deletion));
        }
        UpdateRanges { steps }
    }

    /// What the update's ranges delete with at a row's position.
    pub fn at(&self, position: &[u8]) -> DeletionTime {
        let after = self.steps.partition_point(|step| step.position.as_slice() < position);
        after.checked_sub(1).map_or(DeletionTime::LIVE, |index| self.steps[index].after)
    }

    /// The intervals that the update deletes: positions of their ends, and the deletion.
    pub fn intervals(&self) -> impl Iterator<Item = (&[u8], &[u8], DeletionTime)> {
        let pairs = self.steps.iter().zip(self.steps.iter().skip(1));
        pairs
            .filter(|(start, _)| !start.after.is_live())
            .map(|(start, end)| (start.position.as_slice(), end.position.as_slice(), start.after))
    }

    /// What has to change in the partition's ranges so that both old and new ones are deleted, each place by the newest, and not where
    /// the partition's deletion is at least as new. Ranges of one deletion that touch become one.
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
            // Of two serialized forms of one prefix the first that came stays.
            if let Some(old) = old_steps.next_if(|step| step.position == position) {
                old_open = old.after;
                step = Some(old);
            }
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
        // What is as it was is no change.
        let is_new = |(position, content): &(&[u8], Option<Vec<u8>>)| {
            content.as_ref() != stored.get(*position) || content.is_none()
        };
        edits.into_iter().filter(is_new).map(|(position, content)| (position.to_vec(), content)).collect()
    }
}

fn least<'s>(old: Option<&&'s Step>, new: Option<&&'s Step>) -> Option<&'s [u8]> {
    let position = |step: &&'s Step| -> &'s [u8] { &step.position };
    [old.map(position), new.map(position)].into_iter().flatten().min()
}

/// The stored ranges that reach from one position to another, or into what lies between: the places where they change what is
/// deleted, and their contents by the positions of their starts.
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
        let range = DeletedRange::read(layout, content);
        let (start, end) = (key[1..].to_vec(), range.end(&key[1..]));
        if end.as_slice() < first {
            return;
        }
        stored.insert(start.clone(), content.to_vec());
        // One may begin where the one before it ends.
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
    (steps, stored)
}

/// The key of a position in the branch of ranges.
fn branch_key(position: &[u8]) -> Vec<u8> {
    [&[RANGE_BRANCH], position].concat()
}
