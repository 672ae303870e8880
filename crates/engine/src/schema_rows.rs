//! Conversion of the schema to rows of `system_schema`, and back.
//!
//! The rows are Cassandra's, as drivers expect them. Column ids and column sets, for which Cassandra has no columns,
//! are in `system.table_layouts` ([`layout`]).

mod layout;

mod agreement;

mod masks;

mod indexes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use model::{
    Column, ColumnKind, DroppedColumn, Keyspace, PartitionUpdate, Schema, Table, TableBuilder, TableForm, TableId,
    TableOptions, UnreadableTable,
};
use types::{CqlType, UserType, collection};

use self::agreement::{differing_column, differing_drop};
use crate::system::{SystemRow, SystemWrite};
use layout::parse_type;

pub(crate) use indexes::{note_built, read as read_index};

/// The names of the tables of `system_schema` that are loaded here.
pub(crate) const KEYSPACES: &str = "keyspaces";
pub(crate) const TABLES: &str = "tables";
pub(crate) const COLUMNS: &str = "columns";
pub(crate) const DROPPED_COLUMNS: &str = "dropped_columns";
pub(crate) const COLUMN_MASKS: &str = "column_masks";
pub(crate) const TYPES: &str = "types";
pub(crate) const INDEXES: &str = "indexes";
/// The table of `system` that has a row for each index that is built.
pub(crate) const BUILT_INDEXES: &str = "IndexInfo";
pub(crate) const LAYOUTS: &str = "table_layouts";
fn text(value: &str) -> Option<Vec<u8>> {
    Some(value.as_bytes().to_vec())
}

fn boolean(value: bool) -> Option<Vec<u8>> {
    Some(vec![u8::from(value)])
}

fn int(value: i32) -> Option<Vec<u8>> {
    Some(value.to_be_bytes().to_vec())
}

fn double(value: f64) -> Option<Vec<u8>> {
    Some(value.to_be_bytes().to_vec())
}

fn text_map(map: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    Some(collection::map(map.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))))
}

fn texts<'a>(values: impl ExactSizeIterator<Item = &'a str>) -> Option<Vec<u8>> {
    Some(collection::list(values.map(str::as_bytes)))
}

/// The writes that replace everything stored under a keyspace's name with the keyspace.
pub(crate) fn store_keyspace(schema: &Schema, keyspace: &Keyspace, timestamp: i64, writes: &mut Vec<PartitionUpdate>) {
    drop_keyspace(schema, keyspace, timestamp - 1, writes);
    change_keyspace(schema, None, keyspace, timestamp, writes);
}

/// The writes that turn the stored form of `old` into that of `new`.
pub(crate) fn changes(old: &Schema, new: &Schema, timestamp: i64) -> Vec<PartitionUpdate> {
    let mut writes = Vec::new();
    for (name, keyspace) in &old.keyspaces {
        if !new.keyspaces.contains_key(name) {
            drop_keyspace(new, keyspace, timestamp, &mut writes);
        }
    }
    for (name, keyspace) in &new.keyspaces {
        let before = old.keyspaces.get(name);
        if before != Some(keyspace) {
            change_keyspace(new, before.map(Arc::as_ref), keyspace, timestamp, &mut writes);
        }
    }
    writes
}

/// A system table that every schema has.
fn schema_table<'s>(schema: &'s Schema, name: &str) -> &'s Arc<Table> {
    let keyspace = if [LAYOUTS, BUILT_INDEXES].contains(&name) { "system" } else { "system_schema" };
    schema.table(keyspace, name).expect("system tables are part of every schema")
}

/// The writes that delete a keyspace.
pub(crate) fn drop_keyspace(schema: &Schema, keyspace: &Keyspace, timestamp: i64, writes: &mut Vec<PartitionUpdate>) {
    for table in [KEYSPACES, TABLES, COLUMNS, DROPPED_COLUMNS, COLUMN_MASKS, TYPES, INDEXES, BUILT_INDEXES] {
        let mut write = SystemWrite::new(schema_table(schema, table), keyspace.name.as_bytes(), timestamp);
        write.clear();
        writes.push(write.build());
    }
    let readable = keyspace.tables.values().map(|table| (table.id, &table.name));
    let unreadable = keyspace.unreadable.iter().filter_map(|(name, table)| Some((table.id?, name)));
    for (id, name) in readable.chain(unreadable) {
        writes.push(drop_layout(schema, id, [&keyspace.name, name], timestamp));
    }
}

