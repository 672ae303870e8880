//! Giving back the memory of what expired and of deletions that are not needed any more.
//!
//! A part is walked in stretches, each under its writer's lock. What changes in a partition is published at once, so that readers see
//! it before or after; either way they see the same rows.

use std::ops::Bound;

use memtrie::{Bounds, Direction, Edit, Writer};
use model::{DeletionTime, Row, Table};

use crate::layout::{
    Border, Header, Layout, PIECE_BRANCH, RANGE_BRANCH, ROW_DELETION_BRANCH, read_deletion, write_deletion,
};

/// Decides what is still needed.
pub trait Purge {
    /// What is left of a deletion.
    fn deletion(&mut self, deletion: DeletionTime) -> DeletionTime;

    /// Whether nothing of a row can go or change, now or later.
    fn leaves_alone(&mut self, row: Row<'_>, table: &Table) -> bool;

    /// Writes what is left of a row to `out`; false if that is nothing.
    fn row(&mut self, row: Row<'_>, table: &Table, out: &mut Vec<u8>) -> bool;
}

/// Entries of one stretch; the partition that it ends in is walked to its end.
const STRETCH_ENTRIES: usize = 512;
/// Unless it is as large as this: then it keeps its header.
const PARTITION_ENTRIES: usize = 16 * STRETCH_ENTRIES;

/// Tombstones are looked at again after this, to see whether they may go.
const TOMBSTONES_AGAIN_SECONDS: u32 = 60;

/// Where a walk is.
pub(crate) struct Walk {
    now_seconds: u32,
    /// Where it goes on; `None` at the beginning.
    after: Option<Vec<u8>>,
    /// The path of the partition it stopped within or behind: what was written to that one meanwhile may come first.
    within: Vec<u8>,
    /// When something may go next, seconds; the greatest value if nothing ever.
    pub next_seconds: u32,
}

/// What is changed in a partition.
#[derive(Default)]
struct Changes {
    path: Vec<u8>,
    /// Suffix and new content, in order; without the header.
    edits: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    header: Option<Vec<u8>>,
    entries: usize,
    rows_left: usize,
    branches_left: usize,
}

impl Walk {
    /// From the beginning.
    pub fn new(now_seconds: u32) -> Walk {
        Walk { now_seconds, after: None, within: Vec::new(), next_seconds: u32::MAX }
    }

    fn again(&mut self, at_seconds: u32) {
        self.next_seconds = self.next_seconds.min(at_seconds);
    }

    /// Walks a stretch; true if there is more.
    pub fn stretch(&mut self, writer: &mut Writer<'_>, layout: &Layout, table: &Table, purge: &mut dyn Purge) -> bool {
        let mut done: Vec<Changes> = Vec::new();
        let mut current = Changes { path: std::mem::take(&mut self.within), ..Changes::default() };
        let start = self.after.take();
        let start_bound = start.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut cursor = writer.cursor(Bounds { start: start_bound, end: Bound::Unbounded }, Direction::Forward);
        let (mut entries, mut more) = (0, false);
        while cursor.advance() {
            let key = cursor.key();
            let is_child = !current.path.is_empty() && key.len() > current.path.len() && key.starts_with(&current.path);
            if !is_child {
                if entries >= STRETCH_ENTRIES {
                    (self.within, more) = (current.path.clone(), true);
                    break;
                }
                done.push(std::mem::replace(&mut current, Changes { path: key.to_vec(), ..Changes::default() }));
                current.header = Some(cursor.content().to_vec());
            } else {
                let again = current.child(key, cursor.content(), layout, table, purge, self.now_seconds);
                self.again(again);
            }
            entries += 1;
            self.after = Some(key.to_vec());
            if current.entries >= PARTITION_ENTRIES {
                (self.within, more) = (current.path.clone(), true);
                // What is left of it is not known: it keeps its header.
                current.header = None;
                break;
            }
        }
        drop(cursor);
        done.push(current);
        for changes in done {
            let again = changes.publish(writer, table, purge, self.now_seconds);
            self.again(again);
        }
        more
    }
}

impl Changes {
    /// Looks at a key below the partition's; when something of it may go next.
    fn child(
        &mut self,
        key: &[u8],
        content: &[u8],
        layout: &Layout,
        table: &Table,
        purge: &mut dyn Purge,
        now_seconds: u32,
    ) -> u32 {
        let mut again = now_seconds.saturating_add(TOMBSTONES_AGAIN_SECONDS);
        let suffix = &key[self.path.len()..];
        let is_in_pieces = suffix.first() == Some(&PIECE_BRANCH) || layout.is_piece(content);
        let (kept, content) = layout.split_content(content);
        let with_head = |rest: &dyn Fn(&mut Vec<u8>)| {
            let mut content = Vec::new();
            kept.iter().for_each(|clustering| layout.push_content_head(clustering, &mut content));
            rest(&mut content);
            content
        };
        self.entries += 1;
        let (left, changed) = match suffix.first() {
            Some(&RANGE_BRANCH) => {
                let old = Border::read(content);
                let new = Border { before: purge.deletion(old.before), after: purge.deletion(old.after) };
                ((new.before != new.after).then(|| with_head(&|out| new.write(out))), old != new)
            }
            Some(&ROW_DELETION_BRANCH) => {
                let old = read_deletion(content);
                let new = purge.deletion(old);
                ((!new.is_live()).then(|| with_head(&|out| write_deletion(new, out))), old != new)
            }
            _ => {
                let row = Row::new(content);
                // A large row in pieces stays as it is until it is written to.
                if is_in_pieces || purge.leaves_alone(row, table) {
                    self.rows_left += 1;
                    return u32::MAX;
                }
                let mut left = Vec::new();
                let is_something = purge.row(row, table, &mut left);
                let changed = !is_something || left != content;
                self.rows_left += usize::from(is_something);
                if is_something {
                    again = next_of(Row::new(&left), table, now_seconds);
                }
                (is_something.then(|| with_head(&|out| out.extend_from_slice(&left))), changed)
            }
        };
        self.branches_left +=
            usize::from(left.is_some() && matches!(suffix.first(), Some(&(RANGE_BRANCH | ROW_DELETION_BRANCH))));
        again = if left.is_some() { again } else { u32::MAX };
        if changed {
            self.edits.push((suffix.to_vec(), left));
        }
        again
    }

    /// Makes the changes; when something of the header may go next.
    fn publish(self, writer: &mut Writer<'_>, table: &Table, purge: &mut dyn Purge, now_seconds: u32) -> u32 {
        let (header, again) = match &self.header {
            Some(content) => self.purged_header(content, table, purge, now_seconds),
            None => (None, u32::MAX),
        };
        // The borders of a range change together or not at all: they stay in a partition that is walked in several stretches.
        let is_whole = self.header.is_some();
        let children = self.edits.iter().filter(|(suffix, _)| is_whole || suffix.first() != Some(&RANGE_BRANCH));
        let children = children.map(|(suffix, content)| Edit { suffix, content: content.as_deref() });
        let header = header.iter().map(|content| Edit { suffix: &[], content: content.as_deref() });
        let edits: Vec<Edit<'_>> = header.chain(children).collect();
        // Without room for the copies of the nodes above them, nothing changes, and the next walk tries again.
        let published = edits.is_empty() || writer.apply(&self.path, &edits).is_ok();
        if published { again } else { now_seconds }
    }

    /// The new header if it changes (nothing of it, if the partition goes), and when something of it may go next.
    fn purged_header(
        &self,
        content: &[u8],
        table: &Table,
        purge: &mut dyn Purge,
        now_seconds: u32,
    ) -> (Option<Option<Vec<u8>>>, u32) {
        let old = Header::read(content);
        let mut left = Vec::new();
        let row = old.row.filter(|row| !row.is_piece() && !purge.leaves_alone(*row, table));
        let is_something = row.is_some_and(|row| purge.row(row, table, &mut left));
        let new = Header {
            deletion: purge.deletion(old.deletion),
            row: if row.is_none() { old.row } else { is_something.then(|| Row::new(&left)) },
            has_branches: self.branches_left > 0,
        };
        if new.deletion.is_live() && new.row.is_none() && self.rows_left + self.branches_left == 0 {
            return (Some(None), u32::MAX);
        }
        let mut written = Vec::new();
        new.write(&mut written);
        let changed = written != content;
        let of_row = if is_something { next_of(Row::new(&left), table, now_seconds) } else { u32::MAX };
        let of_deletion =
            if new.deletion.is_live() { u32::MAX } else { now_seconds.saturating_add(TOMBSTONES_AGAIN_SECONDS) };
        (changed.then_some(Some(written)), of_row.min(of_deletion))
    }
}

/// When something of a row may go next, seconds.
fn next_of(row: Row<'_>, table: &Table, now_seconds: u32) -> u32 {
    let mut bounds = crate::statistics::Bounds::NONE;
    bounds.cover_row(row, table);
    match bounds.statistics().local_deletion_time_min {
        // Tombstones, and perhaps cells that expire later.
        earliest if earliest <= now_seconds => now_seconds.saturating_add(TOMBSTONES_AGAIN_SECONDS),
        expiration => expiration,
    }
}
