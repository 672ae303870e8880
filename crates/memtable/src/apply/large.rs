//! Changes of rows that are stored in pieces, or will be.

use memtrie::Writer;
use model::{DeletionTime, Row, RowMerger, Table};

use super::{Applier, Edits, Update, Watch, merge};
use crate::layout::{Header, PIECE_BRANCH, RowEdits};
use crate::pieces::{RowChange, StoredRow, is_large};

impl Applier {
    /// Changes a header's row that is in pieces, or will be. Collects the changes of its pieces, and returns its first
    /// piece.
    pub(super) fn change_header_row(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        stored: Option<Row<'_>>,
        change: RowChange<'_>,
        watch: &mut Watch<'_, '_>,
        edits: &mut Edits,
    ) -> Option<Vec<u8>> {
        let pieces = writer.tail(&[update.path, &[PIECE_BRANCH]].concat());
        let stored = stored.map(|head| StoredRow { head, pieces });
        let mut changes = self.change_large_row(update, stored, change, &[], watch);
        let head = match changes.remove(&[] as &[u8]) {
            Some(head) => head,
            None => stored.map(|stored| stored.head.as_bytes().to_vec()),
        };
        update.layout.finish_row_edits(&[], &mut changes);
        edits.extend(changes.into_iter().map(|(key, content)| ([&[PIECE_BRANCH], key.as_slice()].concat(), content)));
        head
    }

    /// The header's content after the update, where its static row is in pieces or will be. Adds the changes of its
    /// pieces to `edits`.
    pub(super) fn large_header(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        header: &Header<'_>,
        has_branches: bool,
        watch: &mut Watch<'_, '_>,
        edits: &mut Edits,
    ) -> Vec<u8> {
        let row = self.change_header_row(writer, update, header.row, update.header_change(header), watch, edits);
        header_content(update.deletion, row.as_deref(), has_branches)
    }

    /// Changes a row that is in pieces, or will be.
    fn change_large_row(
        &mut self,
        update: &Update<'_>,
        stored: Option<StoredRow<'_>>,
        change: RowChange<'_>,
        clustering: &[u8],
        watch: &mut Watch<'_, '_>,
    ) -> RowEdits {
        let Update { table, layout, .. } = update;
        if watch.observer.is_some() {
            let (mut joined, mut merged) = (Vec::new(), Vec::new());
            let before = stored.map(|stored| {
                self.large.join(layout, table, stored, &mut joined);
                Row::new(&joined)
            });
            let after = merge(&mut self.merger, table, before, change.new, change.active, &mut merged);
            watch.changed(clustering, before, after);
        }
        self.large.change(layout, table, stored, change)
    }

    /// The changes, below the partition's key, of a row that is in pieces or will be.
    pub(super) fn large_row_edits(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        position: &[u8],
        clustering: &[u8],
        change: RowChange<'_>,
        watch: &mut Watch<'_, '_>,
    ) -> Edits {
        debug_assert!(!position.is_empty(), "a row has a position");
        let pieces = writer.tail(&[update.path, position].concat());
        let (kept, head) = update.existing_row(pieces.get(&[]));
        let stored = head.map(|head| StoredRow { head, pieces });
        let mut edits = self.change_large_row(update, stored, change, clustering, watch);
        update.layout.finish_row_edits(kept.unwrap_or(clustering), &mut edits);
        edits.into_iter().map(|(key, content)| ([position, &key].concat(), content)).collect()
    }

    /// Drops what `deletion` shadows of a row in pieces. An earlier deletion of the same update is already part of
    /// `deletion`.
    pub(super) fn purge_large_row(
        &mut self,
        writer: &Writer<'_>,
        update: &Update<'_>,
        position: &[u8],
        deletion: DeletionTime,
        edits: &mut Edits,
        watch: &mut Watch<'_, '_>,
    ) {
        let mut clustering = Vec::new();
        let kept =
            writer.get(&[update.path, position].concat()).and_then(|content| update.layout.split_content(content).0);
        // Only an observer needs the clustering, and it can be decoded from a position that was written.
        let _ = update.layout.push_clustering(position, kept, &mut clustering);
        debug_assert!(!deletion.is_live(), "a deletion purges what it deletes");
        let change = RowChange { new: None, active: deletion, deletes_stored: true };
        let changes = self.large_row_edits(writer, update, position, &clustering, change, watch);
        replace_edits(edits, position, changes);
    }
}

/// A header with this row.
pub(super) fn header_content(deletion: DeletionTime, row: Option<&[u8]>, has_branches: bool) -> Vec<u8> {
    let mut content = Vec::new();
    Header { deletion, row: row.map(Row::new), has_branches }.write(&mut content);
    content
}

/// Replaces the collected changes of one row.
pub(super) fn replace_edits(edits: &mut Edits, position: &[u8], changes: Edits) {
    debug_assert!(changes.keys().all(|suffix| suffix.starts_with(position)), "the edits of one row");
    let of_row =
        edits.range(position.to_vec()..).map(|(suffix, _)| suffix).take_while(|suffix| suffix.starts_with(position));
    let of_row: Vec<Vec<u8>> = of_row.cloned().collect();
    of_row.iter().for_each(|suffix| drop(edits.remove(suffix)));
    edits.extend(changes);
}

/// The row after a change, in one piece; `None` if it is in several pieces, or will be.
pub(super) fn small_row<'r>(
    merger: &mut RowMerger,
    table: &Table,
    existing: Option<Row<'r>>,
    change: &RowChange<'r>,
    out: &'r mut Vec<u8>,
) -> Option<Option<Row<'r>>> {
    if existing.is_some_and(|row| row.is_piece()) {
        return None;
    }
    let after = merge(merger, table, existing, change.new, change.active, out);
    if after.is_some_and(|row| is_large(row, table)) { None } else { Some(after) }
}
