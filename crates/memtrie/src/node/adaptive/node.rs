//! The node kinds of the adaptive layout, and reading one node. `FORMAT.md` has each kind in hex.

use std::hint::select_unpredictable;

use crate::edit::Start;
use crate::node::{NodePosition, SmallLeaves, Step, View};
use crate::raw::characters::{Characters, equal_places, same};
use crate::raw::memory::{Memory, Ptr, Slot};

pub(crate) const SPARSE_3: u32 = 1;
pub(crate) const SPARSE_6: u32 = 2;
pub(crate) const SPARSE_12: u32 = 3;
pub(crate) const SPARSE_24: u32 = 4;
pub(crate) const SPARSE_48: u32 = 5;
pub(crate) const FLAT: u32 = 6;
pub(crate) const CHAIN: u32 = 8;
pub(crate) const PREFIX: u32 = 9;
pub(crate) const CONTENT_CHAIN: u32 = 10;

/// Words of a prefix.
pub(crate) const CONTENT_WORD: u32 = 0;
pub(crate) const PREFIX_CHILD_WORD: u32 = 1;
/// Words of a chain: the child; the length (a byte) and the steps. In a chain with content: the child; the lengths of
/// steps and content (a byte each), the steps and the content.
pub(crate) const CHAIN_CHILD_WORD: u32 = 0;
pub(crate) const CHAIN_STEPS_WORD: u32 = 1;
pub(crate) const CHAIN_STEPS_MAX: usize = 59;
pub(crate) const CONTENT_CHAIN_STEPS_MAX: usize = 34;
/// A longer content of an inner node is stored in a leaf.
pub(crate) const INNER_CONTENT_MAX: usize = 24;
/// Bytes before the steps: the child, and the length or lengths.
pub(crate) const CHAIN_HEAD_BYTES: usize = 5;
pub(crate) const CONTENT_CHAIN_HEAD_BYTES: usize = 6;
pub(crate) const CHAIN_BYTES_MAX: usize = 64;

pub(crate) const CHILDREN_MAX: usize = 48;
/// A flat node with at most this many children after a removal becomes sparse again.
pub(crate) const FLAT_CHILDREN_MIN: usize = 40;
const PREFIX_UNITS: u32 = 2;
const FLAT_UNITS: u32 = 128;

/// The layout of a sparse node. The characters are ordered by place, from the first wide word on. The count of children
/// follows them, in the same wide word or the next. Places beyond the count are meaningless.
pub(crate) struct Shape {
    pub kind: u32,
    pub capacity: u32,
    /// Size in 8-byte units.
    pub units: u32,
    /// First word of the characters.
    characters: u32,
    /// First word of the children.
    children: u32,
    /// The number of wide words with characters.
    wides: u32,
    /// The wide word of the count, and the count's bit in it.
    count: (u32, u32),
}

/// By kind, from `SPARSE_3` on. The smallest has one 32-bit word in place of the wide ones.
static SHAPES: [Shape; 5] = [
    Shape { kind: SPARSE_3, capacity: 3, units: 2, characters: 3, children: 0, wides: 0, count: (0, 24) },
    Shape { kind: SPARSE_6, capacity: 6, units: 4, characters: 6, children: 0, wides: 1, count: (0, 48) },
    Shape { kind: SPARSE_12, capacity: 12, units: 8, characters: 0, children: 4, wides: 2, count: (1, 32) },
    Shape { kind: SPARSE_24, capacity: 24, units: 16, characters: 0, children: 8, wides: 3, count: (3, 0) },
    Shape { kind: SPARSE_48, capacity: 48, units: 32, characters: 0, children: 16, wides: 6, count: (6, 0) },
];

/// The shape of a sparse kind.
#[inline]
pub(crate) fn shape(kind: u32) -> &'static Shape {
    &SHAPES[(kind - SPARSE_3) as usize]
}

/// The smallest sparse node for this many children; `None` if only a flat node has room.
pub(crate) fn shape_for(children: usize) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.capacity as usize >= children)
}

impl Shape {
    #[inline]
    fn wide_slot(&self, node: Ptr, wide: u32) -> Slot {
        node.node_slot(self.characters + 2 * wide)
    }

