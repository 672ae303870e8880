//! The column sets that a table ever had.
//!
//! Only the newest set is held in full. Each older set is held as its difference from the set before it, so that the
//! memory of a thousand changes depends on the columns that they changed, not on the number of columns of the table. A
//! set is made from the differences when a row that was written under it is read.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use types::steps;

use crate::schema::compare_names;
use crate::{Column, ColumnId, DroppedColumn};

/// The static or the regular columns of a table at one time, including dropped ones, in the order of Cassandra's
/// serialization header: simple columns by name, then complex ones by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnSet {
    /// Index of this set among the sets of its table.
    pub version: u32,
    /// The columns.
    pub columns: Vec<Arc<Column>>,
}

impl ColumnSet {
    /// The index of the column named `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.index_of_kind(name, false).or_else(|| self.index_of_kind(name, true))
    }

    /// The index of the simple or complex column named `name`: a dropped column may have the name of another one of the
    /// other kind.
    pub fn index_of_kind(&self, name: &str, is_complex: bool) -> Option<usize> {
        let (simple, complex) = self.columns.split_at(self.first_complex());
        let (columns, start) = if is_complex { (complex, simple.len()) } else { (simple, 0) };
        let found = columns.binary_search_by(|column| compare_names(&column.name, name));
        found.ok().map(|index| start + index)
    }

    /// The columns that the table has: those that were not dropped.
    pub fn shown(&self) -> impl Iterator<Item = &Arc<Column>> {
        self.columns.iter().filter(|column| !column.is_dropped)
    }

    /// The index of the first complex column (the number of simple ones).
    pub fn first_complex(&self) -> usize {
        self.columns.partition_point(|column| !column.is_complex())
    }
}

/// The order of the columns of a set.
fn order(one: &Column, other: &Column) -> Ordering {
    one.is_complex().cmp(&other.is_complex()).then_with(|| compare_names(&one.name, &other.name))
}

/// Sorts columns into the order of a set.
pub(crate) fn sort(columns: &mut [Arc<Column>]) {
    columns.sort_by(|one, other| order(one, other));
}

/// How a column set differs from the one before it, or from none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ColumnChange {
    /// The columns of the previous set that this set lacks or has in another form. That form is among the added ones.
    pub removed: Vec<ColumnId>,
    /// The columns of this set that the previous set lacks or has in another form.
    pub added: Vec<Arc<Column>>,
}

impl ColumnChange {
    /// The changes that lead from set to set, oldest first. `None` if a set is not in the order of sets.
    pub fn of_sets(sets: &[ColumnSet]) -> Option<Vec<ColumnChange>> {
        if !sets.iter().all(|set| set.columns.is_sorted_by(|a, b| order(a, b).is_lt())) {
            return None;
        }
        let before = std::iter::once(&[][..]).chain(sets.iter().map(|set| &set.columns[..]));
        Some(before.zip(sets).map(|(before, set)| ColumnChange::between(before, &set.columns)).collect())
    }

    /// The difference of two lists of columns.
    pub fn between(before: &[Arc<Column>], after: &[Arc<Column>]) -> ColumnChange {
        steps::count(before.len() + after.len());
        let old: HashMap<ColumnId, &Arc<Column>> = before.iter().map(|column| (column.id, column)).collect();
        let is_old =
            |column: &Arc<Column>| old.get(&column.id).is_some_and(|old| Arc::ptr_eq(old, column) || *old == column);
        let (kept, added): (Vec<_>, Vec<_>) = after.iter().partition(|column| is_old(column));
        let kept: HashSet<ColumnId> = kept.iter().map(|column| column.id).collect();
        let removed = before.iter().map(|column| column.id).filter(|id| !kept.contains(id)).collect();
        ColumnChange { removed, added: added.into_iter().cloned().collect() }
    }
}

/// A set of columns and the change that made it.
#[derive(Debug)]
struct Version {
    change: ColumnChange,
    /// Made when it is first needed, unless it is the newest.
    set: OnceLock<ColumnSet>,
}

/// Sets of columns, oldest first, without the properties that only the newest schema has.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnHistory {
    versions: Vec<Arc<Version>>,
    /// The newest set.
    current: Option<Arc<ColumnSet>>,
}

