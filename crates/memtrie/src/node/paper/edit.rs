//! How the writer changes a trie of the paper's layout.
//!
//! Every change ends in one publishing store: of a pointer word, of a content word, or of a sparse node's wide word.
//! All blocks and blobs that it needs are allocated and written before. W1 to W5 are in `FORMAT.md`.

use super::node::{
    CHAIN_STEPS_MAX, CHILD_WORD, CONTENT_WORD, EMBED_FROM, FLAGS_WORD, Kind, PREFIX, SPARSE, SPARSE_CHILDREN_MAX,
    SPARSE_WORD, SPLIT, SPLIT_WORDS_FROM, STANDALONE, SparseWord, chain_steps, kind, matching, prefix, split_mid_slot,
    split_next, split_slot, split_tail_slot,
};
use crate::edit::{Joint, Locus, Start, Structure};
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::store::Store;
use crate::terms::TrieFull;

/// The running operation: the memory it reads and the allocators it uses.
pub(crate) struct Operation<'o, 's> {
    pub(crate) memory: Memory<'o>,
    pub(crate) store: &'s mut Store,
}

/// A node as seen from the slot that leads to it, without its prefix.
pub(crate) struct BareNode {
    /// The slot of the pointer to `node`; with an embedded prefix, that of the pointer to the prefix.
    pub slot: Slot,
    /// The content of an embedded prefix, which must be kept when the node is replaced.
    pub carried: Ptr,
    pub node: Ptr,
}

impl BareNode {
    #[inline]
    pub(crate) fn at(memory: Memory<'_>, slot: Slot, ptr: Ptr) -> BareNode {
        if ptr.kind() != PREFIX {
            return BareNode { slot, carried: Ptr::NONE, node: ptr };
        }
        let prefix = prefix(memory, ptr);
        match prefix.child_slot {
            Some(slot) => BareNode { slot, carried: Ptr::NONE, node: prefix.child },
            None => BareNode { slot, carried: prefix.content, node: prefix.child },
        }
    }
}

impl<'o> Structure<'o> for Operation<'o, '_> {
    fn memory(&self) -> Memory<'o> {
        self.memory
    }

    fn store(&mut self) -> &mut Store {
        self.store
    }

    #[inline]
    fn locate_from(&mut self, start: Start, key: &[u8]) -> Result<Locus<'o>, TrieFull> {
        let memory = self.memory;
        let Start { mut slot, mut consumed } = start;
        let mut joint = Joint::root(slot);
        loop {
            let mut ptr = memory.load(slot);
            let rest = &key[consumed..];
            let here = Locus { slot, ptr, consumed, matched: 0, content: None, chain: None, joint };
            if ptr.is_none() {
                return Ok(here);
            }
            if ptr.is_leaf() {
                return Ok(Locus { content: rest.is_empty().then(|| memory.blob(ptr)), ..here });
            }
            ptr = self.own(slot, ptr)?;
            let here = Locus { ptr, ..here };
            let is_prefix = ptr.kind() == PREFIX;
            let Some(&character) = rest.first() else {
                let content = is_prefix.then(|| memory.blob(prefix(memory, ptr).content));
                return Ok(Locus { content, ..here });
            };
            let at = Joint { slot, consumed, is_root: false, chain: None };
            if is_prefix {
                joint = at;
            }
            let bare = BareNode::at(memory, slot, ptr);
            let node = self.own(bare.slot, bare.node)?;
            match kind(node) {
                Kind::Chain => {
                    let steps = chain_steps(memory, node);
                    let matched = matching(steps, rest);
                    if matched < steps.len() {
                        return Ok(Locus { matched, joint, ..here });
                    }
                    consumed += matched;
                    slot = node.slot(CHILD_WORD);
                }
                Kind::Sparse => {
                    let Some(place) = SparseWord::load(memory, node).find(character) else { return Ok(here) };
                    joint = at;
                    consumed += 1;
                    slot = node.slot(place);
                }
                _ => {
                    let Some(child) = self.locate_in_split(node, character)? else { return Ok(here) };
                    joint = at;
                    consumed += 1;
                    slot = child;
                }
            }
        }
    }

    fn put(&mut self, locus: &Locus<'o>, key: &[u8], content: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let leaf = self.store.allocate_blob(memory, content)?;
        if locus.content.is_some() {
            let slot = if locus.ptr.is_leaf() { locus.slot } else { locus.ptr.slot(CONTENT_WORD) };
            self.store.replace(memory.load(slot));
            self.publish(slot, leaf);
            return Ok(());
        }
        if locus.consumed + locus.matched < key.len() {
            return self.attach(locus, key, leaf);
        }
        // A copying operation owns the node at which it stopped. But the head of a chain inside which the key ends is
        // still in use.
        let fresh = locus.matched == 0 && self.store.is_copying();
        let branch = self.with_content(leaf, self.rest_of(locus), fresh)?;
        self.attach(locus, key, branch)
    }

    fn below(&mut self, locus: &Locus<'o>) -> Result<Ptr, TrieFull> {
        Ok(self.rest_of(locus))
    }

    fn attach(&mut self, locus: &Locus<'o>, key: &[u8], branch: Ptr) -> Result<(), TrieFull> {
        let rest = &key[locus.consumed..];
        let Locus { slot, ptr, matched, .. } = *locus;
        if rest.is_empty() || ptr.is_none() {
            let branch = self.chain(rest, branch)?;
            self.publish(slot, branch);
            return Ok(());
        }
        if ptr.is_leaf() {
            let branch = self.chain(rest, branch)?;
            let inner = self.with_content(ptr, branch, true)?;
            self.publish(slot, inner);
            return Ok(());
        }
        let bare = BareNode::at(self.memory, slot, ptr);
        match kind(bare.node) {
            Kind::Chain => self.cut_chain(&bare, rest, matched, branch),
            Kind::Sparse => self.add_to_sparse(&bare, rest, branch),
            _ => self.add_to_split(&bare, rest, branch),
        }
    }

    fn take_content(&mut self, locus: &Locus<'o>) -> Result<(), TrieFull> {
        self.take_content_off(locus);
        Ok(())
    }

    fn cut(&mut self, joint: &Joint, rest: &[u8]) -> Result<(), TrieFull> {
        self.cut_off(joint, rest)
    }
}

