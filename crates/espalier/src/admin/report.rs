//! The output of status and tablestats, in nodetool's format.

use super::server::NodeState;
use crate::request_logs::Kind;
use commitlog::WaitCount;
use engine::{Engine, PutCounts, QuarantinedTable, SnapshotInfo, TableStats};
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// The answer to `status`.
pub(super) fn status(node: &NodeState) -> String {
    let stats = node.engine.all_table_stats();
    let pending_flushes: usize = stats.iter().map(|table| table.pending_flushes).sum();
    let disk_bytes: u64 = stats.iter().map(|table| table.disk_bytes).sum();
    let seconds = node.started.elapsed().as_secs();
    let metrics = &node.metrics;
    let compactions = node.engine.compaction_stats();
    let counters = node.engine.counter_cache_stats();
    let lines = [
        ("Cluster", node.cluster_name.clone()),
        ("ID", node.engine.host_id().to_string()),
        ("State", state(node).to_owned()),
        ("Address", node.address.to_string()),
        ("Data directory", node.data.display().to_string()),
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Uptime (seconds)", seconds.to_string()),
        ("Load", size(disk_bytes)),
        ("Memtables", size(node.engine.memtable_bytes())),
        ("Memtables, spare", size(node.engine.spare_memtable_bytes())),
        ("Chunk Cache (bytes)", node.engine.cache_bytes().to_string()),
        ("Counter Cache (entries)", counters.entries.to_string()),
        ("Counter Cache (bytes)", counters.size_bytes.to_string()),
        ("Counter Cache, requests", counters.requests.to_string()),
        ("Counter Cache, hits", counters.hits.to_string()),
        ("Pending compactions", compactions.pending.to_string()),
        ("Active compactions", compactions.active.len().to_string()),
        ("Compaction.CompletedTasks", compactions.completed.to_string()),
        ("Compaction.BytesCompacted", compactions.written_bytes.to_string()),
        ("Native clients", metrics.connected_native_clients.get().to_string()),
        ("Requests", metrics.requests.get().to_string()),
        ("Received", size(metrics.bytes_received.get())),
        ("Sent", size(metrics.bytes_sent.get())),
        ("Timeouts", metrics.timeouts.get().to_string()),
        ("Protocol errors", metrics.protocol_errors.get().to_string()),
        ("Schema version", node.engine.schema().version.to_string()),
    ];
    let puts = stats.iter().flat_map(|table| &table.memtable_puts);
    let puts = put_lines(puts.fold(PutCounts::default(), |sum, shard| sum.and(*shard)));
    let flushes = flush_metrics(&node.engine, pending_flushes);
    let roles = node.processor.shown_roles().map(|roles| ("Roles", roles));
    let lost = node.request_logs.lost().into_iter().map(|(kind, lost)| match kind {
        Kind::Audit => ("Audit log, lost entries", lost.to_string()),
        Kind::FullQuery => ("Query log, lost entries", lost.to_string()),
    });
    let quarantined = quarantined(&node.engine).into_iter().chain(faults(&node.engine));
    lines
        .into_iter()
        .chain(roles)
        .chain(lost)
        .chain(quarantined)
        .chain(indexes(&node.engine))
        .chain(puts)
        .chain(flushes)
        .chain(log_metrics(&node.engine))
        .fold(String::new(), |mut out, (name, value)| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<25}: {value}");
            out
        })
}

/// A line for each fault that the start found, except for quarantined tables.
fn faults(engine: &Engine) -> impl Iterator<Item = (&'static str, String)> {
    engine.faults().into_iter().map(|fault| ("Fault", fault))
}

/// A line for each table that is not served.
fn quarantined(engine: &Engine) -> Vec<(&'static str, String)> {
    let tables = engine.quarantined_tables();
    if tables.is_empty() {
        return vec![("Quarantined tables", "none".to_owned())];
    }
    let line = |table: &QuarantinedTable| {
        let files: Vec<String> = table.side_files.iter().map(|path| path.display().to_string()).collect();
        let files = if files.is_empty() { String::new() } else { format!(" (log records: {})", files.join(", ")) };
        ("Quarantined table", format!("{}.{}: {}{files}", table.keyspace, table.table, table.reason))
    };
    tables.iter().map(line).collect()
}

/// A line for each index that is being built: until it is, SELECTs read all rows.
fn indexes(engine: &Engine) -> impl Iterator<Item = (&'static str, String)> {
    engine.all_index_stats().into_iter().filter(|stats| !stats.is_complete).map(|stats| {
        let (keyspace, name) = (&stats.table.keyspace, &stats.index.name);
        ("Index being built", format!("{keyspace}.{name}: {} of {} SSTables", stats.files.len(), stats.sstable_count))
    })
}