    /// The number of children, loaded with acquire, so that their characters and pointers are visible.
    #[inline]
    pub(crate) fn count(&self, memory: Memory<'_>, node: Ptr) -> u32 {
        if self.kind == SPARSE_3 {
            return memory.load(node.node_slot(self.characters)).bits() >> 24;
        }
        (memory.load_wide(self.wide_slot(node, self.count.0)) >> self.count.1) as u32 & 0xFF
    }

    #[inline]
    pub(crate) fn character(&self, memory: Memory<'_>, node: Ptr, place: u32) -> u8 {
        if self.kind == SPARSE_3 {
            return (memory.word(node.node_slot(self.characters)) >> (8 * place)) as u8;
        }
        (memory.wide_word(self.wide_slot(node, place / 8)) >> (8 * (place % 8))) as u8
    }

    /// The characters at eight places (of the smallest node, at all places) of a node whose count was loaded.
    #[inline]
    fn eight_characters(&self, memory: Memory<'_>, node: Ptr, eight: u32) -> u64 {
        if self.kind == SPARSE_3 {
            return u64::from(memory.word(node.node_slot(self.characters)));
        }
        memory.wide_word(self.wide_slot(node, eight))
    }

    #[inline]
    pub(crate) fn child_slot(&self, node: Ptr, place: u32) -> Slot {
        node.node_slot(self.children + place)
    }

    /// The words of characters and count: the word, the bits that are meaningful with `count` children, and whether it
    /// is a wide word.
    #[cfg(test)]
    pub(crate) fn meaning(&self, count: u32) -> Vec<(u32, u64, bool)> {
        let of_places = |from: u32| {
            (from..from + 8)
                .filter(|&place| place < count)
                .fold(0, |mask, place| mask | 0xFF_u64 << (8 * (place - from)))
        };
        if self.kind == SPARSE_3 {
            return vec![(self.characters, of_places(0) | 0xFF << 24, false)];
        }
        (0..self.wides.max(self.count.0 + 1))
            .map(|wide| {
                let of_count = if wide == self.count.0 { 0xFF << self.count.1 } else { 0 };
                let of_places = if wide < self.wides { of_places(8 * wide) } else { 0 };
                (self.characters + 2 * wide, of_places | of_count, true)
            })
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn child_word(&self, place: u32) -> u32 {
        self.children + place
    }

    /// The place of a child. It always compares all characters. A branch that depends on the child's place would be
    /// mispredicted most of the time, and everything after it would wait for the node's memory.
    #[inline]
    pub(crate) fn find(&self, memory: Memory<'_>, node: Ptr, character: u8) -> Option<u32> {
        let count = self.count(memory, node);
        let mut places = 0;
        for pair in 0..self.wides.div_ceil(2).max(1) {
            let low = self.eight_characters(memory, node, 2 * pair);
            let has_high = 2 * pair + 1 < self.wides;
            let high = if has_high { self.eight_characters(memory, node, 2 * pair + 1) } else { 0 };
            places |= u64::from(equal_places([low, high], character)) << (16 * pair);
        }
        // The bits after the children are arbitrary.
        places &= (1 << count) - 1;
        (places != 0).then(|| places.trailing_zeros())
    }

    /// Writes the characters and the count of a node that is not published yet.
    pub(crate) fn fill(&self, memory: Memory<'_>, node: Ptr, characters: &[u8]) {
        let byte = |place: usize| u64::from(characters.get(place).copied().unwrap_or(0));
        let wide = |from: usize, bytes: usize| (0..bytes).fold(0, |word, i| word | byte(from + i) << (8 * i));
        let count = characters.len() as u64;
        if self.kind == SPARSE_3 {
            memory.set_word(node.node_slot(self.characters), (wide(0, 3) | count << 24) as u32);
            return;
        }
        for index in 0..self.wides.max(self.count.0 + 1) {
            let counted = if index == self.count.0 { count << self.count.1 } else { 0 };
            memory.set_wide_word(self.wide_slot(node, index), wide(8 * index as usize, 8) | counted);
        }
    }

    /// Writes both children of a node of the smallest size that is not published yet.
    #[inline]
    pub(crate) fn fill_pair(&self, memory: Memory<'_>, node: Ptr, [first, second]: [(u8, Ptr); 2]) {
        debug_assert_eq!(self.kind, SPARSE_3);
        memory.publish(self.child_slot(node, 0), first.1);
        memory.publish(self.child_slot(node, 1), second.1);
        memory.set_word(node.node_slot(self.characters), u32::from(first.0) | u32::from(second.0) << 8 | 2 << 24);
    }

    /// Adds a child to a published node that has room for it: it stores the pointer, the character, and then the count.
    pub(crate) fn add(&self, memory: Memory<'_>, node: Ptr, character: u8, child: Ptr) {
        let place = self.count(memory, node);
        debug_assert!(place < self.capacity && self.find(memory, node, character).is_none());
        memory.publish(self.child_slot(node, place), child);
        if self.kind == SPARSE_3 {
            let slot = node.node_slot(self.characters);
            let kept = memory.word(slot) & !(0xFF << (8 * place) | 0xFF << 24);
            memory.publish_word(slot, kept | u32::from(character) << (8 * place) | (place + 1) << 24);
            return;
        }
        let of_place = (u64::from(character) << (8 * (place % 8)), 0xFF_u64 << (8 * (place % 8)));
        let of_count = (u64::from(place + 1) << self.count.1, 0xFF_u64 << self.count.1);
        let counted = self.wide_slot(node, self.count.0);
        if place / 8 == self.count.0 {
            let kept = memory.wide_word(counted) & !(of_place.1 | of_count.1);
            memory.publish_wide(counted, kept | of_place.0 | of_count.0);
        } else {
            // Readers ignore the place until the count includes it.
            let slot = self.wide_slot(node, place / 8);
            memory.set_wide_word(slot, memory.wide_word(slot) & !of_place.1 | of_place.0);
            memory.publish_wide(counted, memory.wide_word(counted) & !of_count.1 | of_count.0);
        }
    }
}

/// The size of a node in 8-byte units.
#[inline]
pub(crate) fn units(memory: Memory<'_>, ptr: Ptr) -> u32 {
    match ptr.node_kind() {
        FLAT => FLAT_UNITS,
        CHAIN => chain_units(CHAIN_HEAD_BYTES + chain_length(memory, ptr)),
        CONTENT_CHAIN => {
            let chain = content_chain(memory, ptr);
            chain_units(CONTENT_CHAIN_HEAD_BYTES + chain.steps.len() + chain.content.len())
        }
        PREFIX => PREFIX_UNITS,
        kind => shape(kind).units,
    }
}

/// The 8-byte units of a chain of this many bytes: 16, 32, 48 or 64 bytes.
#[inline]
pub(crate) fn chain_units(bytes: usize) -> u32 {
    bytes.div_ceil(16) as u32 * 2
}

pub(crate) const fn prefix_units() -> u32 {
    PREFIX_UNITS
}

pub(crate) const fn flat_units() -> u32 {
    FLAT_UNITS
}

#[inline]
fn chain_length(memory: Memory<'_>, ptr: Ptr) -> usize {
    (memory.word(ptr.node_slot(CHAIN_STEPS_WORD)) & 0xFF) as usize
}

#[inline]
pub(crate) fn chain_steps<'a>(memory: Memory<'a>, ptr: Ptr) -> &'a [u8] {
    memory.steps(ptr.node_slot(CHAIN_STEPS_WORD), 1, chain_length(memory, ptr))
}