fn drop_layout(schema: &Schema, id: TableId, [keyspace, name]: [&str; 2], timestamp: i64) -> PartitionUpdate {
    let mut write = SystemWrite::new(schema_table(schema, LAYOUTS), id.0.as_bytes(), timestamp);
    write.row(&[], &[("layout", Some(layout::write_dropped(keyspace, name)))]);
    write.build()
}

/// The write that forgets a dropped table.
pub(crate) fn forget_layout(schema: &Schema, id: TableId, timestamp: i64) -> PartitionUpdate {
    let mut write = SystemWrite::new(schema_table(schema, LAYOUTS), id.0.as_bytes(), timestamp);
    write.clear();
    write.build()
}

/// The tables whose drop is not finished: id, keyspace, name.
pub(crate) fn dropped_tables(layouts: &[SystemRow]) -> Vec<(TableId, String, String)> {
    let dropped = |row: &SystemRow| {
        let (keyspace, name) = layout::read_dropped(row.get("layout")?)?;
        Some((TableId(row.uuid("table_id")?), keyspace, name))
    };
    layouts.iter().filter_map(dropped).collect()
}

fn change_keyspace(
    schema: &Schema,
    before: Option<&Keyspace>,
    keyspace: &Keyspace,
    timestamp: i64,
    writes: &mut Vec<PartitionUpdate>,
) {
    let key = keyspace.name.as_bytes();
    let write = |name: &str| SystemWrite::new(schema_table(schema, name), key, timestamp);
    let mut keyspaces = write(KEYSPACES);
    keyspaces.row(
        &[],
        &[("durable_writes", boolean(keyspace.durable_writes)), ("replication", text_map(&keyspace.replication))],
    );
    writes.push(keyspaces.build());

    let (mut tables, mut columns, mut dropped) = (write(TABLES), write(COLUMNS), write(DROPPED_COLUMNS));
    let mut masks = write(COLUMN_MASKS);
    let old_tables = before.map(|before| &before.tables);
    // Few tables have masks, and the others write nothing about them.
    let (mut changed, mut changes_masks) = (false, false);
    for (name, table) in old_tables.into_iter().flatten() {
        if keyspace.tables.get(name) == Some(table) {
            continue;
        }
        changed = true;
        for write in [&mut tables, &mut columns, &mut dropped] {
            write.clear_rows(&[name.as_bytes()]);
        }
        if !table.masks().is_empty() {
            changes_masks = true;
            masks.clear_rows(&[name.as_bytes()]);
        }
        if keyspace.tables.get(name).is_none_or(|new| new.id != table.id) {
            writes.push(drop_layout(schema, table.id, [&table.keyspace, name], timestamp));
        }
    }
    for (name, table) in before.iter().flat_map(|before| &before.unreadable) {
        if keyspace.unreadable.contains_key(name) {
            continue;
        }
        (changed, changes_masks) = (true, true);
        for write in [&mut tables, &mut columns, &mut dropped, &mut masks] {
            write.clear_rows(&[name.as_bytes()]);
        }
        writes.extend(table.id.map(|id| drop_layout(schema, id, [&keyspace.name, name], timestamp)));
    }
    for (name, table) in &keyspace.tables {
        if old_tables.and_then(|old| old.get(name)) == Some(table) {
            continue;
        }
        changed = true;
        changes_masks |= !table.masks().is_empty();
        write_table(table, [&mut tables, &mut columns, &mut dropped, &mut masks]);
        let mut layout = SystemWrite::new(schema_table(schema, LAYOUTS), table.id.0.as_bytes(), timestamp);
        layout.row(&[], &[("layout", Some(layout::write(table)))]);
        writes.push(layout.build());
    }
    if changed {
        writes.extend([tables.build(), columns.build(), dropped.build()]);
    }
    if changes_masks {
        writes.push(masks.build());
    }
    writes.extend(change_types(write(TYPES), before, keyspace));
    indexes::change([write(INDEXES), write(BUILT_INDEXES)], before, keyspace, writes);
}

