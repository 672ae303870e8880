//! The load with small values by key, with or without one hot partition.

use std::collections::HashMap;

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, Zipf, number_of, partition_key, value};
use crate::session::{Client, Raw};
use crate::spec::{Choice, Spec, Workload};
use crate::workload::{Own, first_partition};

/// What one operation reads or writes: a partition and, in the table of the skewed load, a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    partition: u64,
    row: u64,
}

impl Place {
    fn index(self) -> u64 {
        self.partition ^ self.row.rotate_left(40)
    }
}

/// How places are chosen. `SkewFill` takes each place of the skewed load once, in turn.
enum Chooser {
    Uniform { own_partitions: u64 },
    Zipfian(Zipf),
    CoPrime { own_partitions: u64, step: u64, next: u64 },
    Insert { first: u64, written: u64 },
    Skew { own_partitions: u64, hot_percent: u8, own_rows: u64 },
    SkewFill { own_partitions: u64, own_rows: u64, next: u64 },
}

pub struct KeyValueWorker {
    write: PreparedStatement,
    read: PreparedStatement,
    with_row: bool,
    value_bytes: usize,
    fields: usize,
    /// The field that this run writes, if fields are written one by one.
    apart: Option<usize>,
    reads_percent: u8,
    own: Own,
    chooser: Chooser,
    random: Random,
    /// The number of the last acknowledged write of every place that was written in this run.
    last: HashMap<Place, u64>,
    number: u64,
}

impl KeyValueWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let own = Own { place, workers: spec.in_flight as u64 };
        let (table, value_bytes, fields, apart, chooser) = match &spec.workload {
            Workload::KeyValue { table, value_bytes, fields, apart, choice } => {
                (table, *value_bytes, *fields, *apart, chooser(choice, own))
            }
            Workload::Skew { table, value_bytes, partitions, hot_percent, hot_rows, fill } => {
                let (own_partitions, own_rows) = (own.count(*partitions), own.count(*hot_rows).max(1));
                let chooser = match fill {
                    true => Chooser::SkewFill { own_partitions, own_rows, next: 0 },
                    false => Chooser::Skew { own_partitions, hot_percent: *hot_percent, own_rows },
                };
                (table, *value_bytes, 1, None, chooser)
            }
            _ => return Err("not a key-value load".to_owned()),
        };
        let with_row = matches!(spec.workload, Workload::Skew { .. });
        let (write, read) = if with_row {
            (
                format!("INSERT INTO {table} (key, row, value) VALUES (?, ?, ?)"),
                format!("SELECT value FROM {table} WHERE key = ? AND row = ?"),
            )
        } else {
            let names = if fields == 1 {
                "value".to_owned()
            } else {
                (0..fields).map(|field| format!("field{field}")).collect::<Vec<_>>().join(", ")
            };
            let write = match apart {
                None => format!("INSERT INTO {table} (key, {names}) VALUES (?, {})", vec!["?"; fields].join(", ")),
                Some(field) => format!("INSERT INTO {table} (key, field{field}) VALUES (?, ?)"),
            };
            (write, format!("SELECT {names} FROM {table} WHERE key = ?"))
        };
        Ok(Self {
            write: client.prepare(&write).await?,
            read: client.prepare(&read).await?,
            with_row,
            value_bytes,
            fields,
            apart,
            reads_percent: spec.reads_percent,
            own,
            chooser,
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
            last: HashMap::new(),
            // Later runs use other numbers, so that a value of an earlier run is not mistaken for one of this run.
            number: spec.seed << 32,
        })
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        let reading = self.random.percent(self.reads_percent);
        if let Some(place) = self.choose(reading) {
            if reading {
                self.read(client, place).await?;
                return Ok(true);
            }
            self.write(client, place).await?;
            return Ok(false);
        }
        let place = self.choose(false).ok_or("no partition to write")?;
        self.write(client, place).await?;
        Ok(false)
    }

    /// Returns None if there is nothing to read yet.
    fn choose(&mut self, reading: bool) -> Option<Place> {
        let random = &mut self.random;
        match &mut self.chooser {
            Chooser::Uniform { own_partitions } => {
                Some(Place { partition: self.own.index(random.below(*own_partitions)), row: 0 })
            }
            Chooser::Zipfian(zipf) => Some(Place { partition: self.own.index(zipf.next(random)), row: 0 }),
            Chooser::CoPrime { own_partitions, step, next } => {
                *next = (*next + *step) % (*own_partitions).max(1);
                Some(Place { partition: self.own.index(*next), row: 0 })
            }
            Chooser::Insert { first, written } if reading => {
                let back = random.recent(*written);
                written
                    .checked_sub(1 + back)
                    .map(|ordinal| Place { partition: *first + self.own.index(ordinal), row: 0 })
            }
            Chooser::Insert { first, written } => {
                let ordinal = *written;
                *written += 1;
                Some(Place { partition: *first + self.own.index(ordinal), row: 0 })
            }
            Chooser::Skew { own_partitions, hot_percent, own_rows } => Some(if random.percent(*hot_percent) {
                Place { partition: 0, row: self.own.index(random.below(*own_rows)) }
            } else {
                Place { partition: 1 + self.own.index(random.below(*own_partitions)), row: 0 }
            }),
            Chooser::SkewFill { own_partitions, own_rows, next } => {
                let ordinal = *next % (*own_rows + *own_partitions);
                *next += 1;
                Some(match ordinal.checked_sub(*own_rows) {
                    None => Place { partition: 0, row: self.own.index(ordinal) },
                    Some(ordinal) => Place { partition: 1 + self.own.index(ordinal), row: 0 },
                })
            }
        }
    }

    async fn write(&mut self, client: &Client, place: Place) -> Result<(), String> {
        self.number += 1;
        let fields = if self.apart.is_some() { 1 } else { self.fields };
        let (key, value) =
            (partition_key(place.partition), value(place.index(), self.number, self.value_bytes * fields));
        if self.with_row {
            let row = place.row.to_be_bytes();
            client.write(&self.write, (Raw(&key), Raw(&row), Raw(&value))).await?;
        } else if fields == 1 {
            client.write(&self.write, (Raw(&key), Raw(&value))).await?;
        } else {
            let values: Vec<_> =
                std::iter::once(Raw(&key)).chain(value.chunks_exact(self.value_bytes).map(Raw)).collect();
            client.write(&self.write, values).await?;
        }
        self.last.insert(place, self.number);
        Ok(())
    }

    async fn read(&mut self, client: &Client, place: Place) -> Result<(), String> {
        let key = partition_key(place.partition);
        let mut found = None;
        let mut take = |cells: &[Option<&[u8]>]| {
            found = Some(match self.apart {
                None => number_of_all(place, cells)?,
                Some(field) => number_of_field(place, cells, field)?,
            });
            Ok(())
        };
        if self.with_row {
            let row = place.row.to_be_bytes();
            client.read(&self.read, (Raw(&key), Raw(&row)), &mut take).await?;
        } else {
            client.read(&self.read, (Raw(&key),), &mut take).await?;
        }
        let expected = self.last.get(&place).copied();
        match (found, expected) {
            (None, _) => Err(format!("wrong answer: {place:?} is missing")),
            (Some(got), Some(expected)) if got != expected => {
                Err(format!("wrong answer: {place:?} holds write {got}, not {expected}"))
            }
            _ => Ok(()),
        }
    }

    pub async fn check(&mut self, client: &Client, limit: usize) -> Result<usize, String> {
        let places: Vec<Place> = self.last.keys().take(limit).copied().collect();
        for place in &places {
            self.read(client, *place).await?;
        }
        Ok(places.len())
    }
}

