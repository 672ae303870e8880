//! `system_views.sai_*`: storage-attached indexes and their files.

use engine::{IndexFileStats, IndexStats};
use model::{Analysis, IndexClass, IndexPart, LetterCase, TableBuilder, TableOptions};
use types::CqlType;

use super::{Definition, RowList};
use crate::Processor;

const KEYSPACE: &str = "system_views";
/// The version of index files, as Cassandra names its own.
const FORMAT_VERSION: &str = "aa";

/// These tables.
pub(super) fn tables() -> Vec<Definition> {
    vec![
        (KEYSPACE, column_indexes_table(), column_indexes),
        (KEYSPACE, sstable_indexes_table(), sstable_indexes),
        (KEYSPACE, segments_table(), segments),
    ]
}

fn table(name: &str, comment: &str, of: impl FnOnce(TableBuilder) -> TableBuilder) -> model::Table {
    let builder = TableBuilder::new(KEYSPACE, name, engine::system::table_id(KEYSPACE, name))
        .partition_key("keyspace_name", CqlType::Text)
        .clustering("index_name", CqlType::Text, false);
    of(builder).options(TableOptions { comment: comment.into(), ..TableOptions::default() }).build()
}

fn text(value: &str) -> Option<Vec<u8>> {
    Some(value.as_bytes().to_vec())
}

fn long(number: u64) -> Option<Vec<u8>> {
    Some((number as i64).to_be_bytes().to_vec())
}

fn boolean(value: bool) -> Option<Vec<u8>> {
    Some(vec![u8::from(value)])
}

/// The storage-attached indexes.
fn attached(processor: &Processor) -> impl Iterator<Item = IndexStats> {
    let all = processor.engine().all_index_stats().into_iter();
    all.filter(|stats| stats.index.class == IndexClass::StorageAttached)
}

fn column_indexes_table() -> model::Table {
    table("sai_column_indexes", "Storage-attached column index metadata", |builder| {
        builder
            .regular("analyzer", CqlType::Text)
            .regular("column_name", CqlType::Text)
            .regular("is_building", CqlType::Boolean)
            .regular("is_queryable", CqlType::Boolean)
            .regular("is_string", CqlType::Boolean)
            .regular("table_name", CqlType::Text)
    })
}

fn column_indexes(processor: &Processor, rows: &mut RowList) {
    for stats in attached(processor) {
        let IndexStats { table, index, is_complete, .. } = &stats;
        let Some(column) = table.column(&index.column) else { continue };
        let values = [
            ("analyzer", text(&analyzer(index.analysis(&column.ty)))),
            ("column_name", text(&index.column)),
            ("is_building", boolean(!is_complete)),
            // While it is built, all rows are read.
            ("is_queryable", boolean(true)),
            ("is_string", boolean(is_literal(&index.part.value_type(&column.ty), index.part))),
            ("table_name", text(&table.name)),
        ];
        rows.add(table.keyspace.as_bytes(), &[index.name.as_bytes()], &values);
    }
}

/// An analyzer as Cassandra prints it.
fn analyzer(analysis: Analysis) -> String {
    if analysis.is_none() {
        return "NoOpAnalyzer".to_owned();
    }
    format!(
        "NonTokenizingAnalyzer{{caseSensitive={}, normalized={}, ascii={}}}",
        analysis.case == LetterCase::AsWritten,
        analysis.normalizes,
        analysis.folds_to_ascii
    )
}

/// Whether Cassandra stores values of this type as strings, and not as numbers.
fn is_literal(ty: &CqlType, part: IndexPart) -> bool {
    let is_string = matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Boolean | CqlType::Vector { .. });
    let is_whole = matches!(ty, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. });
    let is_composite = part == IndexPart::Entries || matches!(ty, CqlType::Tuple(_) | CqlType::Udt { .. });
    is_string || is_whole || is_composite
}

fn sstable_indexes_table() -> model::Table {
    table("sai_sstable_indexes", "SSTable index metadata", |builder| {
        builder
            .clustering("sstable_name", CqlType::Text, false)
            .regular("cell_count", CqlType::Bigint)
            .regular("column_name", CqlType::Text)
            .regular("end_token", CqlType::Text)
            .regular("format_version", CqlType::Text)
            .regular("max_row_id", CqlType::Bigint)
            .regular("min_row_id", CqlType::Bigint)
            .regular("per_column_disk_size", CqlType::Bigint)
            .regular("per_table_disk_size", CqlType::Bigint)
            .regular("start_token", CqlType::Text)
            .regular("table_name", CqlType::Text)
    })
}

/// The index files. There are no numbers of rows, and no files for all indexes of an SSTable together.
fn sstable_indexes(processor: &Processor, rows: &mut RowList) {
    for IndexStats { table, index, files, .. } in attached(processor) {
        for file in &files {
            let values = [
                ("cell_count", long(file.segment_entry_counts.iter().sum())),
                ("column_name", text(&index.column)),
                ("end_token", text(&file.tokens.1.0.to_string())),
                ("format_version", text(FORMAT_VERSION)),
                ("per_column_disk_size", long(file.size_bytes)),
                ("per_table_disk_size", long(0)),
                ("start_token", text(&file.tokens.0.0.to_string())),
                ("table_name", text(&table.name)),
            ];
            let sstable = name_of(file);
            rows.add(table.keyspace.as_bytes(), &[index.name.as_bytes(), sstable.as_bytes()], &values);
        }
    }
}

fn name_of(file: &IndexFileStats) -> String {
    file.sstable.to_string_lossy().into_owned()
}

fn segments_table() -> model::Table {
    let text_map = CqlType::map(CqlType::Text, CqlType::Text).freeze();
    table("sai_sstable_index_segments", "SSTable index segment metadata", |builder| {
        builder
            .clustering("sstable_name", CqlType::Text, false)
            .clustering("segment_row_id_offset", CqlType::Bigint, false)
            .regular("cell_count", CqlType::Bigint)
            .regular("column_name", CqlType::Text)
            .regular("component_metadata", CqlType::map(CqlType::Text, text_map).freeze())
            .regular("end_token", CqlType::Text)
            .regular("max_sstable_row_id", CqlType::Bigint)
            .regular("max_term", CqlType::Text)
            .regular("min_sstable_row_id", CqlType::Bigint)
            .regular("min_term", CqlType::Text)
            .regular("start_token", CqlType::Text)
            .regular("table_name", CqlType::Text)
    })
}

/// The segments of index files. In place of the number of a segment's first row there is that of its first entry.
fn segments(processor: &Processor, rows: &mut RowList) {
    for IndexStats { table, index, files, .. } in attached(processor) {
        for file in &files {
            let (sstable, mut first) = (name_of(file), 0_u64);
            for count in &file.segment_entry_counts {
                let values = [
                    ("cell_count", long(*count)),
                    ("column_name", text(&index.column)),
                    ("end_token", text(&file.tokens.1.0.to_string())),
                    ("start_token", text(&file.tokens.0.0.to_string())),
                    ("table_name", text(&table.name)),
                ];
                let offset = (first as i64).to_be_bytes();
                let clustering = [index.name.as_bytes(), sstable.as_bytes(), &offset];
                rows.add(table.keyspace.as_bytes(), &clustering, &values);
                first += count;
            }
        }
    }
}