/// Writes the rows of a table in `tables`, `columns`, `dropped_columns` and `column_masks`.
fn write_table(table: &Table, [tables, columns, dropped, masks]: [&mut SystemWrite; 4]) {
    let name = table.name.as_bytes();
    tables.row(&[name], &table_values(table));
    for column in table.columns_in_select_order() {
        columns.row(&[name, column.name.as_bytes()], &column_values(&column));
    }
    for column in table.dropped() {
        dropped.row(&[name, column.name.as_bytes()], &dropped_values(column));
    }
    for (column, mask) in table.masks() {
        masks.row(&[name, column.as_bytes()], &masks::values(mask));
    }
}

fn change_types(mut types: SystemWrite, before: Option<&Keyspace>, keyspace: &Keyspace) -> Option<PartitionUpdate> {
    let old_types = before.map(|before| &before.types);
    let mut changed = false;
    for (name, _) in old_types.into_iter().flatten().filter(|(name, _)| !keyspace.types.contains_key(*name)) {
        changed = true;
        types.clear_rows(&[name.as_bytes()]);
    }
    for (name, definition) in &keyspace.types {
        if old_types.and_then(|old| old.get(name)) == Some(definition) {
            continue;
        }
        changed = true;
        types.clear_rows(&[name.as_bytes()]);
        let names = texts(definition.fields().iter().map(|(name, _)| &**name));
        let type_names: Vec<String> = definition.fields().iter().map(|(_, ty)| ty.to_string()).collect();
        let field_types = texts(type_names.iter().map(String::as_str));
        types.row(&[name.as_bytes()], &[("field_names", names), ("field_types", field_types)]);
    }
    changed.then(|| types.build())
}

/// The values of a row of `system_schema.tables` beyond its key.
pub(crate) fn table_values(table: &Table) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let options = &table.options;
    let extensions = options.extensions.iter().map(|(key, value)| (key.as_bytes(), value.as_slice()));
    let flags = table.form().flags(table.is_counter());
    vec![
        ("additional_write_policy", text(&options.additional_write_policy)),
        ("allow_auto_snapshot", if options.allow_auto_snapshot { None } else { boolean(false) }),
        ("bloom_filter_fp_chance", double(options.bloom_filter_fp_chance)),
        ("caching", text_map(&options.caching)),
        ("cdc", if options.cdc { boolean(true) } else { None }),
        ("comment", text(&options.comment)),
        ("compaction", text_map(&options.compaction)),
        ("compression", text_map(&options.compression)),
        ("crc_check_chance", double(options.crc_check_chance)),
        ("dclocal_read_repair_chance", double(0.0)),
        ("default_time_to_live", int(options.default_time_to_live)),
        ("extensions", Some(collection::map(extensions))),
        ("flags", texts(flags.iter().copied())),
        ("gc_grace_seconds", int(options.gc_grace_seconds)),
        ("id", Some(table.id.0.as_bytes().to_vec())),
        ("incremental_backups", if options.incremental_backups { None } else { boolean(false) }),
        ("max_index_interval", int(options.max_index_interval)),
        ("memtable", if options.memtable == "default" { None } else { text(&options.memtable) }),
        ("memtable_flush_period_in_ms", int(options.memtable_flush_period_in_ms)),
        ("min_index_interval", int(options.min_index_interval)),
        ("read_repair", text(&options.read_repair)),
        ("read_repair_chance", double(0.0)),
        ("speculative_retry", text(&options.speculative_retry)),
    ]
}

fn column_values(column: &Column) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let (kind, order) = match column.kind {
        ColumnKind::PartitionKey => ("partition_key", "none"),
        ColumnKind::Clustering => ("clustering", if column.reversed { "desc" } else { "asc" }),
        ColumnKind::Static => ("static", "none"),
        ColumnKind::Regular => ("regular", "none"),
    };
    vec![
        ("clustering_order", text(order)),
        ("column_name_bytes", text(&column.name)),
        ("kind", text(kind)),
        ("position", int(column.position)),
        ("type", text(&column.ty.to_string())),
    ]
}

fn dropped_values(column: &DroppedColumn) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let kind = if column.kind == ColumnKind::Static { "static" } else { "regular" };
    vec![
        ("dropped_time", Some((column.dropped_time_micros / 1000).to_be_bytes().to_vec())),
        ("kind", text(kind)),
        ("type", text(&column.ty.to_string())),
    ]
}

/// The stored rows of the schema.
pub(crate) struct SchemaRows {
    pub keyspaces: Vec<SystemRow>,
    pub tables: Vec<SystemRow>,
    pub columns: Vec<SystemRow>,
    pub dropped_columns: Vec<SystemRow>,
    pub column_masks: Vec<SystemRow>,
    pub types: Vec<SystemRow>,
    pub indexes: Vec<SystemRow>,
    pub layouts: Vec<SystemRow>,
    /// Whether the rows are those of a Cassandra node, which has no layouts: columns get new ids.
    pub is_foreign: bool,
}