/// The number of the write that wrote all fields of a row.
fn number_of_all(place: Place, cells: &[Option<&[u8]>]) -> Result<u64, String> {
    let cells = cells.iter().map(|cell| cell.ok_or("a row without a value")).collect::<Result<Vec<_>, _>>()?;
    match &cells[..] {
        [one] => number_of(place.index(), one),
        fields => number_of(place.index(), &fields.concat()),
    }
}

/// The number of the write that wrote this field. Earlier fields have values too, and every value must be right.
fn number_of_field(place: Place, cells: &[Option<&[u8]>], field: usize) -> Result<u64, String> {
    let mut number = None;
    for (cell, other) in cells.iter().zip(0..) {
        match cell {
            Some(bytes) if other == field => number = Some(number_of(place.index(), bytes)?),
            Some(bytes) => drop(number_of(place.index(), bytes)?),
            None if other > field => {}
            None => return Err(format!("a row without field{other}")),
        }
    }
    number.ok_or_else(|| format!("a row without field{field}"))
}

fn chooser(choice: &Choice, own: Own) -> Chooser {
    match choice {
        Choice::Zipfian { partitions } => Chooser::Zipfian(Zipf::new(own.count(*partitions))),
        Choice::Uniform { partitions } => Chooser::Uniform { own_partitions: own.count(*partitions) },
        Choice::CoPrime { partitions, step } => {
            Chooser::CoPrime { own_partitions: own.count(*partitions), step: *step, next: 0 }
        }
        Choice::Insert { .. } => Chooser::Insert { first: first_partition(choice), written: 0 },
    }
}
