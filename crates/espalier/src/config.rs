//! The node's configuration: file, then environment, then flags.

mod auth;
mod encryption;
mod guardrails;
mod honoured;
mod inert;
mod memory;
mod memtables;
mod options;
mod replication_factor;
mod request_logs;
mod restricted;
mod sai;
mod units;

use crate::disk_usage::Watch;
use crate::request_logs::{Auditing, FullQueryLogging};
use crate::tls::Encryption;
pub use honoured::SNAPSHOT_LIFETIME_MIN;
pub use memory::system_memory_bytes;
use options::Effect;
use query::{Guardrail, Guardrails};
pub use request_logs::{audit_of_verb, full_query_of_verb};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variables that set options begin with this.
const ENVIRONMENT_PREFIX: &str = "ESPALIER_";

/// Variables that are not options of the node: the proof's scripts find the binary by this one.
const NOT_OPTIONS: [&str; 1] = ["ESPALIER_BIN"];

/// The memory of memtables unless one of the keys sets it.
const MEMTABLE_SPACE_BYTES: u64 = 512 << 20;

/// When log records reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitlogSync {
    /// Some time after the write is acknowledged.
    Periodic,
    /// Before the write is acknowledged.
    Batch,
    /// Before, together with other writes within a window.
    Group,
    /// Before, each write by itself.
    Each,
}

/// `disk_failure_policy`: what happens when SSTables are damaged, or the system refuses to read or write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFailurePolicy {
    /// Clients are disconnected if the system refuses.
    Stop,
    /// Clients are disconnected in both cases.
    StopParanoid,
    /// The process ends in both cases.
    Die,
    /// The request fails; the node starts with what can be read.
    BestEffort,
    /// Like `BestEffort`: there is only one data directory, so none can be left out.
    Ignore,
}

/// What happens when the disk refuses to write the log. With all of them no write is acknowledged from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFailurePolicy {
    /// Clients are disconnected; the process stays for inspection.
    Stop,
    /// The process ends at once.
    Die,
    /// Reads continue.
    StopCommit,
    /// Like `StopCommit`.
    Ignore,
}