/// The reason why a part of the stored schema cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaDamage(pub String);

impl std::fmt::Display for SchemaDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the stored schema is damaged: {}", self.0)
    }
}

impl std::error::Error for SchemaDamage {}

/// The user keyspaces that the rows describe.
pub(crate) fn load(rows: &SchemaRows) -> Result<Vec<Keyspace>, SchemaDamage> {
    let (keyspaces, damage) = load_whole(rows);
    damage.into_iter().next().map_or(Ok(keyspaces), Err)
}

/// The user keyspaces with their readable parts, and the damage of the others.
pub(crate) fn load_whole(rows: &SchemaRows) -> (Vec<Keyspace>, Vec<SchemaDamage>) {
    let (by_table, mut damage) = (RowsByTable::new(rows), Vec::new());
    let keyspaces = rows.keyspaces.iter().map(|row| load_keyspace(row, rows, &by_table, &mut damage)).collect();
    (keyspaces, damage)
}

/// A keyspace whose own row is lost.
pub(crate) fn rowless_keyspace(name: &str) -> Keyspace {
    let replication = [("class", "org.apache.cassandra.locator.SimpleStrategy"), ("replication_factor", "1")];
    let replication = replication.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Keyspace::new(name, replication.into(), true)
}

/// Adds keyspaces and tables that have other rows, but not their own. The tables are added as unreadable ones.
pub(crate) fn add_rowless(rows: &SchemaRows, keyspaces: &mut Vec<Keyspace>, damage: &mut Vec<SchemaDamage>) {
    for name in without_keyspace(rows) {
        let mut keyspace = rowless_keyspace(&name);
        let reason: Arc<str> = format!("system_schema.keyspaces has no row of keyspace {name}").into();
        let unreadable = |row: &SystemRow| {
            let id = row.uuid("id").map(TableId);
            (row.text("table_name").into(), UnreadableTable { id, reason: reason.clone() })
        };
        keyspace.unreadable = of_keyspace(&rows.tables, &name).map(unreadable).collect();
        keyspaces.push(keyspace);
        damage.push(SchemaDamage(reason.to_string()));
    }
    let known: HashSet<_> = rows.tables.iter().map(|row| (row.get("keyspace_name"), row.get("table_name"))).collect();
    for row in &rows.columns {
        let keyspace = keyspaces.iter_mut().find(|keyspace| Some(keyspace.name.as_bytes()) == row.get("keyspace_name"));
        if let Some(keyspace) = keyspace
            && !known.contains(&(row.get("keyspace_name"), row.get("table_name")))
        {
            let name = row.text("table_name");
            let reason = format!(
                "table {}.{name}: system_schema.columns has rows of it, system_schema.tables has none",
                keyspace.name
            );
            let unreadable = UnreadableTable { id: None, reason: reason.as_str().into() };
            if keyspace.unreadable.insert(name.as_str().into(), unreadable).is_none() {
                damage.push(SchemaDamage(reason));
            }
        }
    }
}

/// The ids of tables that have a layout, are not dropped, and are in no row of `system_schema.tables`.
pub(crate) fn unclaimed_ids(rows: &SchemaRows) -> BTreeSet<TableId> {
    let claimed: HashSet<_> = rows.tables.iter().filter_map(|row| row.get("id")).collect();
    let is_unclaimed = |row: &&SystemRow| {
        let is_dropped = row.get("layout").is_none_or(layout::is_of_dropped);
        !is_dropped && row.get("table_id").is_some_and(|id| !claimed.contains(id))
    };
    rows.layouts.iter().filter(is_unclaimed).filter_map(|row| row.uuid("table_id").map(TableId)).collect()
}

/// The keyspaces that lack their own row, although rows of their tables, columns or types exist.
pub(crate) fn without_keyspace(rows: &SchemaRows) -> BTreeSet<String> {
    let parts = [&rows.tables, &rows.columns, &rows.dropped_columns, &rows.types].into_iter().flatten();
    let is_there = |name: &String| rows.keyspaces.iter().any(|row| row.text("keyspace_name") == *name);
    parts.map(|row| row.text("keyspace_name")).filter(|name| !is_there(name)).collect()
}