/// The flushes' metrics, under Cassandra's names where these exist.
fn flush_metrics(engine: &Engine, pending_flushes: usize) -> Vec<(&'static str, String)> {
    let stats = engine.flush_stats();
    vec![
        ("PendingFlushes", pending_flushes.to_string()),
        ("MemtableFlushWriter.PendingTasks", stats.pending.to_string()),
        ("MemtableFlushWriter.ActiveTasks", stats.active.to_string()),
        ("MemtableFlushWriter.CompletedTasks", stats.completed.to_string()),
        (
            "MemtableFlushWriter.LastFailure",
            engine.last_flush_failure().map_or_else(|| "none".to_owned(), |failure| failure.to_string()),
        ),
    ]
}

/// The commit log's metrics, under Cassandra's names where these exist.
fn log_metrics(engine: &Engine) -> Vec<(&'static str, String)> {
    let metrics = engine.log_metrics();
    let waits = |wait: WaitCount| format!("{} ({} µs)", wait.count, wait.total.as_micros());
    vec![
        ("CommitLog.CompletedTasks", metrics.completed_tasks.to_string()),
        ("CommitLog.PendingTasks", metrics.pending_tasks.to_string()),
        ("CommitLog.TotalCommitLogSize", metrics.total_size_bytes.to_string()),
        ("CommitLog.WaitingOnCommit", waits(metrics.waiting_on_commit)),
        ("CommitLog.WaitingOnFlush", waits(metrics.waiting_on_flush)),
        ("CommitLog.WaitingOnSegmentAllocation", waits(metrics.waiting_on_segment_allocation)),
        ("CommitLog.OverSizedMutations", metrics.over_sized_mutations.to_string()),
        ("CommitLog.Frames", metrics.frames.to_string()),
        ("CommitLog.WrittenBytes", metrics.written_bytes.to_string()),
        ("CommitLog.PaddingBytes", metrics.padding_bytes.to_string()),
        ("CommitLog.Syncs", metrics.syncs.to_string()),
        ("CommitLog.Closed", engine.log_closed().unwrap_or_else(|| "no".to_owned())),
    ]
}

/// The counts of contended and uncontended memtable writes, under the names of Cassandra's trie memtable metrics.
fn put_lines(puts: PutCounts) -> [(&'static str, String); 3] {
    [
        ("Uncontended memtable puts", puts.uncontended.to_string()),
        ("Contended memtable puts", puts.contended.to_string()),
        ("Contention time (µs)", puts.waited.as_micros().to_string()),
    ]
}

/// The node's state in nodetool's words.
fn state(node: &NodeState) -> &'static str {
    if node.drained.load(Ordering::Relaxed) { "DRAINED" } else { "UN (up, normal)" }
}

/// The answer to `tablestats`; ordered by keyspace and table.
pub(super) fn tablestats(stats: &[TableStats]) -> String {
    let mut out = String::new();
    let mut keyspace = None;
    for table in stats {
        if keyspace != Some(&table.keyspace) {
            keyspace = Some(&table.keyspace);
            out += "----------------\n";
            let _ = writeln!(out, "Keyspace : {}", table.keyspace);
        }
        let lines = [
            ("SSTable count", table.sstable_count.to_string()),
            ("Space used (live)", table.disk_bytes.to_string()),
            (
                "Number of partitions (estimate)",
                (table.sstable_partition_count + table.memtable_partition_count).to_string(),
            ),
            ("Memtable partition count", table.memtable_partition_count.to_string()),
            ("Memtable data size", table.memtable_bytes.to_string()),
            ("Pending flushes", table.pending_flushes.to_string()),
            ("Bloom filter off heap memory used", table.filter_bytes.to_string()),
            ("Compression metadata off heap memory used", table.metadata_bytes.to_string()),
            ("Data read", table.data_bytes_read.to_string()),
            ("AllMemtablesLiveDataSize", table.all_memtables_live_data_size().to_string()),
            ("AllMemtablesOffHeapDataSize", table.all_memtables_off_heap_data_size().to_string()),
        ];
        let puts = table.memtable_puts.iter().map(|shard| put_lines(*shard));
        let puts = puts
            .enumerate()
            .flat_map(|(shard, lines)| lines.map(|(name, value)| (format!("{name}, shard {shard}"), value)));
        let in_memory = table.in_memory.map(|in_memory| {
            [
                ("In-memory size", in_memory.used_bytes.to_string()),
                ("In-memory size limit", in_memory.limit_bytes.to_string()),
                ("In-memory refused writes", in_memory.refused_writes.to_string()),
                ("In-memory warnings at 80%", in_memory.warnings[0].to_string()),
                ("In-memory warnings at 95%", in_memory.warnings[1].to_string()),
            ]
        });
        let lines = lines.into_iter().chain(in_memory.into_iter().flatten());
        let lines = lines.map(|(name, value)| (name.to_owned(), value)).chain(puts);
        let _ = writeln!(out, "\t\tTable: {}", table.table);
        for (name, value) in lines {
            let _ = writeln!(out, "\t\t{name}: {value}");
        }
        out.push('\n');
    }
    if !stats.is_empty() {
        out += "----------------\n";
    }
    out
}

