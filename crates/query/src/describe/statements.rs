//! The statements that create things, as Cassandra writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::{Column, ColumnKind, ColumnMask, Index, Keyspace, Schema, Table, TableForm};
use types::identifier::{Quoted, QuotedType};
use types::{CqlType, UserType};

use super::elements::in_dependency_order;

/// The `schema.cql` of a snapshot: the types that the table uses, each after the types that it uses itself, and then
/// the table with its id and its dropped columns.
pub fn snapshot_schema(schema: &Schema, table: &Table) -> String {
    let is_used = |name: &str| {
        let is_it = |ty: &CqlType| matches!(ty, CqlType::Udt { definition, .. } if *definition.name == *name);
        table.columns_in_select_order().iter().any(|column| column.ty.any(&is_it))
    };
    let types = schema.keyspace(&table.keyspace).map(|keyspace| in_dependency_order(keyspace)).unwrap_or_default();
    let types = types.into_iter().filter(|definition| is_used(&definition.name));
    let types = types.map(|definition| create_type("CREATE TYPE IF NOT EXISTS", definition));
    let indexes = table.indexes().iter().map(|definition| create_index("IF NOT EXISTS ", table, definition));
    let table = create_table("CREATE TABLE IF NOT EXISTS", table, true);
    types.chain([table]).chain(indexes).map(|statement| statement + "\n").collect()
}

/// `CREATE INDEX`.
pub(super) fn index(table: &Table, index: &Index) -> String {
    create_index("", table, index)
}

fn create_index(condition: &str, table: &Table, index: &Index) -> String {
    let (keyspace, name) = (Quoted(&table.keyspace), Quoted(&table.name));
    let target = format!("INDEX {condition}{} ON {keyspace}.{name} ({})", Quoted(&index.name), index.target());
    let Some(class) = index.class_name() else { return format!("CREATE {target};") };
    let options = match index.given_options().next() {
        Some(_) => format!(" WITH OPTIONS = {}", map(index.given_options())),
        None => String::new(),
    };
    format!("CREATE CUSTOM {target} USING '{}'{options};", class.replace('\'', "''"))
}

/// `CREATE KEYSPACE`.
pub(super) fn keyspace(keyspace: &Keyspace) -> String {
    let mut replication: Vec<(&str, &str)> = Vec::new();
    let class = keyspace.replication.get("class").map_or("", String::as_str);
    replication.push(("class", class.rsplit('.').next().unwrap_or(class)));
    let others = keyspace.replication.iter().filter(|(key, _)| *key != "class");
    replication.extend(others.map(|(key, value)| (key.as_str(), value.as_str())));
    format!(
        "CREATE KEYSPACE {} WITH replication = {}  AND durable_writes = {};",
        Quoted(&keyspace.name),
        map(replication.into_iter()),
        keyspace.durable_writes
    )
}

/// `CREATE TYPE`.
pub(super) fn user_type(definition: &UserType) -> String {
    create_type("CREATE TYPE", definition)
}

fn create_type(create: &str, definition: &UserType) -> String {
    let fields = definition.fields().iter().map(|(name, ty)| format!("    {} {}", Quoted(name), column_type(ty)));
    let fields: Vec<String> = fields.collect();
    let (keyspace, name) = (Quoted(&definition.keyspace), QuotedType(&definition.name));
    format!("{create} {keyspace}.{name} (\n{}\n);", fields.join(",\n"))
}

fn column_type(ty: &CqlType) -> String {
    ty.to_string()
}

/// `CREATE TABLE`, with id and dropped columns if `internals`.
pub(super) fn table(table: &Table, internals: bool) -> String {
    create_table("CREATE TABLE", table, internals)
}

