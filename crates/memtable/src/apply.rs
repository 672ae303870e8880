//! Applying an update to a shard's trie.
//!
//! The trie does not keep what a deletion in the same memtable shadows: cells and rows are dropped when a deletion
//! arrives, or when they arrive after it. A row deletion removes the row and is stored in a branch of its own, like
//! range deletions. An update without deletions that writes one row, which is the common case, is one change in place,
//! unless the partition is being read. Any other update is collected as edits below the partition's key, which are
//! published together.

use std::collections::BTreeMap;
use std::ops::Bound;

use memtrie::{Bounds, Direction, Edit, TrieFull, Upsert, Writer};
use model::{DeletionTime, PartitionKey, PartitionUpdate, Row, RowMerger, RowObserver, RowRef, Table};

use types::steps;

use crate::branch::after_row;
use crate::deletions::UpdateRanges;
use crate::layout::{
    Header, Layout, PIECE_BRANCH, RANGE_BRANCH, ROW_DELETION_BRANCH, partition_path, read_deletion, write_deletion,
};
use crate::pieces::{LargeRows, RowChange};
use crate::ranges::deletion_at;

mod large;

use large::{header_content, replace_edits, small_row};

/// Buffers of one shard's writer.
pub(crate) struct Applier {
    merger: RowMerger,
    large: LargeRows,
    path: Vec<u8>,
    merged: Vec<u8>,
    /// Keys and contents being built.
    bytes: Vec<u8>,
    spans: Vec<(Span, Option<Span>)>,
}

type Span = std::ops::Range<usize>;

/// Buffers that have grown larger than this are not kept.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Changes below the partition's key: the rest of each key, with the new content or `None`.
type Edits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The observer of changed rows, if there is one.
struct Watch<'w, 'o> {
    observer: Option<&'w mut (dyn RowObserver + 'o)>,
    table: &'w Table,
    key: &'w PartitionKey,
}

impl Watch<'_, '_> {
    fn changed(&mut self, clustering: &[u8], before: Option<Row<'_>>, after: Option<Row<'_>>) {
        if let Some(observer) = &mut self.observer
            && before != after
        {
            observer.row_changed(self.table, self.key, clustering, before, after);
        }
    }
}

/// The update being applied.
struct Update<'u> {
    table: &'u Table,
    layout: &'u Layout,
    update: &'u PartitionUpdate,
    path: &'u [u8],
    /// The partition's deletion, merged with the update's.
    deletion: DeletionTime,
}

