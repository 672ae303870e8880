//! Filter.db: a Bloom filter over partition keys, bit for bit as Cassandra computes it.

use types::murmur3;

use crate::error::{Decoded, SSTableError};
use crate::input::Input;

/// Spare bits Cassandra adds to every filter.
const EXCESS_BITS: u64 = 20;
/// Cassandra's table of false positive rates ends here.
const BUCKETS_MAX: u32 = 20;

/// The number of keys whose bits are set together.
const BATCH: usize = 64;

/// A filter under construction.
///
/// The bits of a key are scattered in memory. When the bits of many keys are set in one loop, the processor waits for
/// many cache misses at once; when they are set between the other work for each key, it waits for a few each time.
#[derive(Debug)]
pub(crate) struct BloomFilterBuilder {
    filter: BloomFilter,
    /// Hashes of keys whose bits are not set yet.
    waiting: Vec<(u64, u64)>,
}

impl BloomFilterBuilder {
    /// As [`BloomFilter::new`].
    pub fn new(key_count: u64, false_positive_chance: f64) -> Option<BloomFilterBuilder> {
        let filter = BloomFilter::new(key_count, false_positive_chance)?;
        Some(BloomFilterBuilder { filter, waiting: Vec::with_capacity(BATCH) })
    }

    /// As [`BloomFilter::add_hash`].
    pub fn add_hash(&mut self, hash: (u64, u64)) {
        self.waiting.push(hash);
        if self.waiting.len() == BATCH {
            self.add_waiting();
        }
    }

    fn add_waiting(&mut self) {
        self.waiting.drain(..).for_each(|hash| self.filter.add_hash(hash));
    }

    /// The filter of all keys that were added.
    pub fn finish(mut self) -> BloomFilter {
        self.add_waiting();
        self.filter
    }
}

/// A filter that says "certainly not here" for most absent keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BloomFilter {
    hash_count: u32,
    words: Vec<u64>,
    bits: Divisor,
}

/// Division by a constant, implemented as a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Divisor {
    divisor: u64,
    /// 2^64 / divisor, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// For a divisor of zero, nothing may be divided.
    fn new(divisor: u64) -> Divisor {
        Divisor { divisor, reciprocal: u64::MAX.checked_div(divisor).unwrap_or(0) }
    }

    fn remainder(self, number: u64) -> u64 {
        // The quotient is at most one too small: the reciprocal lacks less than one part in 2^64 / number.
        let quotient = (u128::from(number) * u128::from(self.reciprocal)) >> 64;
        let remainder = number - quotient as u64 * self.divisor;
        if remainder >= self.divisor { remainder - self.divisor } else { remainder }
    }
}

/// Bits per key and number of hash functions for a false positive chance.
fn specification(false_positive_chance: f64) -> (u32, u32) {
    if false_positive_chance >= rate(2, 1) {
        return (2, 1);
    }
    let buckets =
        (2..BUCKETS_MAX).find(|b| rate(*b, best_hash_count(*b)) <= false_positive_chance).unwrap_or(BUCKETS_MAX);
    let mut hash_count = best_hash_count(buckets);
    while hash_count > 1 && rate(buckets, hash_count - 1) <= false_positive_chance {
        hash_count -= 1;
    }
    (buckets, hash_count)
}

/// The false positive rate of a full filter, to three significant digits as Cassandra's table has it.
fn rate(buckets: u32, hash_count: u32) -> f64 {
    let exact = (1.0 - (-f64::from(hash_count) / f64::from(buckets)).exp()).powi(hash_count as i32);
    let scale = 10_f64.powi(2 - exact.log10().floor() as i32);
    (exact * scale).round() / scale
}

fn best_hash_count(buckets: u32) -> u32 {
    (1..=buckets).min_by(|a, b| rate(buckets, *a).total_cmp(&rate(buckets, *b))).unwrap_or(1)
}

impl BloomFilter {
    /// A filter sized for `key_count` keys; `None` if the chance asks for no filter.
    pub fn new(key_count: u64, false_positive_chance: f64) -> Option<BloomFilter> {
        if false_positive_chance >= 1.0 {
            return None;
        }
        let (buckets, hash_count) = specification(false_positive_chance);
        let bits = key_count.max(1).saturating_mul(u64::from(buckets)).saturating_add(EXCESS_BITS);
        let words = usize::try_from(bits.div_ceil(64)).unwrap_or(usize::MAX).min(i32::MAX as usize);
        Some(BloomFilter::of(hash_count, vec![0; words]))
    }