impl PartialEq for ColumnHistory {
    fn eq(&self, other: &Self) -> bool {
        let is_same =
            |(one, other): (&Arc<Version>, &Arc<Version>)| Arc::ptr_eq(one, other) || one.change == other.change;
        self.versions.len() == other.versions.len() && self.versions.iter().zip(&other.versions).all(is_same)
    }
}

impl ColumnHistory {
    /// The history of these changes; `None` if one of them does not fit to those before it.
    pub fn of_changes(changes: Vec<ColumnChange>) -> Option<ColumnHistory> {
        let mut columns = Columns::default();
        changes.iter().try_for_each(|change| columns.apply(change))?;
        let version = changes.len().checked_sub(1);
        let newest = |version| Arc::new(ColumnSet { version: version as u32, columns: columns.into_sorted() });
        Some(ColumnHistory {
            current: version.map(newest),
            versions: changes.into_iter().map(|change| Arc::new(Version { change, set: OnceLock::new() })).collect(),
        })
    }

    /// The newest columns.
    pub fn latest(&self) -> &[Arc<Column>] {
        self.current.as_ref().map(|set| set.columns.as_slice()).unwrap_or_default()
    }

    /// Adds a set. The columns are sorted.
    pub fn push(&mut self, columns: Vec<Arc<Column>>) {
        let change = ColumnChange::between(self.latest(), &columns);
        self.current = Some(Arc::new(ColumnSet { version: self.versions.len() as u32, columns }));
        self.versions.push(Arc::new(Version { change, set: OnceLock::new() }));
    }

    /// Replaces each column of each set.
    pub fn map(&mut self, replace: impl Fn(&Arc<Column>) -> Arc<Column>) {
        let map = |change: &ColumnChange| ColumnChange {
            removed: change.removed.clone(),
            added: change.added.iter().map(&replace).collect(),
        };
        for version in &mut self.versions {
            *version = Arc::new(Version { change: map(&version.change), set: OnceLock::new() });
        }
        if let Some(current) = &mut self.current {
            let columns = current.columns.iter().map(&replace).collect();
            *current = Arc::new(ColumnSet { version: current.version, columns });
        }
    }

    /// The set of a version that is not the newest.
    #[cold]
    fn older(&self, version: u32) -> Option<&ColumnSet> {
        let index = version as usize;
        let made = |set: &Version| set.set.get().is_some();
        let found = self.versions.get(index)?;
        if let Some(set) = found.set.get() {
            return Some(set);
        }
        // From the nearest older set that was made before, or from none.
        let base = self.versions[..index].iter().rposition(|version| made(version));
        let mut columns = Columns::default();
        if let Some(set) = base.and_then(|base| self.versions[base].set.get()) {
            columns.by_id.extend(set.columns.iter().map(|column| (column.id, column.clone())));
        }
        let changes = &self.versions[base.map_or(0, |base| base + 1)..=index];
        // The changes were checked when they were loaded, or made here.
        changes.iter().try_for_each(|version| columns.apply(&version.change))?;
        Some(found.set.get_or_init(|| ColumnSet { version, columns: columns.into_sorted() }))
    }
}

/// Columns while changes are applied to them.
#[derive(Default)]
struct Columns {
    by_id: HashMap<ColumnId, Arc<Column>>,
}

impl Columns {
    fn apply(&mut self, change: &ColumnChange) -> Option<()> {
        steps::count(change.removed.len() + change.added.len());
        change.removed.iter().try_for_each(|id| self.by_id.remove(id).map(drop))?;
        let mut added = change.added.iter();
        added.try_for_each(|column| self.by_id.insert(column.id, column.clone()).is_none().then_some(()))
    }

    fn into_sorted(self) -> Vec<Arc<Column>> {
        let mut columns: Vec<_> = self.by_id.into_values().collect();
        sort(&mut columns);
        columns
    }
}

/// The place of a column of an older set in the current set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ColumnPlace {
    /// The index in the current set; `None` if that has no such column.
    pub index: Option<u32>,
    /// Whether the column is dropped now.
    pub is_dropped: bool,
    /// Cells with timestamps up to this (microseconds) are dropped; `i64::MIN` if nothing was.
    pub dropped_time_micros: i64,
}

/// The times at which columns were dropped, microseconds, by name.
pub(crate) type DroppedTimes = HashMap<Arc<str>, i64>;

