//! The sixteen node types: encoding and decoding. `builder` decides shape and paging.

use super::payload::Payload;
use crate::error::{Corruption, Decoded};

/// No node crosses a boundary of this many bytes.
pub(crate) const PAGE_SIZE: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// No children.
    Leaf,
    /// One child.
    Single,
    /// Sorted transition bytes, then one pointer for each.
    Sparse,
    /// A span of transition bytes with one pointer slot for each; zero = no child.
    Dense,
}

/// A node type: the layout of its children and the width of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    family: Family,
    pointer_bits: u8,
}

/// Type number of a node without children.
pub(super) const LEAF: u8 = 0;

const fn kind(family: Family, pointer_bits: u8) -> Kind {
    Kind { family, pointer_bits }
}

/// By type number, which is the high half of a node's first byte.
const KINDS: [Kind; 16] = [
    kind(Family::Leaf, 0),
    kind(Family::Single, 4),
    kind(Family::Single, 8),
    kind(Family::Single, 12),
    kind(Family::Single, 16),
    kind(Family::Sparse, 8),
    kind(Family::Sparse, 12),
    kind(Family::Sparse, 16),
    kind(Family::Sparse, 24),
    kind(Family::Sparse, 40),
    kind(Family::Dense, 12),
    kind(Family::Dense, 16),
    kind(Family::Dense, 24),
    kind(Family::Dense, 32),
    kind(Family::Dense, 40),
    kind(Family::Dense, 64),
];

/// Largest distance of each pointer class that the writer chooses from.
const CLASS_LIMIT: [u64; 8] = [0xF, 0xFF, 0xFFF, 0xFFFF, (1 << 24) - 1, (1 << 32) - 1, (1 << 40) - 1, (1 << 63) - 1];
const SINGLE_OF_CLASS: [u8; 8] = [1, 2, 3, 4, 12, 13, 14, 15];
const SPARSE_OF_CLASS: [u8; 8] = [5, 5, 6, 7, 8, 9, 9, 15];
const DENSE_OF_CLASS: [u8; 8] = [10, 10, 10, 11, 12, 13, 14, 15];

/// Bytes of `count` packed pointers.
fn packed_size(count: usize, pointer_bits: u8) -> usize {
    (count * usize::from(pointer_bits)).div_ceil(8)
}

/// Size of a node of type `number`, without payload.
fn size_of(number: u8, child_count: usize, span: usize) -> usize {
    let Kind { family, pointer_bits } = KINDS[usize::from(number)];
    match family {
        Family::Leaf => 1,
        Family::Single => 1 + 1 + usize::from(pointer_bits) / 8,
        Family::Sparse => 2 + child_count + packed_size(child_count, pointer_bits),
        Family::Dense => 3 + packed_size(span, pointer_bits),
    }
}

/// The type Cassandra gives a node, and its size in bytes without payload.
///
/// `distance` is (a bound of) the largest distance to a child; `first` and `last` the outer transition bytes.
pub(super) fn choose(child_count: usize, first: u8, last: u8, distance: u64, has_payload: bool) -> (u8, usize) {
    if child_count == 0 {
        return (LEAF, 1);
    }
    let mut class = CLASS_LIMIT.iter().position(|limit| distance <= *limit).unwrap_or(7);
    if child_count == 1 {
        if has_payload && (class == 0 || class == 2) {
            class += 1;
        }
        let number = SINGLE_OF_CLASS[class];
        return (number, size_of(number, 1, 1));
    }
    let span = usize::from(last - first) + 1;
    let sparse = SPARSE_OF_CLASS[class];
    let dense = DENSE_OF_CLASS[class];
    let (sparse_size, dense_size) = (size_of(sparse, child_count, span), size_of(dense, child_count, span));
    if sparse_size < dense_size { (sparse, sparse_size) } else { (dense, dense_size) }
}

/// Appends a node whose children are `(transition byte, distance)` in ascending order.
pub(super) fn write(out: &mut Vec<u8>, number: u8, children: &[(u8, u64)], payload: Option<&Payload>) {
    let bits = payload.map_or(0, Payload::bits);
    let Kind { family, pointer_bits } = KINDS[usize::from(number)];
    let head = number << 4;
    match family {
        Family::Leaf => out.push(head | bits),
        Family::Single => write_single(out, head, bits, pointer_bits, children),
        Family::Sparse => {
            out.extend_from_slice(&[head | bits, children.len() as u8]);
            out.extend(children.iter().map(|(byte, _)| *byte));
            write_pointers(out, pointer_bits, children.iter().map(|(_, distance)| *distance));
        }
        Family::Dense => {
            let (first, last) = (children.first().map_or(0, |c| c.0), children.last().map_or(0, |c| c.0));
            out.extend_from_slice(&[head | bits, first, last - first]);
            let mut next = children.iter().peekable();
            let slots = (first..=last).map(|byte| next.next_if(|child| child.0 == byte).map_or(0, |child| child.1));
            write_pointers(out, pointer_bits, slots);
        }
    }
    if let Some(payload) = payload {
        out.extend_from_slice(payload.bytes());
    }
}

