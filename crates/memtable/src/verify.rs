//! Checks that a memtable keeps nothing that one of its own deletions deletes (`FORMAT.md`, "What is kept").

use std::ops::Bound;

use memtrie::{Bounds, Direction, Tail};
use model::{ColumnData, DeletionTime, Row, Table};

use crate::TrieMemtable;
use crate::branch::after_partition;
use crate::layout::{Header, Layout, PIECE_BRANCH, RANGE_BRANCH, ROW_DELETION_BRANCH, read_deletion};
use crate::ranges::{DeletedRange, deletion_at};
use crate::shard::Shard;

impl TrieMemtable {
    /// Walks everything and checks that nothing deleted is kept. For tests and tools: the time is proportional to the
    /// memtable's size.
    ///
    /// # Errors
    ///
    /// A description of what is wrong.
    pub fn verify(&self) -> Result<(), String> {
        self.shards().iter().try_for_each(|shard| verify_shard(self.layout(), shard))
    }
}

fn verify_shard(layout: &Layout, shard: &Shard) -> Result<(), String> {
    let (table, pin) = (shard.table(), shard.trie.pin());
    let mut cursor = pin.cursor(Bounds::ALL, Direction::Forward);
    let mut has_entry = cursor.advance();
    while has_entry {
        let mut path = cursor.key().to_vec();
        let partition =
            Partition { layout, table: &table, tail: cursor.tail(), header: Header::read(cursor.content()) };
        partition.verify().map_err(|wrong| format!("partition {path:02x?}: {wrong}"))?;
        after_partition(&mut path);
        has_entry = cursor.skip_to(&path);
    }
    Ok(())
}

struct Partition<'p> {
    layout: &'p Layout,
    table: &'p Table,
    tail: Tail<'p>,
    header: Header<'p>,
}

impl<'p> Partition<'p> {
    fn verify(&self) -> Result<(), String> {
        let has_branches = self.verify_ranges()? | self.verify_row_deletions()?;
        if has_branches && !self.header.has_branches {
            return Err("the header does not record that there are deletions".into());
        }
        // Deletions of ranges and rows do not apply to the header.
        let mut rows =
            self.header.row.into_iter().chain(self.below(PIECE_BRANCH).map(|(_, content)| self.row(content)));
        rows.try_for_each(|row| verify_row(row, self.table, self.header.deletion))?;
        self.rows().try_for_each(|(key, content)| {
            let position = &key[..self.layout.position_length(&key)];
            let row = self.row(content);
            verify_row(row, self.table, self.deletion_of_row(position))
                .map_err(|wrong| format!("row {key:02x?}: {wrong}"))
        })
    }

    /// Keys and contents below a branch, without its lead byte.
    fn below(&self, branch: u8) -> impl Iterator<Item = (Vec<u8>, &'p [u8])> {
        let mut cursor = self.tail.tail(&[branch]).cursor(Bounds::ALL, Direction::Forward);
        std::iter::from_fn(move || cursor.advance().then(|| (cursor.key().to_vec(), cursor.content())))
    }

    /// Rows and pieces of rows.
    fn rows(&self) -> impl Iterator<Item = (Vec<u8>, &'p [u8])> {
        const FIRST: &[u8] = &[PIECE_BRANCH + 1];
        let bounds = Bounds { start: Bound::Included(FIRST), end: Bound::Unbounded };
        let mut cursor = self.tail.cursor(bounds, Direction::Forward);
        std::iter::from_fn(move || cursor.advance().then(|| (cursor.key().to_vec(), cursor.content())))
    }

    fn row(&self, content: &'p [u8]) -> Row<'p> {
        Row::new(self.layout.split_content(content).1)
    }

    /// The deletion of the partition and its ranges at a row.
    fn deletion_around(&self, position: &[u8]) -> DeletionTime {
        self.header.deletion.max(deletion_at(self.tail, self.layout, position, false))
    }

    fn deletion_of_row(&self, position: &[u8]) -> DeletionTime {
        let stored = self.tail.get(&[&[ROW_DELETION_BRANCH], position].concat());
        let own = stored.map_or(DeletionTime::LIVE, |content| read_deletion(self.layout.split_content(content).1));
        own.max(self.deletion_around(position))
    }

    /// Checks that ranges are newer than the partition's deletion and do not overlap, and that those of one deletion do
    /// not touch. Returns true if there are any.
    fn verify_ranges(&self) -> Result<bool, String> {
        let mut last: Option<(Vec<u8>, DeletionTime)> = None;
        for (start, content) in self.below(RANGE_BRANCH) {
            let range = DeletedRange::read(self.layout, content);
            let end = range.end(&start);
            if !range.deletion.supersedes(&self.header.deletion) {
                return Err(format!("range {start:02x?}: the partition's deletion is as new as {:?}", range.deletion));
            }
            if start >= end {
                return Err(format!("range {start:02x?} ends at {end:02x?}"));
            }
            if let Some((last_end, deletion)) = last
                && (last_end > start || last_end == start && deletion == range.deletion)
            {
                return Err(format!("range {start:02x?}: the previous range ends at {last_end:02x?}"));
            }
            last = Some((end, range.deletion));
        }
        Ok(last.is_some())
    }

    /// Checks that no deletion of a row is superseded by a larger one. Returns true if there are any.
    fn verify_row_deletions(&self) -> Result<bool, String> {
        let mut has_any = false;
        for (position, content) in self.below(ROW_DELETION_BRANCH) {
            has_any = true;
            let deletion = read_deletion(self.layout.split_content(content).1);
            if deletion.is_live() || self.deletion_around(&position).supersedes(&deletion) {
                return Err(format!("the deletion {deletion:?} of row {position:02x?} is superseded"));
            }
        }
        Ok(has_any)
    }
}

/// Checks that nothing in a row, or in a piece of one, is deleted by a larger deletion or by a deletion of its column.
fn verify_row(row: Row<'_>, table: &Table, around: DeletionTime) -> Result<(), String> {
    if row.has_deletion() {
        return Err("it has a deletion of its own".into());
    }
    let liveness = row.liveness();
    if !liveness.is_empty() && around.deletes(liveness.timestamp) {
        return Err(format!("the liveness {liveness:?} is deleted by {around:?}"));
    }
    for (index, data) in row.columns(table) {
        let wrong = |timestamp: i64, deletion: DeletionTime| {
            Err(format!("a cell of column {index} of {timestamp} is deleted by {deletion:?}"))
        };
        match data {
            ColumnData::Simple(cell) if around.deletes(cell.timestamp) => return wrong(cell.timestamp, around),
            ColumnData::Simple(_) => {}
            ColumnData::Complex(mut cells) => {
                if !cells.deletion.is_live() && !cells.deletion.supersedes(&around) {
                    return Err(format!("the deletion {:?} of column {index} is superseded", cells.deletion));
                }
                let deletion = around.max(cells.deletion);
                if let Some(cell) = cells.find(|cell| deletion.deletes(cell.timestamp)) {
                    return wrong(cell.timestamp, deletion);
                }
            }
        }
    }
    Ok(())
}
