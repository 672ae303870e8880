//! A hasher for table ids. They are already random, so a hash takes only two multiplications.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds the hashers of maps by table id.
pub(crate) type ByTableId = BuildHasherDefault<IdHasher>;

/// Hashes a table's id.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // The factor is odd and has no pattern. The map uses the upper bits, which depend on all lower ones.
            self.0 = (self.0.rotate_left(29) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
