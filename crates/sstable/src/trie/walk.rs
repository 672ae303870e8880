//! Walking a trie in a file, page by page: exact descent, floor, ceiling, next and previous entry.

use std::hint::black_box;
use std::ops::Deref;
use std::sync::Arc;

use super::node::{Node, PAGE_SIZE};
use crate::error::Corruption;

/// The size of a cache line.
const LINE_BYTES: usize = 64;
/// A subtree that shares a page with others is seldom longer.
const NEAR_BYTES: usize = 448;

/// The source of a walker's pages.
pub(crate) trait Pages {
    /// The error if there is no page; damage of a page is converted to it.
    type Error: From<Box<Corruption>>;
    /// A page in memory.
    type Page: Deref<Target = [u8]>;

    /// Page `number` of the file; shorter than [`PAGE_SIZE`] only at the file's end.
    fn page(&self, number: u64) -> Result<Self::Page, Self::Error>;

    /// Name of the file, for errors.
    fn file(&self) -> &str;
}

impl<P: Pages + ?Sized> Pages for &P {
    type Error = P::Error;
    type Page = P::Page;

    fn page(&self, number: u64) -> Result<P::Page, P::Error> {
        (**self).page(number)
    }

    fn file(&self) -> &str {
        (**self).file()
    }
}

impl<P: Pages + ?Sized> Pages for Arc<P> {
    type Error = P::Error;
    type Page = P::Page;

    fn page(&self, number: u64) -> Result<P::Page, P::Error> {
        (**self).page(number)
    }

    fn file(&self) -> &str {
        (**self).file()
    }
}

/// Descends from the node at `root`, whose page must be available, as long as there are children for the bytes of
/// `key`. Passes the last node's payload to `found` if it is an entry without children.
pub(crate) fn follow<P: Pages, T>(
    pages: &P,
    (root, root_page): (u64, &[u8]),
    key: &[u8],
    found: impl FnOnce(u64, u8, &[u8]) -> Result<T, P::Error>,
) -> Result<Option<T>, P::Error> {
    let file = pages.file();
    let (mut held, mut number): (Option<P::Page>, u64) = (None, root / PAGE_SIZE as u64);
    let mut node = Node::read(file, root_page, root)?;
    for byte in key {
        let page = held.as_deref().unwrap_or(root_page);
        let Some(child) = node.child_for(file, page, *byte)? else { break };
        if child / PAGE_SIZE as u64 != number {
            number = child / PAGE_SIZE as u64;
            let page = held.insert(pages.page(number)?);
            prefetch_children(page, child);
        }
        node = Node::read(file, held.as_deref().unwrap_or(root_page), child)?;
    }
    if node.has_children() || node.payload_bits == 0 {
        return Ok(None);
    }
    found(node.position, node.payload_bits, node.payload(held.as_deref().unwrap_or(root_page))).map(Some)
}

/// Touches everything that a descent from the node at `position` may read in its page, so that the processor waits for
/// it once. Children are right before their parents, and the fewer there are the nearer.
#[inline]
fn prefetch_children(page: &[u8], position: u64) {
    let start = (position % PAGE_SIZE as u64) as usize;
    for line in (start.saturating_sub(NEAR_BYTES)..start).step_by(LINE_BYTES) {
        black_box(page.get(line).copied());
    }
}

/// A position on one node of a trie.
struct Walker<P: Pages> {
    pages: P,
    page: P::Page,
    page_number: u64,
    node: Node,
}

impl<P: Pages> Walker<P> {
    /// Starts at the node at `position`.
    pub fn new(pages: P, position: u64) -> Result<Self, P::Error> {
        let page = pages.page(position / PAGE_SIZE as u64)?;
        let page_number = position / PAGE_SIZE as u64;
        let node = Node::read(pages.file(), &page, position)?;
        Ok(Walker { pages, page, page_number, node })
    }

    /// Moves to the node at `position`.
    pub fn go_to(&mut self, position: u64) -> Result<(), P::Error> {
        let page_number = position / PAGE_SIZE as u64;
        if page_number != self.page_number {
            self.page = self.pages.page(page_number)?;
            self.page_number = page_number;
        }
        self.node = Node::read(self.pages.file(), &self.page, position)?;
        Ok(())
    }

    /// Position of the node.
    pub fn position(&self) -> u64 {
        self.node.position
    }

    /// Payload bits (zero = none) and the bytes after the node up to the end of its page.
    pub fn payload(&self) -> (u8, &[u8]) {
        (self.node.payload_bits, self.node.payload(&self.page))
    }

    pub fn has_payload(&self) -> bool {
        self.node.payload_bits != 0
    }

    pub fn has_children(&self) -> bool {
        self.node.has_children()
    }

    fn child(&self, slot: usize) -> Result<Option<u64>, P::Error> {
        Ok(self.node.child(self.pages.file(), &self.page, slot)?)
    }

