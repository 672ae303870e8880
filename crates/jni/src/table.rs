//! Cassandra's description of a table, as a table of the model.
//!
//! ```text
//! description := 16 bytes id, text keyspace, text name, options
//!                i32 count, count * (u8 kind, text name, text class)
//!                i32 count, count * (text name, text class, u8 is static, i64 time of the drop)
//! options := i32 gc_grace_seconds, f64 bloom_filter_fp_chance, map compaction, map compression
//! map := i32 count, count * (text name, text value)
//! kind := 0 partition key, 1 clustering, 2 static, 3 regular
//! text := u32 length, UTF-8
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use compaction::Strategy;
use model::{Column, ColumnKind, DroppedColumn, Table, TableBuilder, TableId, TableOptions};
use sstable::CompressionParams;
use types::{CqlType, MarshalClass};
use uuid::Uuid;

use crate::request::{Request, RequestError};

struct DescribedColumn<'a> {
    kind: ColumnKind,
    name: &'a str,
    ty: CqlType,
    reversed: bool,
}

impl DescribedColumn<'_> {
    /// The same static or regular column of a version of the table; `None` if that lacks it. One whose cells became
    /// others (a frozen collection in place of one that is not) is not the same.
    fn known_in<'t>(&self, table: &'t Table) -> Option<&'t Column> {
        let set = table.columns(self.kind == ColumnKind::Static);
        let index = set.index_of_kind(self.name, self.ty.is_multi_cell())?;
        Some(&*set.columns[index]).filter(|known| !known.is_dropped)
    }
}

struct Description<'a> {
    id: TableId,
    keyspace: &'a str,
    name: &'a str,
    options: TableOptions,
    columns: Vec<DescribedColumn<'a>>,
    dropped: Vec<DroppedColumn>,
}

/// Reads a class of Cassandra's. If `owner` is given, it has the user types in place of Cassandra's keyspace.
fn read_class(request: &mut Request<'_>, owner: Option<(&str, &str)>) -> Result<(CqlType, bool), RequestError> {
    let class = request.text("the class of a column")?;
    let owned = owner.map(|(theirs, ours)| class.replace(&format!("UserType({theirs},"), &format!("UserType({ours},")));
    match MarshalClass::parse(owned.as_deref().unwrap_or(class)) {
        Ok(MarshalClass::Plain(ty)) => Ok((ty, false)),
        Ok(MarshalClass::Reversed(ty)) => Ok((ty, true)),
        _ => Err(request.error("the class of a column's type")),
    }
}

fn read_map(request: &mut Request<'_>, expected: &'static str) -> Result<BTreeMap<String, String>, RequestError> {
    let count = request.count(expected)?;
    (0..count).map(|_| Ok((request.text(expected)?.to_owned(), request.text(expected)?.to_owned()))).collect()
}

/// The default strategy, in place of one that the engine does not have. What these options say of the purging of
/// tombstones is kept.
fn default_compaction(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut compaction = TableOptions::default().compaction;
    compaction.extend(
        options.get_key_value("only_purge_repaired_tombstones").map(|(name, value)| (name.clone(), value.clone())),
    );
    compaction
}

/// The options that say how the engine keeps a table. A compaction strategy or a compressor that the engine does not
/// have is replaced by the default one.
fn read_options(request: &mut Request<'_>) -> Result<TableOptions, RequestError> {
    let default = TableOptions::default();
    let gc_grace_seconds = request.i32("gc_grace_seconds")?;
    let chance = f64::from_bits(request.i64("bloom_filter_fp_chance")?.cast_unsigned());
    let compaction = read_map(request, "an option of compaction")?;
    let compression = read_map(request, "an option of compression")?;
    Ok(TableOptions {
        gc_grace_seconds,
        bloom_filter_fp_chance: if chance > 0.0 && chance <= 1.0 { chance } else { default.bloom_filter_fp_chance },
        compaction: if Strategy::from_options(&compaction).is_ok() {
            compaction
        } else {
            default_compaction(&compaction)
        },
        compression: match CompressionParams::from_options(&compression) {
            Ok(_) => compression,
            Err(_) => default.compression,
        },
        ..TableOptions::default()
    })
}