/// All settings of the node; `docs/options.md` says which option sets each.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub data_directory: PathBuf,
    pub commitlog_directory: Option<PathBuf>,
    pub commitlog_device: Option<PathBuf>,
    pub commitlog_salvage: bool,
    /// Whether nothing on the disk is changed (a flag only).
    pub read_only: bool,
    pub commit_failure_policy: CommitFailurePolicy,
    /// `disk_failure_policy`.
    pub disk_failure_policy: DiskFailurePolicy,
    pub cluster_name: String,
    pub num_tokens: u32,
    pub listen: IpAddr,
    /// The address that clients find in `system.local` and connect to; `None` means `listen`.
    pub broadcast_rpc_address: Option<IpAddr>,
    pub port: u16,
    /// `native_transport_port_ssl`.
    pub port_ssl: Option<u16>,
    /// `client_encryption_options`.
    pub client_encryption: Encryption,
    pub frame_size_bytes_max: usize,
    pub connections_max: Option<usize>,
    pub connections_per_ip_max: Option<usize>,
    pub request_bytes_in_flight_max: Option<u64>,
    pub request_bytes_in_flight_per_ip_max: Option<u64>,
    /// `native_transport_rate_limiting_enabled`.
    pub limits_request_rate: bool,
    pub requests_per_second_max: NonZeroU32,
    pub idle_timeout: Option<Duration>,
    pub auth: query::AuthOptions,
    /// `audit_logging_options`.
    pub auditing: Auditing,
    /// `full_query_logging_options`.
    pub full_query_logging: FullQueryLogging,
    pub roles_validity: Duration,
    pub permissions_validity: Duration,
    pub prepared_statements_cache_size_bytes: u64,
    pub read_timeout: Duration,
    pub range_timeout: Duration,
    pub write_timeout: Duration,
    pub cas_contention_timeout: Duration,
    pub truncate_timeout: Duration,
    pub commitlog_sync: CommitlogSync,
    pub commitlog_sync_period: Duration,
    pub commitlog_sync_group_window: Duration,
    pub commitlog_segment_size_bytes: u32,
    pub commitlog_total_space_bytes: u64,
    pub memtable_heap_space_bytes: Option<u64>,
    pub memtable_offheap_space_bytes: Option<u64>,
    pub memtable_configurations: engine::MemtableConfigurations,
    pub memtable_cleanup_threshold: f64,
    pub memtable_flush_writers: usize,
    pub column_index_size_bytes: u32,
    pub file_cache_size_bytes: u64,
    pub counter_cache_size_bytes: u64,
    /// `disk_access_mode`.
    pub disk_access: engine::DiskAccess,
    pub concurrent_compactors: usize,
    pub compaction_throughput_bytes: u64,
    pub max_memory_to_lock_fraction: f64,
    pub max_memory_to_lock_mb: u64,
    pub auto_snapshot: bool,
    pub statement_memory_max_bytes: u64,
    pub page_max_bytes: u64,
    pub read_thresholds_enabled: bool,
    pub auto_snapshot_lifetime: Option<Duration>,
    pub default_index_class: String,
    pub has_default_index: bool,
    /// `sai_options.prioritize_over_legacy_index`.
    pub prefers_attached_indexes: bool,
    pub sasi_indexes_enabled: bool,
    pub dynamic_data_masking_enabled: bool,
    pub drop_compact_storage_enabled: bool,
    pub guardrails: Guardrails,
    /// `data_disk_usage_percentage_warn_threshold`, `..._fail_threshold` and `data_disk_usage_max_disk_size`.
    pub disk_usage_warn_percentage: Option<u64>,
    pub disk_usage_fail_percentage: Option<u64>,
    pub disk_usage_max_bytes: Option<u64>,
    pub tombstone_warn_threshold: u64,
    pub tombstone_failure_threshold: u64,
    pub batch_size_warn_threshold_bytes: u64,
    pub batch_size_fail_threshold_bytes: u64,
    pub unlogged_batch_across_partitions_warn_threshold: usize,
    /// The options that were set and have no effect, and why; for the log.
    pub inert: Vec<(String, &'static str)>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data_directory: PathBuf::from("data"),
            commitlog_directory: None,
            commitlog_device: None,
            commitlog_salvage: false,
            read_only: false,
            commit_failure_policy: CommitFailurePolicy::Stop,
            disk_failure_policy: DiskFailurePolicy::Stop,
            cluster_name: "Test Cluster".to_owned(),
            num_tokens: 1,
            listen: IpAddr::from([127, 0, 0, 1]),
            broadcast_rpc_address: None,
            port: 9042,
            port_ssl: None,
            client_encryption: Encryption::default(),
            frame_size_bytes_max: 16 << 20,
            connections_max: None,
            connections_per_ip_max: None,
            request_bytes_in_flight_max: None,
            request_bytes_in_flight_per_ip_max: None,
            idle_timeout: None,
            auth: query::AuthOptions::default(),
            auditing: Auditing::default(),
            full_query_logging: FullQueryLogging::default(),
            roles_validity: Duration::from_millis(2000),
            permissions_validity: Duration::from_millis(2000),
            prepared_statements_cache_size_bytes: 10 << 20,
            read_timeout: Duration::from_millis(5000),
            range_timeout: Duration::from_millis(10_000),
            write_timeout: Duration::from_millis(2000),
            cas_contention_timeout: Duration::from_millis(1800),
            truncate_timeout: Duration::from_millis(60_000),
            commitlog_sync: CommitlogSync::Batch,
            commitlog_sync_period: Duration::from_millis(10_000),
            commitlog_sync_group_window: Duration::from_millis(10),
            commitlog_segment_size_bytes: 32 << 20,
            commitlog_total_space_bytes: 8 << 30,
            memtable_heap_space_bytes: None,
            memtable_offheap_space_bytes: None,
            memtable_configurations: engine::default_memtable_configurations(),
            memtable_cleanup_threshold: 0.33,
            memtable_flush_writers: 2,
            column_index_size_bytes: 16 << 10,
            file_cache_size_bytes: 128 << 20,
            counter_cache_size_bytes: 50 << 20,
            disk_access: engine::DiskAccess::default(),
            concurrent_compactors: 1,
            compaction_throughput_bytes: 64 << 20,
            max_memory_to_lock_fraction: 0.2,
            max_memory_to_lock_mb: 0,
            limits_request_rate: false,
            requests_per_second_max: NonZeroU32::new(1_000_000).unwrap_or(NonZeroU32::MAX),
            auto_snapshot: true,
            auto_snapshot_lifetime: None,
            default_index_class: "legacy_local_table".into(),
            has_default_index: true,
            prefers_attached_indexes: false,
            sasi_indexes_enabled: false,
            dynamic_data_masking_enabled: false,
            drop_compact_storage_enabled: false,
            guardrails: Guardrails {
                sai_sstable_indexes_per_query: Guardrail { warn: Some(32), fail: None },
                ..Guardrails::default()
            },
            disk_usage_warn_percentage: None,
            disk_usage_fail_percentage: None,
            disk_usage_max_bytes: None,
            statement_memory_max_bytes: 256 << 20,
            page_max_bytes: 16 << 20,
            read_thresholds_enabled: false,
            tombstone_warn_threshold: 1000,
            tombstone_failure_threshold: 100_000,
            batch_size_warn_threshold_bytes: 5 << 10,
            batch_size_fail_threshold_bytes: 50 << 10,
            unlogged_batch_across_partitions_warn_threshold: 10,
            inert: Vec::new(),
        }
    }
}

