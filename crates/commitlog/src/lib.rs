//! Durable append of opaque records, and their replay.
//!
//! The log is one file of fixed segments, which many threads fill in parallel. A record reserves its place with one
//! compare-and-swap and is copied into memory without a lock; the writer thread, or a thread that waits, writes whole
//! blocks to the device. The position of a record's end identifies the record. Each segment knows which tables have
//! records in it; once all of them have been flushed past it ([`CommitLog::flushed`]) the segment is reused.
//!
//! The order of a write is [`append`](CommitLog::append), [`durable`](CommitLog::durable), acknowledge. The log
//! guarantees that every acknowledged record survives a crash, and that a record which was appended and not
//! acknowledged is found whole or not at all.
//!
//! `FORMAT.md` describes the bytes. `blockio` says what is assumed of the disk.

#![forbid(unsafe_code)]

mod decision;
mod durable;
mod error;
mod file;
mod format;
mod frame;
mod hold;
mod inspect;
mod last_mark;
mod lead;
mod log;
mod metrics;
mod options;
mod position;
mod prewrite;
mod primitive;
mod progress;
mod rebuild;
mod record_starts;
mod recovery;
mod replay;
mod scan;
mod segment;
mod segments;
mod shared;
mod signals;
mod space_signal;
mod tail;
mod waiters;
mod writer;

pub use blockio::{BlockWrites, QueueMeans};
pub use decision::{
    BlockKind, DECISIONS, Decision, ENTRY_DECISIONS, EntryDecision, EntryKind, FirstBlock, HorizonSide, Order, decide,
    decide_entry,
};
pub use durable::{Durable, LogWait, SpaceFreed};
pub use error::{Corruption, LogError};
pub use file::{FILE_NAME, log_path};
pub use format::{
    BLOCK_HEADER_SIZE, BLOCK_PAYLOAD_SIZE, BlockHeader, BlockState, BookkeepingEntry, EntryFault, Geometry,
    RecordFault, SegmentState, Superblock, SuperblockFault,
};
pub use hold::{Awaited, LogHold, release_held_wake_ups, write_held};
pub use inspect::{Inspected, LogInspector, Walked};
pub use log::{Appended, CommitLog};
pub use metrics::{LogMetrics, WaitCount};
pub use options::{Clock, FailureHook, LogOptions, NewLogHook, SyncMode};
pub use position::{IntervalSet, LogPosition, PositionInterval};
pub use replay::{Gap, Record, Replay, ReplayReport};
pub use scan::{RecordCursor, RecordLocation, Run, SegmentImage, Step, Verdict, count_records};
pub use segments::Pressure;