/// A chain with content.
pub(crate) struct ContentChain<'a> {
    pub steps: &'a [u8],
    pub content: &'a [u8],
    pub child: Ptr,
}

#[inline]
pub(crate) fn content_chain<'a>(memory: Memory<'a>, ptr: Ptr) -> ContentChain<'a> {
    let lengths = memory.word(ptr.node_slot(CHAIN_STEPS_WORD));
    let (steps, content) = ((lengths & 0xFF) as usize, (lengths >> 8 & 0xFF) as usize);
    let (steps, content) = memory.steps(ptr.node_slot(CHAIN_STEPS_WORD), 2, steps + content).split_at(steps);
    ContentChain { steps, content, child: memory.load(ptr.node_slot(CHAIN_CHILD_WORD)) }
}

/// The view of a node from `skip` bytes inside it.
#[inline]
pub(crate) fn view<'a>(memory: Memory<'a>, place: NodePosition) -> View<'a> {
    let NodePosition { ptr, skip } = place;
    let skip = skip as usize;
    if ptr.is_leaf() {
        let leaf = memory.leaf(ptr);
        return View::Leaf { tail: &leaf.tail[skip..], content: leaf.content };
    }
    match ptr.node_kind() {
        0 => View::None,
        CHAIN => {
            let child = memory.load(ptr.node_slot(CHAIN_CHILD_WORD));
            View::Chain { steps: &chain_steps(memory, ptr)[skip..], next: NodePosition::of(child) }
        }
        CONTENT_CHAIN => {
            let ContentChain { steps, content, child } = content_chain(memory, ptr);
            match &steps[skip..] {
                [] => View::Prefix { content, child },
                rest => View::Chain { steps: rest, next: NodePosition::of(ptr).further(steps.len()) },
            }
        }
        PREFIX => {
            let content = memory.leaf(memory.load(ptr.node_slot(CONTENT_WORD))).content;
            View::Prefix { content, child: memory.load(ptr.node_slot(PREFIX_CHILD_WORD)) }
        }
        FLAT => View::Many,
        _ => View::Few,
    }
}