/// The rows of each table in maps, because a node has hundreds of tables, and a start loads them all.
struct RowsByTable<'r> {
    columns: HashMap<(&'r [u8], &'r [u8]), Vec<&'r SystemRow>>,
    dropped_columns: HashMap<(&'r [u8], &'r [u8]), Vec<&'r SystemRow>>,
    column_masks: HashMap<(&'r [u8], &'r [u8]), Vec<&'r SystemRow>>,
    indexes: HashMap<(&'r [u8], &'r [u8]), Vec<&'r SystemRow>>,
    layouts: HashMap<&'r [u8], &'r [u8]>,
    is_foreign: bool,
}

impl<'r> RowsByTable<'r> {
    fn new(rows: &'r SchemaRows) -> Self {
        let layouts = rows.layouts.iter().filter_map(|row| Some((row.get("table_id")?, row.get("layout")?)));
        RowsByTable {
            columns: Self::group(&rows.columns),
            dropped_columns: Self::group(&rows.dropped_columns),
            column_masks: Self::group(&rows.column_masks),
            indexes: Self::group(&rows.indexes),
            layouts: layouts.collect(),
            is_foreign: rows.is_foreign,
        }
    }

    fn group(rows: &'r [SystemRow]) -> HashMap<(&'r [u8], &'r [u8]), Vec<&'r SystemRow>> {
        let mut groups: HashMap<_, Vec<_>> = HashMap::new();
        for row in rows {
            let name = |column| row.get(column).unwrap_or_default();
            groups.entry((name("keyspace_name"), name("table_name"))).or_default().push(row);
        }
        groups
    }
}

fn of_keyspace<'r>(rows: &'r [SystemRow], keyspace: &str) -> impl Iterator<Item = &'r SystemRow> {
    rows.iter().filter(move |row| row.get("keyspace_name") == Some(keyspace.as_bytes()))
}

/// The keyspace without tables and types.
fn load_settings(row: &SystemRow) -> Keyspace {
    let durable_writes = row.boolean("durable_writes").unwrap_or(true);
    Keyspace::new(&row.text("keyspace_name"), row.text_map("replication"), durable_writes)
}

fn load_keyspace(
    row: &SystemRow,
    rows: &SchemaRows,
    by_table: &RowsByTable<'_>,
    damage: &mut Vec<SchemaDamage>,
) -> Keyspace {
    let name = row.text("keyspace_name");
    let mut keyspace = load_settings(row);
    keyspace.types = load_types(&name, rows, UserTypes::new(), damage);
    load_tables(&mut keyspace, rows, by_table, damage);
    keyspace
}

fn load_tables(keyspace: &mut Keyspace, rows: &SchemaRows, by_table: &RowsByTable<'_>, damage: &mut Vec<SchemaDamage>) {
    for row in of_keyspace(&rows.tables, &keyspace.name.clone()) {
        match load_table(keyspace, row, by_table) {
            Ok((table, disagreement)) => {
                damage.extend(disagreement);
                keyspace.tables.insert(table.name.clone(), Arc::new(table));
            }
            Err(wrong) => {
                let unreadable = UnreadableTable { id: row.uuid("id").map(TableId), reason: wrong.0.clone().into() };
                keyspace.unreadable.insert(row.text("table_name").into(), unreadable);
                damage.push(wrong);
            }
        }
    }
}

/// Loads a keyspace from the rows of its changed parts. `types` are its unchanged types; unchanged tables are left out.
pub(crate) fn load_changes(rows: &SchemaRows, types: UserTypes) -> Result<Keyspace, SchemaDamage> {
    let (by_table, mut damage) = (RowsByTable::new(rows), Vec::new());
    let row = rows.keyspaces.first().ok_or_else(|| SchemaDamage("no row of the keyspace".into()))?;
    let mut keyspace = load_settings(row);
    keyspace.types = load_types(&keyspace.name, rows, types, &mut damage);
    load_tables(&mut keyspace, rows, &by_table, &mut damage);
    damage.into_iter().next().map_or(Ok(keyspace), Err)
}

/// User types by name.
pub(crate) type UserTypes = BTreeMap<Arc<str>, Arc<UserType>>;

