//! Blocks of entries. The term and the key of an entry are stored as differences from those of the entry before it:
//! terms repeat or ascend, and keys often begin with the same bytes. A token that can be computed from the key is not
//! stored. The position of an entry's partition may follow the entry. Restart entries, at which a search begins, are
//! stored completely. The layout is in FORMAT.md.

use blockio::prefetch;
use bytecomp::decode_leading_key;
use bytecomp::separator::NEXT_COMPONENT;
use sstable::TRIE_PAGE_BYTES;
use types::{murmur3, vint};

use crate::batch::{Mark, UNKNOWN};

/// The bytes before the content of a block.
pub(crate) const HEAD_BYTES: usize = 4;
/// A block ends when its entries reach this size, bytes. Most blocks then fit a page.
const CONTENT_BYTES: usize = TRIE_PAGE_BYTES - HEAD_BYTES;
/// Set in the head of a block whose entries have their tokens.
const WITH_TOKENS: u32 = 1 << 31;
/// The bits of the head that have the number of bytes of each position, and the greatest number.
const POSITION_SHIFT: u32 = 28;
pub(crate) const POSITION_BYTES_MAX: usize = 7;
/// The bits of the head that have the length.
const LENGTH_MASK: u32 = (1 << POSITION_SHIFT) - 1;
/// The first entry after this many bytes is a restart entry.
const RESTART_BYTES: usize = 512;
/// The bytes of the place of a restart entry, and of the number of restart entries.
const PLACE_BYTES: usize = 2;
/// The bytes that are left out of a key without its token: a separator and the token.
const TOKEN_BYTES: usize = 9;
/// The bytes that are allocated for a part of an entry at first.
const PART_BYTES: usize = 64;
/// Most suffixes of parts have at most this many bytes.
const SHORT_BYTES: usize = 16;
/// The value of a half byte that is followed by the rest of a number.
const MORE: usize = 15;

/// The entries of a block while it is written.
#[derive(Default)]
pub(crate) struct BlockWriter {
    content: Vec<u8>,
    /// The term and the key of the last entry, as they are stored.
    term: Vec<u8>,
    key: Vec<u8>,
    has_tokens: bool,
    /// The places of the restart entries except the first entry.
    restarts: Vec<u16>,
    /// The number of bytes of each position.
    position_bytes: usize,
    /// A buffer.
    added: Vec<u8>,
}

