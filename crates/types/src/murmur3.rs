//! MurmurHash as Cassandra computes it: the 128-bit x64 form of version 3 for tokens, bloom filters and index hash
//! bits, and the 64-bit form of version 2 for the cardinality sketch of sstable statistics.
//!
//! Both differ from the published algorithms in one way: each byte of the last, incomplete block is sign-extended
//! before it is mixed in, so that a byte of `80` or above also changes the bits above its own.

use crate::Token;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The two halves (h1, h2) of the 128-bit hash of `key`, seed 0.
#[inline]
pub fn hash128(key: &[u8]) -> (u64, u64) {
    let (blocks, tail) = key.as_chunks::<16>();
    let (mut h1, mut h2) = (0u64, 0u64);
    for block in blocks {
        let (k1, k2) = halves(block);
        h1 ^= mix1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if tail.len() > 8 {
        h2 ^= mix2(signed_tail(&tail[8..]));
    }
    if !tail.is_empty() {
        h1 ^= mix1(signed_tail(&tail[..tail.len().min(8)]));
    }
    h1 ^= key.len() as u64;
    h2 ^= key.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2)
}

/// The token of a serialized partition key under Murmur3Partitioner.
#[inline]
pub fn token(key: &[u8]) -> Token {
    token_of_hash(key, hash128(key).0)
}

/// The token of `key` when the first half of its hash is known (callers that also need the raw halves hash only once).
#[inline]
pub fn token_of_hash(key: &[u8], h1: u64) -> Token {
    if key.is_empty() {
        return Token::MINIMUM;
    }
    // The minimum is reserved: no non-empty key has it.
    if h1 as i64 == i64::MIN { Token(i64::MAX) } else { Token(h1 as i64) }
}

/// MurmurHash64A of `data`, seed 0.
pub fn murmur2_64(data: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut h = (data.len() as u64).wrapping_mul(M);
    let (blocks, tail) = data.as_chunks::<8>();
    for block in blocks {
        let mut k = u64::from_le_bytes(*block).wrapping_mul(M);
        k ^= k >> R;
        h ^= k.wrapping_mul(M);
        h = h.wrapping_mul(M);
    }
    if !tail.is_empty() {
        h ^= signed_tail(tail);
        h = h.wrapping_mul(M);
    }
    h ^= h >> R;
    h = h.wrapping_mul(M);
    h ^ (h >> R)
}

#[inline]
fn halves(block: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

/// Up to eight bytes, little-endian, each sign-extended and xored into its place.
fn signed_tail(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |word, (i, &byte)| word ^ ((byte as i8 as i64 as u64) << (8 * i)))
}

#[inline]
fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline]
fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}
