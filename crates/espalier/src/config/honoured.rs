//! Options that have an effect: for each its default, its note for `docs/options.md`, and the function that sets it.
//!
//! The table [`HONOURED`] owns how a value of `cassandra.yaml` becomes a value of [`Config`], and which values are
//! refused. An option that is not here has no effect (`inert.rs`), is accepted with some values only (`restricted.rs`),
//! or is unknown. It does not know where the values come from, nor what the node does with them.

use super::auth;
use super::encryption;
use super::memtables;
use super::options::Honoured;
use super::request_logs;
use super::sai;
use super::units::{boolean, bytes_per_second, duration, number, scalar, set, size_bytes, size_in, text};
use super::{CommitFailurePolicy, CommitlogSync, Config, DiskFailurePolicy};
use engine::DiskAccess;
use model::IndexClass;
use serde_json::Value;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// `data_file_directories`: only one directory named `data` is accepted. The other files of the node are put beside it.
fn data_file_directories(config: &mut Config, value: &Value) -> Result<(), String> {
    let directories = value.as_array().ok_or_else(|| format!("expected a list of directories, got {value}"))?;
    let [directory] = &directories[..] else {
        return Err("must name one directory: tables are not spread over several".to_owned());
    };
    let directory = PathBuf::from(text(directory)?);
    match (directory.file_name().and_then(|name| name.to_str()), directory.parent()) {
        (Some("data"), Some(parent)) => config.data_directory = parent.to_path_buf(),
        _ => return Err("must name a directory called data; its parent directory is used too".to_owned()),
    }
    Ok(())
}

/// The value is only checked: it decides where Java allocates memory.
fn memtable_allocation_type(_: &mut Config, value: &Value) -> Result<(), String> {
    match scalar(value).as_deref() {
        Some(
            "heap_buffers"
            | "unslabbed_heap_buffers"
            | "unslabbed_heap_buffers_logged"
            | "offheap_buffers"
            | "offheap_objects",
        ) => Ok(()),
        _ => Err(format!("expected one of Cassandra's allocation types, got {value}")),
    }
}

fn commitlog_sync(config: &mut Config, value: &Value) -> Result<(), String> {
    config.commitlog_sync = match scalar(value).as_deref() {
        Some("periodic") => CommitlogSync::Periodic,
        Some("batch") => CommitlogSync::Batch,
        Some("group") => CommitlogSync::Group,
        Some("each") => CommitlogSync::Each,
        _ => return Err(format!("expected periodic, batch, group or each, got {value}")),
    };
    Ok(())
}

fn commit_failure_policy(config: &mut Config, value: &Value) -> Result<(), String> {
    config.commit_failure_policy = match scalar(value).as_deref() {
        Some("stop") => CommitFailurePolicy::Stop,
        Some("die") => CommitFailurePolicy::Die,
        Some("stop_commit") => CommitFailurePolicy::StopCommit,
        Some("ignore") => CommitFailurePolicy::Ignore,
        _ => return Err(format!("expected stop, die, stop_commit or ignore, got {value}")),
    };
    Ok(())
}

fn disk_failure_policy(config: &mut Config, value: &Value) -> Result<(), String> {
    config.disk_failure_policy = match scalar(value).as_deref() {
        Some("stop") => DiskFailurePolicy::Stop,
        Some("stop_paranoid") => DiskFailurePolicy::StopParanoid,
        Some("die") => DiskFailurePolicy::Die,
        Some("best_effort") => DiskFailurePolicy::BestEffort,
        Some("ignore") => DiskFailurePolicy::Ignore,
        _ => return Err(format!("expected stop, stop_paranoid, die, best_effort or ignore, got {value}")),
    };
    Ok(())
}

fn disk_access_mode(config: &mut Config, value: &Value) -> Result<(), String> {
    config.disk_access = match scalar(value).as_deref() {
        Some("auto") => DiskAccess::DirectWrites,
        Some("standard" | "mmap" | "mmap_index_only") => DiskAccess::Buffered,
        Some("direct") => DiskAccess::Direct,
        _ => return Err(format!("expected auto, standard, mmap, mmap_index_only or direct, got {value}")),
    };
    Ok(())
}

