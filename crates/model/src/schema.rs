//! Keyspaces, tables and columns.
//!
//! A table never uses a column id twice. A row blob names the *column set* under which it was written by version. Sets
//! are kept as long as their table exists ([`crate::ColumnSets`]), so a blob of any age can be read under the newest
//! schema.
//!
//! A dropped column stays in the sets, hidden. Its cells that are newer than the drop are kept, as Cassandra keeps
//! them, and become visible if the column is added again. The columns that a table *has* do not include hidden ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use types::{CqlType, UserType, steps};
use uuid::Uuid;

use crate::column_sets::{self, ColumnChange, ColumnHistory, ColumnSet, ColumnSets};
use crate::{ClusteringComparator, ColumnMask, Index, IndexKey, TableForm};

/// Identifies a table permanently, even after another one took its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct TableId(pub Uuid);

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a column of one table permanently, even after another one took its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ColumnId(pub u32);

/// The role of a column in its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ColumnKind {
    /// Part of the partition key.
    PartitionKey,
    /// Part of the clustering.
    Clustering,
    /// One value per partition.
    Static,
    /// One value per row.
    Regular,
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its id, which the table never reuses.
    pub id: ColumnId,
    /// The name, without quotes, case kept.
    pub name: Arc<str>,
    /// The type.
    pub ty: CqlType,
    /// Its role in the table.
    pub kind: ColumnKind,
    /// Its index in the partition key or clustering; -1 for other columns.
    pub position: i32,
    /// Whether a clustering column sorts descending.
    pub reversed: bool,
    /// Whether the column was dropped: it keeps its place in the column set and is hidden.
    pub is_dropped: bool,
}

impl Column {
    /// Whether the column's cells have paths: true for non-frozen collections and user types.
    pub fn is_complex(&self) -> bool {
        self.ty.is_multi_cell()
    }
}

/// A dropped column: its cells with timestamps up to the drop are hidden for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DroppedColumn {
    /// The name.
    pub name: Arc<str>,
    /// The type it had (user types expanded to tuples).
    pub ty: CqlType,
    /// Static or regular.
    pub kind: ColumnKind,
    /// Cells with timestamps up to this one (microseconds) are dropped.
    pub dropped_time_micros: i64,
}

/// The options of a table, as `WITH` sets them and `system_schema.tables` shows them.
#[derive(Clone, PartialEq, Debug)]
pub struct TableOptions {
    pub additional_write_policy: String,
    pub allow_auto_snapshot: bool,
    pub bloom_filter_fp_chance: f64,
    pub caching: BTreeMap<String, String>,
    pub cdc: bool,
    pub comment: String,
    pub compaction: BTreeMap<String, String>,
    pub compression: BTreeMap<String, String>,
    pub crc_check_chance: f64,
    pub default_time_to_live: i32,
    pub extensions: BTreeMap<String, Vec<u8>>,
    pub gc_grace_seconds: i32,
    pub incremental_backups: bool,
    pub max_index_interval: i32,
    pub memtable: String,
    pub memtable_flush_period_in_ms: i32,
    pub min_index_interval: i32,
    pub read_repair: String,
    pub speculative_retry: String,
}

impl Default for TableOptions {
    /// The options of a table that sets none, under the reference configuration (`conf/espalier.yaml`).
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        TableOptions {
            additional_write_policy: "99p".into(),
            allow_auto_snapshot: true,
            bloom_filter_fp_chance: 0.01,
            caching: map(&[("keys", "ALL"), ("rows_per_partition", "NONE")]),
            cdc: false,
            comment: String::new(),
            compaction: map(&[
                ("class", "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy"),
                ("max_sstables_to_compact", "64"),
                ("min_sstable_size", "100MiB"),
                ("scaling_parameters", "T4"),
                ("sstable_growth", "0.3333333333333333"),
                ("target_sstable_size", "1GiB"),
            ]),
            compression: map(&[
                ("chunk_length_in_kb", "16"),
                ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
            ]),
            crc_check_chance: 1.0,
            default_time_to_live: 0,
            extensions: BTreeMap::new(),
            gc_grace_seconds: 864_000,
            incremental_backups: true,
            max_index_interval: 2048,
            memtable: "default".into(),
            memtable_flush_period_in_ms: 0,
            min_index_interval: 128,
            read_repair: "BLOCKING".into(),
            speculative_retry: "99p".into(),
        }
    }
}

