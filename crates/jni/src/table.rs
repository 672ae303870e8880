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

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use compaction::Strategy;
use model::{ColumnKind, DroppedColumn, Table, TableBuilder, TableId, TableOptions};
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
        compaction: if Strategy::from_options(&compaction).is_ok() { compaction } else { default.compaction },
        compression: match CompressionParams::from_options(&compression) {
            Ok(_) => compression,
            Err(_) => default.compression,
        },
        ..TableOptions::default()
    })
}

impl<'a> Description<'a> {
    /// `place` is where the table is kept, in place of its keyspace and id.
    fn read(request: &mut Request<'a>, place: Option<Place<'a>>) -> Result<Description<'a>, RequestError> {
        let id = TableId(Uuid::from_bytes(request.id()?));
        let (keyspace, name) = (request.text("a keyspace")?, request.text("a table")?);
        let options = read_options(request)?;
        let owner = place.map(|place| (keyspace, place.keyspace));
        let (id, keyspace) = place.map_or((id, keyspace), |place| (place.id, place.keyspace));
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

    fn version(self, older: Option<&Table>) -> Table {
        let options = self.options.clone();
        let table = match older {
            None => self.first(),
            Some(older) => self.after(older),
        };
        table.to_builder().options(options).build()
    }

    /// The table as the first of its versions.
    fn first(self) -> Table {
        let mut builder = TableBuilder::new(self.keyspace, self.name, self.id);
        for column in self.of_kind(ColumnKind::PartitionKey) {
            builder = builder.partition_key(column.name, column.ty.clone());
        }
        for column in self.of_kind(ColumnKind::Clustering) {
            builder = builder.clustering(column.name, column.ty.clone(), column.reversed);
        }
        let others: Vec<_> = self.others().map(|column| (column.name, column.ty.clone(), column.kind)).collect();
        builder.add_all(others).record_dropped(self.dropped).build()
    }

    /// The table as the version that follows `older`: rows that were written under that one can be read under it.
    fn after(self, older: &Table) -> Table {
        let names: HashSet<&str> = self.others().map(|column| column.name).collect();
        let mut builder = older.to_builder();
        for is_static in [true, false] {
            for column in older.columns(is_static).shown().filter(|column| !names.contains(&*column.name)) {
                let record = self.dropped.iter().find(|dropped| dropped.name == column.name);
                let (ty, time) = match record {
                    Some(record) => (record.ty.clone(), record.dropped_time_micros),
                    None => (column.ty.clone(), i64::MIN),
                };
                builder = builder.drop_column(&column.name, ty, time);
            }
        }
        builder = builder.record_dropped(self.dropped.clone());
        let is_new = |column: &&DescribedColumn<'_>| {
            let known = older.columns(column.kind == ColumnKind::Static);
            known.shown().all(|known| *known.name != *column.name)
        };
        let added: Vec<_> =
            self.others().filter(is_new).map(|column| (column.name, column.ty.clone(), column.kind)).collect();
        let altered = builder.add_all(added).build();
        self.with_types(altered)
    }

    /// The table with the types of the description: a user type may have more fields now.
    fn with_types(&self, table: Table) -> Table {
        let pairs: Vec<(CqlType, CqlType)> = self
            .columns
            .iter()
            .filter_map(|column| {
                let known = table.stored_column(column.name)?;
                (known.ty != column.ty).then(|| (known.ty.clone(), column.ty.clone()))
            })
            .collect();
        if pairs.is_empty() {
            return table;
        }
        let replace = |ty: &CqlType| {
            let pair = pairs.iter().find(|(old, _)| old == ty);
            pair.map_or_else(|| ty.clone(), |(_, new)| new.clone())
        };
        table.to_builder().map_types(replace).build()
    }
}

/// The table of a description; a version of `older`, if that is given.
///
/// Fails if the description is damaged or has a type that CQL does not have.
pub(crate) fn table_of(bytes: &[u8], older: Option<&Table>) -> Result<Arc<Table>, RequestError> {
    Ok(Arc::new(Description::read(&mut Request::new(bytes), None)?.version(older)))
}

/// Where the engine keeps a table of Cassandra's.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    /// The engine's keyspace, which has the user types too.
    pub keyspace: &'p str,
    /// The engine's id of the table.
    pub id: TableId,
}

/// Like [`table_of`], for a table that the engine keeps.
pub(crate) fn stored_table_of(bytes: &[u8], place: Place<'_>, older: Option<&Table>) -> Result<Table, RequestError> {
    Ok(Description::read(&mut Request::new(bytes), Some(place))?.version(older))
}

/// The id and the name of the table of a description.
pub(crate) fn id_and_name(bytes: &[u8]) -> Result<(TableId, String, String), RequestError> {
    let mut request = Request::new(bytes);
    let id = TableId(Uuid::from_bytes(request.id()?));
    Ok((id, request.text("a keyspace")?.to_owned(), request.text("a table")?.to_owned()))
}