/// Cassandra's limits use -1 for "none".
fn limit(value: &Value) -> Result<Option<usize>, String> {
    match number::<i64>(value)? {
        0 => Err("expected a number from 1, or -1 for no limit, got 0".to_owned()),
        number => Ok(usize::try_from(number).ok()),
    }
}

/// A number within limits, which the error names.
fn number_in(value: &Value, range: RangeInclusive<usize>) -> Result<usize, String> {
    let (least, most) = (*range.start(), *range.end());
    number(value).and_then(|number| match range.contains(&number) {
        true => Ok(number),
        false => Err(format!("expected a number from {least} to {most}, got {value}")),
    })
}

/// A duration of at least `least`.
fn duration_from(value: &Value, least: Duration) -> Result<Duration, String> {
    duration(value).and_then(|duration| match duration >= least {
        true => Ok(duration),
        false => Err(format!("expected a duration of {least:?} or more, got {value}")),
    })
}

fn address(value: &Value) -> Result<std::net::IpAddr, String> {
    let name = text(value)?;
    if name == "localhost" {
        return Ok(std::net::Ipv4Addr::LOCALHOST.into());
    }
    name.parse().map_err(|_| format!("expected an IP address, got {value}"))
}

/// The name of a class of indexes.
fn index_class(value: &Value) -> Result<String, String> {
    let name = text(value)?;
    let is_attached = IndexClass::of_name(&name) == Some(IndexClass::StorageAttached);
    match name.eq_ignore_ascii_case("legacy_local_table") || is_attached {
        true => Ok(name),
        false => Err(format!("expected legacy_local_table or sai, got {value}")),
    }
}

/// The least timeout of a request, which is Cassandra's.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);

/// The least time that a snapshot is kept, which is Cassandra's.
pub const SNAPSHOT_LIFETIME_MIN: Duration = Duration::from_secs(60);

/// The limits that may be set for a frame: drivers accept none larger than the protocol's 256 MiB.
const FRAME_SIZES_BYTES: RangeInclusive<u64> = 1 << 10..=256 << 20;

/// The accepted memory of memtables, which must hold one shard's first pages.
const MEMTABLE_SPACES_BYTES: RangeInclusive<u64> = 1 << 20..=u64::MAX;

/// Memory for requests: a small one and its answer must fit.
const IN_FLIGHT_BYTES: RangeInclusive<u64> = 1 << 20..=u64::MAX;

/// How far apart the entries of a row index may be; with 0 every row has one, as in Cassandra.
const COLUMN_INDEX_SIZES_BYTES: RangeInclusive<u64> = 0..=1 << 30;

/// The smallest segment has room for a useful mutation, and the largest one is what a position can address.
const SEGMENT_SIZES_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 30;