impl<'a> Description<'a> {
    /// `stored` has the keyspace and the id of the engine, in place of those of Cassandra.
    fn read(request: &mut Request<'a>, stored: Option<EngineTableId<'a>>) -> Result<Description<'a>, RequestError> {
        let id = TableId(Uuid::from_bytes(request.id()?));
        let (keyspace, name) = (request.text("a keyspace")?, request.text("a table")?);
        let options = read_options(request)?;
        let owner = stored.map(|stored| (keyspace, stored.keyspace));
        let (id, keyspace) = stored.map_or((id, keyspace), |stored| (stored.id, stored.keyspace));
        let mut columns = Vec::new();
        for _ in 0..request.count("a count of columns")? {
            let kind = match request.u8("a kind of column")? {
                0 => ColumnKind::PartitionKey,
                1 => ColumnKind::Clustering,
                2 => ColumnKind::Static,
                3 => ColumnKind::Regular,
                _ => return Err(request.error("a kind of column")),
            };
            let name = request.text("the name of a column")?;
            let (ty, reversed) = read_class(request, owner)?;
            if ty.any(&|ty| matches!(ty, CqlType::Custom(_))) {
                return Err(request.error("a type of CQL, not a custom one"));
            }
            columns.push(DescribedColumn { kind, name, ty, reversed });
        }
        let mut dropped = Vec::new();
        for _ in 0..request.count("a count of dropped columns")? {
            let name = request.text("the name of a dropped column")?;
            let (ty, _) = read_class(request, owner)?;
            let kind = if request.u8("a kind of column")? != 0 { ColumnKind::Static } else { ColumnKind::Regular };
            let dropped_time_micros = request.i64("the time of a drop")?;
            dropped.push(DroppedColumn { name: name.into(), ty, kind, dropped_time_micros });
        }
        request.end()?;
        Ok(Description { id, keyspace, name, options, columns, dropped })
    }

    fn of_kind(&self, kind: ColumnKind) -> impl Iterator<Item = &DescribedColumn<'a>> {
        self.columns.iter().filter(move |column| column.kind == kind)
    }

    fn others(&self) -> impl Iterator<Item = &DescribedColumn<'a>> {
        self.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular))
    }

    /// The table as it is now.
    ///
    /// Fails if its primary key has another number of columns than that of the older version.
    fn version(self, older: Option<&Table>) -> Result<Table, RequestError> {
        let options = self.options.clone();
        let builder = match older {
            None => self.first(),
            Some(older) => self.after(older)?,
        };
        Ok(builder.options(options).build())
    }

    /// The table as the first of its versions.
    fn first(self) -> TableBuilder {
        let mut builder = TableBuilder::new(self.keyspace, self.name, self.id);
        for column in self.of_kind(ColumnKind::PartitionKey) {
            builder = builder.partition_key(column.name, column.ty.clone());
        }
        for column in self.of_kind(ColumnKind::Clustering) {
            builder = builder.clustering(column.name, column.ty.clone(), column.reversed);
        }
        let others: Vec<_> = self.others().map(|column| (column.name, column.ty.clone(), column.kind)).collect();
        builder.add_all(others).record_dropped(self.dropped)
    }

    /// The table as the version that follows `older`: rows that were written under that one can be read under it. Any
    /// number of alterations may lie between them.
    fn after(self, older: &Table) -> Result<TableBuilder, RequestError> {
        let keys = self.keys_after(older)?;
        let names: BTreeMap<&str, &str> = keys.iter().map(|(known, key)| (&*known.name, key.name)).collect();
        // User types may have more fields now. Columns without a new type are left out.
        let mut types = HashMap::new();
        let mut set_type = |known: &Column, ty: &CqlType| {
            if known.ty != *ty {
                types.insert(known.id, ty.clone());
            }
        };
        keys.iter().for_each(|(known, key)| set_type(known, &key.ty));
        let mut added = Vec::new();
        for column in self.others() {
            match column.known_in(older) {
                Some(known) => set_type(known, &column.ty),
                None => added.push((column.name, column.ty.clone(), column.kind)),
            }
        }
        let builder = self.without_dropped(older).rename_all(&names).record_dropped(self.dropped).add_all(added);
        Ok(if types.is_empty() { builder } else { builder.set_types(&types) })
    }

    /// The columns of the primary key, which may have other names now, as `older` has them and as they are.
    fn keys_after<'t>(&self, older: &'t Table) -> Result<Vec<(&'t Column, &DescribedColumn<'a>)>, RequestError> {
        let mut keys = Vec::new();
        let kinds = [(ColumnKind::PartitionKey, older.partition_key()), (ColumnKind::Clustering, older.clustering())];
        for (kind, known) in kinds {
            let now: Vec<_> = self.of_kind(kind).collect();
            if now.len() != known.len() {
                return Err(RequestError { offset: 0, expected: "as many columns of the primary key as before" });
            }
            keys.extend(known.iter().map(Arc::as_ref).zip(now));
        }
        Ok(keys)
    }

    /// `older` without the columns that are gone.
    fn without_dropped(&self, older: &Table) -> TableBuilder {
        let names: HashSet<_> = self.others().map(|column| (column.kind == ColumnKind::Static, column.name)).collect();
        let mut builder = older.to_builder();
        for is_static in [true, false] {
            let shown = older.columns(is_static).shown();
            for column in shown.filter(|column| !names.contains(&(is_static, &*column.name))) {
                let record = self.dropped.iter().find(|dropped| dropped.name == column.name);
                let (ty, time) = match record {
                    Some(record) => (record.ty.clone(), record.dropped_time_micros),
                    None => (column.ty.clone(), i64::MIN),
                };
                builder = builder.drop_column(&column.name, ty, time);
            }
        }
        builder
    }
}

