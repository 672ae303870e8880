//! `system_views`: what the node is doing.

use engine::system::table_id;
use model::{TableBuilder, TableOptions};
use types::CqlType;

use super::RowList;
use super::virtual_schema::Definition;
use crate::Processor;

const KEYSPACE: &str = "system_views";

/// The tables of this keyspace.
pub(super) fn tables() -> Vec<Definition> {
    let name = "sstable_tasks";
    let table = TableBuilder::new(KEYSPACE, name, table_id(KEYSPACE, name))
        .partition_key("keyspace_name", CqlType::Text)
        .clustering("table_name", CqlType::Text, false)
        .clustering("task_id", CqlType::Timeuuid, false)
        .regular("completion_ratio", CqlType::Double)
        .regular("kind", CqlType::Text)
        .regular("progress", CqlType::Bigint)
        .regular("sstables", CqlType::Int)
        .regular("target_directory", CqlType::Text)
        .regular("total", CqlType::Bigint)
        .regular("unit", CqlType::Text)
        .options(TableOptions { comment: "current sstable tasks".into(), ..TableOptions::default() })
        .build();
    vec![(KEYSPACE, table, sstable_tasks)]
}

/// The merges under way.
fn sstable_tasks(processor: &Processor, rows: &mut RowList) {
    for task in processor.engine().compaction_stats().active {
        // What is written may be more than what is read, by a little.
        let progress = task.written_bytes.min(task.total_bytes);
        let ratio = if task.total_bytes == 0 { 1.0 } else { progress as f64 / task.total_bytes as f64 };
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let values = [
            ("completion_ratio", Some(ratio.to_be_bytes().to_vec())),
            ("kind", text("compaction")),
            ("progress", Some((progress as i64).to_be_bytes().to_vec())),
            ("sstables", Some((task.sstables as i32).to_be_bytes().to_vec())),
            ("target_directory", text(&task.target_directory.to_string_lossy())),
            ("total", Some((task.total_bytes as i64).to_be_bytes().to_vec())),
            ("unit", text("bytes")),
        ];
        rows.add(task.keyspace.as_bytes(), &[task.table.as_bytes(), task.id.as_bytes()], &values);
    }
}
