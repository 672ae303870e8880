//! `system_views`: the node's activity.

use engine::system::table_id;
use model::{TableBuilder, TableOptions};
use types::CqlType;

use super::{Definition, RowList};
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
    vec![
        (KEYSPACE, in_memory_tables_table(), in_memory_tables),
        (KEYSPACE, table, sstable_tasks),
        (KEYSPACE, thread_pools_table(), thread_pools),
        (KEYSPACE, cidr_counts_table(), cidr_counts),
        (KEYSPACE, cidr_latencies_table(), cidr_latencies),
    ]
}

/// The merges in flight.
fn sstable_tasks(processor: &Processor, rows: &mut RowList) {
    for task in processor.engine().compaction_stats().active {
        // A merge may write slightly more bytes than it reads.
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

fn thread_pools_table() -> model::Table {
    let name = "thread_pools";
    TableBuilder::new(KEYSPACE, name, table_id(KEYSPACE, name))
        .partition_key("name", CqlType::Text)
        .regular("active_tasks", CqlType::Int)
        .regular("active_tasks_limit", CqlType::Int)
        .regular("blocked_tasks", CqlType::Bigint)
        .regular("blocked_tasks_all_time", CqlType::Bigint)
        .regular("completed_tasks", CqlType::Bigint)
        .regular("pending_tasks", CqlType::Int)
        .build()
}

/// The pools of Cassandra that have a counterpart here: compactions and flushes.
fn thread_pools(processor: &Processor, rows: &mut RowList) {
    let engine = processor.engine();
    let (compactions, flushes, options) = (engine.compaction_stats(), engine.flush_stats(), engine.options());
    let (compacting, compactors) = (compactions.active.len(), options.concurrent_compactors);
    let (flushing, writers) = (flushes.active, options.memtable_flush_writers);
    for (name, active, limit, pending, completed) in [
        ("CompactionExecutor", compacting, compactors, compactions.pending, compactions.completed),
        ("MemtableFlushWriter", flushing, writers, flushes.pending, flushes.completed),
    ] {
        let int = |number: usize| Some((number as i32).to_be_bytes().to_vec());
        let long = |number: u64| Some((number as i64).to_be_bytes().to_vec());
        let values = [
            ("active_tasks", int(active)),
            ("active_tasks_limit", int(limit)),
            ("blocked_tasks", long(0)),
            ("blocked_tasks_all_time", long(0)),
            ("completed_tasks", long(completed)),
            ("pending_tasks", int(pending)),
        ];
        rows.add(name.as_bytes(), &[], &values);
    }
}

fn cidr_counts_table() -> model::Table {
    let name = "cidr_filtering_metrics_counts";
    let comment = "Count metrics specific to CIDR filtering".to_owned();
    TableBuilder::new(KEYSPACE, name, table_id(KEYSPACE, name))
        .partition_key("name", CqlType::Text)
        .regular("value", CqlType::Bigint)
        .options(TableOptions { comment, ..TableOptions::default() })
        .build()
}

/// The counters of the address checks.
fn cidr_counts(processor: &Processor, rows: &mut RowList) {
    for (name, count) in processor.cidr_counts() {
        rows.add(name.as_bytes(), &[], &[("value", Some((count as i64).to_be_bytes().to_vec()))]);
    }
}

const PERCENTILES: [&str; 5] = ["p50th", "p95th", "p99th", "p999th", "max"];

fn cidr_latencies_table() -> model::Table {
    let name = "cidr_filtering_metrics_latencies";
    let comment = "Latency metrics specific to CIDR filtering".to_owned();
    let builder = TableBuilder::new(KEYSPACE, name, table_id(KEYSPACE, name)).partition_key("name", CqlType::Text);
    let builder = PERCENTILES.iter().fold(builder, |builder, column| builder.regular(column, CqlType::Double));
    builder.options(TableOptions { comment, ..TableOptions::default() }).build()
}

/// How long the checks of addresses took.
fn cidr_latencies(processor: &Processor, rows: &mut RowList) {
    for (name, times) in processor.cidr_latencies() {
        let values: Vec<_> = PERCENTILES
            .into_iter()
            .zip(times)
            .map(|(column, time)| (column, Some(time.to_be_bytes().to_vec())))
            .collect();
        rows.add(name.as_bytes(), &[], &values);
    }
}

fn in_memory_tables_table() -> model::Table {
    let (keyspace, name) = (KEYSPACE, "in_memory_tables");
    let numbers = [
        "all_memtables_live_data_size",
        "all_memtables_off_heap_data_size",
        "refused_writes",
        "size_limit_bytes",
        "used_bytes",
        "warnings_at_80_percent",
        "warnings_at_95_percent",
    ];
    let mut builder = TableBuilder::new(keyspace, name, table_id(keyspace, name))
        .partition_key("keyspace_name", CqlType::Text)
        .clustering("table_name", CqlType::Text, false)
        .regular("in_memory", CqlType::Boolean);
    builder = numbers.iter().fold(builder, |builder, column| builder.regular(column, CqlType::Bigint));
    let comment = "tables that live in memory (MemoryOnlyStrategy)".to_string();
    builder.options(TableOptions { comment, ..TableOptions::default() }).build()
}

fn in_memory_tables(processor: &Processor, rows: &mut RowList) {
    for table in processor.engine().all_table_stats() {
        let Some(stats) = table.in_memory else { continue };
        let number = |number: u64| Some((number as i64).to_be_bytes().to_vec());
        let values = [
            ("all_memtables_live_data_size", number(table.all_memtables_live_data_size())),
            ("all_memtables_off_heap_data_size", number(table.all_memtables_off_heap_data_size())),
            ("in_memory", Some(vec![u8::from(stats.is_complete)])),
            ("refused_writes", number(stats.refused_writes)),
            ("size_limit_bytes", number(stats.limit_bytes)),
            ("used_bytes", number(stats.used_bytes)),
            ("warnings_at_80_percent", number(stats.warnings[0])),
            ("warnings_at_95_percent", number(stats.warnings[1])),
        ];
        rows.add(table.keyspace.as_bytes(), &[table.table.as_bytes()], &values);
    }
}
