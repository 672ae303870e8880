//! Blocks of entries. The term of an entry begins with what it has in common with the term before it, and so does its
//! key: terms repeat or ascend, and keys often begin with the same bytes, whatever the term. A token that follows from
//! the key is left out. The layout is in FORMAT.md.

use bytecomp::decode_leading_key;
use bytecomp::separator::NEXT_COMPONENT;
use sstable::TRIE_PAGE_BYTES;
use types::{murmur3, vint};

/// The bytes before the content of a block.
pub(crate) const HEAD_BYTES: usize = 4;
/// A block ends when its entries reach this size, bytes. Most blocks then fit a page.
const CONTENT_BYTES: usize = TRIE_PAGE_BYTES - HEAD_BYTES;
/// Set in the head of a block whose entries have their tokens.
const WITH_TOKENS: u32 = 1 << 31;
/// A separator and a token, which a key without its token lacks.
const TOKEN_BYTES: usize = 9;
/// The room for a part of an entry at first.
const PART_BYTES: usize = 64;
/// Half of a byte that says so is followed by the rest of a number.
const MORE: usize = 15;

/// The entries of a block while it is written.
#[derive(Default)]
pub(crate) struct BlockWriter {
    content: Vec<u8>,
    /// The term and the key of the last entry, as they are stored.
    term: Vec<u8>,
    key: Vec<u8>,
    has_tokens: bool,
    /// A buffer.
    added: Vec<u8>,
}

impl BlockWriter {
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Adds an entry. Returns false if it does not fit any more. The first entry fits always.
    pub fn add(&mut self, entry: &[u8], term_length: usize) -> bool {
        let (term, key) = entry.split_at(term_length);
        let has_tokens = !implies_token(key);
        let key = if has_tokens { key } else { &key[TOKEN_BYTES..] };
        if self.is_empty() {
            self.has_tokens = has_tokens;
        }
        self.added.clear();
        push_part(&self.term, term, &mut self.added);
        push_part(&self.key, key, &mut self.added);
        let fits = has_tokens == self.has_tokens && self.content.len() + self.added.len() <= CONTENT_BYTES;
        if !fits && !self.is_empty() {
            return false;
        }
        self.content.extend_from_slice(&self.added);
        self.term.clear();
        self.term.extend_from_slice(term);
        self.key.clear();
        self.key.extend_from_slice(key);
        true
    }

    /// The bytes of the block, which is empty then.
    pub fn take(&mut self) -> Vec<u8> {
        let flag = if self.has_tokens { WITH_TOKENS } else { 0 };
        let mut bytes = (self.content.len() as u32 | flag).to_be_bytes().to_vec();
        bytes.append(&mut self.content);
        self.term.clear();
        self.key.clear();
        bytes
    }
}

/// Whether the token of a key follows from the rest of it.
fn implies_token(key: &[u8]) -> bool {
    let (mut rest, mut bytes) = (key, Vec::new());
    decode_leading_key(&mut rest, &mut bytes).is_ok_and(|token| token == murmur3::token(&bytes))
}

/// Appends what a part of an entry has behind its common beginning with the part before.
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

/// The length of the content of a block with this head, and whether its entries have tokens.
pub(crate) fn read_head(head: [u8; HEAD_BYTES]) -> (usize, bool) {
    let head = u32::from_be_bytes(head);
    ((head & !WITH_TOKENS) as usize, head & WITH_TOKENS != 0)
}

/// The entries of a block while it is read.
pub(crate) struct BlockReader<'b> {
    rest: &'b [u8],
    length: usize,
    has_tokens: bool,
    term: Vec<u8>,
    key: Vec<u8>,
    /// A buffer for the bytes of a partition key.
    partition: Vec<u8>,
}

/// Wrong bytes: where they are in the content, and what should be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damage {
    pub at: usize,
    pub expected: &'static str,
}

impl<'b> BlockReader<'b> {
    pub fn new(content: &'b [u8], has_tokens: bool) -> BlockReader<'b> {
        let [term, key, partition] = [(); 3].map(|()| Vec::with_capacity(PART_BYTES));
        BlockReader { rest: content, length: content.len(), has_tokens, term, key, partition }
    }

    /// The term of the entry.
    pub fn term(&self) -> &[u8] {
        &self.term
    }

    /// Moves to the next entry. Returns false behind the last.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, Damage> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let at = self.length - self.rest.len();
        let damage = |expected| Damage { at, expected };
        read_part(&mut self.rest, &mut self.term).ok_or_else(|| damage("a term within its block"))?;
        read_part(&mut self.rest, &mut self.key).ok_or_else(|| damage("a key within its block"))?;
        Ok(true)
    }

