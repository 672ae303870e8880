//! Freeing the memory of expired data and of deletions that are no longer needed.
//!
//! A part is walked in stretches, each under its writer's lock. The changes that a stretch makes in a partition are
//! published together, so that readers see the partition before or after them; both show the same rows. A large
//! partition takes several stretches, and its header is examined last.

use std::ops::Bound;

use memtrie::{Bounds, Direction, Edit, Writer};
use model::{DeletionTime, Row, Table};

use crate::branch::after_row;
use crate::layout::{
    Header, Layout, PIECE_BRANCH, RANGE_BRANCH, ROW_DELETION_BRANCH, RowEdits, read_deletion, write_deletion,
};
use crate::pieces::{LargeRows, StoredRow};
use crate::ranges::DeletedRange;

/// Decides what is still needed.
pub trait Purge {
    /// The part of a deletion that is still needed.
    fn deletion(&mut self, deletion: DeletionTime) -> DeletionTime;

    /// Whether nothing of a row can be removed or changed, now or later.
    fn leaves_alone(&mut self, row: Row<'_>, table: &Table) -> bool;

    /// Writes the needed part of a row to `out`. Returns false if there is none.
    fn row(&mut self, row: Row<'_>, table: &Table, out: &mut Vec<u8>) -> bool;
}

/// The number of entries in one stretch. The partition in which a stretch ends is walked to its end, up to
/// `PARTITION_ENTRIES`.
const STRETCH_ENTRIES: usize = 512;
/// The most entries of one partition in a stretch.
const PARTITION_ENTRIES: usize = 16 * STRETCH_ENTRIES;

/// How long until tombstones are examined again.
const TOMBSTONES_AGAIN_SECONDS: u32 = 60;

const _: () = assert!(STRETCH_ENTRIES > 0 && PARTITION_ENTRIES >= STRETCH_ENTRIES && TOMBSTONES_AGAIN_SECONDS > 0);

/// The progress of a walk.
pub(crate) struct PurgeWalk {
    now_seconds: u32,
    /// Where it resumes; `None` at the beginning.
    after: Option<Vec<u8>>,
    /// The path of the partition in or after which it stopped. New data of that partition may lie before the resume
    /// point.
    within: Vec<u8>,
    /// The next time, in seconds, at which something may be purged; the greatest value if there is none.
    pub next_seconds: u32,
}

/// The changes to a partition.
struct Changes {
    path: Vec<u8>,
    /// The rest of each key after the path, and the new content.
    edits: RowEdits,
    /// The header, if the whole partition is walked in this stretch.
    header: Option<Vec<u8>>,
    /// Whether the partition was walked to its end.
    is_ended: bool,
    entries: usize,
    rows_left: usize,
    branches_left: usize,
}

/// The data of a stretch, and the rules for purging it.
struct PurgeScan<'l, 'w> {
    writer: &'l Writer<'w>,
    layout: &'l Layout,
    table: &'l Table,
    purge: &'l mut dyn Purge,
    now_seconds: u32,
    /// The next time, in seconds, at which something of the examined data may be purged.
    next_seconds: u32,
}

impl Changes {
    fn of(path: Vec<u8>, header: Option<Vec<u8>>) -> Changes {
        let edits = RowEdits::new();
        Changes { path, edits, header, is_ended: false, entries: 0, rows_left: 0, branches_left: 0 }
    }
}

impl PurgeWalk {
    /// A walk from the beginning.
    pub fn new(now_seconds: u32) -> PurgeWalk {
        PurgeWalk { now_seconds, after: None, within: Vec::new(), next_seconds: u32::MAX }
    }

    /// Walks a stretch. Returns true if there is more.
    pub fn stretch(&mut self, writer: &mut Writer<'_>, layout: &Layout, table: &Table, purge: &mut dyn Purge) -> bool {
        let now_seconds = self.now_seconds;
        let mut scan =
            PurgeScan { writer, layout, table, purge: &mut *purge, now_seconds, next_seconds: self.next_seconds };
        let (mut done, more) = self.collect_changes(&mut scan);
        done.iter_mut().for_each(|changes| scan.whole_header(changes));
        self.next_seconds = scan.next_seconds;
        for mut changes in done {
            let mut published = publish(writer, &changes.path, &changes.edits);
            if changes.is_ended && changes.header.is_none() {
                let mut scan = PurgeScan {
                    writer,
                    layout,
                    table,
                    purge: &mut *purge,
                    now_seconds,
                    next_seconds: self.next_seconds,
                };
                scan.late_header(&mut changes);
                self.next_seconds = scan.next_seconds;
                published &= publish(writer, &changes.path, &changes.edits);
            }
            if !published {
                self.next_seconds = now_seconds;
            }
        }
        more
    }

    /// The changes below the headers of a stretch's partitions, and whether there is more after the stretch.
    fn collect_changes(&mut self, scan: &mut PurgeScan<'_, '_>) -> (Vec<Changes>, bool) {
        let writer = scan.writer;
        let mut done: Vec<Changes> = Vec::new();
        let mut current = Changes::of(std::mem::take(&mut self.within), None);
        let start = self.after.take();
        let start_bound = start.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut cursor = writer.cursor(Bounds { start: start_bound, end: Bound::Unbounded }, Direction::Forward);
        let (mut entries, mut has_entry) = (0, cursor.advance());
        while has_entry {
            let key = cursor.key();
            debug_assert!(start.as_deref().is_none_or(|start| key > start), "the walk went back to {key:02x?}");
            let is_child = !current.path.is_empty() && key.len() > current.path.len() && key.starts_with(&current.path);
            if !is_child {
                current.is_ended = true;
                if entries >= STRETCH_ENTRIES {
                    self.within.clone_from(&current.path);
                    done.push(current);
                    return (done, true);
                }
                let header = Some(cursor.content().to_vec());
                done.push(std::mem::replace(&mut current, Changes::of(key.to_vec(), header)));
                entries += 1;
                self.after = Some(key.to_vec());
                has_entry = cursor.advance();
                continue;
            }
            let behind = scan.child(&mut current, key, cursor.content());
            entries += 1;
            self.after = Some(behind.clone().unwrap_or_else(|| key.to_vec()));
            if current.entries >= PARTITION_ENTRIES {
                self.within.clone_from(&current.path);
                current.header = None;
                done.push(current);
                return (done, true);
            }
            has_entry = match behind {
                Some(behind) => cursor.skip_to(&behind),
                None => cursor.advance(),
            };
        }
        current.is_ended = true;
        done.push(current);
        (done, false)
    }
}

impl PurgeScan<'_, '_> {
    fn again(&mut self, at_seconds: u32) {
        debug_assert!(at_seconds >= self.now_seconds, "the next purge is not in the past");
        self.next_seconds = self.next_seconds.min(at_seconds);
    }

    fn tombstone_again(&mut self) {
        self.again(self.now_seconds.saturating_add(TOMBSTONES_AGAIN_SECONDS));
    }

    /// Examines a key below the partition's. Returns where to continue, if not at the next key.
    fn child(&mut self, changes: &mut Changes, key: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
        debug_assert!(key.len() > changes.path.len() && key.starts_with(&changes.path), "an entry of the partition");
        changes.entries += 1;
        let suffix = &key[changes.path.len()..];
        match suffix.first() {
            // These pieces belong to the header.
            Some(&PIECE_BRANCH) => return Some(after_row(&key[..=changes.path.len()])),
            Some(&RANGE_BRANCH) => self.range(changes, suffix, stored),
            Some(&ROW_DELETION_BRANCH) => self.row_deletion(changes, suffix, stored),
            _ if self.layout.is_piece(stored) => {
                self.large_row(changes, key, stored);
                return Some(after_row(key));
            }
            _ => self.row(changes, suffix, stored),
        }
        None
    }

    /// A stored content, with its head in front.
    fn with_head(&self, kept: Option<&[u8]>, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut content = Vec::new();
        kept.iter().for_each(|clustering| self.layout.push_content_head(clustering, &mut content));
        write(&mut content);
        content
    }

    fn range(&mut self, changes: &mut Changes, suffix: &[u8], stored: &[u8]) {
        let old = DeletedRange::read(self.layout, stored);
        let mut new = old;
        new.deletion = self.purge.deletion(old.deletion);
        if new.deletion != old.deletion {
            let content = (!new.deletion.is_live()).then(|| {
                let mut content = Vec::new();
                new.write(self.layout, &mut content);
                content
            });
            changes.edits.insert(suffix.to_vec(), content);
        }
        if !new.deletion.is_live() {
            changes.branches_left += 1;
            self.tombstone_again();
        }
    }

    fn row_deletion(&mut self, changes: &mut Changes, suffix: &[u8], stored: &[u8]) {
        let (kept, content) = self.layout.split_content(stored);
        let old = read_deletion(content);
        let new = self.purge.deletion(old);
        if new != old {
            let content = (!new.is_live()).then(|| self.with_head(kept, |out| write_deletion(new, out)));
            changes.edits.insert(suffix.to_vec(), content);
        }
        if !new.is_live() {
            changes.branches_left += 1;
            self.tombstone_again();
        }
    }

    fn row(&mut self, changes: &mut Changes, suffix: &[u8], stored: &[u8]) {
        debug_assert!(suffix.first().is_some_and(|byte| *byte > PIECE_BRANCH), "the position of a row");
        let (kept, content) = self.layout.split_content(stored);
        let mut left = Vec::new();
        let is_something = self.purge_to(Row::new(content), &mut left);
        changes.rows_left += usize::from(is_something);
        if !is_something || left != content {
            let content = is_something.then(|| self.with_head(kept, |out| out.extend_from_slice(&left)));
            changes.edits.insert(suffix.to_vec(), content);
        }
    }

    /// Examines a row in pieces.
    fn large_row(&mut self, changes: &mut Changes, key: &[u8], stored: &[u8]) {
        debug_assert!(key.len() > changes.path.len(), "the position of a row");
        let (kept, head) = self.layout.split_content(stored);
        let stored = StoredRow { head: Row::new(head), pieces: self.writer.tail(key) };
        let (is_something, edits) = self.pieces(stored);
        changes.rows_left += usize::from(is_something);
        if let Some(mut edits) = edits {
            self.layout.finish_row_edits(kept.unwrap_or_default(), &mut edits);
            let suffix = &key[changes.path.len()..];
            changes.edits.extend(edits.into_iter().map(|(place, content)| ([suffix, &place].concat(), content)));
        }
    }

    /// Whether anything of a row in pieces is still needed, and the changes to its pieces, if any.
    fn pieces(&mut self, stored: StoredRow<'_>) -> (bool, Option<RowEdits>) {
        let (mut large, mut joined, mut left) = (LargeRows::new(), Vec::new(), Vec::new());
        large.join(self.layout, self.table, stored, &mut joined);
        let is_something = self.purge_to(Row::new(&joined), &mut left);
        if is_something && left == joined {
            return (true, None);
        }
        let row = is_something.then(|| Row::new(&left));
        (is_something, Some(large.replace(self.table, stored, row)))
    }

    /// Writes the needed part of a row to `left`. Returns false if there is none.
    fn purge_to(&mut self, row: Row<'_>, left: &mut Vec<u8>) -> bool {
        debug_assert!(left.is_empty(), "one row is purged at a time");
        if self.purge.leaves_alone(row, self.table) {
            left.extend_from_slice(row.as_bytes());
            return true;
        }
        let is_something = self.purge.row(row, self.table, left);
        if is_something {
            self.again(next_of(Row::new(left), self.table, self.now_seconds));
        }
        is_something
    }

    /// Examines the header of a partition that was walked as a whole, and adds its change to the others.
    fn whole_header(&mut self, changes: &mut Changes) {
        if let Some(content) = changes.header.clone().filter(|_| changes.is_ended) {
            self.header(changes, &content);
        }
    }

    /// Examines the header of a partition that was walked in several stretches. Replaces the changes, which are already
    /// published, with its own.
    fn late_header(&mut self, changes: &mut Changes) {
        debug_assert!(changes.is_ended && changes.header.is_none(), "the header was not purged yet");
        changes.edits.clear();
        let Some(content) = self.writer.get(&changes.path).filter(|_| !changes.path.is_empty()) else { return };
        let has_keys = |from: u8, to: u8| {
            let [from, to] = [from, to].map(|byte| [changes.path.as_slice(), &[byte]].concat());
            let bounds = Bounds { start: Bound::Included(&from), end: Bound::Included(&to) };
            usize::from(self.writer.cursor(bounds, Direction::Forward).advance())
        };
        changes.branches_left = has_keys(RANGE_BRANCH, PIECE_BRANCH);
        changes.rows_left = has_keys(PIECE_BRANCH + 1, u8::MAX);
        self.header(changes, content);
    }

    fn header(&mut self, changes: &mut Changes, content: &[u8]) {
        debug_assert!(changes.is_ended, "the header is purged after everything below it");
        debug_assert!(!changes.path.is_empty(), "a partition has a path");
        let old = Header::read(content);
        let mut left = Vec::new();
        let row_is_left = match old.row {
            None => false,
            Some(row) if row.is_piece() => {
                let pieces = self.writer.tail(&[changes.path.as_slice(), &[PIECE_BRANCH]].concat());
                let (is_something, edits) = self.pieces(StoredRow { head: row, pieces });
                let mut edits = edits.unwrap_or_default();
                match edits.remove(&[] as &[u8]) {
                    Some(head) => left.extend(head.unwrap_or_default()),
                    None => left.extend_from_slice(row.as_bytes()),
                }
                self.layout.finish_row_edits(&[], &mut edits);
                let below = edits.into_iter().map(|(place, content)| ([&[PIECE_BRANCH], &place[..]].concat(), content));
                changes.edits.extend(below);
                is_something
            }
            Some(row) => self.purge_to(row, &mut left),
        };
        let new = Header {
            deletion: self.purge.deletion(old.deletion),
            row: row_is_left.then(|| Row::new(&left)),
            has_branches: changes.branches_left > 0,
        };
        if new.deletion.is_live() && new.row.is_none() && changes.rows_left + changes.branches_left == 0 {
            changes.edits.insert(Vec::new(), None);
            return;
        }
        if !new.deletion.is_live() {
            self.tombstone_again();
        }
        let mut written = Vec::new();
        new.write(&mut written);
        if written != content {
            changes.edits.insert(Vec::new(), Some(written));
        }
    }
}

/// Publishes changes below a partition's path. Returns false if there is no room to copy the nodes above them: then
/// nothing changes, and the next walk tries again.
fn publish(writer: &mut Writer<'_>, path: &[u8], edits: &RowEdits) -> bool {
    debug_assert!(!path.is_empty() || edits.is_empty(), "edits belong to a partition");
    let edits: Vec<_> = edits.iter().map(|(suffix, content)| Edit { suffix, content: content.as_deref() }).collect();
    edits.is_empty() || writer.apply(path, &edits).is_ok()
}

/// The next time, in seconds, at which something of a row may be purged.
fn next_of(row: Row<'_>, table: &Table, now_seconds: u32) -> u32 {
    let mut bounds = crate::statistics::Bounds::NONE;
    bounds.cover_row(row, table);
    match bounds.statistics().local_deletion_time_min {
        // It has tombstones, and perhaps cells that expire later.
        earliest if earliest <= now_seconds => now_seconds.saturating_add(TOMBSTONES_AGAIN_SECONDS),
        expiration => expiration,
    }
}
