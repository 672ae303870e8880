//! HyperLogLog++ over partition keys, in the stream-lib format that Cassandra stores. It estimates how many partitions
//! two tables will have when merged.

use types::murmur3;

use crate::error::Decoded;
use crate::input::Input;

/// Index bits of a register.
const PRECISION: u32 = 13;
/// Index bits of a sparse entry.
const SPARSE_PRECISION: u32 = 25;
const REGISTERS: usize = 1 << PRECISION;
/// Entries collected before they are merged into the sorted list.
const PENDING_MAX: usize = 1537;
/// A longer sparse list is converted to registers.
const SPARSE_MAX: usize = 6144;
const REGISTERS_PER_WORD: usize = 6;
const VERSION: i32 = -2;

/// An estimate of how many distinct keys were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cardinality {
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Encoded entries sorted by index, one for each, and some not merged yet.
    Sparse { list: Vec<u32>, pending: Vec<u32> },
    /// One register per index.
    Normal(Vec<u8>),
}

impl Default for Cardinality {
    fn default() -> Self {
        Cardinality { form: Form::Sparse { list: Vec::new(), pending: Vec::new() } }
    }
}

/// Leading zeros after the register index, plus one.
fn run_length(hash: u64) -> u32 {
    (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros() + 1
}

fn sparse_entry(hash: u64) -> u32 {
    let index = (hash >> (64 - SPARSE_PRECISION)) as u32;
    if index.trailing_zeros() < SPARSE_PRECISION - PRECISION {
        return index << 1;
    }
    (index << 6 | (run_length(hash) ^ 63)) << 1 | 1
}

fn sparse_index(entry: u32) -> u32 {
    if entry & 1 == 1 { entry >> 7 } else { entry >> 1 }
}

/// The register and its value that a sparse entry stands for.
fn register_of(entry: u32) -> (usize, u8) {
    let index = sparse_index(entry) & ((1 << SPARSE_PRECISION) - 1);
    let low_bits = SPARSE_PRECISION - PRECISION;
    let value = if entry & 1 == 1 {
        (entry >> 1 & 63) ^ 63
    } else {
        (index << (32 - low_bits)).leading_zeros().min(low_bits) + 1
    };
    ((index >> low_bits) as usize, value as u8)
}

impl Cardinality {
    /// Adds a partition key.
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(murmur3::murmur2_64(key));
    }

    fn add_hash(&mut self, hash: u64) {
        match &mut self.form {
            Form::Sparse { pending, .. } => {
                pending.push(sparse_entry(hash));
                if pending.len() >= PENDING_MAX {
                    self.merge_pending();
                }
            }
            Form::Normal(registers) => {
                let register = &mut registers[(hash >> (64 - PRECISION)) as usize];
                *register = (*register).max(run_length(hash) as u8);
            }
        }
    }

    /// Merges pending entries, and converts to registers when there are many.
    fn merge_pending(&mut self) {
        let Form::Sparse { list, pending } = &mut self.form else { return };
        list.append(pending);
        list.sort_unstable_by_key(|entry| (sparse_index(*entry), *entry));
        list.dedup_by_key(|entry| sparse_index(*entry));
        if list.len() > SPARSE_MAX {
            let mut registers = vec![0; REGISTERS];
            for entry in list.iter() {
                raise(&mut registers, *entry);
            }
            self.form = Form::Normal(registers);
        }
    }

    /// Adds everything that another estimate has counted.
    pub fn merge(&mut self, other: &Cardinality) {
        match (&mut self.form, &other.form) {
            (Form::Sparse { pending, .. }, Form::Sparse { list, pending: more }) => {
                pending.extend(list.iter().chain(more));
                self.merge_pending();
            }
            (Form::Normal(registers), Form::Sparse { list, pending }) => {
                list.iter().chain(pending).for_each(|entry| raise(registers, *entry));
            }
            (Form::Normal(registers), Form::Normal(others)) => {
                registers.iter_mut().zip(others).for_each(|(register, other)| *register = (*register).max(*other));
            }
            (Form::Sparse { .. }, Form::Normal(_)) => {
                let sparse = std::mem::replace(self, other.clone());
                self.merge(&sparse);
            }
        }
    }

    /// The estimated number of distinct keys.
    pub fn estimate(&self) -> u64 {
        match &self.form {
            Form::Sparse { .. } => {
                let mut merged = self.clone();
                merged.merge_pending();
                match merged.form {
                    Form::Sparse { list, .. } => linear_count(f64::from(1_u32 << SPARSE_PRECISION), list.len() as f64),
                    Form::Normal(_) => merged.estimate(),
                }
            }
            Form::Normal(registers) => {
                let size = REGISTERS as f64;
                let sum: f64 = registers.iter().map(|register| 2_f64.powi(-i32::from(*register))).sum();
                let raw = 0.7213 / (1.0 + 1.079 / size) * size * size / sum;
                let used = registers.iter().filter(|register| **register > 0).count() as f64;
                if raw <= 2.5 * size && used < size { linear_count(size, used) } else { raw.round() as u64 }
            }
        }
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut merged = self.clone();
        merged.merge_pending();
        let mut out = VERSION.to_be_bytes().to_vec();
        push_leb(PRECISION, &mut out);
        push_leb(SPARSE_PRECISION, &mut out);
        match &merged.form {
            Form::Sparse { list, .. } => {
                push_leb(1, &mut out);
                push_leb(list.len() as u32, &mut out);
                let mut previous = 0_u32;
                for entry in list {
                    push_leb(entry.wrapping_sub(previous), &mut out);
                    previous = *entry;
                }
            }
            Form::Normal(registers) => {
                push_leb(0, &mut out);
                push_leb((registers.len().div_ceil(REGISTERS_PER_WORD) * 4) as u32, &mut out);
                for word in registers.chunks(REGISTERS_PER_WORD) {
                    let packed = word.iter().rev().fold(0_u32, |packed, register| packed << 5 | u32::from(*register));
                    out.extend_from_slice(&packed.to_be_bytes());
                }
            }
        }
        out
    }

    pub(super) fn read(input: &mut Input<'_>) -> Decoded<Self> {
        let version = input.i32("cardinality version")?;
        if version != VERSION {
            return Err(input.damaged("cardinality version -2", version.to_string()));
        }
        for expected in [PRECISION, SPARSE_PRECISION] {
            let got = leb(input)?;
            if got != expected {
                return Err(input.damaged("cardinality precisions 13 and 25", got.to_string()));
            }
        }
        match leb(input)? {
            1 => {
                let count = leb(input)?;
                let count = input.checked_count(u64::from(count), 1, "cardinality entries")?;
                let mut list = Vec::with_capacity(count);
                let mut previous = 0_u32;
                for _ in 0..count {
                    previous = previous.wrapping_add(leb(input)?);
                    list.push(previous);
                }
                Ok(Cardinality { form: Form::Sparse { list, pending: Vec::new() } })
            }
            0 => Self::read_registers(input),
            other => Err(input.damaged("cardinality form 0 or 1", other.to_string())),
        }
    }

    fn read_registers(input: &mut Input<'_>) -> Decoded<Self> {
        let length = leb(input)? as usize;
        let expected = REGISTERS.div_ceil(REGISTERS_PER_WORD) * 4;
        if length != expected {
            return Err(input.damaged("5464 register bytes", length.to_string()));
        }
        let (words, _) = input.take(length, "cardinality registers")?.as_chunks::<4>();
        let mut registers = Vec::with_capacity(REGISTERS + REGISTERS_PER_WORD);
        for word in words {
            let word = u32::from_be_bytes(*word);
            registers.extend((0..REGISTERS_PER_WORD).map(|index| (word >> (5 * index) & 31) as u8));
        }
        registers.truncate(REGISTERS);
        Ok(Cardinality { form: Form::Normal(registers) })
    }
}

