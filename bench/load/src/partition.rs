//! The load with rows of one large partition: rows are written in order and read one by one, in slices of either order,
//! or behind deleted rows.

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, number_of, partition_key, value};
use crate::session::{Client, Raw};
use crate::spec::{Spec, Workload};
use crate::workload::Own;

/// Every partition of this load has this index.
const PARTITION: u64 = 0;

pub struct PartitionWorker {
    write: PreparedStatement,
    read: PreparedStatement,
    rows: u64,
    live_every: u64,
    value_bytes: usize,
    limit: u64,
    reversed: bool,
    reads_percent: u8,
    own: Own,
    random: Random,
    written: u64,
}

impl PartitionWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let Workload::Partition { table, rows, live_every, value_bytes, limit, reversed } = &spec.workload else {
            return Err("not a load of one partition".to_owned());
        };
        let (bound, order) = if *reversed { ("<=", " ORDER BY row DESC") } else { (">=", "") };
        let write = format!("INSERT INTO {table} (key, row, value) VALUES (?, ?, ?)");
        let read = format!("SELECT row, value FROM {table} WHERE key = ? AND row {bound} ?{order} LIMIT {limit}");
        let one = format!("SELECT row, value FROM {table} WHERE key = ? AND row = ?");
        Ok(Self {
            write: client.prepare(&write).await?,
            read: client.prepare(if *limit == 0 { &one } else { &read }).await?,
            rows: *rows,
            live_every: (*live_every).max(1),
            value_bytes: *value_bytes,
            limit: *limit,
            reversed: *reversed,
            reads_percent: spec.reads_percent,
            own: Own { place, workers: spec.in_flight as u64 },
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
            written: 0,
        })
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        if self.random.percent(self.reads_percent) {
            let from = self.random.below(self.rows);
            self.read(client, from).await?;
            return Ok(true);
        }
        let row = self.own.index(self.written);
        self.written += 1;
        let bytes = value(row, 0, self.value_bytes);
        client.write(&self.write, (Raw(&partition_key(PARTITION)), Raw(&row.to_be_bytes()), Raw(&bytes))).await?;
        Ok(false)
    }

    /// Reads from a row on. The right answer is known: `limit` live rows from that row on, with their values.
    async fn read(&self, client: &Client, from: u64) -> Result<(), String> {
        let mut expected = self.expected(from).into_iter();
        let take = |cells: &[Option<&[u8]>]| {
            let row = cells.first().copied().flatten().and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let wanted = expected.next();
            if row != wanted {
                return Err(format!("wrong answer: row {row:?} instead of {wanted:?} from {from} on"));
            }
            let bytes = cells.get(1).copied().flatten().ok_or("a row without a value")?;
            number_of(row.unwrap_or_default(), bytes).map(drop)
        };
        client.read(&self.read, (Raw(&partition_key(PARTITION)), Raw(&from.to_be_bytes())), take).await?;
        match expected.next() {
            None => Ok(()),
            Some(missing) => Err(format!("wrong answer: row {missing} is missing from {from} on")),
        }
    }

    fn expected(&self, from: u64) -> Vec<u64> {
        let every = self.live_every;
        let limit = self.limit as usize;
        match (self.limit, self.reversed) {
            (0, _) => (from % every == 0).then_some(from).into_iter().collect(),
            (_, false) => (from.div_ceil(every)..)
                .map(|live| live * every)
                .take_while(|row| *row < self.rows)
                .take(limit)
                .collect(),
            (_, true) => (0..=from / every).rev().map(|live| live * every).take(limit).collect(),
        }
    }

    /// Reads back what this worker wrote, row by row from the first.
    pub async fn check(&self, client: &Client, limit: usize) -> Result<usize, String> {
        let count = self.written.min(limit as u64);
        for ordinal in 0..count {
            self.read(client, self.own.index(ordinal)).await?;
        }
        Ok(count as usize)
    }
}