/// The answer to `compactionstats`.
pub(super) fn compactionstats(engine: &Engine) -> String {
    let stats = engine.compaction_stats();
    let mut out = String::new();
    for (name, value) in [
        ("pending tasks", stats.pending as u64),
        ("compactions completed", stats.completed),
        ("data compacted", stats.written_bytes),
        ("sstables dropped expired", stats.expired_sstables),
    ] {
        let _ = writeln!(out, "{name:<24} {value}");
    }
    if let Some(failure) = engine.last_compaction_failure() {
        let _ = writeln!(out, "{:<24} {failure}", "last failure");
    }
    for task in &stats.active {
        let share = 100.0 * task.written_bytes as f64 / (task.total_bytes as f64).max(1.0);
        let (keyspace, table, sstables) = (&task.keyspace, &task.table, task.sstables);
        let (written, total) = (task.written_bytes, task.total_bytes);
        let _ = writeln!(out, "{keyspace} {table} {sstables} sstables {written} of {total} bytes {share:.2}%");
    }
    out
}

/// The answer to `inmemorystatus`, in dsetool's format.
pub(super) fn inmemorystatus(engine: &Engine, stats: &[TableStats]) -> String {
    let all: u64 =
        engine.all_table_stats().iter().filter_map(|table| table.in_memory).map(|table| table.used_bytes).sum();
    let mut out = String::new();
    let _ = writeln!(out, "{:<32}{}", "Max Memory to Lock:", size(engine.options().max_memory_to_lock_bytes));
    let _ = writeln!(out, "{:<32}{}", "Current Total Memory Locked:", size(all));
    if let Some(failure) = engine.last_load_failure() {
        let _ = writeln!(out, "{:<32}{failure}", "Last failure to load:");
    }
    let mut line = |cells: [&str; 8]| {
        let [keyspace, table, size, capacity, usage, warning, refused, place] = cells;
        let _ = writeln!(
            out,
            "{keyspace:<22}{table:<31}{size:>14}{capacity:>14}{usage:>8}{warning:>9}{refused:>16}  {place}"
        );
    };
    line(["Keyspace", "ColumnFamily", "Size", "Capacity", "Usage", "Warning", "Refused writes", "Read from"]);
    for table in stats {
        let Some(in_memory) = table.in_memory else { continue };
        let percent = format!("{}%", in_memory.used_bytes.saturating_mul(100) / in_memory.limit_bytes.max(1));
        let warning = match in_memory.warned_percent {
            0 => "-".to_owned(),
            percent => format!("{percent}%"),
        };
        line([
            &table.keyspace,
            &table.table,
            &size(in_memory.used_bytes),
            &size(in_memory.limit_bytes),
            &percent,
            &warning,
            &in_memory.refused_writes.to_string(),
            if in_memory.is_complete { "memory" } else { "disk" },
        ]);
    }
    out
}

/// A number of bytes in the largest unit in which it is at least one.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64 / 1024.0;
    for unit in units {
        if amount < 1024.0 || unit == "TiB" {
            return if bytes < 1024 { format!("{bytes} bytes") } else { format!("{amount:.2} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{bytes} bytes")
}

/// `nodetool listsnapshots`.
pub fn listsnapshots(snapshots: &[SnapshotInfo]) -> String {
    if snapshots.is_empty() {
        return "There are no snapshots\n".to_owned();
    }
    let line = |columns: [&str; 6]| {
        let [name, keyspace, table, size, created, expires] = columns;
        format!("{name:<40} {keyspace:<20} {table:<30} {size:>12} {created:<25} {expires}\n")
    };
    let mut out =
        line(["Snapshot name", "Keyspace name", "Column family", "True size", "Creation time", "Expiration time"]);
    for snapshot in snapshots {
        let time = |time: &Option<String>| time.clone().unwrap_or_default();
        let (size, created, expires) =
            (snapshot.size_bytes.to_string(), time(&snapshot.created_at), time(&snapshot.expires_at));
        out += &line([&snapshot.name, &snapshot.keyspace, &snapshot.table, &size, &created, &expires]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1536), "1.50 KiB");
        assert_eq!(size(5 << 30), "5.00 GiB");
        assert_eq!(size(3 << 50), "3072.00 TiB");
    }
}