/// The slot of the pointer to the child for `character`, if there is one.
#[inline]
pub(crate) fn child_slot(memory: Memory<'_>, ptr: Ptr, character: u8) -> Option<Slot> {
    if ptr.node_kind() == FLAT {
        let slot = ptr.node_slot(u32::from(character));
        return (!memory.load(slot).is_none()).then_some(slot);
    }
    prefetch_lines(memory, ptr);
    find(memory, ptr, character).map(|place| shape(ptr.node_kind()).child_slot(ptr, place))
}

/// The place of a sparse node's child.
#[inline]
fn find(memory: Memory<'_>, ptr: Ptr, character: u8) -> Option<u32> {
    // The shape is a constant in each arm, which makes the search short.
    match ptr.node_kind() {
        SPARSE_3 => shape(SPARSE_3).find(memory, ptr, character),
        SPARSE_6 => shape(SPARSE_6).find(memory, ptr, character),
        SPARSE_12 => shape(SPARSE_12).find(memory, ptr, character),
        SPARSE_24 => shape(SPARSE_24).find(memory, ptr, character),
        _ => shape(SPARSE_48).find(memory, ptr, character),
    }
}

#[inline]
pub(crate) fn child(memory: Memory<'_>, ptr: Ptr, character: u8) -> Ptr {
    if ptr.node_kind() == FLAT {
        return memory.load(ptr.node_slot(u32::from(character)));
    }
    let place = find(memory, ptr, character);
    place.map_or(Ptr::NONE, |place| memory.load(shape(ptr.node_kind()).child_slot(ptr, place)))
}

#[inline]
pub(crate) fn step<'a>(memory: Memory<'a>, ptr: Ptr, key: &[u8]) -> Step<'a> {
    if ptr.is_leaf() {
        let leaf = memory.leaf(ptr);
        return if same(leaf.tail, key) { Step::Found(leaf.content) } else { Step::Absent };
    }
    let kind = ptr.node_kind();
    match kind {
        0 => Step::Absent,
        CHAIN => {
            let steps = chain_steps(memory, ptr);
            if key.starts_with(steps) {
                Step::To(memory.load(ptr.node_slot(CHAIN_CHILD_WORD)), steps.len())
            } else {
                Step::Absent
            }
        }
        CONTENT_CHAIN => {
            let ContentChain { steps, content, child } = content_chain(memory, ptr);
            match key.strip_prefix(steps) {
                Some([]) => Step::Found(content),
                Some(_) => Step::To(child, steps.len()),
                None => Step::Absent,
            }
        }
        PREFIX if key.is_empty() => Step::Found(memory.leaf(memory.load(ptr.node_slot(CONTENT_WORD))).content),
        PREFIX => Step::To(memory.load(ptr.node_slot(PREFIX_CHILD_WORD)), 0),
        _ => {
            let Some(&character) = key.first() else { return Step::Absent };
            if kind == FLAT {
                return Step::To(memory.load(ptr.node_slot(u32::from(character))), 1);
            }
            prefetch_lines(memory, ptr);
            match find(memory, ptr, character) {
                Some(place) => Step::To(memory.load(shape(kind).child_slot(ptr, place)), 1),
                None => Step::Absent,
            }
        }
    }
}