impl Applier {
    pub fn new() -> Self {
        Applier {
            merger: RowMerger::of_all_written(),
            large: LargeRows::new(),
            path: Vec::new(),
            merged: Vec::new(),
            bytes: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Applies `update`. Returns true if the partition is new.
    pub fn apply(
        &mut self,
        writer: &mut Writer<'_>,
        table: &Table,
        layout: &Layout,
        update: &PartitionUpdate,
        observer: Option<&mut dyn RowObserver>,
    ) -> Result<bool, TrieFull> {
        let mut path = std::mem::take(&mut self.path);
        partition_path(update.key(), &mut path);
        debug_assert!(!path.is_empty(), "a partition has a path");
        let mut watch = Watch { observer, table, key: update.key() };
        let update = Update { table, layout, update, path: &path, deletion: update.partition_deletion() };
        let result = if layout.has_clustering() {
            self.apply_to_partition(writer, update, &mut watch)
        } else {
            self.apply_to_single_row(writer, &update, &mut watch)
        };
        self.path = path;
        self.merged.shrink_to(BUFFER_BYTES_MAX);
        result
    }

    /// Applies an update to a table without clustering, where header and row are one content. A deleted range can only
    /// be the whole partition.
    fn apply_to_single_row(
        &mut self,
        writer: &mut Writer<'_>,
        update: &Update<'_>,
        watch: &mut Watch<'_, '_>,
    ) -> Result<bool, TrieFull> {
        let changes = update.update;
        debug_assert!(changes.row_count() <= 1, "a partition without clustering columns has one row");
        let of_ranges = || changes.range_deletions().fold(update.deletion, |newest, range| newest.max(range.deletion));
        let (new_row, new_deletion) = match only_row(changes) {
            Some(row) => (Some(row), DeletionTime::LIVE),
            None => (changes.rows().next().map(|row| row.row), of_ranges()),
        };
        let Applier { merger, merged, .. } = self;
        let (mut is_new, mut large) = (false, None);
        writer.upsert(update.path, |existing, out| {
            is_new = existing.is_none();
            let header = existing.map_or(Header::EMPTY, Header::read);
            let deletion = header.deletion.max(new_deletion);
            let deletes_stored = deletion != header.deletion;
            let change = RowChange { new: new_row, active: deletion, deletes_stored };
            let Some(row) = small_row(merger, update.table, header.row, &change, merged) else {
                large = Some(change);
                return Upsert::Keep;
            };
            watch.changed(&[], header.row, row);
            Header { deletion, row, has_branches: false }.write(out);
            Upsert::Replace
        })?;
        if let Some(change) = large {
            let header = writer.get(update.path).map_or(Header::EMPTY, Header::read);
            let mut edits = Edits::new();
            let row = self.change_header_row(writer, update, header.row, change, watch, &mut edits);
            edits.insert(Vec::new(), Some(header_content(change.active, row.as_deref(), false)));
            apply_edits(writer, update.path, &edits)?;
        }
        Ok(is_new)
    }

    fn apply_to_partition(
        &mut self,
        writer: &mut Writer<'_>,
        mut update: Update<'_>,
        watch: &mut Watch<'_, '_>,
    ) -> Result<bool, TrieFull> {
        let header = writer.get(update.path).map(Header::read);
        let is_new = header.is_none();
        let changes = update.update;
        let has_deletion = update.has_deletion();
        let header = header.unwrap_or(Header::EMPTY);
        let deletion = header.deletion;
        update.deletion = update.deletion.max(deletion);
        debug_assert!(!deletion.supersedes(&update.deletion), "a deletion is not undone");
        let has_branches = header.has_branches;
        let newly_deleted = update.deletion != deletion;
        let may_clear = newly_deleted && !is_new && update.only_deletes_partition() && watch.observer.is_none();
        if may_clear && self.deletes_all(writer, &update) {
            let header = writer.get(update.path).map_or(Header::EMPTY, Header::read);
            let change = update.header_change(&header);
            if let Some(row) = small_row(&mut self.merger, update.table, header.row, &change, &mut self.merged) {
                let mut content = Vec::new();
                Header { deletion: update.deletion, row, has_branches: false }.write(&mut content);
                writer.put_alone(update.path, &content)?;
                return Ok(is_new);
            }
        }
        if has_deletion || has_branches {
            let mut edits = Edits::new();
            self.collect(writer, &update, is_new, &mut edits, watch);
            apply_edits(writer, update.path, &edits)?;
        } else if is_new
            || changes.static_row().is_some()
            || changes.row_count() > 1
            // A reader that is below the partition's path must not see this change without those before it.
            || writer.is_read_below(update.path)
        {
            self.apply_rows(writer, &update, is_new, watch)?;
        } else {
            for row in changes.rows() {
                self.upsert_row(writer, &update, row, watch)?;
            }
        }
        Ok(is_new)
    }

    /// Writes several rows, or the header too, where there are no deletions of rows or ranges.
    fn apply_rows(
        &mut self,
        writer: &mut Writer<'_>,
        update: &Update<'_>,
        is_new: bool,
        watch: &mut Watch<'_, '_>,
    ) -> Result<(), TrieFull> {
        let (mut bytes, mut spans) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.spans));
        bytes.clear();
        spans.clear();
        let static_row = update.update.static_row();
        if is_new || static_row.is_some() {
            let header = writer.get(update.path).map_or(Header::EMPTY, Header::read);
            let change = update.header_change(&header);
            if let Some(row) = small_row(&mut self.merger, update.table, header.row, &change, &mut self.merged) {
                watch.changed(&[], header.row, row);
                Header { deletion: update.deletion, row, has_branches: false }.write(&mut bytes);
                spans.push((0..0, Some(0..bytes.len())));
            } else {
                let mut edits = Edits::new();
                let content = self.large_header(writer, update, &header, false, watch, &mut edits);
                edits.insert(Vec::new(), Some(content));
                push_spans(&edits, &mut bytes, &mut spans);
            }
        }
        for row in update.update.rows() {
            let Applier { merger, merged, .. } = self;
            let start = bytes.len();
            bytes.extend_from_slice(update.path);
            let suffix_start = bytes.len();
            update.layout.push_row(row.clustering, &mut bytes);
            let suffix = suffix_start..bytes.len();
            let stored = if is_new { None } else { writer.get(&bytes[start..]) };
            let (kept, existing) = update.existing_row(stored);
            let change = RowChange { new: Some(row.row), active: update.deletion, deletes_stored: false };
            let Some(after) = small_row(merger, update.table, existing, &change, merged) else {
                let position = bytes[suffix].to_vec();
                let edits = self.large_row_edits(writer, update, &position, row.clustering, change, watch);
                bytes.truncate(start);
                push_spans(&edits, &mut bytes, &mut spans);
                continue;
            };
            watch.changed(row.clustering, existing, after);
            let content_start = bytes.len();
            match after {
                Some(after) => {
                    update.layout.push_content_head(kept.unwrap_or(row.clustering), &mut bytes);
                    bytes.extend_from_slice(after.as_bytes());
                    spans.push((suffix, Some(content_start..bytes.len())));
                }
                None if existing.is_some() => spans.push((suffix, None)),
                None => {}
            }
        }
        let edits: Vec<Edit<'_>> = spans
            .iter()
            .map(|(suffix, content)| Edit {
                suffix: &bytes[suffix.clone()],
                content: content.clone().map(|content| &bytes[content]),
            })
            .collect();
        steps::count(edits.len());
        debug_assert!(edits.is_sorted_by(|a, b| a.suffix < b.suffix), "one edit for each key, in order");
        let result = writer.apply(update.path, &edits);
        bytes.shrink_to(BUFFER_BYTES_MAX);
        (self.bytes, self.spans) = (bytes, spans);
        result
    }