fn create_table(create: &str, table: &Table, internals: bool) -> String {
    let (keyspace, name) = (Quoted(&table.keyspace), Quoted(&table.name));
    let mut text = String::with_capacity(text_bytes(table));
    if table.form().is_compact() {
        let _ = write!(
            text,
            "/*\nWarning: Table {keyspace}.{name} omitted because it has constructs not compatible with CQL (was created via legacy API).\nApproximate structure, for reference:\n(this should not be used to reproduce this schema)\n\n"
        );
    }
    let _ = writeln!(text, "{create} {keyspace}.{name} (");
    write_columns(table, internals, &mut text);
    text.push_str(") WITH ");
    if table.form().is_compact() {
        text.push_str("COMPACT STORAGE\n    AND ");
    }
    if internals {
        let _ = write!(text, "ID = {}\n    AND ", table.id);
    }
    if !table.clustering().is_empty() {
        let _ = write!(text, "CLUSTERING ORDER BY ({})\n    AND ", clustering_order(table));
    }
    write_options(table, &mut text);
    text.push(';');
    if internals {
        for column in table.dropped() {
            let micros = column.dropped_time_micros;
            let column_name = Quoted(&column.name);
            let _ = write!(text, "\nALTER TABLE {keyspace}.{name} DROP {column_name} USING TIMESTAMP {micros};");
            if let Some(again) = table.column(&column.name) {
                let _ = write!(text, "\nALTER TABLE {keyspace}.{name} ADD {};", definition(table, again));
            }
        }
    }
    if table.form().is_compact() {
        text.push_str("\n*/");
    }
    text
}

/// The definition of a table that cannot be created, in a comment.
pub(super) fn virtual_table(table: &Table) -> String {
    let (keyspace, name) = (Quoted(&table.keyspace), Quoted(&table.name));
    let mut text = format!(
        "/*\nWarning: Table {keyspace}.{name} is a virtual table and cannot be recreated with CQL.\nStructure, for reference:\nVIRTUAL TABLE {keyspace}.{name} (\n"
    );
    write_columns(table, false, &mut text);
    text.push_str(") WITH ");
    if !table.clustering().is_empty() {
        let _ = write!(text, "CLUSTERING ORDER BY ({})\n    AND ", clustering_order(table));
    }
    let _ = write!(text, "comment = {};\n*/", Literal(&table.options.comment));
    text
}

/// The definition of a virtual keyspace, in a comment.
pub(super) fn virtual_keyspace(name: &str) -> String {
    let name = Quoted(name);
    format!(
        "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with CQL.\nStructure, for reference:\nVIRTUAL KEYSPACE {name};\n*/"
    )
}

fn write_columns(table: &Table, internals: bool, text: &mut String) {
    let single_key = table.partition_key().len() == 1 && table.clustering().is_empty();
    let mut lines = Vec::new();
    let line = |column: &Column| format!("    {}", definition(table, column));
    for column in table.partition_key() {
        lines.push(format!("{}{}", line(column), if single_key { " PRIMARY KEY" } else { "" }));
    }
    let others = table.clustering().iter().chain(table.statics().shown()).chain(table.regulars().shown());
    lines.extend(others.filter(|column| !table.is_hidden(column)).map(|column| line(column)));
    if internals {
        for column in table.dropped().iter().filter(|column| table.column(&column.name).is_none()) {
            let is_static = if column.kind == ColumnKind::Static { " static" } else { "" };
            lines.push(format!("    {} {}{is_static}", Quoted(&column.name), column_type(&column.ty)));
        }
    }
    if !single_key {
        lines.push(format!("    PRIMARY KEY ({})", primary_key(table)));
    }
    text.push_str(&lines.join(",\n"));
    text.push('\n');
}

/// A column's name, type and mask.
fn definition(table: &Table, column: &Column) -> String {
    let is_static = match column.kind {
        ColumnKind::Static if table.form() != TableForm::StaticCompact => " static",
        _ => "",
    };
    let mask = table.masks().get(&column.name).map(|mask| masked_with(mask)).unwrap_or_default();
    format!("{} {}{is_static}{mask}", Quoted(&column.name), column_type(&column.ty))
}

fn masked_with(mask: &ColumnMask) -> String {
    let literals = mask.arguments.iter().map(|argument| match &argument.value {
        Some(value) => argument.ty.to_cql_literal(value),
        None => "null".to_owned(),
    });
    format!(" MASKED WITH system.{}({})", mask.function, literals.collect::<Vec<_>>().join(", "))
}