    /// The first child at or after `slot`.
    fn child_from(&self, slot: usize) -> Result<Option<(usize, u64)>, P::Error> {
        for slot in slot..self.node.slots() {
            if let Some(child) = self.child(slot)? {
                return Ok(Some((slot, child)));
            }
        }
        Ok(None)
    }

    /// The last child before `slot`.
    fn child_before(&self, slot: usize) -> Result<Option<(usize, u64)>, P::Error> {
        for slot in (0..slot.min(self.node.slots())).rev() {
            if let Some(child) = self.child(slot)? {
                return Ok(Some((slot, child)));
            }
        }
        Ok(None)
    }
}

/// A cursor that stands on an entry (a node with payload) or between entries, and moves in key order.
///
/// A payload comes before those of its node's descendants.
pub(crate) struct EntryCursor<P: Pages> {
    walker: Walker<P>,
    /// The ancestors of the current node, and the slot taken in each.
    ancestors: Vec<(u64, usize)>,
}

impl<P: Pages> EntryCursor<P> {
    /// A cursor over the trie with the given root; call a seek before anything else.
    pub fn new(pages: P, root: u64) -> Result<Self, P::Error> {
        Ok(EntryCursor { walker: Walker::new(pages, root)?, ancestors: Vec::with_capacity(24) })
    }

    /// The payload bits and bytes of the current entry.
    pub fn payload(&self) -> (u8, &[u8]) {
        self.walker.payload()
    }

    /// The position of the current node.
    pub fn position(&self) -> u64 {
        self.walker.position()
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        self.walker.pages.file()
    }

    fn reset(&mut self) -> Result<(), P::Error> {
        let root = self.ancestors.first().map(|ancestor| ancestor.0);
        self.ancestors.clear();
        root.map_or(Ok(()), |root| self.walker.go_to(root))
    }

    fn enter(&mut self, slot: usize, child: u64) -> Result<(), P::Error> {
        self.ancestors.push((self.walker.position(), slot));
        self.walker.go_to(child)
    }

    /// Moves to the first entry. Returns false if the trie is empty.
    pub fn seek_first(&mut self) -> Result<bool, P::Error> {
        self.reset()?;
        self.first_below()
    }

    /// Moves to the last entry.
    pub fn seek_last(&mut self) -> Result<bool, P::Error> {
        self.reset()?;
        self.last_below()
    }

    /// Moves to the first entry at or below the current node.
    fn first_below(&mut self) -> Result<bool, P::Error> {
        loop {
            if self.walker.has_payload() {
                return Ok(true);
            }
            match self.walker.child_from(0)? {
                Some((slot, child)) => self.enter(slot, child)?,
                None if self.ancestors.is_empty() => return Ok(false),
                None => return Err(self.barren()),
            }
        }
    }

    /// Moves to the last entry at or below the current node.
    fn last_below(&mut self) -> Result<bool, P::Error> {
        while let Some((slot, child)) = self.walker.child_before(usize::MAX)? {
            self.enter(slot, child)?;
        }
        match self.walker.has_payload() {
            true => Ok(true),
            false if self.ancestors.is_empty() => Ok(false),
            false => Err(self.barren()),
        }
    }

    fn barren(&self) -> P::Error {
        let file = self.walker.pages.file();
        Corruption::new(file, self.walker.position(), "a payload on a leaf", "a leaf without payload").into()
    }

    /// Moves to the next entry.
    pub fn next(&mut self) -> Result<bool, P::Error> {
        match self.walker.child_from(0)? {
            Some((slot, child)) => {
                self.enter(slot, child)?;
                self.first_below()
            }
            None => self.next_beside(),
        }
    }

    /// Moves to the first entry after everything at or below the current node.
    fn next_beside(&mut self) -> Result<bool, P::Error> {
        while let Some((parent, slot)) = self.ancestors.pop() {
            self.walker.go_to(parent)?;
            if let Some((slot, child)) = self.walker.child_from(slot + 1)? {
                self.enter(slot, child)?;
                return self.first_below();
            }
        }
        Ok(false)
    }

