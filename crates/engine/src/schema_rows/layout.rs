//! Tables' layouts in `system.table_layouts`: the properties for which `system_schema` has no columns, in one blob for
//! each table.
//!
//! ```text
//! layout := u8 version (3)  uvint next column id  sets (static)  sets (regular)  uvint count, count * dropped
//! sets   := uvint count, count * change
//! change := uvint removed, removed * uvint id  uvint added, added * column
//! column := uvint id, u8 whether it is dropped, name, type
//! dropped := name, i64 dropped time in microseconds, big-endian
//! name, type := uvint length, UTF-8; the type as system_schema prints it
//! ```
//!
//! A change is the difference between a set and the previous one: the first change adds all columns of its set, and a
//! column that is dropped is removed and added again.
//!
//! Versions 1 and 2, which list all columns of each set (`uvint columns, columns * column`), are read too. The columns
//! of version 1 have no flag for dropped ones: its sets left dropped columns out.
//!
//! A dropped table whose files are not deleted yet has the following layout, so that a start can delete them:
//!
//! ```text
//! layout := u8 0  keyspace  name
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Column, ColumnChange, ColumnId, ColumnKind, ColumnSet, Table};
use types::{CqlType, UserType, vint};

const LAYOUT_VERSION: u8 = 3;
/// The version that lists all columns of each set.
const LAYOUT_VERSION_OF_WHOLE_SETS: u8 = 2;
/// The version that does so too, and whose columns have no flag for dropped ones.
const LAYOUT_VERSION_OF_SHOWN: u8 = 1;
/// Marks the layout of a dropped table, in the place of the version.
const DROPPED: u8 = 0;

fn write_text(value: &str, out: &mut Vec<u8>) {
    vint::write_uvint(value.len() as u64, out);
    out.extend_from_slice(value.as_bytes());
}

fn write_columns(columns: &[Arc<Column>], out: &mut Vec<u8>) {
    vint::write_uvint(columns.len() as u64, out);
    for column in columns {
        vint::write_uvint(u64::from(column.id.0), out);
        out.push(u8::from(column.is_dropped));
        write_text(&column.name, out);
        write_text(&column.ty.to_string(), out);
    }
}

/// The layout of a table.
pub(super) fn write(table: &Table) -> Vec<u8> {
    let mut out = vec![LAYOUT_VERSION];
    vint::write_uvint(u64::from(table.next_column_id()), &mut out);
    for is_static in [true, false] {
        let changes = table.column_sets(is_static).changes();
        vint::write_uvint(changes.len() as u64, &mut out);
        for change in changes {
            vint::write_uvint(change.removed.len() as u64, &mut out);
            change.removed.iter().for_each(|id| vint::write_uvint(u64::from(id.0), &mut out));
            write_columns(&change.added, &mut out);
        }
    }
    let dropped = table.dropped();
    vint::write_uvint(dropped.len() as u64, &mut out);
    for column in dropped {
        write_text(&column.name, &mut out);
        out.extend_from_slice(&column.dropped_time_micros.to_be_bytes());
    }
    out
}

/// The layout of a dropped table.
pub(super) fn write_dropped(keyspace: &str, name: &str) -> Vec<u8> {
    let mut out = vec![DROPPED];
    write_text(keyspace, &mut out);
    write_text(name, &mut out);
    out
}

/// Whether a layout is that of a dropped table.
pub(super) fn is_of_dropped(layout: &[u8]) -> bool {
    layout.first() == Some(&DROPPED)
}

/// The keyspace and the name of a dropped table. `None` for other layouts.
pub(super) fn read_dropped(layout: &[u8]) -> Option<(String, String)> {
    let bytes = layout.strip_prefix(&[DROPPED])?;
    let mut names = LayoutReader { bytes, version: LAYOUT_VERSION, types: &BTreeMap::new() };
    Some((names.text()?.to_owned(), names.text()?.to_owned()))
}

/// Reads a layout of any version. `None` for one that is damaged, is of a dropped table, or has an unknown version.
pub(super) fn read(bytes: &[u8], types: &BTreeMap<Arc<str>, Arc<UserType>>) -> Option<Layout> {
    LayoutReader { bytes, version: LAYOUT_VERSION, types }.layout()
}

struct LayoutReader<'a> {
    bytes: &'a [u8],
    version: u8,
    types: &'a BTreeMap<Arc<str>, Arc<UserType>>,
}

/// A layout that was read.
pub(super) struct Layout {
    pub next_column_id: u32,
    pub statics: Vec<ColumnChange>,
    pub regulars: Vec<ColumnChange>,
    /// Exact times, microseconds; `system_schema.dropped_columns` keeps milliseconds only.
    pub dropped_times: BTreeMap<String, i64>,
}

