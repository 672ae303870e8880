//! Deleted ranges: those of one update made disjoint, and merged into the borders that a partition has.

use std::ops::Bound;

use memtrie::{Bounds, Direction, Writer};
use model::{DeletionTime, PartitionUpdate, Side};

use crate::layout::{Layout, RANGE_BRANCH, read_deletion};

/// A place where the deletion of an update's ranges changes.
struct Step {
    /// The bound's position, after the branch's lead byte.
    position: Vec<u8>,
    /// Serialized prefix of the bound.
    prefix: Vec<u8>,
    /// What the update deletes with from here to the next step.
    after: DeletionTime,
}

/// The ranges of one update, disjoint and in order.
pub(crate) struct UpdateRanges {
    steps: Vec<Step>,
}

/// A border to write (or, with none, to remove).
pub(crate) struct BorderEdit {
    pub position: Vec<u8>,
    pub prefix: Vec<u8>,
    /// The deletion in force after it.
    pub after: Option<DeletionTime>,
}

impl UpdateRanges {
    /// `everywhere`: have `merge` look at all borders of the partition, because its deletion changes.
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

    /// What has to change in the partition's borders so that both old and new ranges are deleted, each place by the newest,
    /// and not where the partition's deletion is at least as new.
    pub fn merge(&self, layout: &Layout, writer: &Writer<'_>, path: &[u8], partition: DeletionTime) -> Vec<BorderEdit> {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return Vec::new() };
        let start = branch_key(path, &first.position);
        let end = branch_key(path, &last.position);
        let mut cursor = writer.cursor(Bounds::inclusive(&start, &end), Direction::Forward);
        let lead = path.len() + 1;
        let visible =
            |deletion: DeletionTime| if deletion.supersedes(&partition) { deletion } else { DeletionTime::LIVE };
        let mut has_old = cursor.advance();
        let mut steps = self.steps.iter().peekable();
        let mut old_open = open_before(layout, writer, path, &start);
        let mut new_open = DeletionTime::LIVE;
        let mut edits = Vec::new();
        loop {
            let old_position = has_old.then(|| cursor.key()[lead..].to_vec());
            let position = match (&old_position, steps.peek()) {
                (None, None) => return edits,
                (Some(old), Some(step)) => old.as_slice().min(step.position.as_slice()).to_vec(),
                (Some(old), None) => old.clone(),
                (None, Some(step)) => step.position.clone(),
            };
            let before = visible(old_open.max(new_open));
            let mut old = None;
            let mut prefix = Vec::new();
            if old_position.as_ref() == Some(&position) {
                let (kept, content) = layout.split_content(cursor.content());
                prefix.extend_from_slice(kept.unwrap_or_default());
                old_open = read_deletion(content);
                old = Some(old_open);
                has_old = cursor.advance();
            }
            if let Some(step) = steps.next_if(|step| step.position == position) {
                new_open = step.after;
                if old.is_none() {
                    prefix.clone_from(&step.prefix);
                }
            }
            let after = visible(old_open.max(new_open));
            let after = (before != after).then_some(after);
            if after != old {
                edits.push(BorderEdit { position, prefix, after });
            }
        }
    }
}

/// The key of a position in the branch of ranges.
pub(crate) fn branch_key(path: &[u8], position: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(path.len() + 1 + position.len());
    key.extend_from_slice(path);
    key.push(RANGE_BRANCH);
    key.extend_from_slice(position);
    key
}

/// The range deletion in force just before `key`, a key in the branch of ranges.
pub(crate) fn open_before(layout: &Layout, writer: &Writer<'_>, path: &[u8], key: &[u8]) -> DeletionTime {
    let first = branch_key(path, &[]);
    let bounds = Bounds { start: Bound::Included(&first), end: Bound::Excluded(key) };
    let mut cursor = writer.cursor(bounds, Direction::Reverse);
    if cursor.advance() { read_deletion(layout.split_content(cursor.content()).1) } else { DeletionTime::LIVE }
}

/// The range deletion that covers a row at `position`.
pub(crate) fn range_deletion_at(layout: &Layout, writer: &Writer<'_>, path: &[u8], position: &[u8]) -> DeletionTime {
    open_before(layout, writer, path, &branch_key(path, position))
}
