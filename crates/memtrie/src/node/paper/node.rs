//! The node kinds of the paper's layout in a 32-byte block (`FORMAT.md` has each in hex), and reading one node.

use crate::node::{NodePosition, Step, View};
use crate::raw::memory::{Memory, Ptr, Slot};

/// A chain has its first step at offset 0..=27, which its pointer gives. The other steps follow, the last at 27, and
/// the child is in word 7.
pub(crate) const CHAIN_LAST: u32 = 27;
pub(crate) const CHAIN_STEPS_MAX: usize = 28;
pub(crate) const SPLIT: u32 = 0x1C;
pub(crate) const SPARSE: u32 = 0x1E;
pub(crate) const PREFIX: u32 = 0x1F;
/// Word of the pointer of a chain or a standalone prefix.
pub(crate) const CHILD_WORD: u32 = 7;
/// Word of the content of a prefix.
pub(crate) const CONTENT_WORD: u32 = 0;
/// The word whose first byte says what follows a prefix: the kind of the node that shares its block, or `STANDALONE`.
pub(crate) const FLAGS_WORD: u32 = 1;
pub(crate) const STANDALONE: u32 = 0xFF;
/// A prefix shares a chain's block if the chain starts at this offset or later.
pub(crate) const EMBED_FROM: u32 = 5;
/// First pointer word of a split's first block; its other blocks are all pointers.
pub(crate) const SPLIT_WORDS_FROM: u32 = 4;
pub(crate) const SPARSE_CHILDREN_MAX: usize = 6;
/// A split with at most this many children after a removal becomes sparse again.
pub(crate) const SPLIT_CHILDREN_MIN: usize = 4;
/// The first of the two words of a sparse node's characters and order, which are always accessed as one.
pub(crate) const SPARSE_WORD: u32 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Chain,
    Sparse,
    Split,
    Prefix,
}

/// The kind of a pointer that is neither null nor a leaf.
#[inline]
pub(crate) fn kind(ptr: Ptr) -> Kind {
    debug_assert!(!ptr.is_none() && !ptr.is_leaf());
    match ptr.kind() {
        0..=CHAIN_LAST => Kind::Chain,
        SPARSE => Kind::Sparse,
        PREFIX => Kind::Prefix,
        _ => Kind::Split,
    }
}

/// The parts of a prefix.
pub(crate) struct Prefix {
    /// A leaf pointer.
    pub content: Ptr,
    pub child: Ptr,
    /// The slot of the child's pointer, if the prefix has its own block.
    pub child_slot: Option<Slot>,
}

#[inline]
pub(crate) fn prefix(memory: Memory<'_>, ptr: Ptr) -> Prefix {
    let content = memory.load(ptr.slot(CONTENT_WORD));
    let flags = memory.word(ptr.slot(FLAGS_WORD)) & 0xFF;
    if flags == STANDALONE {
        let slot = ptr.slot(CHILD_WORD);
        Prefix { content, child: memory.load(slot), child_slot: Some(slot) }
    } else {
        Prefix { content, child: ptr.with_kind(flags), child_slot: None }
    }
}

/// The steps of a chain.
#[inline]
pub(crate) fn chain_steps<'a>(memory: Memory<'a>, ptr: Ptr) -> &'a [u8] {
    let first = (ptr.kind() as usize).min(CHAIN_STEPS_MAX);
    memory.steps(ptr.slot(0), first, CHAIN_STEPS_MAX - first)
}

/// How many steps of the chain `key` follows.
#[inline]
pub(crate) fn matching(steps: &[u8], key: &[u8]) -> usize {
    steps.iter().zip(key).take_while(|(step, byte)| step == byte).count()
}

/// The characters and the order word of a sparse node as one value: characters in the low 48 bits, order in the high
/// 16. The order word lists, in base 6 from the lowest digit up, the places of the children in ascending order of
/// character. The highest digit is never 0, so the digits end when the word is used up. Unused characters repeat the
/// first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SparseWord(pub(crate) u64);

impl SparseWord {
    #[inline]
    pub(crate) fn load(memory: Memory<'_>, ptr: Ptr) -> SparseWord {
        SparseWord(memory.load_wide(ptr.slot(SPARSE_WORD)))
    }

    /// The word for children in ascending order of their characters, which get the places 0, 1, ...
    pub(crate) fn of_ascending(characters: &[u8]) -> SparseWord {
        debug_assert!((2..=SPARSE_CHILDREN_MAX).contains(&characters.len()));
        debug_assert!(characters.is_sorted());
        let mut word = 0;
        let mut order = 0;
        for place in (0..SPARSE_CHILDREN_MAX).rev() {
            let character = characters.get(place).unwrap_or(&characters[0]);
            word |= u64::from(*character) << (8 * place);
            if place < characters.len() {
                order = order * 6 + place as u64;
            }
        }
        SparseWord(word | order << 48)
    }

    #[inline]
    pub(crate) fn order(self) -> u32 {
        (self.0 >> 48) as u32
    }

    #[inline]
    pub(crate) fn character(self, place: u32) -> u8 {
        (self.0 >> (8 * place)) as u8
    }

