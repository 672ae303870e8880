//! A partition's contents at one time, and their change by an update.
//!
//! Rows and borders of deleted ranges are persistent maps: a new version shares everything unchanged with the old one.
//! The contents are those that `FORMAT.md` describes for every memtable, except that a row's deletion is in the row.

use std::ops::Bound;
use std::sync::Arc;

use model::{DeletionTime, PartitionUpdate, Row, RowMerger, RowObserver, Side, Table};
use rpds::RedBlackTreeMapSync;

use crate::layout::Layout;

type Position = Arc<[u8]>;

/// A stored row.
#[derive(Debug)]
pub(super) struct KeptRow {
    pub clustering: Box<[u8]>,
    pub row: Box<[u8]>,
}

/// A border of deleted ranges: the deletions before and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Border {
    pub before: DeletionTime,
    pub after: DeletionTime,
}

/// A stored border.
#[derive(Debug)]
pub(super) struct KeptBorder {
    pub prefix: Box<[u8]>,
    pub border: Border,
}

/// One version of a partition, which never changes once it is published.
#[derive(Clone)]
pub(super) struct Version {
    pub deletion: DeletionTime,
    pub static_row: Option<Arc<[u8]>>,
    /// The rows, by position: the byte-comparable clustering.
    rows: RedBlackTreeMapSync<Position, Arc<KeptRow>>,
    /// The borders, by the position of the bound.
    borders: RedBlackTreeMapSync<Position, Arc<KeptBorder>>,
    bytes: usize,
}

/// The bytes of a partition without rows: the list's node with two links on average, the partition, and the version.
const PARTITION_BYTES: usize = 96 + size_of::<Version>();
/// The bytes of a map's entry in addition to its contents: node, links, reference counts, lengths.
const ENTRY_BYTES: usize = 144;

impl Version {
    fn empty(key_bytes: usize) -> Version {
        Version {
            deletion: DeletionTime::LIVE,
            static_row: None,
            rows: RedBlackTreeMapSync::new_sync(),
            borders: RedBlackTreeMapSync::new_sync(),
            bytes: PARTITION_BYTES + key_bytes,
        }
    }

    /// The bytes in use: contents exact to the byte, structure by the size of its parts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The range deletion in force just after (or, if not `inclusive`, just before) a position.
    pub fn open_at(&self, position: &[u8], inclusive: bool) -> DeletionTime {
        let end = if inclusive { Bound::Included(position) } else { Bound::Excluded(position) };
        let last = self.borders.range::<[u8], _>((Bound::Unbounded, end)).next_back();
        last.map_or(DeletionTime::LIVE, |(_, kept)| kept.border.after)
    }

    /// The rows between two positions, neither included.
    pub fn rows<'v>(
        &'v self,
        low: &'v [u8],
        high: &'v [u8],
    ) -> impl DoubleEndedIterator<Item = (&'v Position, &'v Arc<KeptRow>)> {
        self.rows.range::<[u8], _>((Bound::Excluded(low), Bound::Excluded(high)))
    }

    /// The borders between two positions, neither included.
    pub fn borders<'v>(
        &'v self,
        low: &'v [u8],
        high: &'v [u8],
    ) -> impl DoubleEndedIterator<Item = (&'v Position, &'v Arc<KeptBorder>)> {
        self.borders.range::<[u8], _>((Bound::Excluded(low), Bound::Excluded(high)))
    }

    fn put_row(&mut self, position: &[u8], clustering: &[u8], row: Option<&[u8]>) {
        if let Some(old) = self.rows.get(position) {
            debug_assert!(self.bytes >= PARTITION_BYTES + row_bytes(position, old), "{} bytes are counted", self.bytes);
            self.bytes -= row_bytes(position, old);
        }
        match row {
            None => drop(self.rows.remove_mut(position)),
            Some(row) => {
                let kept = KeptRow { clustering: clustering.into(), row: row.into() };
                self.bytes += row_bytes(position, &kept);
                self.rows.insert_mut(position.into(), Arc::new(kept));
            }
        }
    }

    fn put_border(&mut self, position: &[u8], prefix: &[u8], border: Option<Border>) {
        debug_assert!(border.is_none_or(|border| border.before != border.after), "a border changes the deletion");
        if let Some(old) = self.borders.get(position) {
            debug_assert!(self.bytes >= PARTITION_BYTES + border_bytes(position, old), "{} bytes counted", self.bytes);
            self.bytes -= border_bytes(position, old);
        }
        match border {
            None => drop(self.borders.remove_mut(position)),
            Some(border) => {
                let kept = KeptBorder { prefix: prefix.into(), border };
                self.bytes += border_bytes(position, &kept);
                self.borders.insert_mut(position.into(), Arc::new(kept));
            }
        }
    }

    fn put_static_row(&mut self, row: Option<&[u8]>) {
        self.bytes -= self.static_row.as_ref().map_or(0, |row| row.len());
        self.static_row = row.map(Into::into);
        self.bytes += row.map_or(0, <[u8]>::len);
        debug_assert!(self.bytes >= PARTITION_BYTES, "{} bytes are counted", self.bytes);
    }
}