    /// Writes one row into a partition without deletions of rows or ranges.
    fn upsert_row(
        &mut self,
        writer: &mut Writer<'_>,
        update: &Update<'_>,
        row: RowRef<'_>,
        watch: &mut Watch<'_, '_>,
    ) -> Result<(), TrieFull> {
        let Applier { merger, merged, bytes, .. } = self;
        bytes.clear();
        bytes.extend_from_slice(update.path);
        update.layout.push_row(row.clustering, bytes);
        let change = RowChange { new: Some(row.row), active: update.deletion, deletes_stored: false };
        let mut is_small = true;
        writer.upsert(bytes, |existing, out| {
            let (kept, existing) = update.existing_row(existing);
            let Some(after) = small_row(merger, update.table, existing, &change, merged) else {
                is_small = false;
                return Upsert::Keep;
            };
            watch.changed(row.clustering, existing, after);
            match after {
                Some(after) => {
                    update.layout.push_content_head(kept.unwrap_or(row.clustering), out);
                    out.extend_from_slice(after.as_bytes());
                    Upsert::Replace
                }
                None if existing.is_some() => Upsert::Remove,
                None => Upsert::Keep,
            }
        })?;
        if is_small {
            return Ok(());
        }
        let key = bytes.clone();
        let position = &key[update.path.len()..];
        debug_assert!(!position.is_empty(), "a row has a position");
        let edits = self.large_row_edits(writer, update, position, row.clustering, change, watch);
        // Only the path below the row is copied, not all nodes below the partition.
        let edits: Vec<Edit<'_>> = edits
            .iter()
            .map(|(suffix, content)| Edit { suffix: &suffix[position.len()..], content: content.as_deref() })
            .collect();
        debug_assert!(edits.is_sorted_by(|a, b| a.suffix < b.suffix), "one edit for each key, in order");
        writer.apply(&key, &edits)
    }