/// The table of a description; a version of `older`, if that is given.
///
/// Fails if the description is damaged, has a type that CQL does not have, or is of another table than `older`.
pub(crate) fn table_of(bytes: &[u8], older: Option<&Table>) -> Result<Arc<Table>, RequestError> {
    Ok(Arc::new(Description::read(&mut Request::new(bytes), None)?.version(older)?))
}

/// The id, and the keyspace, under which the engine keeps a table of Cassandra.
#[derive(Clone, Copy)]
pub(crate) struct EngineTableId<'p> {
    /// The engine's keyspace, which has the user types too.
    pub keyspace: &'p str,
    /// The engine's id of the table.
    pub id: TableId,
}

/// Like [`table_of`], for a table that the engine keeps.
pub(crate) fn stored_table_of(
    bytes: &[u8],
    stored: EngineTableId<'_>,
    older: Option<&Table>,
) -> Result<Table, RequestError> {
    Description::read(&mut Request::new(bytes), Some(stored))?.version(older)
}

/// The id and the name of the table of a description.
pub(crate) fn id_and_name(bytes: &[u8]) -> Result<(TableId, String, String), RequestError> {
    let mut request = Request::new(bytes);
    let id = TableId(Uuid::from_bytes(request.id()?));
    Ok((id, request.text("a keyspace")?.to_owned(), request.text("a table")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testkit::{Random, seed};
    use types::UserType;

    use super::*;

    /// What the columns of a table of Cassandra's may be.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Ty {
        Int,
        Text,
        /// A frozen user type, which has more fields as time goes by.
        Pair,
        /// A list of those, with cells of its own.
        Pairs,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Change {
        /// A column of the primary key, by its position.
        Rename(usize, &'static str),
        Add(&'static str, Ty),
        Drop(&'static str),
        /// ALTER TYPE … ADD.
        Grow,
    }

    #[test]
    fn an_unknown_strategy_is_replaced_and_its_rule_for_tombstones_is_kept() {
        let options = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let unknown =
            options(&[("class", "org.example.Own"), ("own", "1"), ("only_purge_repaired_tombstones", "true")]);
        let mut expected = TableOptions::default().compaction;
        assert_eq!(default_compaction(&options(&[("class", "org.example.Own")])), expected);
        expected.insert("only_purge_repaired_tombstones".to_owned(), "true".to_owned());
        assert_eq!(default_compaction(&unknown), expected);
        assert!(Strategy::from_options(&expected).is_ok());
    }

    const NAMES: [&str; 5] = ["a", "b", "c", "v", "w"];
    const TYPES: [Ty; 4] = [Ty::Int, Ty::Text, Ty::Pair, Ty::Pairs];

    fn changes() -> Vec<Change> {
        let renames = (0..3).flat_map(|key| NAMES.map(|name| Change::Rename(key, name)));
        let additions = NAMES.into_iter().flat_map(|name| TYPES.map(|ty| Change::Add(name, ty)));
        renames.chain(additions).chain(NAMES.map(Change::Drop)).chain([Change::Grow]).collect()
    }

    /// A table as Cassandra has it.
    #[derive(Clone, Debug)]
    struct Theirs {
        keys: Vec<(&'static str, Ty)>,
        /// Each with the time of its addition.
        others: BTreeMap<&'static str, (Ty, i64)>,
        /// Each with the number of fields that the user type had, and the time.
        dropped: BTreeMap<&'static str, (Ty, usize, i64)>,
        fields: usize,
        now: i64,
    }

    /// With `expanded`, a user type is the tuple of its fields, as Cassandra records the types of dropped columns.
    fn cql(ty: Ty, fields: usize, expanded: bool) -> CqlType {
        let pair = || {
            let fields = (0..fields).map(|field| (format!("f{field}").into(), CqlType::Int));
            let definition = UserType::new("ks".into(), "pair".into(), fields.collect());
            match expanded {
                true => CqlType::tuple(definition.fields().iter().map(|(_, ty)| ty.clone())),
                false => CqlType::Udt { definition: Arc::new(definition), frozen: true },
            }
        };
        match ty {
            Ty::Int => CqlType::Int,
            Ty::Text => CqlType::Text,
            Ty::Pair => pair(),
            Ty::Pairs => CqlType::List { element: Arc::new(pair()), frozen: false },
        }
    }

    impl Theirs {
        fn new() -> Theirs {
            let keys = vec![("k", Ty::Int), ("a", Ty::Int), ("b", Ty::Pair)];
            let others = BTreeMap::from([("v", (Ty::Int, 0)), ("w", (Ty::Pairs, 0))]);
            Theirs { keys, others, dropped: BTreeMap::new(), fields: 2, now: 0 }
        }

        fn has(&self, name: &str) -> bool {
            self.others.contains_key(name) || self.keys.iter().any(|(known, _)| *known == name)
        }

        /// The table after a change; `None` if Cassandra refuses it.
        fn after(&self, change: Change) -> Option<Theirs> {
            let mut next = self.clone();
            next.now += 1;
            match change {
                Change::Rename(_, name) | Change::Add(name, _) if self.has(name) => return None,
                Change::Rename(key, name) => next.keys[key].0 = name,
                Change::Add(name, ty) => {
                    if self.dropped.get(name).is_some_and(|(dropped, ..)| *dropped != ty) {
                        return None;
                    }
                    next.others.insert(name, (ty, next.now));
                }
                Change::Drop(name) => {
                    let (ty, _) = next.others.remove(name)?;
                    next.dropped.insert(name, (ty, self.fields, next.now));
                }
                Change::Grow => next.fields += 1,
            }
            Some(next)
        }

        fn description(&self) -> Description<'static> {
            let column =
                |kind, name, ty| DescribedColumn { kind, name, ty: cql(ty, self.fields, false), reversed: false };
            let kind = |place| if place == 0 { ColumnKind::PartitionKey } else { ColumnKind::Clustering };
            let keys = self.keys.iter().enumerate().map(|(place, (name, ty))| column(kind(place), name, *ty));
            let others = self.others.iter().map(|(name, (ty, _))| column(ColumnKind::Regular, name, *ty));
            let dropped = self.dropped.iter().map(|(name, (ty, fields, time))| DroppedColumn {
                name: (*name).into(),
                ty: cql(*ty, *fields, true),
                kind: ColumnKind::Regular,
                dropped_time_micros: *time,
            });
            Description {
                id: TableId(Uuid::nil()),
                keyspace: "ks",
                name: "t",
                options: TableOptions::default(),
                columns: keys.chain(others).collect(),
                dropped: dropped.collect(),
            }
        }

        fn told(&self, older: Option<&Table>) -> Table {
            self.description().version(older).unwrap()
        }
    }

    fn named(column: &Arc<Column>) -> (&str, &CqlType) {
        (&column.name, &column.ty)
    }

    /// Checks a version of a table that followed `older`, when the table was as in `before`.
    fn check(table: &Table, theirs: &Theirs, older: &Table, before: &Theirs) {
        let fresh = theirs.told(None);
        let (columns, expected) = (table.columns_in_select_order(), fresh.columns_in_select_order());
        let columns_are_right = columns.iter().map(named).eq(expected.iter().map(named));
        assert!(columns_are_right, "{theirs:?} is {columns:?}");
        assert_eq!(table.dropped(), fresh.dropped(), "{theirs:?}");
        assert!(columns.iter().all(|column| table.column(&column.name) == Some(column)), "names are unique");
        let ids: BTreeSet<u32> = columns.iter().map(|column| column.id.0).collect();
        assert_eq!(ids.len(), columns.len(), "ids are unique: {columns:?}");
        let keys = |table: &Table| [table.partition_key(), table.clustering()].concat();
        assert!(keys(table).iter().zip(keys(older)).all(|(now, then)| now.id == then.id), "keys keep their ids");
        for (name, (_, added)) in &theirs.others {
            let column = table.column(name).unwrap();
            // Rows of older versions have such a column under the same id, and its type is the newest in all sets.
            if before.others.get(name).is_some_and(|(_, added_before)| added_before == added) {
                assert_eq!(column.id, older.column(name).unwrap().id, "{name} of {theirs:?}");
            }
            let sets = table.column_sets(false);
            let same = (0..sets.count() as u32).flat_map(|version| sets.get(version).unwrap().columns.iter());
            let mut same = same.filter(|other| other.id == column.id && !other.is_dropped);
            assert!(same.all(|other| other == column), "{name} of {theirs:?}");
        }
    }

    /// Applies every sequence of `depth` more changes. The memtable gets a description after each change, or one after
    /// several.
    fn explore(older: &Table, before: &Theirs, theirs: &Theirs, depth: usize, checks: &mut usize) {
        for next in changes().into_iter().filter_map(|change| theirs.after(change)) {
            let table = next.told(Some(older));
            check(&table, &next, older, before);
            *checks += 1;
            if depth > 1 {
                explore(&table, &next, &next, depth - 1, checks);
                explore(older, before, &next, depth - 1, checks);
            }
        }
    }

    #[test]
    fn every_short_sequence_of_alterations_gives_the_columns_that_cassandra_has() {
        let theirs = Theirs::new();
        let mut checks = 0;
        explore(&theirs.told(None), &theirs, &theirs, 3, &mut checks);
        assert!(checks > 2_500, "{checks} versions were checked");
    }

    #[test]
    fn long_random_sequences_of_alterations_give_the_columns_that_cassandra_has() {
        let mut random = Random(seed(26));
        let changes = changes();
        for _ in 0..60 {
            let mut theirs = Theirs::new();
            let (mut table, mut before) = (theirs.told(None), theirs.clone());
            for _ in 0..60 {
                let Some(next) = theirs.after(changes[random.below(changes.len())]) else { continue };
                theirs = next;
                if random.one_in(3) {
                    continue;
                }
                let newer = theirs.told(Some(&table));
                check(&newer, &theirs, &table, &before);
                (table, before) = (newer, theirs.clone());
            }
        }
    }

    #[test]
    fn a_column_whose_cells_became_others_is_a_new_one_and_another_primary_key_is_refused() {
        let theirs = Theirs::new();
        let older = theirs.told(None);
        let mut description = theirs.description();
        let list = description.columns.iter_mut().find(|column| column.name == "w").unwrap();
        list.ty = CqlType::List { element: Arc::new(CqlType::Int), frozen: true };
        let table = description.version(Some(&older)).unwrap();
        assert_ne!(table.column("w").unwrap().id, older.column("w").unwrap().id);
        assert_eq!(table.regulars().shown().count(), 2);
        let mut description = theirs.description();
        description.columns.remove(1);
        assert!(description.version(Some(&older)).is_err());
    }
}
