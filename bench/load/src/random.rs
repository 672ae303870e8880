//! Random numbers and the contents made of them.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5851_F42D_4C95_7F2D))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A uniformly distributed number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound.max(1))) >> 64) as u64
    }

    pub fn percent(&mut self, share: u8) -> bool {
        self.below(100) < u64::from(share)
    }

    /// A number in `0..bound` that is small more often: half of the numbers lie in the first tenth.
    pub fn recent(&mut self, bound: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((unit.powf(3.32) * bound as f64) as u64).min(bound.saturating_sub(1))
    }
}

/// Numbers by Zipf's law: the chance of n is proportional to 1 / (n + 1)^0.99. The method is that of *Quickly
/// Generating Billion-Record Synthetic Databases* (Gray et al., 1994), which YCSB follows too.
#[derive(Clone, Debug)]
pub struct Zipf {
    bound: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

const ZIPF_EXPONENT: f64 = 0.99;

impl Zipf {
    /// Makes a source of numbers in `0..bound`, in time proportional to `bound`.
    pub fn new(bound: u64) -> Self {
        let bound = bound.max(1);
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-ZIPF_EXPONENT)).sum::<f64>();
        let zeta = zeta_of(bound);
        let eta = (1.0 - (2.0 / bound as f64).powf(1.0 - ZIPF_EXPONENT)) / (1.0 - zeta_of(2) / zeta);
        Self { bound, alpha: 1.0 / (1.0 - ZIPF_EXPONENT), zeta, eta }
    }

    pub fn next(&self, random: &mut Random) -> u64 {
        let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.bound == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(ZIPF_EXPONENT) {
            return 1;
        }
        let number = self.bound as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (number as u64).min(self.bound - 1)
    }
}

pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The 16 bytes of partition `index`.
pub fn partition_key(index: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

const HEAD_BYTES: usize = 16;

/// A value that identifies itself: index and number, then bytes that follow from both.
pub fn value(index: u64, number: u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size.max(HEAD_BYTES) + 8);
    bytes.extend_from_slice(&index.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    let mut fill = Random::new(index ^ mix(number));
    while bytes.len() < size {
        bytes.extend_from_slice(&fill.next().to_le_bytes());
    }
    bytes.truncate(size.max(HEAD_BYTES));
    bytes
}

/// The number of a value of `index`. Returns an error if these bytes were never written for that index.
pub fn number_of(index: u64, bytes: &[u8]) -> Result<u64, String> {
    let number = match bytes {
        [_, _, _, _, _, _, _, _, n0, n1, n2, n3, n4, n5, n6, n7, ..] => {
            u64::from_be_bytes([*n0, *n1, *n2, *n3, *n4, *n5, *n6, *n7])
        }
        _ => return Err(format!("a value of {} bytes", bytes.len())),
    };
    if bytes == value(index, number, bytes.len()) {
        Ok(number)
    } else {
        Err(format!("bytes never written for key {index}"))
    }
}

/// Appends letters and digits that follow from `seed`.
pub fn text(seed: u64, size: usize, out: &mut Vec<u8>) {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut random = Random::new(seed);
    let mut left = size;
    while left > 0 {
        let mut bits = random.next();
        for _ in 0..left.min(10) {
            out.push(LETTERS[(bits & 63) as usize]);
            bits >>= 6;
        }
        left -= left.min(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_each_number_as_often_as_the_law_says() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let mut drawn = vec![0u32; 1000];
        (0..200_000).for_each(|_| drawn[zipf.next(&mut random) as usize] += 1);
        let zeta: f64 = (1..=1000).map(|i| f64::from(i).powf(-ZIPF_EXPONENT)).sum();
        for rank in [0usize, 1, 9, 99] {
            let expected = 200_000.0 * ((rank + 1) as f64).powf(-ZIPF_EXPONENT) / zeta;
            let got = f64::from(drawn[rank]);
            assert!((got / expected - 1.0).abs() < 0.25, "{rank}: {got} of {expected}");
        }
        assert_eq!(Zipf::new(1).next(&mut random), 0);
    }
}