    /// Collects everything the update changes below the partition's key.
    fn collect(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        is_new: bool,
        edits: &mut Edits,
        watch: &mut Watch<'_, '_>,
    ) {
        let header = writer.get(update.path).map_or(Header::EMPTY, Header::read);
        debug_assert!(update.has_deletion() || header.has_branches, "other updates are applied without collecting");
        let newly_deleted = update.deletion != header.deletion;
        debug_assert!(!header.deletion.supersedes(&update.deletion), "a deletion is not undone");
        let ranges = UpdateRanges::new(update.layout, update.update, newly_deleted && !is_new);
        let partition = writer.tail(update.path);
        for (position, content) in ranges.merge(update.layout, partition, update.deletion) {
            edits.insert([&[RANGE_BRANCH], position.as_slice()].concat(), content);
        }
        if !is_new {
            if newly_deleted {
                self.purge(writer, update, (None, None), update.deletion, edits, watch);
            }
            for (start, end, deletion) in ranges.intervals() {
                self.purge(writer, update, (Some(start), Some(end)), deletion.max(update.deletion), edits, watch);
            }
        }
        for row in update.update.rows() {
            self.write_row(writer, update, &ranges, header.has_branches, row, edits, watch);
        }
        let has_branches =
            header.has_branches || edits.iter().any(|(suffix, content)| is_branch(suffix) && content.is_some());
        let change = update.header_change(&header);
        let mut content = Vec::new();
        if let Some(row) = small_row(&mut self.merger, update.table, header.row, &change, &mut self.merged) {
            watch.changed(&[], header.row, row);
            Header { deletion: update.deletion, row, has_branches }.write(&mut content);
        } else {
            content = self.large_header(writer, update, &header, has_branches, watch, edits);
        }
        if writer.get(update.path) != Some(content.as_slice()) {
            edits.insert(Vec::new(), Some(content));
        }
    }

    /// Whether the partition's deletion shadows everything of a partition with clustering but its header. Large rows
    /// and ranges are not examined for that.
    fn deletes_all(&mut self, writer: &Writer<'_>, update: &Update<'_>) -> bool {
        let end = [update.path, &[0xFF]].concat();
        let bounds = Bounds { start: Bound::Excluded(update.path), end: Bound::Included(&end) };
        let mut cursor = writer.cursor(bounds, Direction::Forward);
        while cursor.advance() {
            steps::count(1);
            let is_deleted = match cursor.key().get(update.path.len()) {
                Some(&ROW_DELETION_BRANCH) => {
                    !read_deletion(update.layout.split_content(cursor.content()).1).supersedes(&update.deletion)
                }
                Some(&(RANGE_BRANCH | PIECE_BRANCH)) => false,
                _ if update.layout.is_piece(cursor.content()) => false,
                _ => {
                    let (_, row) = update.existing_row(Some(cursor.content()));
                    merge(&mut self.merger, update.table, row, None, update.deletion, &mut self.merged).is_none()
                }
            };
            if !is_deleted {
                return false;
            }
        }
        true
    }

    /// Drops what `deletion` shadows of the rows and row deletions between two positions.
    fn purge(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        ends: (Option<&[u8]>, Option<&[u8]>),
        deletion: DeletionTime,
        edits: &mut Edits,
        watch: &mut Watch<'_, '_>,
    ) {
        debug_assert!(!deletion.is_live(), "a deletion purges what it deletes");
        let lead = update.path.len();
        let key = |branch: &[u8], position: Option<&[u8]>, otherwise: &[u8]| {
            [update.path, branch, position.unwrap_or(otherwise)].concat()
        };
        let (start, end) = (key(&[ROW_DELETION_BRANCH], ends.0, &[]), key(&[ROW_DELETION_BRANCH], ends.1, &[0xFF]));
        let mut cursor = writer.cursor(Bounds::inclusive(&start, &end), Direction::Forward);
        while cursor.advance() {
            steps::count(1);
            let row_deletion = read_deletion(update.layout.split_content(cursor.content()).1);
            if !row_deletion.supersedes(&deletion) {
                edits.insert(cursor.key()[lead..].to_vec(), None);
            }
        }
        // Rows come after the branches in key order.
        let (start, end) = (key(&[], ends.0, &[PIECE_BRANCH + 1]), key(&[], ends.1, &[0xFF]));
        let mut cursor =
            writer.cursor(Bounds { start: Bound::Included(&start), end: Bound::Included(&end) }, Direction::Forward);
        let mut has_entry = cursor.advance();
        while has_entry {
            steps::count(1);
            let suffix = &cursor.key()[lead..];
            if update.layout.is_piece(cursor.content()) {
                self.purge_large_row(writer, update, suffix, deletion, edits, watch);
                has_entry = cursor.skip_to(&after_row(cursor.key()));
                continue;
            }
            self.purge_row(update, suffix, cursor.content(), deletion, edits, watch);
            has_entry = cursor.advance();
        }
    }