impl Operation<'_, '_> {
    /// Publishes a pointer, in a node of the operation's own or where it may change one (R3, W4).
    #[inline]
    pub(crate) fn publish(&self, slot: Slot, ptr: Ptr) {
        debug_assert!(self.store.may_publish(slot), "W4: {slot:?}");
        debug_assert!(self.store.is_committed(ptr), "R3: {ptr:?}");
        self.memory.publish(slot, ptr);
    }

    /// Like `publish`, for the wide word of a sparse node.
    #[inline]
    fn publish_wide(&self, slot: Slot, word: u64) {
        debug_assert!(self.store.may_publish(slot), "W4: {slot:?}");
        self.memory.publish_wide(slot, word);
    }

    /// Writes a word of a node that the operation allocated itself (R8, W2).
    #[inline]
    fn write(&self, slot: Slot, word: u32) {
        debug_assert!(self.store.is_own(slot), "W2: {slot:?}");
        self.memory.set_word(slot, word);
    }

    /// The subtree at a key that ends at this locus; if it ends inside a chain, the rest of the chain.
    fn rest_of(&self, locus: &Locus<'_>) -> Ptr {
        if locus.matched == 0 {
            return locus.ptr;
        }
        let node = BareNode::at(self.memory, locus.slot, locus.ptr).node;
        node.with_kind(node.kind() + locus.matched as u32)
    }

    /// The slot of an existing child.
    #[inline]
    fn locate_in_split(&mut self, node: Ptr, character: u8) -> Result<Option<Slot>, TrieFull> {
        let mut slot = split_slot(node, character);
        for next in [split_mid_slot, split_tail_slot] {
            let block = self.memory.load(slot);
            if block.is_none() {
                return Ok(None);
            }
            slot = next(self.own_block(slot, block)?, character);
        }
        Ok((!self.memory.load(slot).is_none()).then_some(slot))
    }

    /// In a copying operation, replaces the node at `slot` with a copy, unless the operation allocated it (W4).
    #[inline]
    pub(crate) fn own(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        if self.store.is_copying() { self.copy_node(slot, ptr) } else { Ok(ptr) }
    }

    fn copy_node(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        // The pointer to a node with an embedded prefix is the prefix's: copying its block copies both.
        let bare = BareNode::at(self.memory, slot, ptr);
        if bare.slot == slot && bare.node.kind() == SPARSE {
            return self.copy_sparse(slot, ptr);
        }
        self.own_block(slot, ptr)
    }

