//! Branch-free searches among the characters of a node, and comparison of keys.

/// The places of the largest sparse node.
const PLACES_MAX: usize = 48;

/// The characters of a sparse node by place.
#[derive(Clone, Copy)]
pub(crate) struct Characters([u64; PLACES_MAX / 8]);

impl Default for Characters {
    fn default() -> Characters {
        Characters([u64::MAX; PLACES_MAX / 8])
    }
}

impl Characters {
    /// Sets the `eight`th group of eight characters, the first place in the lowest byte.
    #[inline]
    pub(crate) fn set_eight(&mut self, eight: u32, characters: u64) {
        self.0[eight as usize] = characters;
    }

    /// Makes the places after the first `count` greater than any character.
    #[inline]
    pub(crate) fn keep(&mut self, count: u32, capacity: u32) {
        for (eight, word) in (0..capacity).step_by(8).zip(&mut self.0) {
            *word |= match count.saturating_sub(eight) {
                0 => u64::MAX,
                more @ 1..8 => u64::MAX << (8 * more),
                _ => 0,
            };
        }
    }

    #[inline]
    pub(crate) fn at(&self, place: u32) -> u8 {
        (self.0[place as usize / 8] >> (8 * (place % 8))) as u8
    }

    /// How many of the first `capacity` places are less than `character`.
    #[inline]
    pub(crate) fn below(&self, character: u8, capacity: u32) -> u32 {
        less_than(&self.0.as_chunks().0[..(capacity as usize).div_ceil(16)], character)
    }
}

/// Bit `i` is set if byte `i` of the words equals `character`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn equal_places([low, high]: [u64; 2], character: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: R9; none of these reads memory.
    unsafe {
        let characters = _mm_set_epi64x(high as i64, low as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(characters, _mm_set1_epi8(character as i8))) as u32
    }
}

/// How many bytes of the words are less than `character`.
#[cfg(target_arch = "x86_64")]
#[inline]
fn less_than(pairs: &[[u64; 2]], character: u8) -> u32 {
    use std::arch::x86_64::{
        _mm_add_epi64, _mm_cmpeq_epi8, _mm_cvtsi128_si32, _mm_max_epu8, _mm_sad_epu8, _mm_set_epi64x, _mm_set1_epi8,
        _mm_setzero_si128, _mm_sub_epi8, _mm_unpackhi_epi64,
    };
    // SAFETY: R9; none of these reads memory.
    unsafe {
        let wanted = _mm_set1_epi8(character as i8);
        // Counts, by column, the bytes that are not less: those that equal the maximum of both.
        let mut columns = _mm_setzero_si128();
        for &[low, high] in pairs {
            let characters = _mm_set_epi64x(high as i64, low as i64);
            columns = _mm_sub_epi8(columns, _mm_cmpeq_epi8(_mm_max_epu8(characters, wanted), characters));
        }
        let sums = _mm_sad_epu8(columns, _mm_setzero_si128());
        16 * pairs.len() as u32 - _mm_cvtsi128_si32(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums))) as u32
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn equal_places(words: [u64; 2], character: u8) -> u32 {
    places(words, |other| other == character)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn less_than(pairs: &[[u64; 2]], character: u8) -> u32 {
    pairs.iter().map(|pair| places(*pair, |other| other < character).count_ones()).sum()
}

/// Bit `i` is set if `is_one` holds for byte `i` of the words.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn places(words: [u64; 2], is_one: impl Fn(u8) -> bool) -> u32 {
    let bytes = words.into_iter().flat_map(u64::to_le_bytes);
    bytes.enumerate().fold(0, |places, (place, byte)| places | u32::from(is_one(byte)) << place)
}

/// Whether both are equal. Most comparisons are of about 24 bytes, for which a call takes longer than the comparison.
#[inline]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.first_chunk::<16>(), b.first_chunk::<16>()) {
        (Some(a_first), Some(b_first)) if a.len() <= 32 => {
            a_first == b_first && a.last_chunk::<16>() == b.last_chunk::<16>()
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_found_and_ranked_wherever_they_are() {
        let random = &mut testkit::Random(5);
        for _ in 0..2000 {
            let words: [u64; 2] = [random.number(), random.number()];
            let character = words[0].to_le_bytes()[random.below(8)].wrapping_add(random.below(3) as u8);
            assert_eq!(equal_places(words, character), places(words, |other| other == character));
            let less = places(words, |other| other < character).count_ones();
            assert_eq!(less_than(&[words, words, words], character), 3 * less);
        }
    }

    #[test]
    fn every_character_of_every_count_has_its_rank() {
        let random = &mut testkit::Random(6);
        for capacity in [3, 6, 12, 24, 48] {
            for count in 0..=capacity {
                let mut all: Vec<u8> = (0..=255).collect();
                let chosen: Vec<u8> = (0..count).map(|_| all.swap_remove(random.below(all.len()))).collect();
                let mut characters = Characters::default();
                let mut bytes = [0; PLACES_MAX];
                bytes[..chosen.len()].copy_from_slice(&chosen);
                let eights = bytes[..(capacity as usize).next_multiple_of(8)].as_chunks::<8>().0;
                (0..).zip(eights).for_each(|(eight, bytes)| characters.set_eight(eight, u64::from_le_bytes(*bytes)));
                characters.keep(count, capacity);
                for (place, &character) in (0..).zip(&chosen) {
                    assert_eq!(characters.at(place), character);
                    let below = chosen.iter().filter(|&&other| other < character).count();
                    assert_eq!(characters.below(character, capacity), below as u32, "{chosen:?}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_the_same_or_not_at_every_length() {
        for length in 0..80 {
            let bytes: Vec<u8> = (0..length).collect();
            assert!(same(&bytes, &bytes.clone()));
            assert!(!same(&bytes, &[&bytes[..], &[0]].concat()));
            for changed in 0..bytes.len() {
                let mut other = bytes.clone();
                other[changed] ^= 0x80;
                assert!(!same(&bytes, &other), "{changed} of {length}");
            }
        }
    }
}
