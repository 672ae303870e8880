//! Durable append of opaque records, and their replay.
//!
//! The log is one file of fixed segments, which many threads fill in parallel: a record reserves its place by one
//! compare-and-swap, copies itself into memory with no lock held, and a writer thread, or one that waits, puts whole
//! blocks on the device. A record is known by the position of its end. Each segment knows the tables that have records
//! in it; once all of them have flushed past it ([`CommitLog::flushed`]) it is used again.
//!
//! The order of a write: [`append`](CommitLog::append), [`durable`](CommitLog::durable), then acknowledge. What is
//! promised: every acknowledged record is there after a crash; one that was appended and not acknowledged is there
//! whole or not at all.
//!
//! The bytes are described in `FORMAT.md`. What is assumed of the disk is said in `blockio`.

#![forbid(unsafe_code)]

mod course;
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
mod rebuild;
mod record_starts;
mod recovery;
mod replay;
mod room;
mod scan;
mod segment;
mod segments;
mod shared;
mod signals;
mod tail;
mod waiters;
mod writer;

pub use blockio::{BlockWrites, QueueMeans};
pub use decision::{
    BlockKind, DECISIONS, Decision, ENTRY_DECISIONS, EntryDecision, EntryKind, FirstBlock, Order, Place, decide,
    decide_entry,
};
pub use durable::{Durable, LogWait, RoomChange};
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
pub use scan::{Found, RecordCursor, Run, SegmentImage, Step, Verdict, count_records};
pub use segments::Pressure;