/// Adds the stored types to `types`. Types may use each other: those whose fields are all known are read first.
fn load_types(keyspace: &str, rows: &SchemaRows, mut types: UserTypes, damage: &mut Vec<SchemaDamage>) -> UserTypes {
    let mut waiting: Vec<&SystemRow> = of_keyspace(&rows.types, keyspace).collect();
    loop {
        let before = waiting.len();
        waiting.retain(|row| {
            let names = row.texts("field_names").into_iter();
            let fields: Option<Vec<(Arc<str>, CqlType)>> = names
                .zip(row.texts("field_types"))
                .map(|(name, ty)| Some((name.into(), CqlType::parse_name(&ty, &|user| types.get(user).cloned())?)))
                .collect();
            let Some(fields) = fields else {
                return true;
            };
            let name: Arc<str> = row.text("type_name").into();
            types.insert(name.clone(), Arc::new(UserType::new(keyspace.into(), name, fields)));
            false
        });
        if waiting.len() == before {
            break;
        }
    }
    let unknown = |row: &&SystemRow| {
        let name = row.text("type_name");
        SchemaDamage(format!("type {keyspace}.{name} uses an unknown type"))
    };
    damage.extend(waiting.iter().map(unknown));
    types
}

/// The table of a row of `system_schema.tables`, and the difference between its other rows and its layout, if any.
fn load_table(
    keyspace: &Keyspace,
    row: &SystemRow,
    rows: &RowsByTable<'_>,
) -> Result<(Table, Option<SchemaDamage>), SchemaDamage> {
    let name = row.text("table_name");
    let damage = |what: &str| SchemaDamage(format!("table {}.{name}: {what}", keyspace.name));
    let id = TableId(row.uuid("id").ok_or_else(|| damage("its row in system_schema.tables has no id"))?);
    let layout = rows.layouts.get(&id.0.as_bytes()[..]).and_then(|bytes| layout::read(bytes, &keyspace.types));
    if layout.is_none() && !rows.is_foreign {
        return Err(damage("system.table_layouts has no row of it that this version can read"));
    }
    let place = (keyspace.name.as_bytes(), name.as_bytes());
    let columns = rows.columns.get(&place).map(Vec::as_slice).unwrap_or_default();
    if !columns.iter().any(|row| row.text("kind") == "partition_key") {
        return Err(damage("system_schema.columns has no row of a partition key"));
    }
    let is_known =
        |row: &&SystemRow| CqlType::parse_name(&row.text("type"), &|user| keyspace.types.get(user).cloned()).is_some();
    if let Some(unknown) = columns.iter().find(|row| !is_known(row)) {
        let (column, ty) = (unknown.text("column_name"), unknown.text("type"));
        return Err(damage(&format!(
            "the row of column {column} in system_schema.columns has the unknown type {ty:?}"
        )));
    }
    let form = TableForm::of_flags(row.texts("flags").iter().map(String::as_str));
    let form = form.ok_or_else(|| damage("its row in system_schema.tables has unknown flags"))?;
    let mut builder = TableBuilder::new(&keyspace.name, &name, id).options(load_options(row)).form(form);
    builder = with_keys(builder, columns, keyspace).ok_or_else(|| damage("a key column of unknown type"))?;
    let mut dropped_times = BTreeMap::new();
    builder = match layout {
        Some(layout) => {
            let known = builder.with_column_changes(layout.statics, layout.regulars, layout.next_column_id);
            dropped_times = layout.dropped_times;
            known.ok_or_else(|| damage("its row in system.table_layouts contradicts itself"))?
        }
        None => with_other_columns(builder, columns, keyspace).ok_or_else(|| damage("a column of unknown type"))?,
    };
    let dropped_rows = rows.dropped_columns.get(&place).map(Vec::as_slice).unwrap_or_default();
    builder = builder.record_dropped(dropped_rows.iter().map(|row| load_dropped(row, &dropped_times, keyspace)));
    if let Some(masked) = rows.column_masks.get(&place) {
        let names: HashSet<_> = columns.iter().map(|row| row.get("column_name")).collect();
        // Cassandra keeps the masks of dropped columns.
        for row in masked.iter().filter(|row| names.contains(&row.get("column_name"))) {
            let column = row.text("column_name");
            let mask = masks::load(row, &keyspace.types).map_err(|why| damage(&format!("column {column} {why}")))?;
            builder = builder.mask(&column, Some(mask));
        }
    }
    let mut table = builder.build();
    if let Some(indexes) = rows.indexes.get(&place) {
        let indexes = indexes.iter().map(|row| {
            let index = row.text("index_name");
            let unknown = || damage(&format!("the row of index {index} in system_schema.indexes cannot be read"));
            indexes::load(row, &table).ok_or_else(unknown)
        });
        let indexes = indexes.collect::<Result<Vec<_>, _>>()?;
        table = table.to_builder().indexes(indexes).build();
    }
    if rows.is_foreign {
        return Ok((table, None));
    }
    let differs = differing_column(keyspace, &table, columns).or_else(|| differing_drop(&dropped_times, dropped_rows));
    let damage_found = differs.map(|what| damage(&format!("{what}; the layout is in force")));
    Ok((table, damage_found))
}

