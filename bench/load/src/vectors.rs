//! The load on indexes of vectors: rows with vectors that follow from their keys, and searches for the nearest ones,
//! which the worker knows by comparing all.

use std::sync::{Arc, OnceLock};

use scylla::statement::prepared::PreparedStatement;

use crate::random::{Random, mix};
use crate::session::{Client, Raw};
use crate::spec::{Changes, Spec, VectorWrites, Workload};
use crate::workload::Own;

/// A search counts the rows that it found of this number of the nearest.
const NEAREST: usize = 10;
/// Clustered vectors are this far from the center of their cluster, on each axis.
const SPREAD: f32 = 0.25;
const CENTERS: u64 = 1000;
/// One row of so many is changed, and another one is deleted.
const CHANGED_EVERY: u64 = 10;
/// The searches of a run, which repeat.
const QUERIES: u64 = 256;

pub struct VectorsWorker {
    write: PreparedStatement,
    delete: PreparedStatement,
    search: Option<PreparedStatement>,
    vectors: Vectors,
    changes: Changes,
    truth: Arc<Truth>,
    limit: u64,
    own: Own,
    next: u64,
    random: Random,
}

/// What the searches of a run ask for, and the keys that they should find.
struct Truth {
    queries: Vec<(Vec<f32>, Vec<u64>)>,
}

/// All workers of a run have the same searches.
static TRUTH: OnceLock<Arc<Truth>> = OnceLock::new();

impl VectorsWorker {
    pub async fn new(client: &Client, spec: &Spec, place: u64) -> Result<Self, String> {
        let Workload::Vectors { table, rows, dimension, clustered, writes, changes, limit } = &spec.workload else {
            return Err("not a load of vectors".to_owned());
        };
        let vectors = Vectors { rows: *rows, dimension: *dimension, clustered: *clustered, writes: *writes };
        let search = match writes {
            VectorWrites::None => {
                let text = format!("SELECT key FROM {table} ORDER BY v ANN OF ? LIMIT {limit}");
                Some(client.prepare(&text).await?)
            }
            _ => None,
        };
        let truth = match search {
            Some(_) => TRUTH.get_or_init(|| Arc::new(Truth::new(vectors, *changes))).clone(),
            None => Arc::new(Truth { queries: Vec::new() }),
        };
        Ok(Self {
            write: client.prepare(&format!("INSERT INTO {table} (key, v) VALUES (?, ?)")).await?,
            delete: client.prepare(&format!("DELETE FROM {table} WHERE key = ?")).await?,
            search,
            vectors,
            changes: *changes,
            truth,
            limit: *limit,
            own: Own { place, workers: spec.in_flight as u64 },
            next: 0,
            random: Random::new(spec.seed.wrapping_mul(1_000_003) ^ place),
        })
    }

    pub async fn operate(&mut self, client: &Client) -> Result<bool, String> {
        if self.search.is_some() {
            return self.search(client).await.map(|()| true);
        }
        let ordinal = self.own.index(self.next);
        self.next += 1;
        match self.vectors.writes {
            VectorWrites::Changes => {
                let tens = ordinal / 2 * CHANGED_EVERY;
                match ordinal % 2 {
                    0 => self.put(client, tens, 1).await?,
                    _ => client.write(&self.delete, (Raw(&(tens + 1).to_be_bytes()),)).await?,
                }
            }
            _ => self.put(client, ordinal, 0).await?,
        }
        Ok(false)
    }

    async fn put(&self, client: &Client, key: u64, version: u64) -> Result<(), String> {
        let bytes = serialized(&self.vectors.of(key, version));
        client.write(&self.write, (Raw(&key.to_be_bytes()), Raw(&bytes))).await
    }

    async fn search(&mut self, client: &Client) -> Result<(), String> {
        let Some(statement) = &self.search else { return Ok(()) };
        let chosen = self.random.below(self.truth.queries.len() as u64) as usize;
        let (query, nearest) = &self.truth.queries[chosen];
        let (mut count, mut found) = (0, 0);
        let take = |cells: &[Option<&[u8]>]| {
            let Some(Some(key)) = cells.first() else { return Err("a row without its key".to_owned()) };
            let key = key.first_chunk().map_or(0, |key| u64::from_be_bytes(*key));
            if Vectors::version(key, self.changes).is_none() {
                return Err(format!("wrong answer: the row {key} is deleted"));
            }
            found += u64::from(count < NEAREST && nearest.contains(&key));
            count += 1;
            Ok(())
        };
        client.read(statement, (Raw(&serialized(query)),), take).await?;
        if count as u64 != self.limit {
            return Err(format!("wrong answer: {count} rows instead of {}", self.limit));
        }
        client.note_found(found, NEAREST as u64);
        Ok(())
    }
}