    /// Drops what `deletion` shadows of a row.
    fn purge_row(
        &mut self,
        update: &Update<'_>,
        suffix: &[u8],
        content: &[u8],
        deletion: DeletionTime,
        edits: &mut Edits,
        watch: &mut Watch<'_, '_>,
    ) {
        debug_assert!(!suffix.is_empty() && !is_branch(suffix), "the position of a row");
        let before = match edits.get(suffix) {
            // An earlier range of the same update already changed this row.
            Some(Some(content)) => content.clone(),
            Some(None) => return,
            None => content.to_vec(),
        };
        let (kept, existing) = update.existing_row(Some(&before));
        let after = merge(&mut self.merger, update.table, existing, None, deletion, &mut self.merged);
        if after == existing {
            return;
        }
        let mut clustering = Vec::new();
        if watch.observer.is_some() && update.layout.push_clustering(suffix, kept, &mut clustering).is_ok() {
            watch.changed(&clustering, existing, after);
        }
        let content = after.map(|row| {
            let mut content = Vec::new();
            if let Some(kept) = kept {
                update.layout.push_content_head(kept, &mut content);
            }
            content.extend_from_slice(row.as_bytes());
            content
        });
        edits.insert(suffix.to_vec(), content);
    }

    /// Adds a row of the update, and its deletion.
    #[allow(clippy::too_many_arguments, reason = "the edits of a row depend on all of them")]
    fn write_row(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        ranges: &UpdateRanges,
        has_branches: bool,
        row: RowRef<'_>,
        edits: &mut Edits,
        watch: &mut Watch<'_, '_>,
    ) {
        steps::count(1);
        let mut position = Vec::new();
        update.layout.push_row(row.clustering, &mut position);
        let deletion_suffix = [&[ROW_DELETION_BRANCH], position.as_slice()].concat();
        let mut active = update.deletion.max(ranges.at(&position));
        let mut old_deletion = DeletionTime::LIVE;
        if has_branches {
            active = active.max(deletion_at(writer.tail(update.path), update.layout, &position, false));
            if let Some(content) = writer.get(&[update.path, &deletion_suffix].concat()) {
                old_deletion = read_deletion(update.layout.split_content(content).1);
            }
        }
        let row_deletion = old_deletion.max(row.row.deletion());
        if row_deletion.supersedes(&active) {
            active = row_deletion;
            if row_deletion != old_deletion {
                let mut content = Vec::new();
                update.layout.push_content_head(row.clustering, &mut content);
                write_deletion(row_deletion, &mut content);
                edits.insert(deletion_suffix, Some(content));
            }
        } else if !old_deletion.is_live() {
            edits.insert(deletion_suffix, None);
        }
        debug_assert!(!update.deletion.supersedes(&active), "the partition's deletion deletes its rows too");
        let stored = writer.get(&[update.path, &position].concat());
        let (kept, existing) = update.existing_row(stored);
        let deletes_stored = update.has_deletion();
        let change = RowChange { new: Some(row.row), active, deletes_stored };
        let after = small_row(&mut self.merger, update.table, existing, &change, &mut self.merged);
        let Some(after) = after else {
            let changes = self.large_row_edits(writer, update, &position, row.clustering, change, watch);
            return replace_edits(edits, &position, changes);
        };
        watch.changed(row.clustering, existing, after);
        match after {
            Some(after) => {
                let mut content = Vec::new();
                update.layout.push_content_head(kept.unwrap_or(row.clustering), &mut content);
                content.extend_from_slice(after.as_bytes());
                edits.insert(position, Some(content));
            }
            None if existing.is_some() => drop(edits.insert(position, None)),
            None => drop(edits.remove(&position)),
        }
    }
}