/// Adds the columns of the primary key. Returns `None` if one has an unknown type.
fn with_keys(mut builder: TableBuilder, columns: &[&SystemRow], keyspace: &Keyspace) -> Option<TableBuilder> {
    for kind in ["partition_key", "clustering"] {
        let mut keys: Vec<&&SystemRow> = columns.iter().filter(|row| row.text("kind") == kind).collect();
        keys.sort_by_key(|row| row.int("position"));
        for row in keys {
            let column = row.text("column_name");
            let ty = CqlType::parse_name(&row.text("type"), &|user| keyspace.types.get(user).cloned())?;
            builder = match kind {
                "partition_key" => builder.partition_key(&column, ty),
                _ => builder.clustering(&column, ty, row.text("clustering_order") == "desc"),
            };
        }
    }
    Some(builder)
}

/// Adds the other columns of a table without a layout. Returns `None` if one has an unknown type.
fn with_other_columns(mut builder: TableBuilder, columns: &[&SystemRow], keyspace: &Keyspace) -> Option<TableBuilder> {
    for row in columns.iter().filter(|row| ["static", "regular"].contains(&row.text("kind").as_str())) {
        let ty = CqlType::parse_name(&row.text("type"), &|user| keyspace.types.get(user).cloned())?;
        builder = builder.add(&row.text("column_name"), ty, kind_of(row));
    }
    Some(builder)
}

fn kind_of(row: &SystemRow) -> ColumnKind {
    if row.text("kind") == "static" { ColumnKind::Static } else { ColumnKind::Regular }
}

/// A dropped column. The layout has the exact time of its drop, microseconds.
fn load_dropped(row: &SystemRow, dropped_times: &BTreeMap<String, i64>, keyspace: &Keyspace) -> DroppedColumn {
    let name = row.text("column_name");
    let millis = row.bigint("dropped_time").unwrap_or(0);
    let dropped_time_micros = dropped_times.get(&name).copied().unwrap_or(millis.saturating_mul(1000));
    let ty = parse_type(&row.text("type"), &keyspace.types).unwrap_or(CqlType::Blob);
    DroppedColumn { name: name.into(), ty, kind: kind_of(row), dropped_time_micros }
}

fn load_options(row: &SystemRow) -> TableOptions {
    let defaults = TableOptions::default();
    TableOptions {
        additional_write_policy: row.text("additional_write_policy"),
        allow_auto_snapshot: row.boolean("allow_auto_snapshot").unwrap_or(true),
        bloom_filter_fp_chance: row.double("bloom_filter_fp_chance").unwrap_or(defaults.bloom_filter_fp_chance),
        caching: row.text_map("caching"),
        cdc: row.boolean("cdc").unwrap_or(false),
        comment: row.text("comment"),
        compaction: row.text_map("compaction"),
        compression: row.text_map("compression"),
        crc_check_chance: row.double("crc_check_chance").unwrap_or(1.0),
        default_time_to_live: row.int("default_time_to_live").unwrap_or(0),
        extensions: row.map("extensions"),
        gc_grace_seconds: row.int("gc_grace_seconds").unwrap_or(defaults.gc_grace_seconds),
        incremental_backups: row.boolean("incremental_backups").unwrap_or(true),
        max_index_interval: row.int("max_index_interval").unwrap_or(defaults.max_index_interval),
        memtable: row.get("memtable").map_or("default".into(), |name| String::from_utf8_lossy(name).into_owned()),
        memtable_flush_period_in_ms: row.int("memtable_flush_period_in_ms").unwrap_or(0),
        min_index_interval: row.int("min_index_interval").unwrap_or(defaults.min_index_interval),
        read_repair: row.text("read_repair"),
        speculative_retry: row.text("speculative_retry"),
    }
}