    /// The place of a child.
    #[inline]
    pub(crate) fn find(self, character: u8) -> Option<u32> {
        const ONES: u64 = 0x0101_0101_0101;
        let differing = (self.0 & 0xFFFF_FFFF_FFFF) ^ (u64::from(character) * ONES);
        // The lowest marked byte is the first equal one; marks above it may be false.
        let marks = differing.wrapping_sub(ONES) & !differing & 0x8080_8080_8080;
        if marks == 0 { None } else { Some(marks.trailing_zeros() / 8) }
    }

    #[inline]
    pub(crate) fn count(self) -> u32 {
        match self.order() {
            0..36 => 2,
            36..216 => 3,
            216..1296 => 4,
            1296..7776 => 5,
            _ => 6,
        }
    }

    /// The word with one more child, at the next free place.
    pub(crate) fn with(self, character: u8) -> SparseWord {
        let place = self.count();
        debug_assert!(place < SPARSE_CHILDREN_MAX as u32 && self.find(character).is_none());
        let order = self.order();
        let mut below = 1; // 6 to the number of smaller characters
        let mut rest = order;
        for _ in 0..place {
            if self.character(rest % 6) > character {
                break;
            }
            rest /= 6;
            below *= 6;
        }
        let order = (order / below * 6 + place) * below + order % below;
        let kept = self.0 & !(0xFF << (8 * place)) & 0xFFFF_FFFF_FFFF;
        SparseWord(kept | u64::from(character) << (8 * place) | u64::from(order) << 48)
    }

    /// Places in ascending order of their characters.
    pub(crate) fn places(self) -> impl Iterator<Item = u32> {
        let mut order = self.order();
        (0..self.count()).map(move |_| {
            let place = order % 6;
            order /= 6;
            place
        })
    }
}

/// The slot of the child (or of the next block) for a character in the blocks of a split, for its three levels (2, 3, 3
/// bits).
#[inline]
pub(crate) fn split_slot(first: Ptr, character: u8) -> Slot {
    first.slot(SPLIT_WORDS_FROM + u32::from(character >> 6))
}

#[inline]
pub(crate) fn split_mid_slot(middle: Ptr, character: u8) -> Slot {
    middle.slot(u32::from(character >> 3) & 7)
}

#[inline]
pub(crate) fn split_tail_slot(tail: Ptr, character: u8) -> Slot {
    tail.slot(u32::from(character) & 7)
}

/// The child of a split, or none.
#[inline]
pub(crate) fn split_child(memory: Memory<'_>, ptr: Ptr, character: u8) -> Ptr {
    let middle = memory.load(split_slot(ptr, character));
    if middle.is_none() {
        return Ptr::NONE;
    }
    let tail = memory.load(split_mid_slot(middle, character));
    if tail.is_none() {
        return Ptr::NONE;
    }
    memory.load(split_tail_slot(tail, character))
}

/// The first child of a split at or after `from` (descending: at or before it).
pub(crate) fn split_next(memory: Memory<'_>, ptr: Ptr, from: u8, descending: bool) -> Option<(u8, Ptr)> {
    let mut character = i32::from(from);
    // Moves to the first character of the next group of `size`, or the last of the previous one.
    let skip = |character: i32, size: i32| {
        if descending { (character & !(size - 1)) - 1 } else { (character & !(size - 1)) + size }
    };
    while (0..256).contains(&character) {
        let middle = memory.load(split_slot(ptr, character as u8));
        if middle.is_none() {
            character = skip(character, 64);
            continue;
        }
        let group = character >> 6;
        while character >> 6 == group {
            let tail = memory.load(split_mid_slot(middle, character as u8));
            if tail.is_none() {
                character = skip(character, 8);
                continue;
            }
            let eight = character >> 3;
            while character >> 3 == eight {
                let child = memory.load(split_tail_slot(tail, character as u8));
                if !child.is_none() {
                    return Some((character as u8, child));
                }
                character += if descending { -1 } else { 1 };
            }
        }
    }
    None
}

/// The view of a node from `skip` steps inside it.
#[inline]
pub(crate) fn view<'a>(memory: Memory<'a>, place: NodePosition) -> View<'a> {
    let NodePosition { ptr, skip } = place;
    if ptr.is_leaf() {
        return View::Leaf { tail: &[], content: memory.blob(ptr) };
    }
    if ptr.is_none() {
        return View::None;
    }
    match kind(ptr) {
        Kind::Chain => {
            let next = NodePosition::of(memory.load(ptr.slot(CHILD_WORD)));
            View::Chain { steps: &chain_steps(memory, ptr)[skip as usize..], next }
        }
        Kind::Prefix => {
            let prefix = prefix(memory, ptr);
            View::Prefix { content: memory.blob(prefix.content), child: prefix.child }
        }
        Kind::Sparse => View::Few,
        Kind::Split => View::Many,
    }
}

#[inline]
pub(crate) fn child(memory: Memory<'_>, ptr: Ptr, character: u8) -> Ptr {
    if kind(ptr) == Kind::Split {
        return split_child(memory, ptr, character);
    }
    let place = SparseWord::load(memory, ptr).find(character);
    place.map_or(Ptr::NONE, |place| memory.load(ptr.slot(place)))
}

