//! The load with rows of many columns, after *Impacts of many columns in a Cassandra table*.

use std::collections::HashMap;

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, mix, text};
use crate::session::{Client, Raw};
use crate::spec::{Spec, Workload};
use crate::workload::Own;

const ROWS_READ: usize = 20;

pub struct ColumnsWorker {
    write: PreparedStatement,
    read: PreparedStatement,
    columns: usize,
    text_bytes: usize,
    udt: bool,
    /// The cells of a row in which a read finds the clustering and each column (or the UDT).
    row_place: usize,
    places: Vec<usize>,
    reads_percent: u8,
    own: Own,
    own_partitions: u64,
    random: Random,
    /// The newest row of every partition that was written in this run.
    newest: HashMap<u64, u64>,
    /// The rows of this run are numbered from here.
    base: u64,
}

impl ColumnsWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let Workload::Columns { table, columns, text_bytes, udt, listed, partitions } = &spec.workload else {
            return Err("not a load of columns".to_owned());
        };
        let own = Own { place, workers: spec.in_flight as u64 };
        let (names, marks) = if *udt {
            ("fields".to_owned(), "?".to_owned())
        } else {
            (
                (0..*columns).map(|place| format!("c{place}")).collect::<Vec<_>>().join(", "),
                vec!["?"; *columns].join(", "),
            )
        };
        let write = format!("INSERT INTO {table} (key, row, {names}) VALUES (?, ?, {marks})");
        let selected = if *listed { format!("row, {names}") } else { "*".to_owned() };
        let read = format!("SELECT {selected} FROM {table} WHERE key = ? LIMIT {ROWS_READ}");
        Ok(Self {
            write: client.prepare(&write).await?,
            read: client.prepare(&read).await?,
            columns: *columns,
            text_bytes: *text_bytes,
            udt: *udt,
            row_place: usize::from(!*listed),
            places: places(*columns, *udt, *listed),
            reads_percent: spec.reads_percent,
            own,
            own_partitions: own.count(*partitions),
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
            newest: HashMap::new(),
            base: spec.seed << 24,
        })
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        let partition = self.own.index(self.random.below(self.own_partitions));
        if self.random.percent(self.reads_percent) {
            self.read(client, partition).await?;
            return Ok(true);
        }
        self.write(client, partition).await?;
        Ok(false)
    }

    async fn write(&mut self, client: &Client, partition: u64) -> Result<(), String> {
        let row = self.newest.get(&partition).map_or(self.base, |newest| newest + 1);
        let (key, clustering) = (partition.to_be_bytes(), row.to_be_bytes());
        let mut bytes = Vec::with_capacity(self.columns * (self.text_bytes + 4));
        if self.udt {
            for column in 0..self.columns {
                bytes.extend_from_slice(&(self.text_bytes as i32).to_be_bytes());
                self.cell(partition, row, column, &mut bytes);
            }
            client.write(&self.write, (Raw(&key), Raw(&clustering), Raw(&bytes))).await?;
        } else {
            (0..self.columns).for_each(|column| self.cell(partition, row, column, &mut bytes));
            let mut values = vec![Raw(&key), Raw(&clustering)];
            values.extend(bytes.chunks_exact(self.text_bytes).map(Raw));
            client.write(&self.write, values).await?;
        }
        self.newest.insert(partition, row);
        Ok(())
    }

    fn cell(&self, partition: u64, row: u64, column: usize, out: &mut Vec<u8>) {
        text(mix(partition) ^ row.rotate_left(20) ^ column as u64, self.text_bytes, out);
    }

    async fn read(&mut self, client: &Client, partition: u64) -> Result<(), String> {
        let key = partition.to_be_bytes();
        let probe = self.random.below(self.columns as u64) as usize;
        let mut first = None;
        let take = |cells: &[Option<&[u8]>]| {
            let row = cells.get(self.row_place).copied().flatten();
            let row = row.and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let row = row.ok_or("a row without its clustering")?;
            first = first.or(Some(row));
            let cell = if self.udt {
                field(cells.get(self.places[0]).copied().flatten(), probe, self.text_bytes)
            } else {
                cells.get(self.places[probe]).copied().flatten()
            };
            let mut expected = Vec::with_capacity(self.text_bytes);
            self.cell(partition, row, probe, &mut expected);
            if cell == Some(&expected) {
                Ok(())
            } else {
                Err(format!("wrong answer: column {probe} of row {row} of {partition}"))
            }
        };
        let count = client.read(&self.read, (Raw(&key),), take).await?;
        let newest = self.newest.get(&partition).copied();
        if count > ROWS_READ || (newest.is_some() && newest != first) {
            return Err(format!("wrong answer: {count} rows of {partition}, the first {first:?}, not {newest:?}"));
        }
        Ok(())
    }

    pub async fn check(&mut self, client: &Client, limit: usize) -> Result<usize, String> {
        let partitions: Vec<u64> = self.newest.keys().take(limit).copied().collect();
        for partition in &partitions {
            self.read(client, *partition).await?;
        }
        Ok(partitions.len())
    }
}

/// The cells that hold the columns: in the listed order behind the clustering, or, for `*`, by name behind key and
/// clustering.
fn places(columns: usize, udt: bool, listed: bool) -> Vec<usize> {
    let columns = if udt { 1 } else { columns };
    if listed {
        return (1..=columns).collect();
    }
    let name = |place: usize| format!("c{place}");
    let before = |place: usize| (0..columns).filter(|other| name(*other) < name(place)).count();
    (0..columns).map(|place| 2 + before(place)).collect()
}

/// Field `place` of a serialized UDT whose fields all have `size` bytes.
fn field(bytes: Option<&[u8]>, place: usize, size: usize) -> Option<&[u8]> {
    let start = place * (size + 4) + 4;
    bytes?.get(start..start + size)
}