pub(super) const HONOURED: &[Honoured] = &[
    Honoured {
        name: "data_directory",
        default: "data",
        note: "Espalier's own: the directory that contains all files of the node; `--data`",
        apply: |config, value| set(&mut config.data_directory, text(value).map(PathBuf::from)),
    },
    Honoured {
        name: "data_file_directories",
        default: "[data/data]",
        note: "one directory named `data`, whose parent becomes `data_directory`",
        apply: data_file_directories,
    },
    Honoured {
        name: "authenticator",
        default: "AllowAllAuthenticator",
        note: "`PasswordAuthenticator`: clients log in with the name and the password of a role. The first start \
               creates the superuser `cassandra` with the password `cassandra`. `MutualTlsAuthenticator`, \
               `MutualTlsWithPasswordFallbackAuthenticator`: clients log in by the SPIFFE identity of their certificate; \
               `validator_class_name` is `SpiffeCertificateValidator`",
        apply: auth::authenticator,
    },
    Honoured {
        name: "authorizer",
        default: "AllowAllAuthorizer",
        note: "`CassandraAuthorizer`: statements need permissions. It needs `PasswordAuthenticator`",
        apply: auth::authorizer,
    },
    Honoured {
        name: "network_authorizer",
        default: "AllowAllNetworkAuthorizer",
        note: "`CassandraNetworkAuthorizer`: roles connect to their data centers only. It needs `PasswordAuthenticator`",
        apply: auth::network_authorizer,
    },
    Honoured {
        name: "cidr_authorizer",
        default: "AllowAllCIDRAuthorizer",
        note: "`CassandraCIDRAuthorizer`: roles connect from their groups of addresses only; `cidr_authorizer_mode` is \
               MONITOR or ENFORCE. The groups are rows of `system_auth.cidr_groups`. It needs `PasswordAuthenticator`",
        apply: auth::cidr_authorizer,
    },
    Honoured {
        name: "audit_logging_options",
        default: "enabled: false",
        note: "with `FileAuditLogger`: entries are lines of `audit.log` in `audit_logs_dir` (default: `audit` in the data \
               directory), chosen by included and excluded keyspaces, categories and users. `roll_cycle` (MINUTELY, HOURLY, \
               DAILY), `max_log_size`, `max_queue_weight` and `block` are those of Cassandra's binary logger, which is \
               refused, as is `archive_command`",
        apply: request_logs::audit_logging_options,
    },
    Honoured {
        name: "full_query_logging_options",
        default: "",
        note: "`log_dir` and the options of files of `audit_logging_options`, for `espalier enablefullquerylog`: requests are \
               lines of `full_query.log`. Cassandra's binary form is not supported, nor is `archive_command`",
        apply: request_logs::full_query_logging_options,
    },
    Honoured {
        name: "roles_validity",
        default: "2000ms",
        note: "rows of `system_auth.roles` that were written directly hold within this time",
        apply: |config, value| set(&mut config.roles_validity, duration(value)),
    },
    Honoured {
        name: "permissions_validity",
        default: "2000ms",
        note: "rows of `system_auth.role_permissions` that were written directly hold within this time. GRANT and \
               REVOKE hold at once",
        apply: |config, value| set(&mut config.permissions_validity, duration(value)),
    },
    Honoured {
        name: "credentials_validity",
        default: "2000ms",
        note: "a password that was right is not hashed again for this time; 0 means that it always is",
        apply: |config, value| set(&mut config.auth.credentials_validity, duration(value)),
    },
    Honoured {
        name: "credentials_cache_max_entries",
        default: "1000",
        note: "the roles whose last password is known for that time",
        apply: |config, value| set(&mut config.auth.credentials_max, number_in(value, 0..=1_000_000)),
    },
    Honoured {
        name: "commitlog_directory",
        default: "data/commitlog",
        note: "the directory of the commit log",
        apply: |config, value| set(&mut config.commitlog_directory, text(value).map(PathBuf::from).map(Some)),
    },
    Honoured {
        name: "commitlog_device",
        default: "",
        note: "Espalier's own: a block device, or a file written to its end, that is the log. It begins with 8 KiB \
               of zeros or contains a log",
        apply: |config, value| set(&mut config.commitlog_device, text(value).map(PathBuf::from).map(Some)),
    },
    Honoured {
        name: "cluster_name",
        default: "Test Cluster",
        note: "the name that clients see",
        apply: |config, value| set(&mut config.cluster_name, text(value)),
    },
    Honoured {
        name: "num_tokens",
        default: "1",
        note: "the number of tokens that `system.local` shows, 1 to 1536, at equal distances. Drivers divide the \
               ring by them. The node owns the whole ring, and the number may change at any start",
        apply: |config, value| set(&mut config.num_tokens, number_in(value, 1..=1_536).map(|count| count as u32)),
    },
    Honoured {
        name: "rpc_address",
        default: "127.0.0.1",
        note: "the address that clients connect to; `--listen`",
        apply: |config, value| set(&mut config.listen, address(value)),
    },
    Honoured {
        name: "broadcast_rpc_address",
        default: "",
        note: "the address that clients are told to connect to; by default `rpc_address`",
        apply: |config, value| {
            config.broadcast_rpc_address = match address(value)? {
                address if address.is_unspecified() => {
                    return Err(format!("expected an address that clients can connect to, got {value}"));
                }
                address => Some(address),
            };
            Ok(())
        },
    },
    Honoured {
        name: "native_transport_port",
        default: "9042",
        note: "the port that clients connect to; `--port`",
        apply: |config, value| set(&mut config.port, number(value)),
    },
    Honoured {
        name: "native_transport_port_ssl",
        default: "none",
        note: "a port of its own for TLS; `native_transport_port` is plain then",
        apply: |config, value| set(&mut config.port_ssl, number(value).map(Some)),
    },
    Honoured {
        name: "client_encryption_options",
        default: "enabled: false",
        note: "TLS for clients, with Cassandra's keys. Stores are PEM, PKCS12 or JKS files, or PEM in the parameters of \
               `PEMBasedSslContextFactory`; a trust store of PEM may also have lists of revoked certificates (`X509 CRL`), \
               which Cassandra does not read; `protocol` and `accepted_protocols` have TLSv1.2 and TLSv1.3. Changed \
               files are read again within ten minutes, or by `espalier reloadssl`",
        apply: encryption::client_encryption_options,
    },
    Honoured {
        name: "native_transport_max_frame_size",
        default: "16MiB",
        note: "the largest request, 1KiB to 256MiB",
        apply: |config, value| {
            let size = size_in(value, FRAME_SIZES_BYTES, "from 1KiB to 256MiB")?;
            config.frame_size_bytes_max = usize::try_from(size).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Honoured {
        name: "native_transport_max_concurrent_connections",
        default: "-1",
        note: "the largest number of connections; -1 means no limit. Never more than half of the files that the process may open",
        apply: |config, value| set(&mut config.connections_max, limit(value)),
    },
    Honoured {
        name: "native_transport_max_concurrent_connections_per_ip",
        default: "-1",
        note: "the largest number of connections from one address; -1 means no limit",
        apply: |config, value| set(&mut config.connections_per_ip_max, limit(value)),
    },
    Honoured {
        name: "native_transport_max_request_data_in_flight",
        default: "",
        note: "memory for requests that arrive or are under way, for what their statements hold, and for answers that are not sent yet. Above \
               it connections are not read, and those whose clients do not end a request or do not read for 5 s are closed; with \
               `THROW_ON_OVERLOAD` in STARTUP requests are refused instead. By default a tenth of the machine's memory, at least 256MiB. \
               Each connection may hold 32KiB besides",
        apply: |config, value| {
            set(&mut config.request_bytes_in_flight_max, size_in(value, IN_FLIGHT_BYTES, "of 1MiB or more").map(Some))
        },
    },
    Honoured {
        name: "native_transport_max_request_data_in_flight_per_ip",
        default: "",
        note: "the same for all connections from one address; by default a quarter of that, at least 64MiB",
        apply: |config, value| {
            let size = size_in(value, IN_FLIGHT_BYTES, "of 1MiB or more").map(Some);
            set(&mut config.request_bytes_in_flight_per_ip_max, size)
        },
    },
    Honoured {
        name: "native_transport_rate_limiting_enabled",
        default: "false",
        note: "whether `native_transport_max_requests_per_second` is in force",
        apply: |config, value| set(&mut config.limits_request_rate, boolean(value)),
    },
    Honoured {
        name: "native_transport_max_requests_per_second",
        default: "1000000",
        note: "the largest number of QUERY, PREPARE, EXECUTE and BATCH of all clients in a second. Above it connections are read more slowly; \
               with `THROW_ON_OVERLOAD` in STARTUP requests are refused instead",
        apply: |config, value| {
            let rate = number(value).and_then(|rate: u32| {
                NonZeroU32::new(rate).ok_or_else(|| "expected a number from 1, got 0".to_owned())
            });
            set(&mut config.requests_per_second_max, rate)
        },
    },
    Honoured {
        name: "native_transport_idle_timeout",
        default: "0ms",
        note: "the time after which idle connections are closed; 0 means never",
        apply: |config, value| {
            set(
                &mut config.idle_timeout,
                duration(value).map(|timeout| Some(timeout).filter(|timeout| !timeout.is_zero())),
            )
        },
    },
    Honoured {
        name: "prepared_statements_cache_size",
        default: "10MiB",
        note: "the memory for prepared statements",
        apply: |config, value| set(&mut config.prepared_statements_cache_size_bytes, size_bytes(value)),
    },
    Honoured {
        name: "read_request_timeout",
        default: "5000ms",
        note: "the time after which a read of given partitions is answered with a timeout",
        apply: |config, value| set(&mut config.read_timeout, duration_from(value, TIMEOUT_MIN)),
    },
    Honoured {
        name: "range_request_timeout",
        default: "10000ms",
        note: "the time after which a read of a range of partitions is answered with a timeout",
        apply: |config, value| set(&mut config.range_timeout, duration_from(value, TIMEOUT_MIN)),
    },
    Honoured {
        name: "write_request_timeout",
        default: "2000ms",
        note: "the time after which a write is answered with a timeout",
        apply: |config, value| set(&mut config.write_timeout, duration_from(value, TIMEOUT_MIN)),
    },
    Honoured {
        name: "cas_contention_timeout",
        default: "1800ms",
        note: "the time after which a conditional write is answered with a timeout, also while it waits for others of \
               its partition",
        apply: |config, value| set(&mut config.cas_contention_timeout, duration_from(value, TIMEOUT_MIN)),
    },
    Honoured {
        name: "truncate_request_timeout",
        default: "60000ms",
        note: "the time after which a TRUNCATE is answered with a timeout",
        apply: |config, value| set(&mut config.truncate_timeout, duration_from(value, TIMEOUT_MIN)),
    },
    Honoured {
        name: "commitlog_sync",
        default: "batch",
        note: "`batch` and `group` acknowledge a write when it is on the device, and `periodic` (the value in \
               Cassandra's files) before that. Espalier's own `each` acknowledges a write when it is on the device, \
               and writes it in blocks of its own. The start logs the cost of a durable write",
        apply: commitlog_sync,
    },
    Honoured {
        name: "commitlog_sync_period",
        default: "10000ms",
        note: "how often the log is synced in `periodic`",
        apply: |config, value| set(&mut config.commitlog_sync_period, duration_from(value, Duration::from_millis(1))),
    },
    Honoured {
        name: "commitlog_sync_group_window",
        default: "10ms",
        note: "how long `group` collects writes before it syncs",
        apply: |config, value| set(&mut config.commitlog_sync_group_window, duration(value)),
    },
    Honoured {
        name: "commitlog_segment_size",
        default: "32MiB",
        note: "the size of the segments of a new log, 1MiB to 1GiB",
        apply: |config, value| {
            let size = size_bytes(value)?;
            if !SEGMENT_SIZES_BYTES.contains(&size) || size % 4096 != 0 {
                return Err(format!("expected a size from 1MiB to 1GiB, got {value}"));
            }
            config.commitlog_segment_size_bytes = size as u32;
            Ok(())
        },
    },
    Honoured {
        name: "commitlog_total_space",
        default: "8192MiB",
        note: "the largest size of the log, at least two segments",
        apply: |config, value| set(&mut config.commitlog_total_space_bytes, size_bytes(value)),
    },
    Honoured {
        name: "commit_failure_policy",
        default: "stop",
        note: "after a failed write or sync of the log, no write is acknowledged before a restart. In addition, \
               `stop` disconnects clients, and `die` ends the process with status 100. `stop_commit` and `ignore` \
               continue to serve reads",
        apply: commit_failure_policy,
    },
    Honoured {
        name: "memtable",
        default: "trie",
        note: "`configurations` by name, which tables choose with `WITH memtable`. A configuration has a \
               `class_name` or `inherits` from another one. The classes are `TrieMemtable` (parameters `shards`, one \
               for each core by default, and our own `layout`: `adaptive` or `paper`), `SkipListMemtable`, and \
               `ShardedSkipListMemtable` (`shards`, `serialize_writes`). Without this section there are `trie`, \
               `skiplist`, and `default`, which is a trie",
        apply: |config, value| set(&mut config.memtable_configurations, memtables::configurations(value)),
    },
    Honoured {
        name: "disk_failure_policy",
        default: "stop",
        note: "a request whose data cannot be read fails with the reason under every policy. `stop` disconnects \
               clients if the operating system fails to read or write SSTables, `stop_paranoid` also if an SSTable \
               is damaged, and `die` ends the process with status 100 in both cases. `best_effort` and `ignore` \
               continue. If SSTables cannot be opened at the start, `stop_paranoid` and `die` refuse to start; under \
               other policies their tables are quarantined (see `espalier repair-table`). `--read-only` overrides the policy with \
               `best_effort`",
        apply: disk_failure_policy,
    },
    Honoured {
        name: "memtable_offheap_space",
        default: "512MiB",
        note: "the memory that memtables may use. They share one pool, whose size is the sum of this and \
               `memtable_heap_space`, if that is set. Writes that exceed it wait for a flush",
        apply: |config, value| {
            set(
                &mut config.memtable_offheap_space_bytes,
                size_in(value, MEMTABLE_SPACES_BYTES, "of 1MiB or more").map(Some),
            )
        },
    },
    Honoured {
        name: "memtable_heap_space",
        default: "",
        note: "additional memory for the same pool: memtables have no heap of their own",
        apply: |config, value| {
            set(
                &mut config.memtable_heap_space_bytes,
                size_in(value, MEMTABLE_SPACES_BYTES, "of 1MiB or more").map(Some),
            )
        },
    },
    Honoured {
        name: "memtable_allocation_type",
        default: "offheap_objects",
        note: "one of `heap_buffers`, `unslabbed_heap_buffers`, `unslabbed_heap_buffers_logged`, `offheap_buffers` \
               and `offheap_objects`. All mean the memtables' own memory, outside of any heap",
        apply: memtable_allocation_type,
    },
    Honoured {
        name: "memtable_cleanup_threshold",
        default: "0.33",
        note: "the fraction of that memory at which the largest memtable is flushed",
        apply: |config, value| {
            let threshold: f64 = number(value)?;
            if !(0.0..=1.0).contains(&threshold) || threshold == 0.0 {
                return Err(format!("expected a number above 0 and up to 1, got {value}"));
            }
            config.memtable_cleanup_threshold = threshold;
            Ok(())
        },
    },
    Honoured {
        name: "memtable_flush_writers",
        default: "2",
        note: "the number of tables that are flushed at the same time",
        apply: |config, value| set(&mut config.memtable_flush_writers, number_in(value, 1..=1024)),
    },
    Honoured {
        name: "column_index_size",
        default: "16KiB",
        note: "the granularity of row indexes in SSTables",
        apply: |config, value| {
            let size = size_in(value, COLUMN_INDEX_SIZES_BYTES, "up to 1GiB")?;
            config.column_index_size_bytes = u32::try_from(size).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Honoured {
        name: "file_cache_size",
        default: "128MiB",
        note: "the memory for pages of indexes and chunks of data, for all SSTables together",
        apply: |config, value| set(&mut config.file_cache_size_bytes, size_bytes(value)),
    },
    Honoured {
        name: "counter_cache_size",
        default: "50MiB",
        note: "the memory for what counters hold, so that an increment need not read it; 0MiB means no such cache",
        apply: |config, value| set(&mut config.counter_cache_size_bytes, size_bytes(value)),
    },
    Honoured {
        name: "disk_access_mode",
        default: "auto",
        note: "`auto`: flushes and compactions write Data.db past the kernel's page cache where the file system \
               allows that. Compactions read the parts of Data.db that are not in our cache past the page cache. All \
               other reads of SSTables go through the page cache into our own cache. `standard`: all reads and \
               writes go through the page cache. `mmap` and `mmap_index_only` mean the same as `standard`: nothing \
               is mapped. Espalier's own `direct`: all reads and writes go past the page cache",
        apply: disk_access_mode,
    },
    Honoured {
        name: "concurrent_compactors",
        default: "1",
        note: "the number of compactions that run at the same time, for one table or several, at most 1024; 0 \
               disables compaction",
        apply: |config, value| set(&mut config.concurrent_compactors, number_in(value, 0..=1024)),
    },
    Honoured {
        name: "compaction_throughput",
        default: "64MiB/s",
        note: "the rate at which all compactions together write, before compression; 0 means no limit",
        apply: |config, value| set(&mut config.compaction_throughput_bytes, bytes_per_second(value)),
    },
    Honoured {
        name: "max_memory_to_lock_fraction",
        default: "0.2",
        note: "from dse.yaml: the fraction of the machine's memory that all tables in memory (`MemoryOnlyStrategy`) \
               may use together",
        apply: |config, value| {
            let fraction: f64 = number(value)?;
            if !(0.0..=1.0).contains(&fraction) {
                return Err(format!("expected a number from 0 to 1, got {value}"));
            }
            config.max_memory_to_lock_fraction = fraction;
            Ok(())
        },
    },
    Honoured {
        name: "max_memory_to_lock_mb",
        default: "0",
        note: "from dse.yaml: the same limit in megabytes, which overrides the fraction; 0 means that the fraction \
               is in force",
        apply: |config, value| set(&mut config.max_memory_to_lock_mb, number(value)),
    },
    Honoured {
        name: "auto_snapshot",
        default: "true",
        note: "whether DROP and TRUNCATE create a snapshot",
        apply: |config, value| set(&mut config.auto_snapshot, boolean(value)),
    },
    Honoured {
        name: "auto_snapshot_ttl",
        default: "",
        note: "how long these snapshots are kept, 60s or more; by default until `espalier clearsnapshot`",
        apply: |config, value| {
            set(&mut config.auto_snapshot_lifetime, duration_from(value, SNAPSHOT_LIFETIME_MIN).map(Some))
        },
    },
    Honoured {
        name: "default_secondary_index",
        default: "legacy_local_table",
        note: "the class of an index for which CREATE INDEX names none: `legacy_local_table`, or `sai`",
        apply: |config, value| set(&mut config.default_index_class, index_class(value)),
    },
    Honoured {
        name: "default_secondary_index_enabled",
        default: "true",
        note: "without it, CREATE INDEX must name a class",
        apply: |config, value| set(&mut config.has_default_index, boolean(value)),
    },
    Honoured {
        name: "sai_options",
        default: "prioritize_over_legacy_index: false",
        note: "with `prioritize_over_legacy_index: true`, a storage-attached index goes before a plain one of the same column. \
               `segment_write_buffer_size` is checked and has no effect: a build holds 32 MiB of entries for each index",
        apply: sai::sai_options,
    },
    Honoured {
        name: "sasi_indexes_enabled",
        default: "false",
        note: "whether SASI indexes may be created (`USING 'org.apache.cassandra.index.sasi.SASIIndex'`)",
        apply: |config, value| set(&mut config.sasi_indexes_enabled, boolean(value)),
    },
    Honoured {
        name: "dynamic_data_masking_enabled",
        default: "false",
        note: "whether columns may be masked (`MASKED WITH`), and masks are applied for readers without UNMASK",
        apply: |config, value| set(&mut config.dynamic_data_masking_enabled, boolean(value)),
    },
    Honoured {
        name: "drop_compact_storage_enabled",
        default: "false",
        note: "whether ALTER TABLE may DROP COMPACT STORAGE",
        apply: |config, value| set(&mut config.drop_compact_storage_enabled, boolean(value)),
    },
];