impl Update<'_> {
    /// The change to the header's row.
    fn header_change(&self, header: &Header<'_>) -> RowChange<'_> {
        let new = self.update.static_row();
        RowChange { new, active: self.deletion, deletes_stored: self.deletion != header.deletion }
    }

    /// Whether the update deletes the partition and does nothing else.
    fn only_deletes_partition(&self) -> bool {
        !self.update.partition_deletion().is_live()
            && self.update.range_deletion_count() == 0
            && self.update.row_count() == 0
            && self.update.static_row().is_none()
    }

    /// Whether the update deletes the partition, ranges or rows.
    fn has_deletion(&self) -> bool {
        !self.update.partition_deletion().is_live()
            || self.update.range_deletion_count() > 0
            || self.update.rows().any(|row| row.row.has_deletion())
    }

    /// A stored row: the clustering kept with it, and the row itself.
    fn existing_row<'c>(&self, stored: Option<&'c [u8]>) -> (Option<&'c [u8]>, Option<Row<'c>>) {
        match stored {
            None => (None, None),
            Some(content) => {
                let (kept, row) = self.layout.split_content(content);
                (kept, Some(Row::new(row)))
            }
        }
    }
}

/// The row, if the update writes just one row and deletes nothing else. Most updates are of this kind.
#[inline]
pub(crate) fn only_row(update: &PartitionUpdate) -> Option<Row<'_>> {
    let has_others = update.static_row().is_some() || update.range_deletion_count() > 0;
    if has_others || update.row_count() != 1 || !update.partition_deletion().is_live() {
        return None;
    }
    update.rows().next().map(|row| row.row)
}

fn is_branch(suffix: &[u8]) -> bool {
    matches!(suffix.first(), Some(&(RANGE_BRANCH | ROW_DELETION_BRANCH)))
}

/// Publishes changes below `prefix`.
fn apply_edits(writer: &mut Writer<'_>, prefix: &[u8], edits: &Edits) -> Result<(), TrieFull> {
    steps::count(edits.len());
    let edits: Vec<Edit<'_>> =
        edits.iter().map(|(suffix, content)| Edit { suffix, content: content.as_deref() }).collect();
    writer.apply(prefix, &edits)
}

/// Appends edits to the list of those to publish.
fn push_spans(edits: &Edits, bytes: &mut Vec<u8>, spans: &mut Vec<(Span, Option<Span>)>) {
    for (suffix, content) in edits {
        let start = bytes.len();
        bytes.extend_from_slice(suffix);
        let suffix = start..bytes.len();
        bytes.extend_from_slice(content.as_deref().unwrap_or_default());
        let content = content.is_some().then_some(suffix.end..bytes.len());
        spans.push((suffix, content));
    }
}

/// Merges two versions of a row and drops what `active` deletes. The result is in `out` unless it is one of the two
/// inputs.
pub(crate) fn merge<'r>(
    merger: &mut RowMerger,
    table: &Table,
    existing: Option<Row<'r>>,
    new: Option<Row<'r>>,
    active: DeletionTime,
    out: &'r mut Vec<u8>,
) -> Option<Row<'r>> {
    out.clear();
    let is_something = match (existing, new) {
        (None, None) => return None,
        (Some(row), None) | (None, Some(row)) if active.is_live() => return Some(row),
        (Some(row), None) | (None, Some(row)) => merger.merge(table, &[row], active, out),
        (Some(existing), Some(new)) if active.is_live() && new.replaces(&existing, table) => return Some(new),
        (Some(existing), Some(new)) => merger.merge(table, &[existing, new], active, out),
    };
    debug_assert!(!is_something || !out.is_empty(), "a row that is left has content");
    is_something.then(|| Row::new(out))
}