impl BlockWriter {
    /// A writer of blocks whose positions have this many bytes, at most [`POSITION_BYTES_MAX`]; 0 for none.
    pub fn new(position_bytes: usize) -> BlockWriter {
        debug_assert!(position_bytes <= POSITION_BYTES_MAX, "the head has three bits for it");
        BlockWriter { position_bytes, ..BlockWriter::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Adds an entry with the position of its partition. Returns false if the block is full. The first entry always
    /// fits.
    pub fn add(&mut self, entry: &[u8], term_length: usize, position: u64) -> bool {
        let (term, key) = entry.split_at(term_length);
        let has_tokens = !implies_token(key);
        let key = if has_tokens { key } else { &key[TOKEN_BYTES..] };
        if self.is_empty() {
            self.has_tokens = has_tokens;
        }
        let begun = self.restarts.last().map_or(0, |place| usize::from(*place));
        let restarts = self.content.len() - begun >= RESTART_BYTES;
        let (last_term, last_key): (&[u8], &[u8]) = if restarts { (&[], &[]) } else { (&self.term, &self.key) };
        self.added.clear();
        push_part(last_term, term, &mut self.added);
        push_part(last_key, key, &mut self.added);
        self.added.extend_from_slice(&position.to_be_bytes()[8 - self.position_bytes..]);
        let places = PLACE_BYTES * (self.restarts.len() + usize::from(restarts) + 1);
        let fits = has_tokens == self.has_tokens && self.content.len() + self.added.len() + places <= CONTENT_BYTES;
        if !fits && !self.is_empty() {
            return false;
        }
        self.restarts.extend(restarts.then_some(self.content.len() as u16));
        self.content.extend_from_slice(&self.added);
        self.term.clear();
        self.term.extend_from_slice(term);
        self.key.clear();
        self.key.extend_from_slice(key);
        true
    }

    /// Takes the bytes of the block. The writer is empty afterwards.
    pub fn take(&mut self) -> Vec<u8> {
        debug_assert!(self.restarts.is_empty() || self.content.len() <= CONTENT_BYTES, "places are of 16 bits");
        let count = self.restarts.len() as u16;
        self.content.extend(self.restarts.drain(..).chain([count]).flat_map(u16::to_be_bytes));
        let tokens = if self.has_tokens { WITH_TOKENS } else { 0 };
        let head = tokens | (self.position_bytes as u32) << POSITION_SHIFT | self.content.len() as u32;
        let mut bytes = head.to_be_bytes().to_vec();
        bytes.append(&mut self.content);
        self.term.clear();
        self.key.clear();
        bytes
    }
}

/// Whether the token of a key can be computed from the rest of the key.
fn implies_token(key: &[u8]) -> bool {
    let (mut rest, mut bytes) = (key, Vec::new());
    decode_leading_key(&mut rest, &mut bytes).is_ok_and(|token| token == murmur3::token(&bytes))
}

/// Appends a part of an entry as its difference from the part before: the length of the common prefix, and the suffix.
fn push_part(before: &[u8], part: &[u8], out: &mut Vec<u8>) {
    let shared = before.iter().zip(part).take_while(|(one, other)| one == other).count();
    let numbers = [shared, part.len() - shared];
    let halves = numbers.map(|number| number.min(MORE) as u8);
    out.push(halves[0] << 4 | halves[1]);
    for number in numbers {
        if let Some(more) = number.checked_sub(MORE) {
            vint::write_uvint(more as u64, out);
        }
    }
    out.extend_from_slice(&part[shared..]);
}

/// The decoded head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    /// The bytes of the content.
    pub length: usize,
    has_tokens: bool,
    position_bytes: usize,
}

impl BlockHead {
    pub fn read(head: [u8; HEAD_BYTES]) -> BlockHead {
        let head = u32::from_be_bytes(head);
        BlockHead {
            length: (head & LENGTH_MASK) as usize,
            has_tokens: head & WITH_TOKENS != 0,
            position_bytes: (head >> POSITION_SHIFT) as usize & POSITION_BYTES_MAX,
        }
    }
}

/// The entries of a block while it is read.
pub(crate) struct BlockReader<'b> {
    rest: &'b [u8],
    /// The bytes of the entries.
    length: usize,
    /// The places of the restart entries.
    restarts: &'b [[u8; PLACE_BYTES]],
    has_tokens: bool,
    position_bytes: usize,
    term: Vec<u8>,
    key: Vec<u8>,
    /// The position of the entry's partition, or [`UNKNOWN`].
    position: u64,
    /// A buffer for the bytes of a partition key.
    partition: Vec<u8>,
}

/// Damage: the offset of the wrong bytes in the content, and what is expected there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damage {
    pub at: usize,
    pub expected: &'static str,
}