fn write_single(out: &mut Vec<u8>, head: u8, bits: u8, pointer_bits: u8, children: &[(u8, u64)]) {
    let (byte, distance) = children.first().copied().unwrap_or_default();
    match pointer_bits {
        4 => out.extend_from_slice(&[head | distance as u8, byte]),
        8 => out.extend_from_slice(&[head | bits, byte, distance as u8]),
        12 => out.extend_from_slice(&[head | (distance >> 8) as u8, distance as u8, byte]),
        _ => out.extend_from_slice(&[head | bits, byte, (distance >> 8) as u8, distance as u8]),
    }
}

fn write_pointers(out: &mut Vec<u8>, pointer_bits: u8, distances: impl Iterator<Item = u64>) {
    if pointer_bits != 12 {
        let skip = 8 - usize::from(pointer_bits) / 8;
        for distance in distances {
            out.extend_from_slice(&distance.to_be_bytes()[skip..]);
        }
        return;
    }
    let mut half: Option<u8> = None;
    for distance in distances {
        match half.take() {
            None => {
                out.push((distance >> 4) as u8);
                half = Some((distance as u8) << 4);
            }
            Some(high) => out.extend_from_slice(&[high | (distance >> 8) as u8, distance as u8]),
        }
    }
    out.extend(half);
}

/// A node that was read: the places of its parts in its page. It owns no bytes; every accessor takes the page again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Position in the file.
    pub position: u64,
    /// Payload bits; zero = no payload.
    pub payload_bits: u8,
    kind: Kind,
    /// Slots: children of a sparse node, the span of a dense one.
    slots: u16,
    /// First transition byte of a dense or single node.
    first: u8,
    /// Offset of the node in its page.
    start: u16,
    /// Offset of the payload in the page.
    payload_start: u16,
}

impl Node {
    /// Reads the node at `position` from its page (shorter than a page only at the end of the file).
    pub fn read(file: &str, page: &[u8], position: u64) -> Decoded<Node> {
        let start = (position % PAGE_SIZE as u64) as usize;
        let short = || Corruption::new(file, position, "a trie node within one page", "the end of the page");
        let bytes = page.get(start..).ok_or_else(short)?;
        let head = *bytes.first().ok_or_else(short)?;
        let at = |index: usize| bytes.get(index).copied().ok_or_else(short);
        let number = head >> 4;
        let kind = KINDS[usize::from(number)];
        let (slots, first) = match (kind.family, kind.pointer_bits) {
            (Family::Leaf, _) => (0, 0),
            (Family::Single, 12) => (1, at(2)?),
            (Family::Single, _) => (1, at(1)?),
            (Family::Sparse, _) => (u16::from(at(1)?), 0),
            (Family::Dense, _) => (u16::from(at(2)?) + 1, at(1)?),
        };
        if kind.family == Family::Dense && usize::from(first) + usize::from(slots) > 256 {
            return Err(Corruption::new(
                file,
                position,
                "a span of transition bytes below 256",
                format!("{first}+{slots}"),
            ));
        }
        let size = size_of(number, usize::from(slots), usize::from(slots));
        if size > bytes.len() {
            return Err(short());
        }
        let payload_bits = if number == 1 || number == 3 { 0 } else { head & 0xF };
        Ok(Node {
            position,
            payload_bits,
            kind,
            slots,
            first,
            start: start as u16,
            payload_start: (start + size) as u16,
        })
    }