fn raise(registers: &mut [u8], entry: u32) {
    let (index, value) = register_of(entry);
    if let Some(register) = registers.get_mut(index) {
        *register = (*register).max(value);
    }
}

fn linear_count(size: f64, used: f64) -> u64 {
    (size * (size / (size - used)).ln()).round() as u64
}

/// Little-endian base-128, as stream-lib writes.
fn push_leb(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn leb(input: &mut Input<'_>) -> Decoded<u32> {
    let mut value = 0_u32;
    for shift in (0..35).step_by(7) {
        let byte = input.u8("cardinality number")?;
        value |= u32::from(byte & 0x7F).wrapping_shl(shift);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(input.damaged("a number of at most five bytes", "more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_estimate_is_the_known_blob() {
        assert_eq!(Cardinality::default().encode(), [0xFF, 0xFF, 0xFF, 0xFE, 0x0D, 0x19, 0x01, 0x00]);
    }

    #[test]
    fn estimates_are_close_and_survive_storing_and_merging() {
        for count in [10_u32, 3000, 100_000] {
            let (mut whole, mut even, mut odd) =
                (Cardinality::default(), Cardinality::default(), Cardinality::default());
            for key in 0..count {
                whole.add(&key.to_be_bytes());
                if key % 2 == 0 { even.add(&key.to_be_bytes()) } else { odd.add(&key.to_be_bytes()) }
            }
            even.merge(&odd);
            let read = Cardinality::read(&mut Input::new("t", 0, &whole.encode())).unwrap();
            for estimate in [whole.estimate(), even.estimate(), read.estimate()] {
                assert!(estimate.abs_diff(u64::from(count)) <= u64::from(count) / 20 + 1, "{estimate} for {count}");
            }
        }
    }
}