/// The vectors of a table's rows.
#[derive(Clone, Copy, Debug)]
struct Vectors {
    rows: u64,
    dimension: usize,
    clustered: bool,
    writes: VectorWrites,
}

impl Vectors {
    /// The vector of a row: the first one, or the one that it was changed to. Rows from `rows` on are searched for.
    fn of(self, key: u64, version: u64) -> Vec<f32> {
        let own = mix(key + 1).wrapping_add(mix(version + 77));
        let mut axes = Random::new(own);
        if !self.clustered {
            return (0..self.dimension).map(|_| unit(&mut axes)).collect();
        }
        let mut center = Random::new(u64::MAX - mix(own) % CENTERS);
        (0..self.dimension).map(|_| normal(&mut center) + SPREAD * normal(&mut axes)).collect()
    }

    /// The version of a row; `None` if it is deleted.
    fn version(key: u64, changes: Changes) -> Option<u64> {
        match (changes, key % CHANGED_EVERY) {
            (Changes::Made, 0) => Some(1),
            (Changes::Made, 1) => None,
            _ => Some(0),
        }
    }
}

/// A number between 0 and 1.
fn unit(random: &mut Random) -> f32 {
    (random.next() >> 40) as f32 / (1 << 24) as f32
}

/// A number with nearly a normal distribution.
fn normal(random: &mut Random) -> f32 {
    let bits = random.next();
    let quarters: u64 = (0..4).map(|part| (bits >> (part * 16)) & 0xffff).sum();
    (quarters as f32 / 65_536.0 - 2.0) * 1.732
}

fn serialized(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|element| element.to_be_bytes()).collect()
}

impl Truth {
    /// Compares all vectors with those that are searched for.
    fn new(vectors: Vectors, changes: Changes) -> Self {
        let queries: Vec<Vec<f32>> = (0..QUERIES).map(|number| vectors.of(vectors.rows + number, 0)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let parts: Vec<Vec<Vec<(f32, u64)>>> = std::thread::scope(|scope| {
            let part = |thread: u64| {
                let queries = &queries;
                scope.spawn(move || nearest_of_part(vectors, changes, queries, thread, threads))
            };
            let started: Vec<_> = (0..threads).map(part).collect();
            started.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let queries = queries.into_iter().enumerate().map(|(place, query)| {
            let mut near: Vec<(f32, u64)> = parts.iter().flat_map(|part| part[place].iter().copied()).collect();
            near.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
            (query, near.into_iter().take(NEAREST).map(|(_, key)| key).collect())
        });
        Self { queries: queries.collect() }
    }
}

fn nearest_of_part(
    vectors: Vectors,
    changes: Changes,
    queries: &[Vec<f32>],
    thread: u64,
    threads: u64,
) -> Vec<Vec<(f32, u64)>> {
    let mut nearest = vec![Vec::with_capacity(NEAREST + 1); queries.len()];
    for key in (thread..vectors.rows).step_by(threads as usize) {
        let Some(version) = Vectors::version(key, changes) else { continue };
        let vector = vectors.of(key, version);
        for (query, near) in queries.iter().zip(&mut nearest) {
            let distance = squared_distance(query, &vector);
            if near.len() < NEAREST || near.last().is_some_and(|(worst, _)| distance < *worst) {
                let place = near.partition_point(|(nearer, _)| *nearer <= distance);
                near.insert(place, (distance, key));
                near.truncate(NEAREST);
            }
        }
    }
    nearest
}

fn squared_distance(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (lefts, left_rest) = left.as_chunks::<LANES>();
    let (rights, right_rest) = right.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (left, right) in lefts.iter().zip(rights) {
        (0..LANES).for_each(|lane| sums[lane] += (left[lane] - right[lane]) * (left[lane] - right[lane]));
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(one, other)| (one - other) * (one - other)).sum();
    sums.iter().sum::<f32>() + rest
}