impl Config {
    /// The configuration of a file, if there is one, and of the environment. Errors are one line, ready for the user.
    pub fn load(file: Option<&Path>, environment: impl Iterator<Item = (String, String)>) -> Result<Config, String> {
        let mut config = Config::default();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            config.apply_file(&text).map_err(|error| format!("{}{error}", path.display()))?;
        }
        for (variable, value) in environment.filter(|(variable, _)| !NOT_OPTIONS.contains(&&**variable)) {
            if let Some(name) = variable.strip_prefix(ENVIRONMENT_PREFIX) {
                let parsed = parse_scalar(&value).map_err(|error| format!("{variable}: {error}"))?;
                config.apply(&name.to_lowercase(), &parsed).map_err(|error| format!("{variable}: {error}"))?;
            }
        }
        auth::check(&config)?;
        encryption::check(&config)?;
        replication_factor::check(&config)?;
        Ok(config)
    }

    /// The single pool that all memtables share: the sum of both keys, like Cassandra's two pools.
    pub fn memtable_space_bytes(&self) -> u64 {
        match (self.memtable_heap_space_bytes, self.memtable_offheap_space_bytes) {
            (None, None) => MEMTABLE_SPACE_BYTES,
            (heap, offheap) => heap.unwrap_or(0).saturating_add(offheap.unwrap_or(0)),
        }
    }

    /// The thresholds of the disk's usage.
    pub fn disk_watch(&self) -> Watch {
        let (warn, fail) = (self.disk_usage_warn_percentage, self.disk_usage_fail_percentage);
        Watch { data: self.data_directory.clone(), warn, fail, disk_max_bytes: self.disk_usage_max_bytes }
    }

    /// Limits connections to half of the descriptors that the process may open. The others are left to files.
    pub fn leave_descriptors_to_files(&mut self, descriptors: u64) {
        let connections = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        self.connections_max = Some(self.connections_max.map_or(connections, |max| max.min(connections)));
    }

    /// Memory for requests and answers, of the node and of one address, bytes.
    pub fn request_bytes_in_flight_max(&self) -> (usize, usize) {
        let node = self.request_bytes_in_flight_max.unwrap_or((system_memory_bytes() / 10).max(256 << 20));
        let address = self.request_bytes_in_flight_per_ip_max.unwrap_or((node / 4).max(64 << 20));
        let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        (size(node), size(address))
    }

    /// Applies a file. Errors begin with the place in the file, as `:line: `.
    fn apply_file(&mut self, text: &str) -> Result<(), String> {
        let settings: Option<BTreeMap<String, Value>> =
            serde_saphyr::from_str(text).map_err(|error| format!(": {}", one_line(&error.to_string())))?;
        for (name, value) in settings.unwrap_or_default() {
            self.apply(&name, &value).map_err(|error| format!(":{}: {name}: {error}", line_of(text, &name)))?;
        }
        Ok(())
    }

    fn apply(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match options::apply(self, name, value)? {
            Effect::Applied => {}
            Effect::Inert(reason) => self.inert.push((name.to_owned(), reason)),
        }
        Ok(())
    }
}