impl<'a> LayoutReader<'a> {
    fn uvint(&mut self) -> Option<u64> {
        vint::read_uvint(&mut self.bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.uvint()?).ok()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*flag != 0)
    }

    fn layout(mut self) -> Option<Layout> {
        let (version, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        if !matches!(*version, LAYOUT_VERSION | LAYOUT_VERSION_OF_WHOLE_SETS | LAYOUT_VERSION_OF_SHOWN) {
            return None;
        }
        self.version = *version;
        let next_column_id = u32::try_from(self.uvint()?).ok()?;
        let statics = self.changes(ColumnKind::Static)?;
        let regulars = self.changes(ColumnKind::Regular)?;
        let mut dropped_times = BTreeMap::new();
        for _ in 0..self.uvint()? {
            let name = self.text()?.to_string();
            let (time, rest) = self.bytes.split_first_chunk::<8>()?;
            self.bytes = rest;
            dropped_times.insert(name, i64::from_be_bytes(*time));
        }
        Some(Layout { next_column_id, statics, regulars, dropped_times })
    }

    fn changes(&mut self, kind: ColumnKind) -> Option<Vec<ColumnChange>> {
        let count = u32::try_from(self.uvint()?).ok()?;
        if self.version == LAYOUT_VERSION {
            return (0..count).map(|_| self.change(kind)).collect();
        }
        let set = |version| Some(ColumnSet { version, columns: self.columns(kind)? });
        let sets: Vec<ColumnSet> = (0..count).map(set).collect::<Option<_>>()?;
        ColumnChange::of_sets(&sets)
    }

    fn change(&mut self, kind: ColumnKind) -> Option<ColumnChange> {
        let mut removed = Vec::new();
        for _ in 0..self.uvint()? {
            removed.push(self.id()?);
        }
        Some(ColumnChange { removed, added: self.columns(kind)? })
    }

    fn columns(&mut self, kind: ColumnKind) -> Option<Vec<Arc<Column>>> {
        let mut columns = Vec::new();
        for _ in 0..self.uvint()? {
            let id = self.id()?;
            let is_dropped = self.version != LAYOUT_VERSION_OF_SHOWN && self.flag()?;
            let name = self.text()?.into();
            let ty = parse_type(self.text()?, self.types)?;
            columns.push(Arc::new(Column { id, name, ty, kind, position: -1, reversed: false, is_dropped }));
        }
        Some(columns)
    }

    fn id(&mut self) -> Option<ColumnId> {
        Some(ColumnId(u32::try_from(self.uvint()?).ok()?))
    }
}

