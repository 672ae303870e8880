//! Partition keys of 16 random bytes, translated as a memtable does: token and byte-comparable form, every time anew.

/// SplitMix64's finalizer.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Makes keys in a buffer that is used again.
#[derive(Default, Debug)]
pub struct Keys {
    buffer: Vec<u8>,
}

impl Keys {
    /// The encoded key of partition `index`.
    pub fn encoded(&mut self, index: u64) -> &[u8] {
        let seed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&mix(seed).to_be_bytes());
        key[8..].copy_from_slice(&mix(seed ^ 1).to_be_bytes());
        self.buffer.clear();
        bytecomp::encode_decorated_key(types::murmur3::token(&key), &key, &mut self.buffer);
        &self.buffer
    }
}
