//! The load on secondary indexes: rows whose values follow from their keys, and searches whose right answers are
//! therefore known.

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, mix, text};
use crate::session::{Client, Raw};
use crate::spec::{Search, Spec, Workload};
use crate::workload::Own;

const NAME_BYTES: usize = 16;
/// The rows that have one value in the columns `ten` and `thousand` (and `other`).
const FEW: u64 = 10;
const MANY: u64 = 1000;

pub struct IndexedWorker {
    write: PreparedStatement,
    search: Option<PreparedStatement>,
    read: PreparedStatement,
    values: Values,
    kind: Search,
    first: u64,
    own: Own,
    written: u64,
    random: Random,
}

impl IndexedWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let Workload::Indexed { table, rows, first, search } = &spec.workload else {
            return Err("not a load on indexes".to_owned());
        };
        let columns = "one, ten, thousand, other, name";
        let write = format!("INSERT INTO {table} (key, {columns}) VALUES (?, ?, ?, ?, ?, ?)");
        let read = format!("SELECT {columns} FROM {table} WHERE key = ?");
        let prepared = match search.condition() {
            Some(condition) => {
                Some(client.prepare(&format!("SELECT key, one, name FROM {table} WHERE {condition}")).await?)
            }
            None => None,
        };
        Ok(Self {
            write: client.prepare(&write).await?,
            search: prepared,
            read: client.prepare(&read).await?,
            values: Values::new(*rows)?,
            kind: *search,
            first: *first,
            own: Own { place, workers: spec.in_flight as u64 },
            written: 0,
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
        })
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        match self.search {
            Some(_) => self.search(client).await.map(|()| true),
            None => self.write(client).await.map(|()| false),
        }
    }

    async fn write(&mut self, client: &Client) -> Result<(), String> {
        let key = self.first + self.own.index(self.written);
        self.written += 1;
        let row = self.values.of(key);
        let [one, ten, thousand, other] = row.numbers.map(u32::to_be_bytes);
        let key = key.to_be_bytes();
        let values = (Raw(&key), Raw(&one), Raw(&ten), Raw(&thousand), Raw(&other), Raw(&row.name));
        client.write(&self.write, values).await
    }

    /// Searches for rows. All that are due must be found, and no others.
    async fn search(&mut self, client: &Client) -> Result<(), String> {
        let Some(statement) = &self.search else { return Ok(()) };
        let rows = self.values.rows;
        let (bound, mut due) = match self.kind {
            Search::Nothing => return Ok(()),
            Search::One | Search::Name => {
                let one = self.random.below(rows);
                (vec![one], self.values.keys(one..one + 1))
            }
            Search::Ten => {
                let ten = self.random.below(rows / FEW);
                (vec![ten], self.values.keys(ten * FEW..(ten + 1) * FEW))
            }
            Search::Thousand => {
                let thousand = self.random.below(rows / MANY);
                (vec![thousand], self.values.keys(thousand * MANY..(thousand + 1) * MANY))
            }
            Search::Range(count) => {
                let one = self.random.below(rows - count);
                (vec![one, one + count], self.values.keys(one..one + count))
            }
            Search::Both => {
                let (thousand, other) = (self.random.below(rows / MANY), self.random.below(rows / MANY));
                let mut keys = self.values.keys(thousand * MANY..(thousand + 1) * MANY);
                keys.retain(|key| u64::from(self.values.of(*key).numbers[3]) == other);
                (vec![thousand, other], keys)
            }
        };
        due.sort_unstable();
        let mut found = Vec::with_capacity(due.len());
        let values = &self.values;
        let take = |cells: &[Option<&[u8]>]| {
            let [Some(key), Some(one), Some(name)] = cells else { return Err("a row without its cells".to_owned()) };
            let key = key.first_chunk().map_or(0, |key| u64::from_be_bytes(*key));
            let row = values.of(key);
            if *one != row.numbers[0].to_be_bytes() || *name != row.name {
                return Err(format!("wrong answer: the row {key} has other values"));
            }
            found.push(key);
            Ok(())
        };
        if self.kind == Search::Name {
            let name = name_of(bound[0]);
            client.read(statement, (Raw(&name),), take).await?;
        } else {
            let bound: Vec<[u8; 4]> = bound.iter().map(|value| (*value as u32).to_be_bytes()).collect();
            let bound: Vec<Raw<'_>> = bound.iter().map(|value| Raw(value)).collect();
            client.read(statement, bound, take).await?;
        }
        found.sort_unstable();
        match found == due {
            true => Ok(()),
            false => Err(format!("wrong answer: {} rows instead of {}", found.len(), due.len())),
        }
    }

    /// Reads back the rows that were written last.
    pub async fn check(&self, client: &Client, limit: usize) -> Result<usize, String> {
        let count = self.written.min(limit as u64);
        for ordinal in self.written - count..self.written {
            let key = self.first + self.own.index(ordinal);
            let row = self.values.of(key);
            let mut is_there = false;
            let take = |cells: &[Option<&[u8]>]| {
                let numbers = row.numbers.iter().zip(cells);
                is_there = numbers.into_iter().all(|(due, cell)| *cell == Some(due.to_be_bytes().as_slice()))
                    && cells.last().copied().flatten() == Some(row.name.as_slice());
                Ok(())
            };
            client.read(&self.read, (Raw(&key.to_be_bytes()),), take).await?;
            if !is_there {
                return Err(format!("wrong answer: the row {key} is not as it was written"));
            }
        }
        Ok(count as usize)
    }
}