    fn copy_sparse(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        if self.store.is_fresh(ptr) {
            return Ok(ptr);
        }
        let copy = self.store.allocate_block(self.memory)?.with_kind(SPARSE);
        for word in 0..SPARSE_CHILDREN_MAX as u32 {
            self.write(copy.slot(word), self.memory.word(ptr.slot(word)));
        }
        let word = self.memory.load_wide(ptr.slot(SPARSE_WORD));
        self.publish_wide(copy.slot(SPARSE_WORD), word);
        self.store.replace(ptr);
        self.publish(slot, copy);
        Ok(copy)
    }

    /// Like `own`, for a block that is only accessed by 32-bit words.
    pub(crate) fn own_block(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        if !self.store.is_copying() || self.store.is_fresh(ptr) {
            return Ok(ptr);
        }
        let copy = self.store.allocate_block(self.memory)?.with_kind(ptr.kind());
        for word in 0..8 {
            self.write(copy.slot(word), self.memory.word(ptr.slot(word)));
        }
        self.store.replace(ptr);
        self.publish(slot, copy);
        Ok(copy)
    }

    /// Keeps the chain's first `steps` steps in a new block. There it branches, or `branch` follows if the key ends.
    fn cut_chain(&mut self, bare: &BareNode, rest: &[u8], steps: usize, branch: Ptr) -> Result<(), TrieFull> {
        let node = bare.node;
        let chain = chain_steps(self.memory, node);
        let below = if steps == rest.len() {
            branch
        } else {
            let tail = if steps + 1 < chain.len() {
                node.with_kind(node.kind() + steps as u32 + 1)
            } else {
                self.store.replace(node);
                self.memory.load(node.slot(CHILD_WORD))
            };
            let new = self.chain(&rest[steps + 1..], branch)?;
            let (old_character, new_character) = (chain[steps], rest[steps]);
            if old_character < new_character {
                self.sparse(&[(old_character, tail), (new_character, new)])?
            } else {
                self.sparse(&[(new_character, new), (old_character, tail)])?
            }
        };
        let head = self.chain(&chain[..steps], below)?;
        let head = self.with_content(bare.carried, head, true)?;
        self.publish(bare.slot, head);
        Ok(())
    }

    fn add_to_sparse(&mut self, bare: &BareNode, rest: &[u8], branch: Ptr) -> Result<(), TrieFull> {
        let memory = self.memory;
        let branch = self.chain(&rest[1..], branch)?;
        let word = SparseWord::load(memory, bare.node);
        let count = word.count();
        if (count as usize) < SPARSE_CHILDREN_MAX {
            // The pointer comes first; the wide word then makes it reachable.
            self.publish(bare.node.slot(count), branch);
            self.publish_wide(bare.node.slot(SPARSE_WORD), word.with(rest[0]).0);
            return Ok(());
        }
        let split = self.empty_block()?.with_kind(SPLIT);
        for place in 0..count {
            self.set_in_split(split, word.character(place), memory.load(bare.node.slot(place)))?;
        }
        self.set_in_split(split, rest[0], branch)?;
        self.store.replace(bare.node);
        self.publish(bare.slot, split);
        Ok(())
    }

    fn add_to_split(&mut self, bare: &BareNode, rest: &[u8], branch: Ptr) -> Result<(), TrieFull> {
        let branch = self.chain(&rest[1..], branch)?;
        self.set_in_split(bare.node, rest[0], branch)
    }

    /// Adds a child where there is none. Missing blocks are completed before the one store that links them.
    fn set_in_split(&mut self, split: Ptr, character: u8, child: Ptr) -> Result<(), TrieFull> {
        let memory = self.memory;
        let top = split_slot(split, character);
        let middle = memory.load(top);
        if middle.is_none() {
            let middle = self.empty_block()?;
            let tail = self.empty_block()?;
            self.publish(split_tail_slot(tail, character), child);
            self.publish(split_mid_slot(middle, character), tail);
            self.publish(top, middle);
            return Ok(());
        }
        let middle_slot = split_mid_slot(middle, character);
        let tail = memory.load(middle_slot);
        if tail.is_none() {
            let tail = self.empty_block()?;
            self.publish(split_tail_slot(tail, character), child);
            self.publish(middle_slot, tail);
            return Ok(());
        }
        self.publish(split_tail_slot(tail, character), child);
        Ok(())
    }

    fn empty_block(&mut self) -> Result<Ptr, TrieFull> {
        let block = self.store.allocate_block(self.memory)?;
        for word in 0..8 {
            self.write(block.slot(word), 0);
        }
        Ok(block)
    }