/// The content at `key` below a node. Most keys of a large trie pass a chain that all keys share, then flat nodes, then
/// a leaf or a small node of leaves. This function handles that case in few instructions: while a processor waits for
/// one key's memory, it only requests the next key's if that is not many instructions away.
#[inline]
pub(crate) fn get<'a>(memory: Memory<'a>, mut ptr: Ptr, mut key: &[u8]) -> Option<&'a [u8]> {
    if ptr.is_node_of(CHAIN)
        && let Some(steps) = short_chain_passed(memory, ptr, key)
    {
        ptr = memory.load(ptr.node_slot(CHAIN_CHILD_WORD));
        key = &key[steps..];
    }
    while let Some((&character, rest)) = key.split_first() {
        if ptr.is_node_of(FLAT) {
            ptr = memory.load(ptr.node_slot(u32::from(character)));
            key = rest;
            continue;
        }
        if !(ptr.is_leaf() | ptr.is_none() | ptr.is_node_of(SPARSE_3)) {
            break;
        }
        let bytes;
        (ptr, bytes) = small_step(memory, ptr, character);
        key = &key[bytes..];
        if ptr.is_leaf() | ptr.is_none() {
            return memory.content_of_tail(ptr, key);
        }
    }
    get_by_steps(memory, ptr, key)
}

/// Like `get`, for any sequence of nodes.
#[inline(never)]
fn get_by_steps<'a>(memory: Memory<'a>, mut ptr: Ptr, mut key: &[u8]) -> Option<&'a [u8]> {
    loop {
        match step(memory, ptr, key) {
            Step::To(next, bytes) => {
                ptr = next;
                key = &key[bytes..];
            }
            Step::Found(content) => return Some(content),
            Step::Absent => return None,
        }
    }
}

/// The number of steps of a chain of at most three, if `key` starts with them and is longer.
#[inline]
fn short_chain_passed(memory: Memory<'_>, ptr: Ptr, key: &[u8]) -> Option<usize> {
    let word = memory.word(ptr.node_slot(CHAIN_STEPS_WORD));
    let steps = word & 0xFF;
    let differing = word >> 8 ^ u32::from_le_bytes(*key.first_chunk()?);
    (steps <= 3 && differing & ((1 << (8 * steps)) - 1) == 0).then_some(steps as usize)
}

/// Takes one step from the smallest sparse node, and none from a leaf or from no node. A large flat node leads to any
/// of these unpredictably, so no branch distinguishes them: what follows it would wait for the flat node. (Where there
/// is no node, the root's words are read, which look like a node without children.)
#[inline]
fn small_step(memory: Memory<'_>, ptr: Ptr, character: u8) -> (Ptr, usize) {
    const LOWS: u32 = 0x01_0101;
    let is_node = ptr.is_node_of(SPARSE_3);
    let node = select_unpredictable(is_node, ptr, Ptr::node(0, SPARSE_3));
    let shape = shape(SPARSE_3);
    let word = memory.load(node.node_slot(shape.characters)).bits();
    debug_assert!(is_node || word == 0);
    // A zero byte is this character. The lowest mark is exact; marks above it may be false.
    let differing = word ^ (u32::from(character) * LOWS);
    let covered = 1_u32.wrapping_shl(8 * (word >> 24)).wrapping_sub(1);
    let marks = differing.wrapping_sub(LOWS) & !differing & LOWS << 7 & covered;
    let child = memory.load(shape.child_slot(node, (marks.trailing_zeros() / 8) & 3));
    let child = select_unpredictable(marks != 0, child, Ptr::NONE);
    (select_unpredictable(is_node, child, ptr), usize::from(is_node))
}

/// The flat nodes of a large trie that stay in the cache: the first has 256 children, and the second level has 256 KiB.
const TOP_LEVELS: usize = 2;

/// Follows `key` through the top of a large trie.
#[inline]
pub(crate) fn pass_top(memory: Memory<'_>, root: Ptr, key: &[u8]) -> (Ptr, usize) {
    let (mut ptr, mut consumed) = (root, 0);
    if ptr.is_node_of(CHAIN)
        && let Some(steps) = short_chain_passed(memory, ptr, key)
    {
        (ptr, consumed) = (memory.load(ptr.node_slot(CHAIN_CHILD_WORD)), steps);
    }
    for &character in key[consumed..].iter().take(TOP_LEVELS) {
        if !ptr.is_node_of(FLAT) {
            break;
        }
        ptr = memory.load(ptr.node_slot(u32::from(character)));
        consumed += 1;
    }
    (ptr, consumed)
}

