//! The load with increments of counters. Every worker counts in partitions of its own, and knows their sums.

use std::collections::HashMap;

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, partition_key};
use crate::session::{Client, Raw};
use crate::spec::{Spec, Workload};
use crate::workload::Own;

/// The counters of a worker whose totals are read before the run, so that their sums can be checked after it.
const WATCHED: u64 = 32;

pub struct CountersWorker {
    write: PreparedStatement,
    read: PreparedStatement,
    own: Own,
    own_partitions: u64,
    random: Random,
    /// The totals that are due of the watched partitions.
    totals: HashMap<u64, i64>,
}

impl CountersWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let Workload::Counters { table, partitions } = &spec.workload else {
            return Err("not a load with counters".to_owned());
        };
        let own = Own { place, workers: spec.in_flight as u64 };
        let mut worker = Self {
            write: client.prepare(&format!("UPDATE {table} SET c = c + ? WHERE key = ?")).await?,
            read: client.prepare(&format!("SELECT c FROM {table} WHERE key = ?")).await?,
            own,
            own_partitions: own.count(*partitions),
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
            totals: HashMap::new(),
        };
        for ordinal in 0..worker.own_partitions.min(WATCHED) {
            let partition = worker.own.index(ordinal);
            let total = worker.read(client, partition).await?;
            worker.totals.insert(partition, total);
        }
        Ok(worker)
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        let partition = self.own.index(self.random.below(self.own_partitions));
        let increment = self.random.below(9) as i64 - 3;
        let values = (Raw(&increment.to_be_bytes()), Raw(&partition_key(partition)));
        client.write(&self.write, values).await?;
        if let Some(total) = self.totals.get_mut(&partition) {
            *total += increment;
        }
        Ok(false)
    }

    /// The total of a counter; one that nobody counted in is 0.
    async fn read(&self, client: &Client, partition: u64) -> Result<i64, String> {
        let mut total = 0;
        let take = |cells: &[Option<&[u8]>]| {
            let bytes = cells.first().copied().flatten().ok_or("a row without a counter")?;
            total = bytes.try_into().map(i64::from_be_bytes).map_err(|_| "a counter that is no bigint")?;
            Ok(())
        };
        client.read(&self.read, (Raw(&partition_key(partition)),), take).await?;
        Ok(total)
    }

    /// Reads back the watched counters.
    pub async fn check(&self, client: &Client, limit: usize) -> Result<usize, String> {
        for (partition, due) in self.totals.iter().take(limit) {
            let total = self.read(client, *partition).await?;
            if total != *due {
                return Err(format!("wrong answer: counter {partition} is {total}, not {due}"));
            }
        }
        Ok(self.totals.len().min(limit))
    }
}