    /// Moves from the start of the block to the first entry whose term is not before `from`, of which no more bytes are
    /// compared than the term has. Returns false if there is none.
    ///
    /// Terms before that are not copied. A term stores how many bytes it shares with the one before it, and this number
    /// decides most comparisons.
    pub fn advance_to(&mut self, from: &[u8]) -> Result<bool, Damage> {
        debug_assert!(self.rest.len() == self.length, "nothing was read");
        // The bytes that the last term has in common with `from`, and its length.
        let (mut common, mut term_length) = (0, 0);
        while !self.rest.is_empty() {
            let at = self.length - self.rest.len();
            let damage = |expected| Damage { at, expected };
            let term = Part::read(&mut self.rest).filter(|part| part.shared <= term_length);
            let Part { shared, suffix } = term.ok_or_else(|| damage("a term within its block"))?;
            read_part(&mut self.rest, &mut self.key).ok_or_else(|| damage("a key within its block"))?;
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
    /// How many bytes it begins with are those of the part before.
    shared: usize,
    suffix: &'b [u8],
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
        let (suffix, rest) = input.split_at_checked(length)?;
        *input = rest;
        Some(Part { shared, suffix })
    }
}

/// Replaces a part of an entry with that of the next one. `None` if the bytes are wrong.
#[inline]
fn read_part(input: &mut &[u8], part: &mut Vec<u8>) -> Option<()> {
    let Part { shared, suffix } = Part::read(input)?;
    if shared > part.len() {
        return None;
    }
    part.truncate(shared);
    if !suffix.is_empty() {
        part.extend_from_slice(suffix);
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

    fn content_of(bytes: &[u8]) -> (&[u8], bool) {
        let (head, content) = bytes.split_first_chunk().unwrap();
        let (length, has_tokens) = read_head(*head);
        assert_eq!(length, content.len());
        (content, has_tokens)
    }

    #[test]
    fn a_block_gives_back_its_entries() {
        for seed in 0..40 {
            let mut random = Random(seed);
            let is_real = random.below(3) > 0;
            let mut entries: Vec<_> = (0..200).map(|_| entry(&mut random, is_real)).collect();
            entries.sort();
            let mut block = BlockWriter::default();
            let added: Vec<_> = entries.iter().take_while(|(entry, length)| block.add(entry, *length)).collect();
            let bytes = block.take();
            assert!(bytes.len() <= TRIE_PAGE_BYTES && added.len() > 20 && block.is_empty());
            let (content, has_tokens) = content_of(&bytes);
            assert_eq!(has_tokens, !is_real);
            let (mut reader, mut read) = (BlockReader::new(content, has_tokens), Vec::new());
            for (entry, length) in added {
                assert!(reader.advance().unwrap());
                read.clear();
                reader.read(&mut read).unwrap();
                assert_eq!((&read, reader.term().len()), (entry, *length));
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
            let mut block = BlockWriter::default();
            let added: Vec<_> = entries.iter().take_while(|(entry, length)| block.add(entry, *length)).collect();
            let bytes = block.take();
            let (content, has_tokens) = content_of(&bytes);
            for _ in 0..20 {
                let is_of_block = random.below(2) == 0;
                let other = entry(&mut random, true);
                let (whole, _) = if is_of_block { added[random.below(added.len())] } else { &other };
                // A whole entry, or what one begins with.
                let from = &whole[..if random.below(2) == 0 { whole.len() } else { random.below(whole.len()) }];
                let is_before = |term: &[u8]| term < &from[..from.len().min(term.len())];
                let first = added.iter().position(|(entry, length)| !is_before(&entry[..*length]));
                let (mut reader, mut read) = (BlockReader::new(content, has_tokens), Vec::new());
                let mut has_entry = reader.advance_to(from).unwrap();
                for (entry, length) in &added[first.unwrap_or(added.len())..] {
                    assert!(has_entry);
                    read.clear();
                    reader.read(&mut read).unwrap();
                    assert_eq!((&read, reader.term().len()), (entry, *length));
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
        assert!(block.add(&real, real_term) && !block.add(&other, other_term));
    }

    #[test]
    fn the_example_of_a_block_without_tokens_is_its_bytes() {
        let mut entry = b"\x40red\x00\x38".to_vec();
        encode_decorated_key(murmur3::token(&[0, 0, 0, 1]), &[0, 0, 0, 1], &mut entry);
        entry.extend_from_slice(&[0x40, 0x80, 0, 0, 5, 0x38]);
        let mut block = BlockWriter::default();
        assert!(block.add(&entry, 6));
        let example = "00 00 00 16  06 40 72 65 64 00 38  0e 40 00 fe fe ff 01 00 38 40 80 00 00 05 38";
        assert!(include_str!("../FORMAT.md").contains(example));
        let hex = |byte: &str| u8::from_str_radix(byte, 16).unwrap();
        assert_eq!(block.take(), example.split_whitespace().map(hex).collect::<Vec<u8>>());
    }
}