/// Goes as far as `pass_top`, and on to the slot in a flat node after that, which it does not read. Puts neither move
/// nor remove flat nodes.
#[inline]
pub(crate) fn start(memory: Memory<'_>, root: Ptr, key: &[u8]) -> Start {
    let (mut ptr, mut consumed) = (root, 0);
    if ptr.is_node_of(CHAIN)
        && let Some(steps) = short_chain_passed(memory, ptr, key)
    {
        (ptr, consumed) = (memory.load(ptr.node_slot(CHAIN_CHILD_WORD)), steps);
    }
    let mut start = Start::ROOT;
    for level in 0..=TOP_LEVELS {
        let Some(&character) = key.get(consumed).filter(|_| ptr.is_node_of(FLAT)) else { break };
        consumed += 1;
        start = Start { slot: ptr.node_slot(u32::from(character)), consumed };
        if level < TOP_LEVELS {
            ptr = memory.load(start.slot);
        }
    }
    start
}

#[inline]
pub(crate) fn is_small(ptr: Ptr) -> bool {
    ptr.is_leaf() | ptr.is_none() | ptr.is_node_of(SPARSE_3) | ptr.is_node_of(SPARSE_6)
}

#[inline]
pub(crate) fn prefetch_step(memory: Memory<'_>, ptr: Ptr, key: &[u8]) {
    match key.first() {
        Some(&character) if ptr.is_node_of(FLAT) => memory.prefetch_slot(ptr.node_slot(u32::from(character))),
        _ => prefetch(memory, ptr),
    }
}

/// Prefetches a leaf or node.
#[inline]
pub(crate) fn prefetch(memory: Memory<'_>, ptr: Ptr) {
    memory.prefetch_piece(ptr);
    if ptr.is_node_of(SPARSE_24) | ptr.is_node_of(SPARSE_48) {
        prefetch_lines(memory, ptr);
    }
}

/// Prefetches the lines after the first of a node larger than a cache line, before the first line says which will be
/// needed.
#[inline]
fn prefetch_lines(memory: Memory<'_>, ptr: Ptr) {
    match ptr.node_kind() {
        SPARSE_24 => memory.prefetch_slot(ptr.node_slot(16)),
        SPARSE_48 => [16, 32, 48].into_iter().for_each(|word| memory.prefetch_slot(ptr.node_slot(word))),
        _ => {}
    }
}

/// Appends the children of a sparse or flat node in order.
pub(crate) fn list(memory: Memory<'_>, ptr: Ptr, descending: bool, out: &mut Vec<(u8, Ptr)>) {
    match ptr.node_kind() {
        FLAT if descending => list_flat::<true>(memory, ptr, out),
        FLAT => list_flat::<false>(memory, ptr, out),
        SPARSE_3 => list_sparse::<SPARSE_3>(memory, ptr, descending, out),
        SPARSE_6 => list_sparse::<SPARSE_6>(memory, ptr, descending, out),
        SPARSE_12 => list_sparse::<SPARSE_12>(memory, ptr, descending, out),
        SPARSE_24 => list_sparse::<SPARSE_24>(memory, ptr, descending, out),
        _ => list_sparse::<SPARSE_48>(memory, ptr, descending, out),
    }
}

fn list_flat<const DESCENDING: bool>(memory: Memory<'_>, ptr: Ptr, out: &mut Vec<(u8, Ptr)>) {
    let mut children = [(0, Ptr::NONE); 256];
    let mut count = 0;
    for four in (0..256).step_by(4) {
        for step in four..four + 4 {
            let character = if DESCENDING { 0xFF - step } else { step };
            let child = memory.load(ptr.node_slot(character));
            // An absent child is overwritten by the next one.
            children[count & 0xFF] = (character as u8, child);
            count += usize::from(!child.is_none());
        }
    }
    out.extend_from_slice(&children[..count]);
}