fn row_bytes(position: &[u8], kept: &KeptRow) -> usize {
    ENTRY_BYTES + position.len() + kept.clustering.len() + kept.row.len()
}

fn border_bytes(position: &[u8], kept: &KeptBorder) -> usize {
    ENTRY_BYTES + size_of::<Border>() + position.len() + kept.prefix.len()
}

/// An update that is being applied to a partition.
pub(super) struct Change<'c, 'o> {
    table: &'c Table,
    layout: &'c Layout,
    update: &'c PartitionUpdate,
    merger: &'c mut RowMerger,
    observer: Option<&'c mut (dyn RowObserver + 'o)>,
}

/// The ends of a deleted range, each a position and a prefix.
type Ends = [(Vec<u8>, Vec<u8>); 2];

impl<'c, 'o> Change<'c, 'o> {
    pub fn new(
        table: &'c Table,
        layout: &'c Layout,
        update: &'c PartitionUpdate,
        merger: &'c mut RowMerger,
        observer: Option<&'c mut (dyn RowObserver + 'o)>,
    ) -> Self {
        Change { table, layout, update, merger, observer }
    }

    /// Makes a new version from an old one and the update.
    pub fn apply(&mut self, old: Option<&Version>) -> Version {
        let mut version = old.cloned().unwrap_or_else(|| Version::empty(self.update.key().bytes().len()));
        self.delete_partition(&mut version);
        self.write_static_row(&mut version);
        if self.layout.has_clustering() {
            for range in self.update.range_deletions() {
                let ends = [range.slice.start, range.slice.end].map(|bound| {
                    let mut position = Vec::new();
                    self.layout.push_bound(&bound.prefix, bound.side, &mut position);
                    (position, bound.prefix)
                });
                if ends[0].0 < ends[1].0 && range.deletion.supersedes(&version.deletion) {
                    self.delete_range(&mut version, &ends, range.deletion);
                }
            }
        }
        for row in self.update.rows() {
            self.write_row(&mut version, row.clustering, row.row);
        }
        debug_assert!(version.bytes >= PARTITION_BYTES, "{} bytes are counted", version.bytes);
        debug_assert!(old.is_none_or(|old| !old.deletion.supersedes(&version.deletion)), "a deletion is not undone");
        version
    }

    /// Applies a deleted range in a table without clustering, where it can only be the whole partition.
    fn delete_partition(&mut self, version: &mut Version) {
        let mut deletion = self.update.partition_deletion();
        if !self.layout.has_clustering() {
            deletion = self.update.range_deletions().fold(deletion, |newest, range| newest.max(range.deletion));
        }
        if !deletion.supersedes(&version.deletion) {
            return;
        }
        version.deletion = deletion;
        let visible = |range: DeletionTime| if range.supersedes(&deletion) { range } else { DeletionTime::LIVE };
        for (position, kept) in version.borders.clone().iter() {
            let border = Border { before: visible(kept.border.before), after: visible(kept.border.after) };
            if border != kept.border {
                version.put_border(position, &kept.prefix, (border.before != border.after).then_some(border));
            }
        }
        let rows = version.rows.clone();
        rows.iter().for_each(|(position, kept)| self.purge(version, position, kept, deletion));
    }

    /// Drops what `deletion` shadows of a row.
    fn purge(&mut self, version: &mut Version, position: &[u8], kept: &KeptRow, deletion: DeletionTime) {
        let before = Row::new(&kept.row);
        let mut merged = Vec::new();
        let is_something = self.merger.merge(self.table, &[before], deletion, &mut merged);
        let after = is_something.then_some(merged.as_slice());
        if after != Some(&*kept.row) {
            self.changed(&kept.clustering, Some(before), after.map(Row::new));
            version.put_row(position, &kept.clustering, after);
        }
    }

    fn delete_range(&mut self, version: &mut Version, ends: &Ends, deletion: DeletionTime) {
        let [(start, _), (end, _)] = ends;
        debug_assert!(start < end, "a range from {start:02x?} to {end:02x?}");
        let rows = version.rows.clone();
        for (position, kept) in rows.range::<[u8], _>((Bound::Excluded(&**start), Bound::Excluded(&**end))) {
            self.purge(version, position, kept, deletion);
        }
        // At each position the newest of the ranges applies: the old borders inside, and the two ends.
        let mut old_open = version.open_at(start, false);
        let mut said = old_open;
        let borders = version.borders.clone();
        let within = borders.range::<[u8], _>((Bound::Included(&**start), Bound::Included(&**end)));
        let mut places: Vec<(&[u8], &[u8], Option<Border>)> =
            within.map(|(position, kept)| (&**position, &*kept.prefix, Some(kept.border))).collect();
        for (position, prefix) in ends {
            if let Err(at) = places.binary_search_by(|place| place.0.cmp(position)) {
                places.insert(at, (position, prefix, None));
            }
        }
        debug_assert!(places.is_sorted_by(|a, b| a.0 < b.0), "one border at each position");
        for (position, prefix, old) in places {
            old_open = old.map_or(old_open, |border| border.after);
            let now = if position < &**end { old_open.max(deletion) } else { old_open };
            let border = (said != now).then_some(Border { before: said, after: now });
            if border != old {
                version.put_border(position, prefix, border);
            }
            said = now;
        }
        debug_assert_eq!(said, version.open_at(end, true), "a range changes nothing behind its end");
    }

    fn write_static_row(&mut self, version: &mut Version) {
        let old = version.static_row.clone();
        let new = self.update.static_row();
        let before = old.as_deref().map(Row::new);
        let mut merged = Vec::new();
        let after = self.merge(before, new, version.deletion, &mut merged);
        if after != before {
            self.changed(&[], before, after);
            version.put_static_row(after.map(|row| row.as_bytes()));
        }
    }

    fn write_row(&mut self, version: &mut Version, clustering: &[u8], new: Row<'_>) {
        let mut position = Vec::new();
        self.layout.push_row(clustering, &mut position);
        let active = version.deletion.max(version.open_at(&position, false));
        let old = version.rows.get(position.as_slice()).cloned();
        let before = old.as_ref().map(|kept| Row::new(&kept.row));
        let mut merged = Vec::new();
        let after = self.merge(before, Some(new), active, &mut merged);
        if after != before {
            self.changed(clustering, before, after);
            let clustering = old.as_ref().map_or(clustering, |kept| &kept.clustering);
            version.put_row(&position, clustering, after.map(|row| row.as_bytes()));
        }
    }

    /// Merges two versions of a row and drops what `active` deletes. The result is in `out` unless it is one of the two
    /// inputs.
    fn merge<'r>(
        &mut self,
        old: Option<Row<'r>>,
        new: Option<Row<'r>>,
        active: DeletionTime,
        out: &'r mut Vec<u8>,
    ) -> Option<Row<'r>> {
        let versions: Vec<Row<'r>> = old.into_iter().chain(new).collect();
        match *versions {
            [] => None,
            [row] if active.is_live() && !row.has_deletion() => Some(row),
            _ => self.merger.merge(self.table, &versions, active, out).then(|| Row::new(out)),
        }
    }

    fn changed(&mut self, clustering: &[u8], before: Option<Row<'_>>, after: Option<Row<'_>>) {
        if let Some(observer) = &mut self.observer {
            observer.row_changed(self.table, self.update.key(), clustering, before, after);
        }
    }
}

/// The side of its prefix on which the position of a bound lies.
pub(super) fn side_of(position: &[u8]) -> Side {
    crate::layout::side_of(position)
}
