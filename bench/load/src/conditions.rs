//! The load with `INSERT … IF NOT EXISTS`: rows of their own for every client, with or without a partition that all
//! share, or one row that all insert.
//!
//! Where clients have rows of their own, every eighth operation inserts a row again and must be refused with what the
//! row holds. Of one row that all insert, every client must get the same value.

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, number_of, partition_key, value};
use crate::session::{Client, Conditional, Raw};
use crate::spec::{Meeting, Spec, Workload};
use crate::workload::Own;

const VALUE_BYTES: usize = 100;
/// The number of operations of which one inserts a row again.
const AGAIN_EVERY: u64 = 8;

pub struct ConditionsWorker {
    write: PreparedStatement,
    read: PreparedStatement,
    first: u64,
    meeting: Meeting,
    own: Own,
    random: Random,
    number: u64,
    operations: u64,
    /// The ordinals of own rows that were acknowledged, each with the number of its value.
    written: Vec<(u64, u64)>,
    next: u64,
    /// The number in the value of the row that all insert, once it is known.
    winner: Option<u64>,
}

impl ConditionsWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let Workload::Conditions { table, first, meeting } = &spec.workload else {
            return Err("not a load with conditions".to_owned());
        };
        let write = format!("INSERT INTO {table} (key, row, value) VALUES (?, ?, ?) IF NOT EXISTS");
        let read = format!("SELECT value FROM {table} WHERE key = ? AND row = ?");
        Ok(Self {
            write: client.prepare(&write).await?,
            read: client.prepare(&read).await?,
            first: *first,
            meeting: *meeting,
            own: Own { place, workers: spec.in_flight as u64 },
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
            number: (spec.seed << 40) | (place << 28),
            operations: 0,
            written: Vec::new(),
            next: 0,
            winner: None,
        })
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        self.operations += 1;
        match self.meeting {
            Meeting::Row => self.insert_the_one(client).await?,
            _ if self.operations.is_multiple_of(AGAIN_EVERY) && !self.written.is_empty() => self.again(client).await?,
            _ => self.insert(client).await?,
        }
        Ok(false)
    }

    /// The partition and the row of an ordinal.
    fn place(&self, ordinal: u64) -> (u64, u64) {
        match self.meeting {
            Meeting::Nothing => (self.first + self.own.index(ordinal), 0),
            Meeting::Partition => (self.first, self.own.index(ordinal)),
            Meeting::Row => (self.first, 0),
        }
    }

    async fn insert_at(&mut self, client: &Client, (partition, row): (u64, u64)) -> Result<Conditional, String> {
        self.number += 1;
        let bytes = value(partition ^ row.rotate_left(40), self.number, VALUE_BYTES);
        let values = (Raw(&partition_key(partition)), Raw(&row.to_be_bytes()), Raw(&bytes));
        client.write_if(&self.write, values).await
    }

    async fn insert(&mut self, client: &Client) -> Result<(), String> {
        let (ordinal, place) = (self.next, self.place(self.next));
        self.next += 1;
        match self.insert_at(client, place).await? {
            Conditional::Applied => self.written.push((ordinal, self.number)),
            // It may be written or not: this row is left alone from now on.
            Conditional::TimedOut => {}
            Conditional::Refused(_) => return Err(format!("wrong answer: the new row {place:?} is there already")),
        }
        Ok(())
    }

    async fn again(&mut self, client: &Client) -> Result<(), String> {
        let chosen = self.random.below(self.written.len() as u64) as usize;
        let (ordinal, number) = self.written[chosen];
        let place = self.place(ordinal);
        match self.insert_at(client, place).await? {
            Conditional::TimedOut => Ok(()),
            Conditional::Applied => Err(format!("wrong answer: the row {place:?} was inserted twice")),
            Conditional::Refused(held) => match number_in(place, &held)? {
                held if held == number => Ok(()),
                held => Err(format!("wrong answer: the row {place:?} holds write {held}, not {number}")),
            },
        }
    }

    async fn insert_the_one(&mut self, client: &Client) -> Result<(), String> {
        let place = self.place(0);
        match self.insert_at(client, place).await? {
            Conditional::Applied => self.has_won(self.number),
            Conditional::Refused(held) => self.has_won(number_in(place, &held)?),
            Conditional::TimedOut => Ok(()),
        }
    }

    fn has_won(&mut self, number: u64) -> Result<(), String> {
        match self.winner.replace(number) {
            Some(before) if before != number => {
                Err(format!("wrong answer: the one row holds write {number}, and held {before}"))
            }
            _ => Ok(()),
        }
    }

    async fn read(&self, client: &Client, place: (u64, u64)) -> Result<Option<u64>, String> {
        let mut found = None;
        let values = (Raw(&partition_key(place.0)), Raw(&place.1.to_be_bytes()));
        let take = |cells: &[Option<&[u8]>]| {
            let bytes = cells.first().copied().flatten().ok_or("a row without a value")?;
            found = Some(number_in(place, bytes)?);
            Ok(())
        };
        client.read(&self.read, values, take).await?;
        Ok(found)
    }

    /// Reads back what this worker wrote, or the one row.
    pub async fn check(&self, client: &Client, limit: usize) -> Result<usize, String> {
        let rows = match self.winner {
            Some(winner) => vec![(0, winner)],
            None => self.written.iter().rev().take(limit).copied().collect(),
        };
        for (ordinal, number) in &rows {
            let place = self.place(*ordinal);
            let found = self.read(client, place).await?;
            if found != Some(*number) {
                return Err(format!("wrong answer: {place:?} holds write {found:?}, not {number}"));
            }
        }
        Ok(rows.len())
    }
}

fn number_in((partition, row): (u64, u64), bytes: &[u8]) -> Result<u64, String> {
    number_of(partition ^ row.rotate_left(40), bytes)
}