/// A table's schema. Immutable: a change makes a new one.
#[derive(Clone, Debug)]
pub struct Table {
    /// The keyspace's name.
    pub keyspace: Arc<str>,
    /// The table's name.
    pub name: Arc<str>,
    /// Its id, which is never reused.
    pub id: TableId,
    /// The options.
    pub options: TableOptions,
    partition_key: Vec<Arc<Column>>,
    clustering: Vec<Arc<Column>>,
    statics: ColumnSets,
    regulars: ColumnSets,
    dropped: Vec<DroppedColumn>,
    masks: BTreeMap<Arc<str>, Arc<ColumnMask>>,
    indexes: Vec<Index>,
    form: TableForm,
    next_column_id: u32,
    type_parts: u32,
    comparator: ClusteringComparator,
    by_name: HashMap<Arc<str>, Arc<Column>>,
    incarnation: u64,
}

/// A change of the schema compares all tables, and nearly all of them are the same object before and after it.
impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        steps::count(self.by_name.len());
        // Everything else is derived from these, except the incarnation, which is not part of a table's definition.
        self.id == other.id
            && self.keyspace == other.keyspace
            && self.name == other.name
            && self.next_column_id == other.next_column_id
            && self.options == other.options
            && self.form == other.form
            && self.partition_key == other.partition_key
            && self.clustering == other.clustering
            && self.statics == other.statics
            && self.regulars == other.regulars
            && self.dropped == other.dropped
            && self.masks == other.masks
            && self.indexes == other.indexes
    }
}

impl Table {
    /// Differs from that of every dropped table that this process knew under the same id. Equality ignores it, altered
    /// tables keep it, and nothing stores it.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Sets the incarnation. The owner of the tables' data does this before anything else sees the table.
    pub fn set_incarnation(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
    }

    /// The total number of types in the columns. Of two tables with the same columns the one with more is newer,
    /// because a user type may get more fields and never loses one.
    pub fn type_parts(&self) -> u32 {
        self.type_parts
    }

    /// The partition key's columns in order.
    pub fn partition_key(&self) -> &[Arc<Column>] {
        &self.partition_key
    }

    /// The clustering columns in order.
    pub fn clustering(&self) -> &[Arc<Column>] {
        &self.clustering
    }

    /// The static columns as they are now, in header order.
    pub fn statics(&self) -> &ColumnSet {
        self.statics.current()
    }

    /// The regular columns as they are now, in header order.
    pub fn regulars(&self) -> &ColumnSet {
        self.regulars.current()
    }

    /// All sets of static (`true`) or regular columns.
    pub fn column_sets(&self, is_static: bool) -> &ColumnSets {
        if is_static { &self.statics } else { &self.regulars }
    }

    /// The static (`true`) or regular columns as they are now.
    pub fn columns(&self, is_static: bool) -> &ColumnSet {
        self.column_sets(is_static).current()
    }

    /// Columns dropped in the past, by name.
    pub fn dropped(&self) -> &[DroppedColumn] {
        &self.dropped
    }

    /// The masks of columns, by the columns' names.
    pub fn masks(&self) -> &BTreeMap<Arc<str>, Arc<ColumnMask>> {
        &self.masks
    }

    /// The secondary indexes, by name.
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// The key of one of its indexes; `None` if the table has no such column.
    pub fn index_key(&self, index: &Index) -> Option<IndexKey> {
        let column = self.column(&index.column)?;
        Some(IndexKey { column: column.id, part: index.part, analysis: index.analysis(&column.ty) })
    }