impl<'b> BlockReader<'b> {
    /// A reader before the first entry of a block with this head.
    pub fn new(content: &'b [u8], head: BlockHead) -> Result<BlockReader<'b>, Damage> {
        let places = content.split_last_chunk().and_then(|(rest, count)| {
            let start = rest.len().checked_sub(PLACE_BYTES * usize::from(u16::from_be_bytes(*count)))?;
            Some(rest.split_at(start))
        });
        let damage = Damage { at: content.len(), expected: "the number of places within the block before this" };
        let (rest, restarts) = places.ok_or(damage)?;
        let (restarts, length) = (restarts.as_chunks().0, rest.len());
        let [term, key, partition] = [(); 3].map(|()| Vec::with_capacity(PART_BYTES));
        let BlockHead { has_tokens, position_bytes, .. } = head;
        Ok(BlockReader { rest, length, restarts, has_tokens, position_bytes, term, key, position: UNKNOWN, partition })
    }

    /// A reader after the entry at which [`mark`](Self::mark) made this mark in the same block.
    pub fn resume(content: &'b [u8], head: BlockHead, mark: Mark) -> Result<BlockReader<'b>, Damage> {
        let Mark { at, term, key, .. } = mark;
        let block = BlockReader::new(content, head)?;
        let rest = block.rest.get(at..).ok_or(Damage { at, expected: "an entry within its block" })?;
        Ok(BlockReader { rest, term, key, ..block })
    }

    /// The place after the entry, in the block at this page. `None` if the entry is the last one.
    pub fn mark(self, page: u64) -> Option<Mark> {
        let at = self.length - self.rest.len();
        (!self.rest.is_empty()).then_some(Mark { page, at, term: self.term, key: self.key })
    }

    /// The term of the entry.
    pub fn term(&self) -> &[u8] {
        &self.term
    }

    /// The position of the entry's partition in the SSTable, or [`UNKNOWN`].
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads the parts of the entry that follow the term.
    #[inline]
    fn read_after_term(&mut self, at: usize) -> Result<(), Damage> {
        let damage = |expected| Damage { at, expected };
        read_part(&mut self.rest, &mut self.key).ok_or_else(|| damage("a key within its block"))?;
        if self.position_bytes > 0 {
            let split = self.rest.split_at_checked(self.position_bytes);
            let (position, rest) = split.ok_or_else(|| damage("a position within its block"))?;
            self.position = match self.rest.first_chunk() {
                Some(word) => u64::from_be_bytes(*word) >> (8 * (8 - position.len())),
                None => position.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            };
            self.rest = rest;
        }
        Ok(())
    }

    /// Moves to the next entry. Returns false after the last one.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, Damage> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let at = self.length - self.rest.len();
        let damage = Damage { at, expected: "a term within its block" };
        read_part(&mut self.rest, &mut self.term).ok_or(damage)?;
        self.read_after_term(at)?;
        Ok(true)
    }

    /// Moves from the start of the block to the first entry whose term is not before `from`. Only the bytes of `from`
    /// up to the length of the term are compared. Returns false if there is none.
    ///
    /// Terms before that entry are not copied. A term stores the length of its common prefix with the term before it,
    /// and this number decides most comparisons.
    pub fn advance_to(&mut self, from: &[u8]) -> Result<bool, Damage> {
        debug_assert!(self.rest.len() == self.length, "nothing was read");
        self.skip_before(from)?;
        // The bytes that the last term has in common with `from`, and its length.
        let (mut common, mut term_length) = (0, 0);
        while !self.rest.is_empty() {
            let at = self.length - self.rest.len();
            let term = Part::read(&mut self.rest).filter(|part| part.shared <= term_length);
            let Part { shared, suffix, .. } = term.ok_or(Damage { at, expected: "a term within its block" })?;
            self.read_after_term(at)?;
            term_length = shared + suffix.len();
            if shared > common {
                continue;
            }
            let wanted = &from[shared..];
            let equal = suffix.iter().zip(wanted).take_while(|(one, other)| one == other).count();
            common = shared + equal;
            if suffix.get(equal).zip(wanted.get(equal)).is_none_or(|(one, other)| one > other) {
                self.term.clear();
                self.term.extend_from_slice(&from[..shared]);
                self.term.extend_from_slice(suffix);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves from the start of the block to the last restart entry whose term is before `from`.
    fn skip_before(&mut self, from: &[u8]) -> Result<(), Damage> {
        let entries = self.rest;
        entries.iter().step_by(RESTART_BYTES).for_each(prefetch);
        let (mut low, mut high) = (0, self.restarts.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let at = usize::from(u16::from_be_bytes(self.restarts[middle]));
            let damage = Damage { at, expected: "an entry that shares nothing with the one before it" };
            let rest = entries.get(at..).ok_or(damage)?;
            let term = Part::read(&mut &*rest).filter(|part| part.shared == 0).ok_or(damage)?.suffix;
            if term < &from[..from.len().min(term.len())] {
                (low, self.rest) = (middle + 1, rest);
            } else {
                high = middle;
            }
        }
        Ok(())
    }

    /// Appends the whole entry to `out`.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<(), Damage> {
        out.extend_from_slice(&self.term);
        if self.has_tokens {
            out.extend_from_slice(&self.key);
            return Ok(());
        }
        let start = out.len();
        out.extend_from_slice(&[NEXT_COMPONENT, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.key);
        self.partition.clear();
        let key = decode_leading_key(&mut &out[start..], &mut self.partition);
        if key.is_err() {
            return Err(Damage { at: self.length - self.rest.len(), expected: "a partition key before this" });
        }
        let token = murmur3::token(&self.partition).0 as u64 ^ 1 << 63;
        out[start + 1..start + TOKEN_BYTES].copy_from_slice(&token.to_be_bytes());
        Ok(())
    }
}

/// A part of an entry as it is stored.
struct Part<'b> {
    /// The length of the common prefix with the part before.
    shared: usize,
    suffix: &'b [u8],
    /// The suffix and the bytes that follow it.
    tail: &'b [u8],
}

impl<'b> Part<'b> {
    /// The next part. `None` if the bytes are wrong.
    #[inline]
    fn read(input: &mut &'b [u8]) -> Option<Part<'b>> {
        let (halves, rest) = input.split_first()?;
        *input = rest;
        let mut number = |half: u8| match usize::from(half) {
            MORE => usize::try_from(vint::read_uvint(input)?).ok()?.checked_add(MORE),
            number => Some(number),
        };
        let (shared, length) = (number(halves >> 4)?, number(halves & 15)?);
        let tail = *input;
        let (suffix, rest) = tail.split_at_checked(length)?;
        *input = rest;
        Some(Part { shared, suffix, tail })
    }
}

/// Replaces a part of an entry with the same part of the next entry. `None` if the bytes are wrong.
#[inline]
fn read_part(input: &mut &[u8], part: &mut Vec<u8>) -> Option<()> {
    let Part { shared, suffix, tail } = Part::read(input)?;
    if shared > part.len() {
        return None;
    }
    part.truncate(shared);
    match tail.first_chunk::<SHORT_BYTES>().filter(|_| suffix.len() <= SHORT_BYTES) {
        _ if suffix.is_empty() => {}
        // A copy of constant length needs no call.
        Some(more) => {
            part.extend_from_slice(more);
            part.truncate(shared + suffix.len());
        }
        None => part.extend_from_slice(suffix),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use bytecomp::encode_decorated_key;
    use testkit::Random;
    use types::Token;

    use super::*;

    /// An entry of one of few terms, with a real key, or with a token that does not follow from the key.
    fn entry(random: &mut Random, is_real: bool) -> (Vec<u8>, usize) {
        let mut entry = vec![0x40];
        entry.extend((0..random.below(40)).map(|_| b'a' + random.below(2) as u8));
        entry.extend_from_slice(&[0, 0x38]);
        let term_length = entry.len();
        let key = (random.below(1000) as u64).to_be_bytes();
        let token = if is_real { murmur3::token(&key) } else { Token(random.below(9) as i64) };
        encode_decorated_key(token, &key, &mut entry);
        entry.push(0x38);
        (entry, term_length)
    }

    fn content_of(bytes: &[u8]) -> (&[u8], BlockHead) {
        let (head, content) = bytes.split_first_chunk().unwrap();
        let head = BlockHead::read(*head);
        assert_eq!(head.length, content.len());
        (content, head)
    }

    #[test]
    fn a_block_gives_back_its_entries() {
        for seed in 0..40 {
            let mut random = Random(seed);
            let is_real = random.below(3) > 0;
            let mut entries: Vec<_> = (0..200).map(|_| entry(&mut random, is_real)).collect();
            entries.sort();
            let position_bytes = random.below(POSITION_BYTES_MAX + 1);
            let position = |entry: &[u8]| u64::from(crc32fast::hash(entry)) << 24 >> (8 * (7 - position_bytes));
            let mut block = BlockWriter::new(position_bytes);
            let add = |(entry, length): &&(Vec<u8>, usize)| block.add(entry, *length, position(entry));
            let added: Vec<_> = entries.iter().take_while(add).collect();
            let bytes = block.take();
            assert!(bytes.len() <= TRIE_PAGE_BYTES && added.len() > 20 && block.is_empty());
            let (content, head) = content_of(&bytes);
            assert_eq!((head.has_tokens, head.position_bytes), (!is_real, position_bytes));
            let (mut reader, mut read) = (BlockReader::new(content, head).unwrap(), Vec::new());
            for (entry, length) in added {
                assert!(reader.advance().unwrap());
                read.clear();
                reader.read(&mut read).unwrap();
                let expected = if position_bytes > 0 { position(entry) } else { UNKNOWN };
                assert_eq!((&read, reader.term().len(), reader.position()), (entry, *length, expected));
            }
            assert!(!reader.advance().unwrap());
        }
    }

    #[test]
    fn a_search_ends_at_the_first_term_that_is_not_before_the_bound() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut entries: Vec<_> = (0..100).map(|_| entry(&mut random, true)).collect();
            entries.sort();
            let mut block = BlockWriter::new(random.below(2) * 4);
            let position = |entry: &[u8]| u64::from(crc32fast::hash(entry));
            let add = |(entry, length): &&(Vec<u8>, usize)| block.add(entry, *length, position(entry));
            let added: Vec<_> = entries.iter().take_while(add).collect();
            let bytes = block.take();
            let (content, head) = content_of(&bytes);
            for _ in 0..20 {
                let is_of_block = random.below(2) == 0;
                let other = entry(&mut random, true);
                let (whole, _) = if is_of_block { added[random.below(added.len())] } else { &other };
                // A whole entry, or what one begins with.
                let from = &whole[..if random.below(2) == 0 { whole.len() } else { random.below(whole.len()) }];
                let is_before = |term: &[u8]| term < &from[..from.len().min(term.len())];
                let first = added.iter().position(|(entry, length)| !is_before(&entry[..*length]));
                let (mut reader, mut read) = (BlockReader::new(content, head).unwrap(), Vec::new());
                let mut has_entry = reader.advance_to(from).unwrap();
                for (entry, length) in &added[first.unwrap_or(added.len())..] {
                    assert!(has_entry);
                    read.clear();
                    reader.read(&mut read).unwrap();
                    let expected = if head.position_bytes > 0 { position(entry) } else { UNKNOWN };
                    assert_eq!((&read, reader.term().len(), reader.position()), (entry, *length, expected));
                    has_entry = reader.advance().unwrap();
                }
                assert!(!has_entry);
            }
        }
    }

    #[test]
    fn entries_with_and_without_tokens_are_not_in_one_block() {
        let mut random = Random(7);
        let [(real, real_term), (other, other_term)] = [true, false].map(|is_real| entry(&mut random, is_real));
        let mut block = BlockWriter::default();
        assert!(block.add(&real, real_term, 0) && !block.add(&other, other_term, 0));
    }

    #[test]
    fn the_examples_of_a_block_without_tokens_are_its_bytes() {
        let mut entry = b"\x40red\x00\x38".to_vec();
        encode_decorated_key(murmur3::token(&[0, 0, 0, 1]), &[0, 0, 0, 1], &mut entry);
        entry.extend_from_slice(&[0x40, 0x80, 0, 0, 5, 0x38]);
        let without = "00 00 00 18  06 40 72 65 64 00 38  0e 40 00 fe fe ff 01 00 38 40 80 00 00 05 38  00 00";
        let with = "20 00 00 1a  06 40 72 65 64 00 38  0e 40 00 fe fe ff 01 00 38 40 80 00 00 05 38  12 c0  00 00";
        for (example, position_bytes) in [(without, 0), (with, 2)] {
            let mut block = BlockWriter::new(position_bytes);
            assert!(block.add(&entry, 6, 4800));
            assert!(include_str!("../FORMAT.md").contains(example));
            let hex = |byte: &str| u8::from_str_radix(byte, 16).unwrap();
            assert_eq!(block.take(), example.split_whitespace().map(hex).collect::<Vec<u8>>());
        }
    }
}