/// The times of these drops.
pub(crate) fn dropped_times(dropped: &[DroppedColumn]) -> Arc<DroppedTimes> {
    Arc::new(dropped.iter().rev().map(|gone| (gone.name.clone(), gone.dropped_time_micros)).collect())
}

/// All sets of static or of regular columns that a table ever had. The last one is current.
#[derive(Clone, Debug)]
pub struct ColumnSets {
    history: ColumnHistory,
    current: Arc<ColumnSet>,
    /// The version of the current set.
    newest: u32,
    /// The places of each set's columns in the current set, made when they are first needed.
    places: Vec<OnceLock<Box<[ColumnPlace]>>>,
    dropped_times: Arc<DroppedTimes>,
    unchanged: bool,
    is_simple: bool,
}

impl PartialEq for ColumnSets {
    fn eq(&self, other: &Self) -> bool {
        self.history == other.history && self.dropped_times == other.dropped_times
    }
}

impl ColumnSets {
    /// The sets of a history, to which an empty set is added if it has none.
    pub(crate) fn new(mut history: ColumnHistory, dropped_times: Arc<DroppedTimes>) -> Self {
        if history.current.is_none() {
            history.push(Vec::new());
        }
        let current =
            history.current.clone().unwrap_or_else(|| Arc::new(ColumnSet { version: 0, columns: Vec::new() }));
        let mut added = history.versions.iter().flat_map(|version| &version.change.added);
        let is_simple = added.all(|column| !column.is_complex());
        let places = history.versions.iter().map(|_| OnceLock::new()).collect();
        let (newest, unchanged) = (current.version, dropped_times.is_empty());
        ColumnSets { history, current, newest, places, dropped_times, unchanged, is_simple }
    }

    /// The columns as they are now.
    #[inline]
    pub fn current(&self) -> &ColumnSet {
        &self.current
    }

    /// The number of sets.
    #[inline]
    pub fn count(&self) -> usize {
        self.newest as usize + 1
    }

    /// The changes that made each set, oldest first.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = &ColumnChange> {
        self.history.versions.iter().map(|version| &version.change)
    }

    pub(crate) fn history(&self) -> &ColumnHistory {
        &self.history
    }

    /// The names of the columns that the table had at any time since set `version`, the dropped ones left out.
    pub fn shown_since(&self, version: u32) -> HashSet<&str> {
        let Some(first) = self.get(version) else { return HashSet::new() };
        let later = self.history.versions.iter().skip(version as usize + 1);
        let added = later.flat_map(|version| &version.change.added).filter(|column| !column.is_dropped);
        first.shown().chain(added).map(|column| &*column.name).collect()
    }

    /// The current places of the columns of set `version`; `None` means that nothing has changed since.
    #[inline]
    pub(crate) fn places(&self, version: u32) -> Option<&[ColumnPlace]> {
        if self.is_current(version) { None } else { self.older_places(version) }
    }

    fn older_places(&self, version: u32) -> Option<&[ColumnPlace]> {
        let places = self.places.get(version as usize)?;
        if let Some(places) = places.get() {
            return Some(places);
        }
        let set = self.get(version)?;
        let place = |column: &Arc<Column>| place_of(column, &self.current, &self.dropped_times);
        Some(places.get_or_init(|| set.columns.iter().map(place).collect()))
    }

    /// Whether rows of set `version` have the current columns, and nothing that was dropped.
    #[inline]
    pub(crate) fn is_current(&self, version: u32) -> bool {
        self.unchanged && version == self.newest
    }

    /// Whether no column ever was complex.
    pub(crate) fn is_simple(&self) -> bool {
        self.is_simple
    }

    /// The set of that version.
    #[inline]
    pub fn get(&self, version: u32) -> Option<&ColumnSet> {
        if version == self.newest { Some(&self.current) } else { self.history.older(version) }
    }
}

fn place_of(column: &Column, current: &ColumnSet, dropped_times: &DroppedTimes) -> ColumnPlace {
    let index = current.index_of_kind(&column.name, column.is_complex());
    let dropped_time_micros = dropped_times.get(&*column.name).copied().unwrap_or(i64::MIN);
    let is_dropped = index.is_some_and(|index| current.columns[index].is_dropped);
    ColumnPlace { index: index.map(|index| index as u32), is_dropped, dropped_time_micros }
}
