//! The keys of the maps, encoded as a memtable encodes them: token and byte-comparable form, each time anew.

use std::io::Write;

use types::Token;

/// SplitMix64's finalizer.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The `index`th partition key of 16 random bytes.
pub fn partition_key(index: u64) -> [u8; 16] {
    let seed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(seed).to_be_bytes());
    key[8..].copy_from_slice(&mix(seed ^ 1).to_be_bytes());
    key
}

/// The kinds of keys.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// Partition keys of 16 random bytes, with their Murmur3 tokens.
    #[default]
    Random,
    /// Like `Random`, without the two bytes with which all encoded keys end: 26 bytes.
    Bare,
    /// Rows of 10,000 such partitions: a number of 8 bytes behind the partition's key.
    Rows,
    /// Web addresses with long shared prefixes, as partition keys in their own order.
    Urls,
    /// Ascending numbers of 8 bytes, as partition keys in their own order.
    Sequential,
}

const PARTITIONS: u64 = 10_000;
const NEXT_COMPONENT: u8 = 0x40;
const TERMINATOR: u8 = 0x38;

/// Makes keys in a buffer that it reuses.
#[derive(Default, Debug)]
pub struct Keys {
    kind: KeyKind,
    buffer: Vec<u8>,
    text: Vec<u8>,
}

impl Keys {
    /// Makes keys of one kind.
    pub fn of(kind: KeyKind) -> Keys {
        Keys { kind, ..Keys::default() }
    }

    /// The encoded key of entry `index`.
    pub fn encoded(&mut self, index: u64) -> &[u8] {
        self.buffer.clear();
        match self.kind {
            KeyKind::Random => self.push_random(index),
            KeyKind::Bare => {
                self.push_random(index);
                self.buffer.truncate(self.buffer.len() - 2);
            }
            KeyKind::Rows => {
                self.push_random(index % PARTITIONS);
                self.buffer.push(NEXT_COMPONENT);
                self.buffer.extend_from_slice(&(index / PARTITIONS).to_be_bytes());
                self.buffer.push(TERMINATOR);
            }
            KeyKind::Urls => {
                self.text.clear();
                let (site, directory) = (mix(index) % 1000, mix(index ^ 1) % 5000);
                // Writing to memory cannot fail.
                let _ = write!(self.text, "https://www.site-{site}.example/news/{directory}/article-{index}.html");
                bytecomp::encode_decorated_key(Token(0), &self.text, &mut self.buffer);
            }
            KeyKind::Sequential => {
                bytecomp::encode_decorated_key(Token(0), &index.to_be_bytes(), &mut self.buffer);
            }
        }
        &self.buffer
    }

    fn push_random(&mut self, index: u64) {
        let key = partition_key(index);
        bytecomp::encode_decorated_key(types::murmur3::token(&key), &key, &mut self.buffer);
    }
}