    /// Moves to the previous entry.
    pub fn previous(&mut self) -> Result<bool, P::Error> {
        while let Some((parent, slot)) = self.ancestors.pop() {
            self.walker.go_to(parent)?;
            if let Some((slot, child)) = self.walker.child_before(slot)? {
                self.enter(slot, child)?;
                return self.last_below();
            }
            if self.walker.has_payload() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to the entry with the greatest key at or before `key`. A key that is a prefix of `key` counts as before
    /// it.
    pub fn seek_floor(&mut self, key: &[u8]) -> Result<bool, P::Error> {
        self.reset()?;
        for byte in key {
            match self.walker.node.search(&self.walker.page, *byte) {
                Ok(slot) => match self.walker.child(slot)? {
                    Some(child) => self.enter(slot, child)?,
                    None => return self.floor_below(slot),
                },
                Err(slot) => return self.floor_below(slot),
            }
        }
        self.floor_below(0)
    }

    /// Moves to the last entry in the children before `slot`, or else the node's own, or else the one before the node.
    fn floor_below(&mut self, slot: usize) -> Result<bool, P::Error> {
        if let Some((slot, child)) = self.walker.child_before(slot)? {
            self.enter(slot, child)?;
            return self.last_below();
        }
        if self.walker.has_payload() {
            return Ok(true);
        }
        self.previous()
    }

    /// Moves to the first entry that may hold `key` or a greater one: the leaf whose key is a prefix of `key` if there
    /// is one, otherwise the first greater entry. For tries of unique prefixes, where only leaves have payloads.
    pub fn seek_candidate(&mut self, key: &[u8]) -> Result<bool, P::Error> {
        self.reset()?;
        for byte in key {
            if !self.walker.has_children() {
                break;
            }
            match self.walker.node.search(&self.walker.page, *byte) {
                Ok(slot) => match self.walker.child(slot)? {
                    Some(child) => self.enter(slot, child)?,
                    None => return self.ceiling_from(slot),
                },
                Err(slot) => return self.ceiling_from(slot),
            }
        }
        self.first_below()
    }

    fn ceiling_from(&mut self, slot: usize) -> Result<bool, P::Error> {
        match self.walker.child_from(slot)? {
            Some((slot, child)) => {
                self.enter(slot, child)?;
                self.first_below()
            }
            None => self.next_beside(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use testkit::Random;

    use super::super::payload::{read_sized, sized_length};
    use super::super::{Payload, TrieBuilder};
    use super::*;
    use crate::error::SSTableError;

    pub(crate) struct Bytes(pub Vec<u8>);

    impl Pages for Bytes {
        type Error = SSTableError;
        type Page = Vec<u8>;

        fn page(&self, number: u64) -> Result<Vec<u8>, SSTableError> {
            let start = (number as usize * PAGE_SIZE).min(self.0.len());
            Ok(self.0[start..(start + PAGE_SIZE).min(self.0.len())].to_vec())
        }

        fn file(&self) -> &str {
            "trie"
        }
    }

    fn build(keys: &BTreeMap<Vec<u8>, i64>) -> (Bytes, u64) {
        let mut builder = TrieBuilder::new(0);
        for (key, value) in keys {
            let size = sized_length(*value);
            let mut payload = Payload::new(size as u8);
            payload.push_sized(*value, size);
            builder.add(key, payload);
        }
        let root = builder.complete();
        let mut bytes = Vec::new();
        builder.drain(&mut bytes);
        (Bytes(bytes), root)
    }

    fn value(cursor: &EntryCursor<&Bytes>) -> i64 {
        let (bits, bytes) = cursor.payload();
        read_sized(&bytes[..usize::from(bits)])
    }

    #[test]
    fn cursors_agree_with_a_sorted_map() {
        for seed in 1..40_u64 {
            let mut random = Random(seed);
            let (alphabet, length, count) = (1 + random.below(250), 1 + random.below(12), 1 + random.below(3000));
            let mut keys = BTreeMap::new();
            for value in 0..count {
                let size = random.below(length + 1);
                let key: Vec<u8> = (0..size).map(|_| random.below(alphabet) as u8).collect();
                keys.insert(key, value as i64 - 7);
            }
            let (bytes, root) = build(&keys);
            let mut cursor = EntryCursor::new(&bytes, root).unwrap();
            let mut forward = Vec::new();
            let mut more = cursor.seek_first().unwrap();
            while more {
                forward.push(value(&cursor));
                more = cursor.next().unwrap();
            }
            assert_eq!(forward, keys.values().copied().collect::<Vec<_>>(), "seed {seed}");
            let mut backward = Vec::new();
            let mut more = cursor.seek_last().unwrap();
            while more {
                backward.push(value(&cursor));
                more = cursor.previous().unwrap();
            }
            assert_eq!(backward, keys.values().rev().copied().collect::<Vec<_>>(), "seed {seed}");
            for _ in 0..500 {
                let size = random.below(length + 1);
                let probe: Vec<u8> = (0..size).map(|_| random.below(alphabet + 1) as u8).collect();
                let floor = cursor.seek_floor(&probe).unwrap().then(|| value(&cursor));
                assert_eq!(floor, keys.range(..=probe.clone()).next_back().map(|entry| *entry.1), "seed {seed}");
            }
        }
    }

    #[test]
    fn garbage_never_panics() {
        for seed in 1..300_u64 {
            let mut random = Random(seed);
            let bytes = Bytes((0..6000).map(|_| random.number() as u8).collect());
            for _ in 0..20 {
                let Ok(mut cursor) = EntryCursor::new(&bytes, random.below(6100) as u64) else { continue };
                let _ = cursor.seek_floor(&[3, 200, 7]);
                let _ = cursor.seek_candidate(&[3, 200, 7]);
                let mut more = cursor.seek_first();
                for _ in 0..100 {
                    if !matches!(more, Ok(true)) {
                        break;
                    }
                    more = cursor.next();
                }
            }
        }
    }
}
