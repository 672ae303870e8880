//! Fuzz targets. Each takes any bytes and must return an error or a value, without a panic and with memory in
//! proportion to its input.
//!
//! `fuzz/` runs the targets under cargo-fuzz. The test of this crate runs the corpora, and mutations of them, on stable
//! Rust.
#![forbid(unsafe_code)]

mod commit_log;
mod frames;
mod indexes;
mod keys;
mod logins;
mod mutate;
mod mutation;
mod paging;
mod plugin;
mod tables;
mod values;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use indexes::seeds as index_seeds;
pub use keys::seeds as key_seeds;
pub use mutate::Mutator;
pub use mutation::seeds as record_seeds;
pub use plugin::seeds as plugin_seeds;

/// A fuzz target.
pub struct FuzzTarget {
    /// The name of the target and of its corpus.
    pub name: &'static str,
    /// Decodes the bytes.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "protocol", run: protocol },
    FuzzTarget { name: "cql", run: cql },
    FuzzTarget { name: "log_file", run: commit_log::file },
    FuzzTarget { name: "log_records", run: commit_log::records },
    FuzzTarget { name: "mutation", run: mutation::record },
    FuzzTarget { name: "byte_comparable", run: keys::byte_comparable },
    FuzzTarget { name: "values", run: values::value },
    FuzzTarget { name: "paging_state", run: paging::paging_state },
    FuzzTarget { name: "logins", run: logins::login },
    FuzzTarget { name: "plugin", run: plugin::calls },
    FuzzTarget { name: "sstable_statistics", run: tables::statistics },
    FuzzTarget { name: "sstable_compression_info", run: tables::compression_info },
    FuzzTarget { name: "sstable_filter", run: tables::filter },
    FuzzTarget { name: "sstable_crc", run: tables::crc },
    FuzzTarget { name: "sstable_checksums", run: tables::checksums },
    FuzzTarget { name: "sstable_partitions", run: tables::partitions },
    FuzzTarget { name: "sstable_rows", run: tables::rows },
    FuzzTarget { name: "sstable_data", run: tables::data },
    FuzzTarget { name: "sstable_chunk", run: tables::chunk },
    FuzzTarget { name: "index_entries", run: indexes::entries },
    FuzzTarget { name: "index_vectors", run: indexes::vectors },
];

/// Runs the target of that name, for the binaries of `fuzz/`.
///
/// # Panics
///
/// If there is no such target, and if a decoder panics or takes too long, which is what fuzzing looks for.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of TARGETS");
    let size_kb = u32::try_from(bytes.len() / 1024).unwrap_or(u32::MAX).max(SMALL_INPUT_KB);
    let times = (0..TRIES).map(|_| {
        let started = thread_cpu_time();
        (target.run)(bytes);
        thread_cpu_time() - started
    });
    let is_quick = |taken: &Duration| *taken <= TIME_PER_KB * size_kb;
    let slow: Vec<Duration> = times.take_while(|taken| !is_quick(taken)).collect();
    assert!(slow.len() < TRIES, "{} bytes took {slow:?}", bytes.len());
}

/// The processor time of this thread. The time of the clock would count programs that go before the fuzzer.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An input is too slow if it is so each time, since the first may pay for pages and caches.
const TRIES: usize = 5;

/// The most time that a target may take for a kilobyte of its input.
const TIME_PER_KB: Duration = Duration::from_millis(10);

/// Smaller inputs have the time of one of this size, because a sanitizer makes each of them slow.
const SMALL_INPUT_KB: u32 = 10;

/// Frames, segments and request bodies of a connection, in each version and compression.
fn protocol(bytes: &[u8]) {
    frames::frames(bytes);
}

/// A statement's text.
fn cql(bytes: &[u8]) {
    /// A decoder may read a text in several ways one after the other, but not within each other.
    const STEPS_PER_BYTE_MAX: u64 = 16;
    let text = String::from_utf8_lossy(bytes);
    let (_, steps) = cql::parse_counting(&text);
    assert!(steps <= STEPS_PER_BYTE_MAX * (text.len() as u64 + 1), "{steps} steps for {} bytes", text.len());
}