    /// How the table stores its columns.
    pub fn form(&self) -> TableForm {
        self.form
    }

    /// The column of that name, if statements may name it.
    pub fn column(&self, name: &str) -> Option<&Arc<Column>> {
        self.by_name.get(name)
    }

    /// The column of that name, even if statements cannot name it.
    pub fn stored_column(&self, name: &str) -> Option<&Arc<Column>> {
        let hidden = || self.clustering.iter().chain(self.regulars().shown()).find(|column| *column.name == *name);
        self.column(name).or_else(hidden)
    }

    /// Whether statements cannot name a column of this table, because its form made it.
    pub fn is_hidden(&self, column: &Column) -> bool {
        is_hidden(self.form, column)
    }

    /// The one regular column of a table with COMPACT STORAGE; `None` for other tables.
    pub fn compact_value(&self) -> Option<&Arc<Column>> {
        if self.form.is_compact() { self.regulars().shown().next() } else { None }
    }

    /// The columns that statements may name, in the order of `SELECT *`.
    pub fn named_columns(&self) -> Vec<Arc<Column>> {
        let mut columns = self.columns_in_select_order();
        if self.form.is_compact() {
            columns.retain(|column| !self.is_hidden(column));
        }
        columns
    }

    /// All columns in the order of `SELECT *`: partition key, clustering, statics by name, regulars by name.
    pub fn columns_in_select_order(&self) -> Vec<Arc<Column>> {
        let mut columns: Vec<_> = self.partition_key.iter().chain(&self.clustering).cloned().collect();
        for set in [self.statics(), self.regulars()] {
            let mut by_name: Vec<_> = set.shown().cloned().collect();
            by_name.sort_by(|a, b| compare_names(&a.name, &b.name));
            columns.extend(by_name);
        }
        columns
    }

    /// The order of rows in a partition.
    pub fn comparator(&self) -> &ClusteringComparator {
        &self.comparator
    }

    /// Whether the table has static columns.
    pub fn has_statics(&self) -> bool {
        self.statics().shown().next().is_some()
    }

    /// Whether its columns are counters; a table has counters only, or none.
    pub fn is_counter(&self) -> bool {
        [self.statics(), self.regulars()].iter().any(|set| set.columns.iter().any(|c| c.ty == CqlType::Counter))
    }

    /// The id the next added column gets.
    pub fn next_column_id(&self) -> u32 {
        self.next_column_id
    }

    /// A builder that starts from this table, to make an altered one.
    pub fn to_builder(&self) -> TableBuilder {
        TableBuilder {
            keyspace: self.keyspace.clone(),
            name: self.name.clone(),
            id: self.id,
            options: self.options.clone(),
            partition_key: self.partition_key.clone(),
            clustering: self.clustering.clone(),
            statics: self.statics.history().clone(),
            regulars: self.regulars.history().clone(),
            changed: [None, None],
            dropped: self.dropped.clone(),
            masks: self.masks.clone(),
            indexes: self.indexes.clone(),
            form: self.form,
            next_column_id: self.next_column_id,
            incarnation: self.incarnation,
        }
    }
}

/// Makes tables. Changes of static and regular columns are collected into at most one new column set of each kind.
pub struct TableBuilder {
    keyspace: Arc<str>,
    name: Arc<str>,
    id: TableId,
    options: TableOptions,
    partition_key: Vec<Arc<Column>>,
    clustering: Vec<Arc<Column>>,
    /// The sets under which rows may have been written.
    statics: ColumnHistory,
    regulars: ColumnHistory,
    /// The static and the regular columns of the next set, if there are any changes.
    changed: [Option<Vec<Arc<Column>>>; 2],
    dropped: Vec<DroppedColumn>,
    masks: BTreeMap<Arc<str>, Arc<ColumnMask>>,
    indexes: Vec<Index>,
    form: TableForm,
    next_column_id: u32,
    incarnation: u64,
}