/// The page of all options, as in `docs/options.md`.
pub fn options_page() -> String {
    options::document()
}

/// A duration as options have it: `30s`, `1d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    units::duration(&Value::String(text.to_owned()))
}

/// Parses a value of the environment as if it were in the file.
fn parse_scalar(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| one_line(&error.to_string()))
}

/// The line of a top-level key.
fn line_of(text: &str, name: &str) -> usize {
    let is_key = |line: &str| {
        let line = line.trim_start_matches(['"', '\'']);
        line.strip_prefix(name).is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
    };
    text.lines().position(is_key).map_or(1, |index| index + 1)
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        config.apply_file(text).map(|()| config)
    }

    #[test]
    fn connections_leave_descriptors_to_files() {
        let mut config = Config::default();
        config.leave_descriptors_to_files(1024);
        assert_eq!(config.connections_max, Some(512));
        config.leave_descriptors_to_files(4096);
        assert_eq!(config.connections_max, Some(512), "what is configured stays in force");
    }

    #[test]
    fn settings_are_applied() {
        let config = load("native_transport_port: 9142\ncommitlog_sync: batch\nread_request_timeout: 7s\n").unwrap();
        assert_eq!(config.port, 9142);
        assert_eq!(config.commitlog_sync, CommitlogSync::Batch);
        assert_eq!(config.read_timeout, Duration::from_secs(7));
    }

    #[test]
    fn the_error_for_an_unknown_key_names_the_line() {
        let error = load("# a comment\ncluster_name: x\n\ncomitlog_sync: batch\n").unwrap_err();
        assert_eq!(error, ":4: comitlog_sync: is no option of Espalier or of Cassandra 5.0");
    }

    #[test]
    fn the_error_for_a_bad_value_names_the_line() {
        let error = load("\nread_request_timeout: 5000\n").unwrap_err();
        assert!(error.starts_with(":2: read_request_timeout: expected a duration"), "{error}");
        assert!(load("a: [").unwrap_err().starts_with(": "));
    }

    #[test]
    fn options_that_cannot_be_honoured_are_refused() {
        let error = load("authenticator: MyAuthenticator\n").unwrap_err();
        assert!(error.contains("authenticator: is not supported with the value"), "{error}");
        for refused in [
            "partitioner: org.apache.cassandra.dht.RandomPartitioner",
            "client_encryption_options: {enabled: true, protocol: SSLv3}",
            "transparent_data_encryption_options: {enabled: true, chunk_length_kb: 64}",
            "cdc_enabled: true",
            "memtable: {configurations: {default: {class_name: PersistentMemoryMemtable}}}",
            "sstable: {selected_format: big}",
        ] {
            let (name, _) = refused.split_once(':').unwrap();
            let error = load(refused).unwrap_err();
            assert!(error.contains(name), "{refused}: {error}");
        }
    }

    #[test]
    fn writes_are_durable_by_default() {
        assert_eq!(load("cluster_name: x").unwrap().commitlog_sync, CommitlogSync::Batch);
    }

    #[test]
    fn compression_of_the_log_has_no_effect() {
        for asked in ["LZ4", "LZ4Compressor", "[{class_name: LZ4Compressor}]", "{class_name: ZstdCompressor}"] {
            let config = load(&format!("commitlog_compression: {asked}")).unwrap();
            let (name, reason) = &config.inert[0];
            assert_eq!(name, "commitlog_compression");
            assert!(reason.contains("not compressed"), "{reason}");
        }
    }

    #[test]
    fn contradictory_settings_are_refused_by_name() {
        for refused in [
            "native_transport_max_frame_size: 0B",
            "native_transport_max_frame_size: 1GiB",
            "native_transport_max_concurrent_connections: 0",
            "native_transport_max_concurrent_connections_per_ip: 0",
            "native_transport_max_request_data_in_flight: 0B",
            "native_transport_max_request_data_in_flight_per_ip: 0B",
            "concurrent_compactors: 100000",
            "read_request_timeout: 0ms",
            "range_request_timeout: 9ms",
            "write_request_timeout: 0ms",
            "cas_contention_timeout: 0ms",
            "truncate_request_timeout: 0ms",
            "commitlog_sync_period: 0ms",
            "memtable_offheap_space: 0MiB",
            "column_index_size: 2GiB",
        ] {
            let (name, _) = refused.split_once(':').unwrap();
            let error = load(refused).unwrap_err();
            assert!(error.contains(name) && error.contains("expected"), "{refused}: {error}");
        }
    }

    #[test]
    fn memtables_share_one_pool_of_what_both_spaces_allow() {
        let space = |text: &str| load(text).unwrap().memtable_space_bytes();
        assert_eq!(space("cluster_name: x"), 512 << 20);
        assert_eq!(space("memtable_heap_space: 64MiB\nmemtable_allocation_type: heap_buffers"), 64 << 20);
        assert_eq!(space("memtable_heap_space: 64MiB\nmemtable_offheap_space: 32MiB"), 96 << 20);
        assert!(load("memtable_allocation_type: on_tape").is_err());
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let file = std::env::temp_dir().join(format!("espalier-config-{}.yaml", std::process::id()));
        std::fs::write(&file, "commitlog_sync: periodic\nnative_transport_port: 1\n").unwrap();
        let environment = [("ESPALIER_COMMITLOG_SYNC", "batch"), ("PATH", "/bin")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load(Some(&file), environment.into_iter());
        std::fs::remove_file(&file).unwrap();
        let config = config.unwrap();
        assert_eq!((config.commitlog_sync, config.port), (CommitlogSync::Batch, 1));
        let unknown = [("ESPALIER_COMITLOG_SYNC".to_owned(), "batch".to_owned())];
        let error = Config::load(None, unknown.into_iter()).unwrap_err();
        assert_eq!(error, "ESPALIER_COMITLOG_SYNC: is no option of Espalier or of Cassandra 5.0");
    }

    #[test]
    fn the_reference_configuration_is_the_defaults() {
        let config = load(include_str!("../../../conf/espalier.yaml")).unwrap();
        let space = Some(MEMTABLE_SPACE_BYTES);
        assert_eq!(config, Config { memtable_offheap_space_bytes: space, ..Config::default() });
        assert_eq!(config.memtable_space_bytes(), Config::default().memtable_space_bytes());
    }

    /// The active keys and values of the two files that Cassandra 5.0 comes with.
    #[test]
    fn cassandras_own_files_start() {
        for text in [
            include_str!("../tests/from_cassandra/5.0.8/cassandra.yaml"),
            include_str!("../tests/from_cassandra/5.0.8/cassandra_latest.yaml"),
        ] {
            let config = load(text).unwrap();
            assert!(config.inert.iter().any(|(name, _)| name == "hinted_handoff_enabled"));
            assert_eq!((config.port, config.commitlog_sync), (9042, CommitlogSync::Periodic));
            assert_eq!(config.num_tokens, 16);
        }
    }
}