    /// The bytes after the node, up to the end of its page.
    pub fn payload<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        page.get(usize::from(self.payload_start)..).unwrap_or_default()
    }

    pub fn has_children(&self) -> bool {
        self.slots > 0
    }

    /// Slots to iterate over; some of a dense node's are empty.
    pub fn slots(&self) -> usize {
        usize::from(self.slots)
    }

    fn transitions<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        let start = usize::from(self.start) + 2;
        page.get(start..start + self.slots()).unwrap_or_default()
    }

    /// The slot of `byte`, or the slot where it would be inserted.
    pub fn search(&self, page: &[u8], byte: u8) -> Result<usize, usize> {
        match self.kind.family {
            Family::Leaf => Err(0),
            Family::Single | Family::Dense => match byte.checked_sub(self.first) {
                None => Err(0),
                Some(slot) if usize::from(slot) >= self.slots() => Err(self.slots()),
                Some(slot) => {
                    if self.distance(page, usize::from(slot)) == 0 {
                        Err(usize::from(slot))
                    } else {
                        Ok(usize::from(slot))
                    }
                }
            },
            Family::Sparse => self.transitions(page).binary_search(&byte),
        }
    }

    /// The transition byte of a slot.
    #[cfg(test)]
    fn transition(&self, page: &[u8], slot: usize) -> u8 {
        match self.kind.family {
            Family::Sparse => self.transitions(page).get(slot).copied().unwrap_or_default(),
            _ => self.first.wrapping_add(slot as u8),
        }
    }

    /// Distance back to the child of a slot; zero = none.
    fn distance(&self, page: &[u8], slot: usize) -> u64 {
        let bytes = page.get(usize::from(self.start)..).unwrap_or_default();
        let at = |index: usize| u64::from(bytes.get(index).copied().unwrap_or_default());
        let pointers = match self.kind.family {
            Family::Leaf => return 0,
            Family::Single => match self.kind.pointer_bits {
                4 => return at(0) & 0xF,
                12 => return (at(0) & 0xF) << 8 | at(1),
                _ => 2,
            },
            Family::Sparse => 2 + self.slots(),
            Family::Dense => 3,
        };
        if self.kind.pointer_bits == 12 {
            let pair = pointers + slot * 3 / 2;
            return if slot.is_multiple_of(2) {
                at(pair) << 4 | at(pair + 1) >> 4
            } else {
                (at(pair) & 0xF) << 8 | at(pair + 1)
            };
        }
        let width = usize::from(self.kind.pointer_bits) / 8;
        let start = pointers + slot * width;
        (start..start + width).fold(0, |value, index| value << 8 | at(index))
    }

    /// Position of the child for a transition byte, if there is one.
    #[inline]
    pub fn child_for(&self, file: &str, page: &[u8], byte: u8) -> Decoded<Option<u64>> {
        let slot = match self.kind.family {
            Family::Leaf => return Ok(None),
            Family::Single | Family::Dense => {
                let slot = usize::from(byte.wrapping_sub(self.first));
                if byte < self.first || slot >= self.slots() {
                    return Ok(None);
                }
                slot
            }
            Family::Sparse => match self.transitions(page).binary_search(&byte) {
                Ok(slot) => slot,
                Err(_) => return Ok(None),
            },
        };
        match self.kind.family {
            // As in a search, a distance of zero means no child.
            Family::Single if self.distance(page, slot) == 0 => Ok(None),
            _ => self.child(file, page, slot),
        }
    }

    /// Position of the child in a slot; none for an empty slot of a dense node.
    pub fn child(&self, file: &str, page: &[u8], slot: usize) -> Decoded<Option<u64>> {
        let distance = self.distance(page, slot);
        if distance == 0 && self.kind.family == Family::Dense {
            return Ok(None);
        }
        match self.position.checked_sub(distance) {
            Some(child) if distance > 0 => Ok(Some(child)),
            _ => Err(Corruption::new(
                file,
                self.position,
                "a child before its parent in the file",
                format!("distance {distance}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type with room for `children`, written and read back with and without payload.
    #[test]
    fn every_type_reads_what_it_wrote() {
        let mut payload = Payload::new(9);
        payload.push(&[0xAB, 1, 2]);
        for number in 0_u8..16 {
            let Kind { family, pointer_bits } = KINDS[usize::from(number)];
            let limit = if pointer_bits == 64 { u64::MAX >> 1 } else { (1_u64 << pointer_bits).saturating_sub(1) };
            let position = limit + 100;
            let children: Vec<(u8, u64)> = match family {
                Family::Leaf => vec![],
                Family::Single => vec![(0x41, limit)],
                _ => vec![(3, 1), (4, limit), (9, limit.min(7)), (200, limit / 2 + 1), (255, 2)],
            };
            for payload in [None, Some(&payload)] {
                if payload.is_some() && (number == 1 || number == 3) {
                    continue;
                }
                let start = (position % PAGE_SIZE as u64) as usize;
                let mut page = vec![0; start];
                write(&mut page, number, &children, payload);
                page.resize(PAGE_SIZE * 2, 0);
                let node = Node::read("t", &page, position).unwrap();
                let expected = payload.map_or((0, &[0_u8; 3][..]), |p| (p.bits(), p.bytes()));
                assert_eq!((node.payload_bits, &node.payload(&page)[..3]), expected, "type {number}");
                let found: Vec<(u8, u64)> = (0..node.slots())
                    .filter_map(|slot| {
                        let child = node.child("t", &page, slot).unwrap()?;
                        Some((node.transition(&page, slot), position - child))
                    })
                    .collect();
                assert_eq!(found, children, "type {number}");
                for byte in 0..=255_u8 {
                    let found = node.search(&page, byte).is_ok();
                    assert_eq!(found, children.iter().any(|child| child.0 == byte), "type {number} byte {byte}");
                }
            }
        }
    }

    #[test]
    fn node_choice_prefers_dense_when_sparse_is_not_smaller() {
        assert_eq!(choose(0, 0, 0, 0, true), (0, 1));
        assert_eq!(choose(1, 5, 5, 15, false), (1, 2));
        assert_eq!(choose(1, 5, 5, 15, true), (2, 3));
        assert_eq!(choose(1, 5, 5, 0x100, false), (3, 3));
        assert_eq!(choose(1, 5, 5, 0x100, true), (4, 4));
        assert_eq!(choose(1, 5, 5, 0x1_0000, true), (12, 6));
        assert_eq!(choose(3, 3, 9, 6, false), (5, 8));
        assert_eq!(choose(7, 3, 9, 300, false).0, 10);
    }
}