impl TableBuilder {
    /// A table without columns yet.
    pub fn new(keyspace: &str, name: &str, id: TableId) -> Self {
        TableBuilder {
            keyspace: keyspace.into(),
            name: name.into(),
            id,
            options: TableOptions::default(),
            partition_key: Vec::new(),
            clustering: Vec::new(),
            statics: ColumnHistory::default(),
            regulars: ColumnHistory::default(),
            changed: [None, None],
            dropped: Vec::new(),
            masks: BTreeMap::new(),
            indexes: Vec::new(),
            form: TableForm::default(),
            next_column_id: 1,
            incarnation: 0,
        }
    }

    /// Rebuilds a table whose column ids and sets are stored, as changes, oldest first. `None` if the changes
    /// contradict one another.
    pub fn with_column_changes(
        mut self,
        statics: Vec<ColumnChange>,
        regulars: Vec<ColumnChange>,
        next_column_id: u32,
    ) -> Option<Self> {
        self.statics = ColumnHistory::of_changes(statics)?;
        self.regulars = ColumnHistory::of_changes(regulars)?;
        self.next_column_id = next_column_id;
        Some(self)
    }

    /// Sets the options.
    pub fn options(mut self, options: TableOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how the table stores its columns.
    pub fn form(mut self, form: TableForm) -> Self {
        self.form = form;
        self
    }

    fn column(&mut self, name: &str, ty: CqlType, kind: ColumnKind, position: i32, reversed: bool) -> Arc<Column> {
        let id = ColumnId(self.next_column_id);
        self.next_column_id += 1;
        Arc::new(Column { id, name: name.into(), ty, kind, position, reversed, is_dropped: false })
    }

    /// Adds the next column of the partition key.
    pub fn partition_key(mut self, name: &str, ty: CqlType) -> Self {
        let column = self.column(name, ty, ColumnKind::PartitionKey, self.partition_key.len() as i32, false);
        self.partition_key.push(column);
        self
    }

    /// Adds the next clustering column.
    pub fn clustering(mut self, name: &str, ty: CqlType, reversed: bool) -> Self {
        let column = self.column(name, ty, ColumnKind::Clustering, self.clustering.len() as i32, reversed);
        self.clustering.push(column);
        self
    }

    /// Adds a static or regular column under a new id, in place of a dropped one of that name.
    pub fn add(mut self, name: &str, ty: CqlType, kind: ColumnKind) -> Self {
        let column = self.column(name, ty, kind, -1, false);
        self.change_set(kind, |columns| {
            columns.retain(|other| other.name != column.name);
            columns.push(column);
        });
        self
    }

    /// Adds many columns at once, in time linear in their number.
    pub fn add_all<'c>(mut self, columns: impl IntoIterator<Item = (&'c str, CqlType, ColumnKind)>) -> Self {
        let (mut statics, mut regulars) = (Vec::new(), Vec::new());
        for (name, ty, kind) in columns {
            let column = self.column(name, ty, kind, -1, false);
            if kind == ColumnKind::Static { statics.push(column) } else { regulars.push(column) }
        }
        for (kind, added) in [(ColumnKind::Static, statics), (ColumnKind::Regular, regulars)] {
            if added.is_empty() {
                continue;
            }
            let names: HashSet<Arc<str>> = added.iter().map(|column| column.name.clone()).collect();
            debug_assert_eq!(names.len(), added.len(), "a column is added twice");
            self.change_set(kind, |columns| {
                columns.retain(|other| !names.contains(&other.name));
                columns.extend(added);
            });
        }
        self
    }

    /// Adds a static column.
    pub fn static_column(self, name: &str, ty: CqlType) -> Self {
        self.add(name, ty, ColumnKind::Static)
    }

    /// Adds a regular column.
    pub fn regular(self, name: &str, ty: CqlType) -> Self {
        self.add(name, ty, ColumnKind::Regular)
    }

    /// Drops a static or regular column; `recorded_type` is its type with user types expanded to tuples.
    pub fn drop_column(self, name: &str, recorded_type: CqlType, dropped_time_micros: i64) -> Self {
        self.drop_all(&[(name, recorded_type)], dropped_time_micros)
    }

    /// Drops static or regular columns, each given once, with their types as in [`Self::drop_column`], in time linear
    /// in the number of columns.
    pub fn drop_all(mut self, columns: &[(&str, CqlType)], dropped_time_micros: i64) -> Self {
        let is_live = |column: &&Arc<Column>| !column.is_dropped;
        let statics: HashSet<Arc<str>> =
            self.latest(ColumnKind::Static).iter().filter(is_live).map(|column| column.name.clone()).collect();
        let (of_statics, of_regulars): (Vec<_>, Vec<_>) = columns.iter().partition(|(name, _)| statics.contains(*name));
        for (kind, dropped) in [(ColumnKind::Static, of_statics), (ColumnKind::Regular, of_regulars)] {
            if dropped.is_empty() {
                continue;
            }
            let types: HashMap<&str, &CqlType> = dropped.iter().map(|(name, ty)| (*name, ty)).collect();
            self.change_set(kind, |columns| {
                for column in columns.iter_mut() {
                    if let Some(ty) = types.get(&*column.name) {
                        *column = Arc::new(Column { ty: (*ty).clone(), is_dropped: true, ..(**column).clone() });
                    }
                }
            });
            self.dropped.retain(|other| !types.contains_key(&*other.name));
            self.masks.retain(|name, _| !types.contains_key(&**name));
            let note = |(name, ty): &&(&str, CqlType)| DroppedColumn {
                name: (*name).into(),
                ty: ty.clone(),
                kind,
                dropped_time_micros,
            };
            self.dropped.extend(dropped.iter().map(note));
        }
        self.dropped.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// Records columns dropped in the past, in place of older records of the same names.
    pub fn record_dropped(mut self, dropped: impl IntoIterator<Item = DroppedColumn>) -> Self {
        let by_name: BTreeMap<Arc<str>, DroppedColumn> =
            self.dropped.into_iter().chain(dropped).map(|column| (column.name.clone(), column)).collect();
        self.dropped = by_name.into_values().collect();
        self
    }

    /// Replaces the secondary indexes.
    pub fn indexes(mut self, indexes: impl IntoIterator<Item = Index>) -> Self {
        self.indexes = indexes.into_iter().collect();
        self.indexes.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// Renames columns of the primary key: those whose names are keys of `names` get their values.
    pub fn rename_all(mut self, names: &BTreeMap<&str, &str>) -> Self {
        for column in self.partition_key.iter_mut().chain(&mut self.clustering) {
            if let Some(name) = names.get(&*column.name) {
                *column = Arc::new(Column { name: (*name).into(), ..(**column).clone() });
            }
        }
        let renamed = |name: Arc<str>| names.get(&*name).map_or_else(|| name.clone(), |new| Arc::from(*new));
        self.masks = self.masks.into_iter().map(|(name, mask)| (renamed(name), mask)).collect();
        self
    }

    /// Masks a column, or removes its mask.
    pub fn mask(mut self, column: &str, mask: Option<ColumnMask>) -> Self {
        match mask {
            Some(mask) => self.masks.insert(column.into(), Arc::new(mask)),
            None => self.masks.remove(column),
        };
        self
    }

    /// Replaces the type of every column with the result of `replace` (for a user type that gained or renamed a field).
    pub fn map_types(self, replace: impl Fn(&CqlType) -> CqlType) -> Self {
        let mut builder = self.with_types(|column| replace(&column.ty));
        builder.masks.values_mut().for_each(|mask| *mask = Arc::new(mask.map_types(&replace)));
        builder
    }

    /// Replaces the types of single columns, in every column set that has them. Each new type is complex if and only if
    /// the old one is.
    pub fn set_types(self, types: &HashMap<ColumnId, CqlType>) -> Self {
        self.with_types(|column| types.get(&column.id).unwrap_or(&column.ty).clone())
    }

    fn with_types(mut self, replace: impl Fn(&Column) -> CqlType) -> Self {
        let map = |column: &Arc<Column>| Arc::new(Column { ty: replace(column), ..(**column).clone() });
        let keys = self.partition_key.iter_mut().chain(&mut self.clustering);
        keys.chain(self.changed.iter_mut().flatten().flatten()).for_each(|column| *column = map(column));
        self.statics.map(map);
        self.regulars.map(map);
        self
    }

    /// The newest columns, changes included.
    fn latest(&self, kind: ColumnKind) -> &[Arc<Column>] {
        match (kind, &self.changed) {
            (ColumnKind::Static, [Some(columns), _]) | (ColumnKind::Regular, [_, Some(columns)]) => columns,
            (ColumnKind::Static, _) => self.statics.latest(),
            _ => self.regulars.latest(),
        }
    }

    /// Changes the columns of the next set.
    fn change_set(&mut self, kind: ColumnKind, change: impl FnOnce(&mut Vec<Arc<Column>>)) {
        let mut columns = self.latest(kind).to_vec();
        change(&mut columns);
        column_sets::sort(&mut columns);
        self.changed[usize::from(kind != ColumnKind::Static)] = Some(columns);
    }

    /// Adds dropped columns to the newest sets if they are missing there: those of a table stored before sets kept
    /// them, or of one whose drops were only recorded.
    fn place_dropped(&mut self) {
        let newest = self.latest(ColumnKind::Static).iter().chain(self.latest(ColumnKind::Regular));
        let placed: HashSet<Arc<str>> = newest.map(|column| column.name.clone()).collect();
        let missing: Vec<DroppedColumn> =
            self.dropped.iter().filter(|dropped| !placed.contains(&dropped.name)).cloned().collect();
        // Columns get their ids in the order of their names, whatever their kinds are.
        let (mut statics, mut regulars) = (Vec::new(), Vec::new());
        for dropped in missing {
            let column = self.column(&dropped.name, dropped.ty, dropped.kind, -1, false);
            let column = Arc::new(Column { is_dropped: true, ..(*column).clone() });
            if dropped.kind == ColumnKind::Static { statics.push(column) } else { regulars.push(column) }
        }
        for (kind, missing) in [(ColumnKind::Static, statics), (ColumnKind::Regular, regulars)] {
            if !missing.is_empty() {
                self.change_set(kind, |columns| columns.extend(missing));
            }
        }
    }

    /// The finished table.
    pub fn build(mut self) -> Table {
        self.place_dropped();
        let [changed_statics, changed_regulars] = self.changed;
        changed_statics.into_iter().for_each(|columns| self.statics.push(columns));
        changed_regulars.into_iter().for_each(|columns| self.regulars.push(columns));
        let dropped_times = column_sets::dropped_times(&self.dropped);
        let statics = ColumnSets::new(self.statics, dropped_times.clone());
        let regulars = ColumnSets::new(self.regulars, dropped_times);
        let by_name = self
            .partition_key
            .iter()
            .chain(&self.clustering)
            .chain(statics.current().shown())
            .chain(regulars.current().shown())
            .filter(|column| !is_hidden(self.form, column))
            .map(|column| (column.name.clone(), column.clone()))
            .collect();
        let key_and_others = self.partition_key.iter().chain(&self.clustering);
        let columns = key_and_others.chain(statics.current().shown()).chain(regulars.current().shown());
        let type_parts = columns.map(|column| column.ty.shape().parts).fold(0, u32::saturating_add);
        let comparator =
            ClusteringComparator::new(self.clustering.iter().map(|c| (c.ty.clone(), c.reversed)).collect());
        Table {
            keyspace: self.keyspace,
            name: self.name,
            id: self.id,
            options: self.options,
            partition_key: self.partition_key,
            clustering: self.clustering,
            statics,
            regulars,
            dropped: self.dropped,
            masks: self.masks,
            indexes: self.indexes,
            form: self.form,
            next_column_id: self.next_column_id,
            type_parts,
            comparator,
            by_name,
            incarnation: self.incarnation,
        }
    }
}

fn is_hidden(form: TableForm, column: &Column) -> bool {
    match form {
        TableForm::Ordinary => false,
        TableForm::StaticCompact => matches!(column.kind, ColumnKind::Clustering | ColumnKind::Regular),
        TableForm::Dense | TableForm::CompoundDense => {
            column.kind == ColumnKind::Regular && column.ty == CqlType::Empty
        }
    }
}

/// Cassandra's order of column names. It compares the first six bytes with the top bit of the first one flipped, so
/// that names starting with a non-ASCII byte come first; all others are in plain byte order.
pub(crate) fn compare_names(left: &str, right: &str) -> std::cmp::Ordering {
    steps::count(1);
    let key = |name: &str| {
        let mut first = [0u8; 6];
        let length = name.len().min(6);
        first[..length].copy_from_slice(&name.as_bytes()[..length]);
        first[0] ^= 0x80;
        first
    };
    key(left).cmp(&key(right)).then_with(|| left.as_bytes().cmp(right.as_bytes()))
}

/// A keyspace: its options, tables and user types. Immutable.
#[derive(Clone, PartialEq, Debug)]
pub struct Keyspace {
    /// The name.
    pub name: Arc<str>,
    /// Whether writes go to the commit log.
    pub durable_writes: bool,
    /// The replication options, `class` (full Java class name) among them.
    pub replication: BTreeMap<String, String>,
    /// The tables by name.
    pub tables: BTreeMap<Arc<str>, Arc<Table>>,
    /// The user types by name.
    pub types: BTreeMap<Arc<str>, Arc<UserType>>,
    /// Tables by name that are stored and whose definitions cannot be read. Their names are taken.
    pub unreadable: BTreeMap<Arc<str>, UnreadableTable>,
}

/// A table whose stored definition cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableTable {
    /// Its id, where that is known.
    pub id: Option<TableId>,
    /// The stored row that cannot be read, and the reason.
    pub reason: Arc<str>,
}