/// A type by its stored name. A user type that is not there any more (one that a column of an old set had) has no
/// fields: such a column's cells are only skipped, for which only one thing matters: whether it is complex.
pub(super) fn parse_type(name: &str, types: &BTreeMap<Arc<str>, Arc<UserType>>) -> Option<CqlType> {
    let dropped = |name: &str| UserType::new("".into(), name.into(), Vec::new());
    CqlType::parse_name(name, &|user| Some(types.get(user).cloned().unwrap_or_else(|| Arc::new(dropped(user)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{TableBuilder, TableId};
    use testkit::{Choices, seeds};

    fn types() -> BTreeMap<Arc<str>, Arc<UserType>> {
        BTreeMap::new()
    }

    fn base() -> TableBuilder {
        TableBuilder::new("ks", "t", TableId(uuid::Uuid::nil())).partition_key("k", CqlType::Int)
    }

    /// A table with a history of additions and drops of simple and complex columns, static and regular.
    fn altered(random: &mut Choices, changes: usize) -> Table {
        let mut table = base().regular("first", CqlType::Text).build();
        for change in 0..changes {
            let sets = [table.statics(), table.regulars()];
            let shown: Vec<_> = sets.iter().flat_map(|set| set.shown()).collect();
            let (drops, n) = (random.one_in(3) && shown.len() > 1, random.below(20));
            let next = if drops {
                let column = shown[random.below(shown.len() as u64) as usize];
                table.to_builder().drop_column(&column.name, column.ty.clone(), change as i64)
            } else if shown.iter().all(|column| *column.name != *format!("c{n}")) {
                // A column that is added again has the kind and the type that it had.
                let set = CqlType::Set { element: Arc::new(CqlType::Int), frozen: false };
                let kind = if n % 4 == 0 { ColumnKind::Static } else { ColumnKind::Regular };
                table.to_builder().add(&format!("c{n}"), if n % 3 == 0 { set } else { CqlType::Text }, kind)
            } else {
                continue;
            };
            table = next.build();
        }
        table
    }

    fn reread(bytes: &[u8], table: &Table) -> Table {
        let layout = read(bytes, &types()).unwrap();
        let builder = base().with_column_changes(layout.statics, layout.regulars, layout.next_column_id).unwrap();
        builder.record_dropped(table.dropped().iter().cloned()).build()
    }

    /// The layout as version 2 wrote it.
    fn write_whole_sets(table: &Table) -> Vec<u8> {
        let mut out = vec![LAYOUT_VERSION_OF_WHOLE_SETS];
        vint::write_uvint(u64::from(table.next_column_id()), &mut out);
        for is_static in [true, false] {
            let sets = table.column_sets(is_static);
            vint::write_uvint(sets.count() as u64, &mut out);
            for version in 0..sets.count() as u32 {
                write_columns(&sets.get(version).unwrap().columns, &mut out);
            }
        }
        vint::write_uvint(0, &mut out);
        out
    }

    fn are_dropped(layout: &str) -> Option<Vec<bool>> {
        let added = read(layout.as_bytes(), &types())?.regulars.into_iter().flat_map(|change| change.added);
        Some(added.map(|column| column.is_dropped).collect())
    }

    #[test]
    fn a_layout_of_each_version_says_which_columns_are_dropped() {
        // Next id 3, one empty set of statics, one set of regulars: id 2, v int; no drops.
        assert_eq!(are_dropped("\x01\x03\x01\x00\x01\x01\x02\x01v\x03int\x00"), Some(vec![false]));
        assert_eq!(are_dropped("\x02\x03\x01\x00\x01\x01\x02\x01\x01v\x03int\x00"), Some(vec![true]));
        assert_eq!(are_dropped("\x03\x03\x01\x00\x00\x01\x00\x01\x02\x01\x01v\x03int\x00"), Some(vec![true]));
        assert_eq!(are_dropped("\x04\x03\x01\x00\x00\x01\x00\x01\x02\x01\x01v\x03int\x00"), None, "unknown");
        // A second set that removes column 2.
        let removed = "\x03\x03\x01\x00\x00\x02\x00\x01\x02\x00\x01v\x03int\x01\x02\x00\x00";
        let regulars = read(removed.as_bytes(), &types()).unwrap().regulars;
        let table = base().with_column_changes(Vec::new(), regulars.clone(), 3).unwrap().build();
        assert!(table.regulars().columns.is_empty());
        assert_eq!(table.column_sets(false).get(0).unwrap().columns.len(), 1);
        assert!(base().with_column_changes(regulars[1..].to_vec(), Vec::new(), 3).is_none(), "no column 2 to remove");
    }

    #[test]
    fn layouts_of_this_and_of_the_former_version_give_the_same_sets() {
        for seed in seeds(0..20) {
            let table = altered(&mut Choices(seed), 40);
            for layout in [write(&table), write_whole_sets(&table)] {
                let loaded = reread(&layout, &table);
                for is_static in [true, false] {
                    let (loaded, sets) = (loaded.column_sets(is_static), table.column_sets(is_static));
                    assert_eq!(loaded.count(), sets.count(), "seed {seed}");
                    for version in 0..sets.count() as u32 {
                        assert_eq!(loaded.get(version), sets.get(version), "seed {seed} version {version}");
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_layouts_are_refused_or_read_and_never_panic() {
        for seed in seeds(0..20) {
            let mut random = Choices(seed);
            let table = altered(&mut random, 10);
            for layout in [write(&table), write_whole_sets(&table)] {
                for _ in 0..200 {
                    let mut damaged = layout.clone();
                    let at = random.below(damaged.len() as u64) as usize;
                    damaged[at] ^= 1 << random.below(8);
                    damaged.truncate(damaged.len() - random.below(3) as usize);
                    if let Some(layout) = read(&damaged, &types()) {
                        let _ = base().with_column_changes(layout.statics, layout.regulars, 1);
                    }
                }
            }
        }
    }

    #[test]
    fn many_changes_of_a_wide_table_cost_what_they_change() {
        let names: Vec<String> = (0..600).map(|column| format!("column_{column}")).collect();
        let mut table = base().add_all(names.iter().map(|name| (&**name, CqlType::Text, ColumnKind::Regular))).build();
        let first = write(&table).len();
        for change in 0..300 {
            table = table.to_builder().regular(&format!("added_{change}"), CqlType::Text).build();
        }
        assert_eq!(table.column_sets(false).count(), 301);
        let last = write(&table).len();
        assert!(last < first + 300 * 25, "{first} bytes became {last}");
        assert_eq!(table.column_sets(false).get(200).unwrap().columns.len(), 800);
    }
}