/// Stores each child at the index given by the number of lower characters, so that no branch depends on the characters.
#[inline]
fn list_sparse<const KIND: u32>(memory: Memory<'_>, ptr: Ptr, descending: bool, out: &mut Vec<(u8, Ptr)>) {
    let shape = shape(KIND);
    let start = out.len();
    let count = shape.count(memory, ptr);
    let mut characters = Characters::default();
    for eight in 0..shape.wides.max(1) {
        characters.set_eight(eight, shape.eight_characters(memory, ptr, eight));
    }
    characters.keep(count, shape.capacity);
    out.resize(start + count as usize, (0, Ptr::NONE));
    let out = &mut out[start..];
    let last = count.wrapping_sub(1);
    for place in 0..count {
        let character = characters.at(place);
        let before = characters.below(character, shape.capacity);
        let at = if descending { last - before } else { before };
        // A character that occurs twice would mean a broken node.
        if let Some(entry) = out.get_mut(at as usize) {
            *entry = (character, memory.load(shape.child_slot(ptr, place)));
        }
    }
}

#[inline]
pub(crate) fn flat_next(memory: Memory<'_>, ptr: Ptr, from: u8, descending: bool) -> Option<(u8, Ptr)> {
    let mut character = from;
    loop {
        let child = memory.load(ptr.node_slot(u32::from(character)));
        if !child.is_none() {
            return Some((character, child));
        }
        character = if descending { character.checked_sub(1)? } else { character.checked_add(1)? };
    }
}

/// The children of a node of the smallest size in order, if all of them are leaves. The order is computed without a
/// branch, because branches on two or three characters are unpredictable.
#[inline]
pub(crate) fn small_of_leaves(memory: Memory<'_>, ptr: Ptr, descending: bool) -> Option<SmallLeaves> {
    const BEHIND: u32 = 0x100;
    if !ptr.is_node_of(SPARSE_3) {
        return None;
    }
    let shape = shape(SPARSE_3);
    let word = memory.load(ptr.node_slot(shape.characters)).bits();
    let (count, flip) = (word >> 24, if descending { 0xFF } else { 0 });
    let mut are_leaves = true;
    let mut children = [0, 1, 2].map(|place| {
        let child = memory.load(shape.child_slot(ptr, place));
        are_leaves &= child.is_leaf() | (place >= count);
        let rank = (word >> (8 * place) & 0xFF) ^ flip;
        (select_unpredictable(place < count, rank, BEHIND), child)
    });
    if !are_leaves {
        return None;
    }
    for (a, b) in [(0, 1), (1, 2), (0, 1)] {
        let (first, second) = (children[a], children[b]);
        let swap = second.0 < first.0;
        children[a] = (select_unpredictable(swap, second.0, first.0), select_unpredictable(swap, second.1, first.1));
        children[b] = (select_unpredictable(swap, first.0, second.0), select_unpredictable(swap, first.1, second.1));
    }
    Some(SmallLeaves { leaves: children.map(|(rank, child)| ((rank ^ flip) as u8, child)), count: count as usize })
}

/// Prefetches a node; for a leaf it prefetches memory that is cached already.
#[inline]
pub(crate) fn prefetch_node(memory: Memory<'_>, ptr: Ptr) {
    memory.prefetch_node(ptr);
    if ptr.is_node_of(SPARSE_24) | ptr.is_node_of(SPARSE_48) {
        prefetch_lines(memory, ptr);
    }
}

/// Prefetches all lines of a flat node.
#[inline]
pub(crate) fn prefetch_flat(memory: Memory<'_>, ptr: Ptr) {
    if ptr.is_node_of(FLAT) {
        (0..256).step_by(16).for_each(|word| memory.prefetch_slot(ptr.node_slot(word)));
    }
}

/// Prefetches the nodes below a large sparse node, which mostly leads to leaves.
#[inline]
pub(crate) fn prefetch_below_large(memory: Memory<'_>, ptr: Ptr) {
    if ptr.is_node_of(SPARSE_12) | ptr.is_node_of(SPARSE_24) | ptr.is_node_of(SPARSE_48) {
        let shape = shape(ptr.node_kind());
        (0..shape.count(memory, ptr))
            .map(|place| memory.load(shape.child_slot(ptr, place)))
            .for_each(|child| memory.prefetch_node(child));
    }
}

pub(crate) fn kind_name(ptr: Ptr) -> &'static str {
    match ptr.node_kind() {
        SPARSE_3 => "sparse of 3",
        SPARSE_6 => "sparse of 6",
        SPARSE_12 => "sparse of 12",
        SPARSE_24 => "sparse of 24",
        SPARSE_48 => "sparse of 48",
        FLAT => "flat",
        CHAIN => "chain",
        PREFIX => "prefix",
        CONTENT_CHAIN => "chain with content",
        _ => "unknown",
    }
}