fn primary_key(table: &Table) -> String {
    let names = |columns: &[std::sync::Arc<Column>]| {
        let named = columns.iter().filter(|column| !table.is_hidden(column));
        named.map(|column| Quoted(&column.name).to_string()).collect::<Vec<_>>()
    };
    let partition_key = names(table.partition_key()).join(", ");
    let partition_key = if table.partition_key().len() > 1 { format!("({partition_key})") } else { partition_key };
    std::iter::once(partition_key).chain(names(table.clustering())).collect::<Vec<_>>().join(", ")
}

fn clustering_order(table: &Table) -> String {
    let order = |column: &std::sync::Arc<Column>| {
        format!("{} {}", Quoted(&column.name), if column.reversed { "DESC" } else { "ASC" })
    };
    table.clustering().iter().map(order).collect::<Vec<_>>().join(", ")
}

/// The approximate length of the statement that creates a table.
pub(super) fn text_bytes(table: &Table) -> usize {
    const COLUMN_BYTES: usize = 64;
    const OPTIONS_BYTES: usize = 2 << 10;
    let options = &table.options;
    let maps = [&options.caching, &options.compaction, &options.compression].into_iter().flatten();
    let maps: usize = maps.map(|(key, value)| key.len() + value.len()).sum();
    let extensions: usize = options.extensions.iter().map(|(key, value)| key.len() + 2 * value.len()).sum();
    let columns = table.columns_in_select_order().len() + table.dropped().len();
    OPTIONS_BYTES + COLUMN_BYTES * columns + options.comment.len() + maps + extensions
}

/// The options, which may be long, are written in place.
fn write_options(table: &Table, text: &mut String) {
    let options = &table.options;
    let double = types::float_text::double;
    let texts = |map: &BTreeMap<String, String>| self::map(map.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let extensions: Vec<String> = options
        .extensions
        .iter()
        .map(|(key, value)| format!("{}: 0x{}", Literal(key), types::hex::to_string(value)))
        .collect();
    let _ = write!(
        text,
        "additional_write_policy = {}\n    AND allow_auto_snapshot = {}\n    AND bloom_filter_fp_chance = {}\n    \
         AND caching = {}\n    AND cdc = {}\n    AND comment = {}\n    AND compaction = {}\n    \
         AND compression = {}\n    AND memtable = {}\n    AND crc_check_chance = {}\n    \
         AND default_time_to_live = {}\n    AND extensions = {{{}}}\n    AND gc_grace_seconds = {}\n    \
         AND incremental_backups = {}\n    AND max_index_interval = {}\n    \
         AND memtable_flush_period_in_ms = {}\n    AND min_index_interval = {}\n    AND read_repair = {}\n    \
         AND speculative_retry = {}",
        Literal(&options.additional_write_policy),
        options.allow_auto_snapshot,
        double(options.bloom_filter_fp_chance),
        texts(&options.caching),
        options.cdc,
        Literal(&options.comment),
        texts(&options.compaction),
        texts(&options.compression),
        Literal(&options.memtable),
        double(options.crc_check_chance),
        options.default_time_to_live,
        extensions.join(", "),
        options.gc_grace_seconds,
        options.incremental_backups,
        options.max_index_interval,
        options.memtable_flush_period_in_ms,
        options.min_index_interval,
        Literal(&options.read_repair),
        Literal(&options.speculative_retry),
    );
}

/// A text in quotes.
struct Literal<'t>(&'t str);

impl std::fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('\'')?;
        for (place, part) in self.0.split('\'').enumerate() {
            f.write_str(if place == 0 { "" } else { "''" })?;
            f.write_str(part)?;
        }
        f.write_char('\'')
    }
}

fn map<'e>(entries: impl Iterator<Item = (&'e str, &'e str)>) -> String {
    let entries: Vec<String> = entries.map(|(key, value)| format!("{}: {}", Literal(key), Literal(value))).collect();
    format!("{{{}}}", entries.join(", "))
}