impl Search {
    /// What follows WHERE.
    fn condition(self) -> Option<&'static str> {
        match self {
            Search::Nothing => None,
            Search::One => Some("one = ?"),
            Search::Ten => Some("ten = ?"),
            Search::Thousand => Some("thousand = ?"),
            Search::Name => Some("name = ?"),
            Search::Range(_) => Some("one >= ? AND one < ?"),
            Search::Both => Some("thousand = ? AND other = ?"),
        }
    }
}

/// The values of a table's rows. Keys that agree in their last bits have the same values.
#[derive(Clone, Copy, Debug)]
struct Values {
    /// A power of two.
    rows: u64,
}

/// The cells of a row.
struct RowValues {
    /// `one`, `ten`, `thousand` and `other`.
    numbers: [u32; 4],
    name: Vec<u8>,
}

const ONE: u64 = 0x9E37_79B9_7F4A_7C15;
const OTHER: u64 = 0xD6E8_FEB8_6659_FD93;

impl Values {
    fn new(rows: u64) -> Result<Self, String> {
        match rows.is_power_of_two() && (1 << 10..=1 << 30).contains(&rows) {
            true => Ok(Self { rows }),
            false => Err(format!("{rows} rows are no power of two from 1,024 on")),
        }
    }

    fn half(self) -> u32 {
        self.rows.trailing_zeros().div_ceil(2)
    }

    /// Another order of the numbers below `rows`.
    fn shuffled(self, key: u64, factor: u64) -> u64 {
        let mut number = key.wrapping_mul(factor) & (self.rows - 1);
        number ^= number >> self.half();
        number.wrapping_mul(factor) & (self.rows - 1)
    }

    /// The key below `rows` whose place in that order this is.
    fn key(self, place: u64, factor: u64) -> u64 {
        let inverse = inverse(factor);
        let mut number = place.wrapping_mul(inverse) & (self.rows - 1);
        number ^= number >> self.half();
        number.wrapping_mul(inverse) & (self.rows - 1)
    }

    fn of(self, key: u64) -> RowValues {
        let one = self.shuffled(key, ONE);
        let other = self.shuffled(key, OTHER);
        let numbers = [one, one / FEW, one / MANY, other / MANY].map(|number| number as u32);
        RowValues { numbers, name: name_of(one) }
    }

    /// The keys of the rows with these values in `one`.
    fn keys(self, ones: std::ops::Range<u64>) -> Vec<u64> {
        ones.filter(|one| *one < self.rows).map(|one| self.key(one, ONE)).collect()
    }
}

fn name_of(one: u64) -> Vec<u8> {
    let mut name = Vec::with_capacity(NAME_BYTES);
    text(mix(one), NAME_BYTES, &mut name);
    name
}

/// The number whose product with an odd number is 1, by Newton's method.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_one_key() -> Result<(), String> {
        for rows in [1 << 10, 1 << 13] {
            let values = Values::new(rows)?;
            for key in 0..rows {
                assert_eq!(values.key(values.shuffled(key, ONE), ONE), key);
                assert_eq!(values.key(values.shuffled(key, OTHER), OTHER), key);
            }
        }
        Ok(())
    }
}
