//! Keys whose values arrive in the options of a part of the node. What that part does with them is tested there.

use super::*;
use engine::{Oversize, SizeKind};
use query::Guardrails;

/// The debug form of a field of the parts.
macro_rules! value {
    ($key:literal, $value:literal, $($field:ident).+, $expected:literal) => {
        Case::value($key, $value, |parts| format!("{:?}", parts.$($field).+), $expected)
    };
}

/// The message about a value of this kind that is 50 large.
fn violation(parts: &Parts, kind: SizeKind) -> String {
    let found = Oversize { kind, value: 50, what: "x".into() };
    let guardrails: &Guardrails = &parts.config.guardrails;
    assert_eq!(parts.engine.size_limits, guardrails.size_limits());
    let text = format!("{:?}", guardrails.size_violation(&found));
    text.split(" violated").next().unwrap_or_default().to_owned()
}

fn disk_state(parts: &Parts) -> String {
    format!("{:?}", parts.config.disk_watch().state(50))
}

const PASSWORDS: &[(&str, &str)] = &[("authenticator", "PasswordAuthenticator")];
const CERTIFICATES: &[(&str, &str)] = &[("client_encryption_options.enabled", "true")];

pub(super) const CASES: &[Case] = &[
    // Logins.
    value!("authenticator", "PasswordAuthenticator", processor.auth.authenticator, "Password"),
    value!("authorizer", "CassandraAuthorizer", processor.auth.permissions, "true").with(PASSWORDS),
    value!("network_authorizer", "CassandraNetworkAuthorizer", processor.auth.access.data_centers, "true")
        .with(PASSWORDS),
    value!("cidr_authorizer", "CassandraCIDRAuthorizer", processor.auth.access.cidrs, "Monitor").with(PASSWORDS),
    value!("credentials_validity", "7s", processor.auth.credentials_validity, "7s"),
    value!("credentials_cache_max_entries", "7", processor.auth.credentials_max, "7"),
    Case::value("roles_validity", "700ms", |parts| format!("{:?}", roles::refresh_period(&parts.config)), "700ms"),
    Case::value("permissions_validity", "1s", |parts| format!("{:?}", roles::refresh_period(&parts.config)), "1s"),
    // Messages of flushes and compactions.
    Case::value(
        "partition_size_warn_threshold",
        "40B",
        |parts| violation(parts, SizeKind::PartitionBytes),
        "Some(Warning(\"Guardrail partition_size",
    ),
    Case::value(
        "partition_size_fail_threshold",
        "40B",
        |parts| violation(parts, SizeKind::PartitionBytes),
        "Some(Failure(\"Guardrail partition_size",
    ),
    Case::value(
        "partition_tombstones_warn_threshold",
        "40",
        |parts| violation(parts, SizeKind::PartitionTombstones),
        "Some(Warning(\"Guardrail partition_tombstones",
    ),
    Case::value(
        "partition_tombstones_fail_threshold",
        "40",
        |parts| violation(parts, SizeKind::PartitionTombstones),
        "Some(Failure(\"Guardrail partition_tombstones",
    ),
    Case::value(
        "collection_size_warn_threshold",
        "40B",
        |parts| violation(parts, SizeKind::CollectionBytes),
        "Some(Warning(\"Guardrail collection_size",
    ),
    Case::value(
        "items_per_collection_fail_threshold",
        "40",
        |parts| violation(parts, SizeKind::CollectionItems),
        "Some(Failure(\"Guardrail items_per_collection",
    ),
    Case::value("data_disk_usage_percentage_warn_threshold", "40", disk_state, "Stuffed"),
    Case::value("data_disk_usage_percentage_fail_threshold", "40", disk_state, "Full"),
    Case::value(
        "data_disk_usage_max_disk_size",
        "1MiB",
        |parts| format!("{:?}", parts.config.disk_watch().disk_max_bytes),
        "Some(1048576)",
    ),
    // Files and the log.
    value!("data_directory", "/d", engine.directory, "\"/d\""),
    value!("data_file_directories", "[/d/data]", engine.directory, "\"/d\""),
    value!("commitlog_directory", "/l", engine.commitlog.directory, "\"/l\""),
    value!("commitlog_device", "/dev/l", engine.commitlog.device, "Some(\"/dev/l\")"),
    value!("commitlog_sync", "each", engine.commitlog.sync, "Each"),
    value!("commitlog_sync_period", "7s", engine.commitlog.sync, "Periodic { period: 7s }")
        .with(&[("commitlog_sync", "periodic")]),
    value!("commitlog_sync_group_window", "7ms", engine.commitlog.sync, "Group { window: 7ms }")
        .with(&[("commitlog_sync", "group")]),
    value!("commitlog_segment_size", "2MiB", engine.commitlog.segment_size_bytes, "2097152"),
    value!("commitlog_total_space", "8MiB", engine.commitlog.total_space_bytes, "8388608"),
    value!("commit_failure_policy", "ignore", config.commit_failure_policy, "Ignore"),
    value!("disk_failure_policy", "die", engine.opens_damaged, "false"),
    value!("memtable_offheap_space", "64MiB", engine.memtable_space_bytes, "67108864"),
    value!("memtable_heap_space", "64MiB", engine.memtable_space_bytes, "67108864"),
    value!("memtable_cleanup_threshold", "0.5", engine.memtable_cleanup_threshold, "0.5"),
    value!("memtable_flush_writers", "7", engine.memtable_flush_writers, "7"),
    value!("column_index_size", "7KiB", engine.column_index_size_bytes, "7168"),
    value!("file_cache_size", "7MiB", engine.cache_bytes, "7340032"),
    value!("counter_cache_size", "7MiB", engine.counter_cache_bytes, "7340032"),
    value!("disk_access_mode", "direct", engine.disk_access, "Direct"),
    value!("concurrent_compactors", "7", engine.concurrent_compactors, "7"),
    value!("compaction_throughput", "7MiB/s", engine.compaction_throughput_bytes, "7340032"),
    value!("max_memory_to_lock_fraction", "0", engine.max_memory_to_lock_bytes, "0"),
    value!("max_memory_to_lock_mb", "7", engine.max_memory_to_lock_bytes, "7340032"),
    value!("auto_snapshot", "false", processor.auto_snapshot, "false"),
    value!("auto_snapshot_ttl", "1h", processor.auto_snapshot_lifetime, "Some(3600s)"),
    // Clients.
    value!("cluster_name", "c", processor.node.cluster_name, "\"c\""),
    Case::value("num_tokens", "7", |parts| parts.processor.node.tokens.len().to_string(), "7"),
    value!("rpc_address", "127.0.0.7", server.listen, "127.0.0.7:9042"),
    value!("broadcast_rpc_address", "10.0.0.7", processor.node.rpc_address, "10.0.0.7"),
    value!("native_transport_port", "7", server.listen, "127.0.0.1:7"),
    value!("native_transport_port_ssl", "7", server.listen_tls, "Some(127.0.0.1:7)").with(CERTIFICATES),
    value!("native_transport_max_frame_size", "7KiB", server.frame_size_bytes_max, "7168"),
    value!("native_transport_max_concurrent_connections", "7", server.connections_max, "Some(7)"),
    value!("native_transport_max_concurrent_connections_per_ip", "7", server.connections_per_ip_max, "Some(7)"),
    Case::value(
        "native_transport_max_request_data_in_flight",
        "7MiB",
        |parts| parts.server.request_memory.limit_bytes().to_string(),
        "7340032",
    ),
    value!(
        "native_transport_max_request_data_in_flight_per_ip",
        "7MiB",
        server.request_bytes_in_flight_per_ip_max,
        "7340032"
    ),
    value!("native_transport_rate_limiting_enabled", "true", server.requests_per_second_max, "Some(1000000)"),
    value!("native_transport_max_requests_per_second", "7", server.requests_per_second_max, "Some(7)")
        .with(&[("native_transport_rate_limiting_enabled", "true")]),
    value!("native_transport_idle_timeout", "7s", server.idle_timeout, "Some(7s)"),
    value!("prepared_statements_cache_size", "7MiB", server.prepared_statements_cache_size_bytes, "7340032"),
    value!("read_request_timeout", "7s", processor.read_timeout, "7s"),
    value!("range_request_timeout", "7s", processor.range_timeout, "7s"),
    value!("write_request_timeout", "7s", processor.write_timeout, "7s"),
    value!("cas_contention_timeout", "7s", processor.cas_contention_timeout, "7s"),
    value!("truncate_request_timeout", "7s", processor.truncate_timeout, "7s"),
];