    fn of(hash_count: u32, words: Vec<u64>) -> BloomFilter {
        let bits = Divisor::new(words.len() as u64 * 64);
        BloomFilter { hash_count, words, bits }
    }

    /// Adds a key by its 128-bit hash ([`murmur3::hash128`]).
    pub fn add_hash(&mut self, hash: (u64, u64)) {
        let (increment, mut base) = hash;
        for _ in 0..self.hash_count {
            let index = self.bit(base);
            self.words[(index >> 6) as usize] |= 1 << (index & 63);
            base = base.wrapping_add(increment);
        }
    }

    /// The bit of a signed hash: its absolute remainder, as Java computes it.
    fn bit(&self, base: u64) -> u64 {
        self.bits.remainder((base as i64).unsigned_abs())
    }

    /// Whether a key with this hash may be present.
    pub fn may_contain_hash(&self, hash: (u64, u64)) -> bool {
        if self.words.is_empty() {
            return true;
        }
        // All bits are tested without a branch for each. The processor then waits for all of them at once, together
        // with those of the next filter.
        let (increment, mut base) = hash;
        let mut all = 1;
        for _ in 0..self.hash_count {
            let index = self.bit(base);
            all &= self.words[(index >> 6) as usize] >> (index & 63);
            base = base.wrapping_add(increment);
        }
        all == 1
    }

    /// Whether a key may be present.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hash(murmur3::hash128(key))
    }

    /// Bytes held in memory.
    pub fn size_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Reads Filter.db; an empty file is a filter that passes every key.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<BloomFilter, SSTableError> {
        Ok(Self::parse(file, bytes)?)
    }

    fn parse(file: &str, bytes: &[u8]) -> Decoded<BloomFilter> {
        if bytes.is_empty() {
            return Ok(BloomFilter::of(0, Vec::new()));
        }
        let mut input = Input::new(file, 0, bytes);
        let hash_count = match input.i32("hash function count")? {
            count @ 1..=255 => count as u32,
            other => return Err(input.damaged("1 to 255 hash functions", other.to_string())),
        };
        let words = input.i32("word count")?;
        if words < 1 || input.remaining() as u64 != words as u64 * 8 {
            let got = format!("{words} words in {} bytes", input.remaining());
            return Err(input.damaged("as many 64-bit words as announced, at least one", got));
        }
        let (words, _) = input.take(input.remaining(), "filter bits")?.as_chunks::<8>();
        Ok(BloomFilter::of(hash_count, words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }

    /// The bytes of Filter.db.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.size_bytes());
        out.extend_from_slice(&(self.hash_count as i32).to_be_bytes());
        out.extend_from_slice(&(self.words.len() as i32).to_be_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    #[test]
    fn remainders_are_those_of_division() {
        let mut random = Random(1);
        for divisor in [64, 128, 192, 6400, 1 << 20, 12_345_664, 64 * u64::from(u32::MAX), 1 << 37] {
            let by = Divisor::new(divisor);
            for edge in [0, 1, divisor - 1, divisor, divisor + 1, 1 << 63, (1 << 63) - 1, u64::MAX] {
                assert_eq!(by.remainder(edge), edge % divisor, "{edge} % {divisor}");
            }
            for _ in 0..1000 {
                let number = random.number();
                assert_eq!(by.remainder(number), number % divisor, "{number} % {divisor}");
            }
        }
    }

    #[test]
    fn sizes_are_cassandras() {
        let known = [
            (0.5, (2, 1)),
            (0.3, (3, 1)),
            (0.2, (4, 2)),
            (0.1, (5, 3)),
            (0.05, (7, 3)),
            (0.02, (9, 4)),
            (0.01, (10, 5)),
            (0.005, (12, 5)),
            (0.001, (15, 7)),
            (0.0005, (16, 10)),
            (0.0001, (20, 10)),
        ];
        for (chance, expected) in known {
            assert_eq!(specification(chance), expected, "{chance}");
        }
    }

    #[test]
    fn added_keys_are_found_and_few_others() {
        let mut filter = BloomFilterBuilder::new(1000, 0.01).unwrap();
        for key in 0..1000_u32 {
            filter.add_hash(murmur3::hash128(&key.to_be_bytes()));
        }
        let filter = BloomFilter::decode("Filter.db", &filter.finish().encode()).unwrap();
        assert!((0..1000_u32).all(|key| filter.may_contain(&key.to_be_bytes())));
        let wrong = (1000..11_000_u32).filter(|key| filter.may_contain(&key.to_be_bytes())).count();
        assert!(wrong < 250, "{wrong} of 10000");
    }
}