impl Keyspace {
    /// A keyspace without tables.
    pub fn new(name: &str, replication: BTreeMap<String, String>, durable_writes: bool) -> Self {
        let (tables, types, unreadable) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Keyspace { name: name.into(), durable_writes, replication, tables, types, unreadable }
    }
}

/// All keyspaces at one time. Immutable.
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// Changes with every change of the schema.
    pub version: Uuid,
    /// The keyspaces by name.
    pub keyspaces: BTreeMap<Arc<str>, Arc<Keyspace>>,
    by_id: HashMap<TableId, Arc<Table>>,
}

impl Schema {
    /// A schema of these keyspaces.
    pub fn new(version: Uuid, keyspaces: BTreeMap<Arc<str>, Arc<Keyspace>>) -> Self {
        let by_id = keyspaces.values().flat_map(|k| k.tables.values()).map(|table| (table.id, table.clone())).collect();
        Schema { version, keyspaces, by_id }
    }

    /// The keyspace of that name.
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    /// The table of that name.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(name)
    }

    /// The table of that name, if it is stored and its definition cannot be read.
    pub fn unreadable(&self, keyspace: &str, name: &str) -> Option<&UnreadableTable> {
        self.keyspaces.get(keyspace)?.unreadable.get(name)
    }

    /// All tables that are stored and whose definitions cannot be read, with keyspace and name.
    pub fn all_unreadable(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &UnreadableTable)> {
        let keyspaces = self.keyspaces.values();
        keyspaces
            .flat_map(|keyspace| keyspace.unreadable.iter().map(move |(name, table)| (&keyspace.name, name, table)))
    }

    /// The table of that id.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.by_id.get(&id)
    }
}