    /// New chain blocks for `steps`, leading to `child`. All but the first are full, so the first has room for a
    /// prefix.
    #[inline]
    pub(crate) fn chain(&mut self, mut steps: &[u8], child: Ptr) -> Result<Ptr, TrieFull> {
        let mut ptr = child;
        while !steps.is_empty() {
            let (before, own) = steps.split_at(steps.len().saturating_sub(CHAIN_STEPS_MAX));
            let first = CHAIN_STEPS_MAX - own.len();
            let mut bytes = [0; CHAIN_STEPS_MAX];
            bytes[first..].copy_from_slice(own);
            let block = self.store.allocate_block(self.memory)?;
            for (word, chunk) in bytes.as_chunks::<4>().0.iter().enumerate() {
                if word >= first / 4 {
                    self.write(block.slot(word as u32), u32::from_le_bytes(*chunk));
                }
            }
            self.publish(block.slot(CHILD_WORD), ptr);
            ptr = block.with_kind(first as u32);
            steps = before;
        }
        Ok(ptr)
    }

    /// A new sparse node; the children are in ascending order of their characters.
    pub(crate) fn sparse(&mut self, children: &[(u8, Ptr)]) -> Result<Ptr, TrieFull> {
        let node = self.store.allocate_block(self.memory)?.with_kind(SPARSE);
        let mut characters = [0; SPARSE_CHILDREN_MAX];
        for (place, &(character, child)) in children.iter().enumerate() {
            characters[place] = character;
            self.publish(node.slot(place as u32), child);
        }
        self.publish_wide(node.slot(SPARSE_WORD), SparseWord::of_ascending(&characters[..children.len()]).0);
        Ok(node)
    }

    /// `child` with `content` (a leaf pointer or none) in front. `fresh` means: if `child` is a chain, this operation
    /// made it and nothing reaches it yet.
    pub(crate) fn with_content(&mut self, content: Ptr, child: Ptr, fresh: bool) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        if content.is_none() {
            return Ok(child);
        }
        if child.is_none() {
            return Ok(content);
        }
        match kind(child) {
            Kind::Split => {
                // A reader that arrived while this split had a prefix then reads the new content of the same key.
                memory.set_word(child.slot(FLAGS_WORD), SPLIT);
                self.publish(child.slot(CONTENT_WORD), content);
                Ok(child.with_kind(PREFIX))
            }
            Kind::Chain if child.kind() >= EMBED_FROM => {
                let block = if fresh { child } else { self.copy_chain(child)? };
                let flags = memory.word(block.slot(FLAGS_WORD)) & !0xFF | child.kind();
                self.write(block.slot(FLAGS_WORD), flags);
                self.publish(block.slot(CONTENT_WORD), content);
                Ok(block.with_kind(PREFIX))
            }
            _ => {
                let block = self.store.allocate_block(memory)?.with_kind(PREFIX);
                self.write(block.slot(FLAGS_WORD), STANDALONE);
                self.publish(block.slot(CONTENT_WORD), content);
                self.publish(block.slot(CHILD_WORD), child);
                Ok(block)
            }
        }
    }

    /// Replaces a chain with a copy in a new block.
    fn copy_chain(&mut self, chain: Ptr) -> Result<Ptr, TrieFull> {
        let copy = self.store.allocate_block(self.memory)?.with_kind(chain.kind());
        for word in chain.kind() / 4..8 {
            self.write(copy.slot(word), self.memory.word(chain.slot(word)));
        }
        self.store.replace(chain);
        Ok(copy)
    }

    /// Up to `most` children of a split, except the one for `except`.
    pub(crate) fn split_children(&self, split: Ptr, except: u8, most: usize) -> Vec<(u8, Ptr)> {
        let mut children = Vec::with_capacity(most);
        let mut from = Some(0);
        while let Some(start) = from
            && children.len() < most
            && let Some((character, child)) = split_next(self.memory, split, start, false)
        {
            if character != except {
                children.push((character, child));
            }
            from = character.checked_add(1);
        }
        children
    }

    /// Unlinks all blocks of a split, but not its children.
    pub(crate) fn replace_split(&mut self, split: Ptr) {
        for word in SPLIT_WORDS_FROM..8 {
            let middle = self.memory.load(split.slot(word));
            if middle.is_none() {
                continue;
            }
            for word in 0..8 {
                let tail = self.memory.load(middle.slot(word));
                if !tail.is_none() {
                    self.store.replace(tail);
                }
            }
            self.store.replace(middle);
        }
        self.store.replace(split);
    }
}
