//! Recovery: opening the files of an earlier run.
//!
//! The order: system tables from their SSTables; the log's records of the schema and of truncations; the schema, and
//! with it the user tables' SSTables; then the whole log. A record is replayed unless an SSTable of its table that this
//! node flushed covers its position, or the table was truncated after it. Replay never waits for memory: it flushes the
//! memtables that it filled. At the end, unfinished truncations and drops are finished.
//!
//! The schema's records come first because its tables are flushed one by one: their SSTables alone may be of different
//! times, and then form no schema. Column sets are kept forever, so that the last schema can read every record.
//! Truncations come first because their records follow those that they delete.
//!
//! A log that ends before a position that an SSTable names is damaged: it was durable up to there when the SSTable was
//! written, and the SSTable has only one of the tables of a record there.

mod covered;
pub(crate) mod log_host;
mod record_batch;
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

/// Restores the state of an earlier run at a start, and quarantined tables later.
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
