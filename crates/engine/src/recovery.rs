//! Opening what a node left behind.
//!
//! The order: system tables from their SSTables; the log's records of the schema and of truncations; the schema, and
//! with it the user tables' SSTables; then all of the log. A record is replayed unless an SSTable of its table, flushed
//! here, covers its position, or the table was truncated after it. Replay never waits for memory: it flushes what it
//! filled. At the end what truncations and drops left undone is finished.
//!
//! The schema's records come first because its tables are flushed one by one: their SSTables alone may be of different
//! times, so that no schema can be made of them. Column sets are kept for good, so that the last schema reads every
//! record. Truncations come first because their records follow those that they concern.
//!
//! A log that ends before a position that an SSTable names is damaged: it was durable up to there when the SSTable was
//! written, and an SSTable has only some of the tables that a record there concerns.

mod bunch;
mod covered;
pub(crate) mod log_host;
mod repair;
mod replay;
mod replay_threads;
mod start;

use std::sync::Arc;

use crate::compaction::Compaction;
use crate::flush::Flush;
use crate::quarantine::Quarantine;
use crate::residents::Residents;
use crate::schema::Tables;
use crate::shared::Shared;
use crate::write::Writes;

pub use replay::ReplaySummary;
use replay::Replayer;
pub(crate) use start::Start;

/// Brings back what a node left behind, at a start, and quarantined tables later.
pub(crate) struct Recovery {
    shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    quarantine: Arc<Quarantine>,
    flush: Arc<Flush>,
    residents: Arc<Residents>,
    writes: Arc<Writes>,
    tables: Arc<Tables>,
    replayer: Replayer,
}

impl Recovery {
    pub fn new(
        shared: &Arc<Shared>,
        compaction: &Arc<Compaction>,
        quarantine: &Arc<Quarantine>,
        flush: &Arc<Flush>,
        residents: &Arc<Residents>,
        writes: &Arc<Writes>,
        tables: &Arc<Tables>,
    ) -> Recovery {
        Recovery {
            replayer: Replayer::new(shared, quarantine, flush),
            shared: Arc::clone(shared),
            compaction: Arc::clone(compaction),
            quarantine: Arc::clone(quarantine),
            flush: Arc::clone(flush),
            residents: Arc::clone(residents),
            writes: Arc::clone(writes),
            tables: Arc::clone(tables),
        }
    }
}
