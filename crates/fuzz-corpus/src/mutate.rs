//! Mutations of bytes from a seed.

/// Flips, cuts, overwrites and moves; the same seed makes the same mutations.
pub struct Mutator(u64);

impl Mutator {
    /// From a seed.
    pub fn new(seed: u64) -> Mutator {
        Mutator(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    /// The bytes with a few changes.
    pub fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut mutated = bytes.to_vec();
        for _ in 0..1 + self.below(4) {
            self.change(&mut mutated);
        }
        mutated
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return bytes.push(self.below(256) as u8);
        }
        let (at, from) = (self.below(bytes.len()), self.below(bytes.len()));
        match self.below(7) {
            0 => bytes.truncate(at),
            1 => bytes[at] = self.below(256) as u8,
            2 => bytes[at] = 0xFF,
            3 => bytes[at] ^= 1 << self.below(8),
            4 => bytes.insert(at, self.below(256) as u8),
            5 => drop(bytes.remove(at)),
            _ => {
                let length = (1 + self.below(16)).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + length, at);
            }
        }
    }
}