/// Appends the children of a sparse or split node in order.
pub(crate) fn list(memory: Memory<'_>, ptr: Ptr, descending: bool, out: &mut Vec<(u8, Ptr)>) {
    let start = out.len();
    if kind(ptr) == Kind::Split {
        list_split(memory, ptr, out);
    } else {
        let word = SparseWord::load(memory, ptr);
        out.extend(word.places().map(|place| (word.character(place), memory.load(ptr.slot(place)))));
    }
    if descending {
        out[start..].reverse();
    }
}

fn list_split(memory: Memory<'_>, split: Ptr, out: &mut Vec<(u8, Ptr)>) {
    let blocks = |block: Ptr, from: u32| {
        (from..8).map(move |word| (word - from, memory.load(block.slot(word)))).filter(|(_, below)| !below.is_none())
    };
    for (_, middle) in blocks(split, SPLIT_WORDS_FROM) {
        blocks(middle, 0).for_each(|(_, tail)| crate::node::prefetch(memory, tail));
    }
    for (top, middle) in blocks(split, SPLIT_WORDS_FROM) {
        for (mid, tail) in blocks(middle, 0) {
            out.extend(blocks(tail, 0).map(|(low, child)| ((top << 6 | mid << 3 | low) as u8, child)));
        }
    }
}

#[inline]
pub(crate) fn step<'a>(memory: Memory<'a>, ptr: Ptr, key: &[u8]) -> Step<'a> {
    if ptr.is_leaf() {
        return if key.is_empty() { Step::Found(memory.blob(ptr)) } else { Step::Absent };
    }
    if ptr.is_none() {
        return Step::Absent;
    }
    match kind(ptr) {
        Kind::Chain => {
            let steps = chain_steps(memory, ptr);
            if key.starts_with(steps) { Step::To(memory.load(ptr.slot(CHILD_WORD)), steps.len()) } else { Step::Absent }
        }
        Kind::Sparse => {
            let place = key.first().and_then(|&character| SparseWord::load(memory, ptr).find(character));
            place.map_or(Step::Absent, |place| Step::To(memory.load(ptr.slot(place)), 1))
        }
        Kind::Split => match key.first() {
            Some(&character) => Step::To(split_child(memory, ptr, character), 1),
            None => Step::Absent,
        },
        Kind::Prefix => {
            let prefix = prefix(memory, ptr);
            if key.is_empty() { Step::Found(memory.blob(prefix.content)) } else { Step::To(prefix.child, 0) }
        }
    }
}

/// All blocks of a split.
#[cfg(test)]
pub(crate) fn split_blocks(memory: Memory<'_>, split: Ptr) -> Vec<Ptr> {
    let mut blocks = vec![split];
    for word in SPLIT_WORDS_FROM..8 {
        let middle = memory.load(split.slot(word));
        if !middle.is_none() {
            blocks.push(middle);
            blocks.extend((0..8).map(|word| memory.load(middle.slot(word))).filter(|tail| !tail.is_none()));
        }
    }
    // The three slot functions and this walk must agree on the positions.
    debug_assert!((0..=255_u8).all(|c| {
        let middle = memory.load(split_slot(split, c));
        middle.is_none() || {
            let tail = memory.load(split_mid_slot(middle, c));
            blocks.contains(&middle)
                && (tail.is_none() || blocks.contains(&tail) && split_tail_slot(tail, c) == tail.slot(u32::from(c) & 7))
        }
    }));
    blocks
}

pub(crate) fn kind_name(memory: Memory<'_>, ptr: Ptr) -> &'static str {
    match kind(ptr) {
        Kind::Chain => "chain",
        Kind::Sparse => "sparse",
        Kind::Split => "split",
        Kind::Prefix if prefix(memory, ptr).child_slot.is_some() => "prefix",
        Kind::Prefix => "embedded prefix",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All insertion orders of up to six characters give the sorted order and find every child.
    #[test]
    fn sparse_words_list_children_in_order_whatever_the_order_of_arrival() {
        let characters = [0_u8, 7, 0x80, 0xFF, 0x41, 0x42];
        let mut orders = vec![vec![]];
        for _ in 0..characters.len() {
            orders = orders
                .into_iter()
                .flat_map(|order: Vec<u8>| {
                    characters
                        .into_iter()
                        .filter(|c| !order.contains(c))
                        .map(|c| [order.as_slice(), &[c]].concat())
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        for order in orders {
            let mut first = [order[0], order[1]];
            first.sort_unstable();
            let mut word = SparseWord::of_ascending(&first);
            for (index, &character) in order.iter().enumerate().skip(2) {
                word = word.with(character);
                let mut sorted = order[..=index].to_vec();
                sorted.sort_unstable();
                assert_eq!(word.places().map(|place| word.character(place)).collect::<Vec<_>>(), sorted);
                for c in characters {
                    assert_eq!(word.find(c).map(|place| word.character(place)), sorted.contains(&c).then_some(c));
                }
            }
        }
    }
}
