//! A worker's operations: one write or one read at a time, on keys that are its own.

use crate::columns::ColumnsWorker;
use crate::conditions::ConditionsWorker;
use crate::counters::CountersWorker;
use crate::indexed::IndexedWorker;
use crate::key_value::KeyValueWorker;
use crate::partition::PartitionWorker;
use crate::session::Client;
use crate::spec::{Choice, Spec, Workload};
use crate::vectors::VectorsWorker;

/// A worker of one of the workloads.
pub enum Worker {
    KeyValue(KeyValueWorker),
    Columns(ColumnsWorker),
    Partition(PartitionWorker),
    Conditions(ConditionsWorker),
    Counters(CountersWorker),
    Indexed(IndexedWorker),
    Vectors(VectorsWorker),
}

impl Worker {
    /// Worker `place` of `spec.in_flight`.
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        Ok(match &spec.workload {
            Workload::Columns { .. } => Self::Columns(ColumnsWorker::new(client, spec, place).await?),
            Workload::Partition { .. } => Self::Partition(PartitionWorker::new(client, spec, place).await?),
            Workload::Conditions { .. } => Self::Conditions(ConditionsWorker::new(client, spec, place).await?),
            Workload::Counters { .. } => Self::Counters(CountersWorker::new(client, spec, place).await?),
            Workload::Indexed { .. } => Self::Indexed(IndexedWorker::new(client, spec, place).await?),
            Workload::Vectors { .. } => Self::Vectors(VectorsWorker::new(client, spec, place).await?),
            _ => Self::KeyValue(KeyValueWorker::new(client, spec, place).await?),
        })
    }

    /// Carries out one operation, and returns true if it was a read.
    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        match self {
            Self::KeyValue(worker) => worker.operate(client).await,
            Self::Columns(worker) => worker.operate(client).await,
            Self::Partition(worker) => worker.operate(client).await,
            Self::Conditions(worker) => worker.operate(client).await,
            Self::Counters(worker) => worker.operate(client).await,
            Self::Indexed(worker) => worker.operate(client).await,
            Self::Vectors(worker) => worker.operate(client).await,
        }
    }

    /// Reads back up to `limit` of the places that it wrote, and returns how many were right.
    pub async fn check(&mut self, client: &Client, limit: usize) -> Result<usize, String> {
        match self {
            Self::KeyValue(worker) => worker.check(client, limit).await,
            Self::Columns(worker) => worker.check(client, limit).await,
            Self::Partition(worker) => worker.check(client, limit).await,
            Self::Conditions(worker) => worker.check(client, limit).await,
            Self::Counters(worker) => worker.check(client, limit).await,
            Self::Indexed(worker) => worker.check(client, limit).await,
            // Searches are compared with what they should find while the load runs.
            Self::Vectors(_) => Ok(0),
        }
    }
}

/// The part of a partition space that worker `place` owns: `place`, `place + workers`, `place + 2 * workers`, …
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub place: u64,
    pub workers: u64,
}

impl Own {
    /// The number of the `total` partitions that it owns.
    pub fn count(self, total: u64) -> u64 {
        total.saturating_sub(self.place).div_ceil(self.workers)
    }

    pub fn index(self, ordinal: u64) -> u64 {
        self.place + ordinal * self.workers
    }
}

/// The first partition of an inserting load, and 0 for other loads.
pub fn first_partition(choice: &Choice) -> u64 {
    match choice {
        Choice::Insert { first } => *first,
        Choice::Uniform { .. } | Choice::Zipfian { .. } | Choice::CoPrime { .. } => 0,
    }
}
