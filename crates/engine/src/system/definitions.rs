//! Definitions of the system tables, read from `tables.txt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ColumnKind, Keyspace, TableBuilder, TableId, TableOptions};
use types::CqlType;

/// The keyspaces that users may not change, with replication class and factor. The first two are never replicated.
pub const SYSTEM_KEYSPACES: [(&str, &str, Option<&str>); 5] = [
    ("system", "LocalStrategy", None),
    ("system_schema", "LocalStrategy", None),
    ("system_auth", "SimpleStrategy", Some("1")),
    ("system_distributed", "SimpleStrategy", Some("3")),
    ("system_traces", "SimpleStrategy", Some("2")),
];

const TABLES: &str = include_str!("tables.txt");

/// Whether `name` is a keyspace of the node itself.
pub fn is_system_keyspace(name: &str) -> bool {
    SYSTEM_KEYSPACES.iter().any(|(keyspace, ..)| *keyspace == name)
}

/// Whether `name` is a keyspace that is never replicated: `system` or `system_schema`.
pub fn is_local_system_keyspace(name: &str) -> bool {
    name == "system" || name == "system_schema"
}

/// The id of a system table: UUID v3 of keyspace and table name, as in Cassandra.
pub fn table_id(keyspace: &str, table: &str) -> TableId {
    let digest = md5_of(keyspace.as_bytes(), table.as_bytes());
    TableId(uuid::Builder::from_md5_bytes(digest).into_uuid())
}

fn md5_of(first: &[u8], second: &[u8]) -> [u8; 16] {
    use md5::{Digest, Md5};
    Md5::new().chain_update(first).chain_update(second).finalize().into()
}

/// All system keyspaces with their tables.
pub fn system_keyspaces() -> BTreeMap<Arc<str>, Arc<Keyspace>> {
    let mut keyspaces: BTreeMap<Arc<str>, Keyspace> = SYSTEM_KEYSPACES
        .iter()
        .map(|(name, class, factor)| ((*name).into(), Keyspace::new(name, replication(class, *factor), true)))
        .collect();
    for definition in TABLES.split("\ntable ").skip(1) {
        let table = parse_table(definition).build();
        if let Some(keyspace) = keyspaces.get_mut(&table.keyspace) {
            keyspace.tables.insert(table.name.clone(), Arc::new(table));
        }
    }
    keyspaces.into_iter().map(|(name, keyspace)| (name, Arc::new(keyspace))).collect()
}

fn replication(class: &str, factor: Option<&str>) -> BTreeMap<String, String> {
    let class = ("class".to_string(), format!("org.apache.cassandra.locator.{class}"));
    let factor = factor.map(|factor| ("replication_factor".to_string(), factor.to_string()));
    [class].into_iter().chain(factor).collect()
}

/// Parses one definition; `tables.txt` is ours and a test reads all of it.
fn parse_table(definition: &str) -> TableBuilder {
    let mut lines = definition.lines();
    let mut head = lines.next().unwrap_or_default().split(' ');
    let (keyspace, name) = head.next().and_then(|name| name.split_once('.')).expect("a table has a name");
    let mut options = TableOptions::default();
    for option in head {
        set_option(&mut options, option);
    }
    let mut builder = TableBuilder::new(keyspace, name, table_id(keyspace, name));
    for line in lines {
        if let Some(comment) = line.strip_prefix("comment ") {
            options.comment = comment.to_string();
        } else if let Some((kind, column)) = line.trim().split_once(' ')
            && kind != "#"
        {
            let (name, ty) = column.split_once(' ').expect("a column has a type");
            let ty = CqlType::parse_name(ty, &|_| None).expect("a column has a known type");
            builder = match kind {
                "key" => builder.partition_key(name, ty),
                "clustering" => builder.clustering(name, ty, false),
                "static" => builder.add(name, ty, ColumnKind::Static),
                _ => builder.add(name, ty, ColumnKind::Regular),
            };
        }
    }
    builder.options(options)
}

fn set_option(options: &mut TableOptions, option: &str) {
    let (name, value) = option.split_once('=').expect("an option has a value");
    let number = || value.parse().expect("a number");
    match name {
        "default_time_to_live" => options.default_time_to_live = number(),
        "gc_grace_seconds" => options.gc_grace_seconds = number(),
        "memtable_flush_period_in_ms" => options.memtable_flush_period_in_ms = number(),
        "compaction" => {
            let (class, parameters) = value.split_once(',').expect("a strategy with parameters");
            options.compaction = parameters
                .split(',')
                .filter_map(|parameter| parameter.split_once(':'))
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .chain([("class".to_string(), format!("org.apache.cassandra.db.compaction.{class}"))])
                .collect();
        }
        unknown => panic!("tables.txt sets unknown option {unknown}"),
    }
}

/// The name-based ids depend on this being Cassandra's.
#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn every_system_table_is_defined_under_cassandras_id() {
        let keyspaces = system_keyspaces();
        assert_eq!(keyspaces.values().map(|keyspace| keyspace.tables.len()).sum::<usize>(), 49);
        let local = &keyspaces["system"].tables["local"];
        assert_eq!(local.id.0, Uuid::parse_str("7ad54392-bcdd-35a6-8417-4e047860b377").unwrap());
        assert_eq!(local.partition_key().len(), 1);
        assert_eq!(local.columns_in_select_order().len(), 20);
        let columns = &keyspaces["system_schema"].tables["columns"];
        assert_eq!(columns.clustering().len(), 2);
        assert_eq!(columns.options.gc_grace_seconds, 604_800);
    }
}
