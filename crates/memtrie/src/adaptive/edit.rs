//! How the writer changes a trie of the adaptive layout.
//!
//! Every change ends in one publishing store: of a pointer word, of a content word, or of a sparse node's count. All nodes and
//! leaves it needs are allocated and written before.
//!
//! - **W1** A store that makes something reachable is the last store of its operation (or of the step that a copying
//!   operation takes below its unpublished root).
//! - **W2** Outside a copying operation, words that a reader can reach change only by: a pointer word, a content word, the word
//!   that has a sparse node's count; and by a character at a place that the count does not cover yet, which no reader looks at.
//! - **W3** Chains and leaves are reached by one pointer and never change; where one is cut, its parts are new.
//! - **W4** A copying operation changes only nodes that it allocated itself.
//! - **W5** No node without content and without children is reachable, except no root at all.
//! - **W6** The content of a prefix is a leaf without a tail.

use super::node::{
    CHAIN, CHAIN_CHILD_WORD, CHAIN_STEPS_MAX, CHAIN_STEPS_WORD, CHILDREN_MAX, CONTENT_WORD, FLAT, PREFIX,
    PREFIX_CHILD_WORD, chain_steps, chain_units, child_slot, flat_next, flat_units, prefix_units, shape, shape_for,
};
use super::remove;
use crate::TrieFull;
use crate::raw::leaf::TAIL_MAX;
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::store::Store;
use crate::trie::Edit;

/// A leaf with a longer content has no tail, so that it need not be copied when its place moves down.
pub(super) const TAIL_CONTENT_MAX: usize = 1024;

/// The running operation: memory to look at, memory to take.
pub(crate) struct Operation<'o, 's> {
    pub(crate) memory: Memory<'o>,
    pub(crate) store: &'s mut Store,
}

/// Where a key leaves the trie, or ends in it.
pub(crate) struct Locus {
    pub slot: Slot,
    /// What `slot` holds.
    pub ptr: Ptr,
    /// Bytes of the key used up on the way to `slot`.
    pub consumed: usize,
    /// Steps of the chain, or bytes of the leaf's tail, at `ptr` that the key follows beyond `consumed`.
    pub matched: usize,
    /// The content at the key, as a leaf pointer; none if there is none.
    pub content: Ptr,
}

/// What comes to a place.
#[derive(Clone, Copy)]
enum New<'n> {
    Content(&'n [u8]),
    Subtree(Ptr),
}

#[inline]
pub(crate) fn upsert<'c>(
    memory: Memory<'_>,
    store: &mut Store,
    key: &[u8],
    decide: impl FnOnce(Option<&[u8]>) -> Option<Option<&'c [u8]>>,
) -> Result<(), TrieFull> {
    let mut operation = Operation { memory, store };
    let locus = operation.locate(Slot::ROOT, key)?;
    let exists = !locus.content.is_none();
    match decide(exists.then(|| memory.leaf(locus.content).content)) {
        None => Ok(()),
        Some(Some(content)) => operation.put(&locus, key, New::Content(content)),
        Some(None) if !exists => Ok(()),
        Some(None) => remove::remove(&mut operation, Slot::ROOT, key),
    }
}

pub(crate) fn apply(memory: Memory<'_>, store: &mut Store, prefix: &[u8], edits: &[Edit<'_>]) -> Result<(), TrieFull> {
    let mut operation = Operation { memory, store };
    let locus = operation.locate(Slot::ROOT, prefix)?;
    let ends_here = locus.consumed + locus.matched == prefix.len() && !locus.ptr.is_none();
    let before = if ends_here {
        operation.store.copy_from_here();
        operation.below(locus.ptr, locus.matched)?
    } else {
        Ptr::NONE
    };
    memory.publish(Slot::PENDING, before);
    for edit in edits {
        match edit.content {
            Some(content) => {
                let locus = operation.locate(Slot::PENDING, edit.suffix)?;
                operation.put(&locus, edit.suffix, New::Content(content))?;
            }
            None => remove::remove(&mut operation, Slot::PENDING, edit.suffix)?,
        }
    }
    let after = memory.load(Slot::PENDING);
    if after == before && (!ends_here || locus.matched == 0) {
        return Ok(());
    }
    operation.store.copy_to_here();
    if !ends_here {
        return operation.put(&locus, prefix, New::Subtree(after));
    }
    if after.is_none() {
        if locus.matched > 0 {
            operation.store.replace(locus.ptr);
        }
        return remove::cut_branch(&mut operation, prefix);
    }
    if locus.matched > 0 {
        // Within a chain or tail: what comes before the prefix's end is copied too.
        let head = operation.chain(&prefix[locus.consumed..], after)?;
        operation.store.replace(locus.ptr);
        memory.publish(locus.slot, head);
    } else {
        memory.publish(locus.slot, after);
    }
    Ok(())
}

impl<'o> Operation<'o, '_> {
    /// Follows `key` down from `slot` as far as it goes. A copying operation makes every node on the way its own.
    #[inline]
    pub(crate) fn locate(&mut self, mut slot: Slot, key: &[u8]) -> Result<Locus, TrieFull> {
        let memory = self.memory;
        let mut consumed = 0;
        let stop = |slot, ptr, consumed, matched, content| Ok(Locus { slot, ptr, consumed, matched, content });
        loop {
            let mut ptr = memory.load(slot);
            let rest = &key[consumed..];
            if ptr.is_leaf() {
                let tail = memory.leaf(ptr).tail;
                let matched = common(tail, rest);
                let content = if matched == tail.len() && matched == rest.len() { ptr } else { Ptr::NONE };
                return stop(slot, ptr, consumed, matched, content);
            }
            if ptr.is_none() {
                return stop(slot, ptr, consumed, 0, Ptr::NONE);
            }
            ptr = self.own(slot, ptr)?;
            match ptr.node_kind() {
                CHAIN => {
                    let steps = chain_steps(memory, ptr);
                    let matched = common(steps, rest);
                    if matched < steps.len() {
                        return stop(slot, ptr, consumed, matched, Ptr::NONE);
                    }
                    consumed += matched;
                    slot = ptr.node_slot(CHAIN_CHILD_WORD);
                }
                PREFIX => {
                    if rest.is_empty() {
                        return stop(slot, ptr, consumed, 0, memory.load(ptr.node_slot(CONTENT_WORD)));
                    }
                    slot = ptr.node_slot(PREFIX_CHILD_WORD);
                }
                _ => {
                    let child = rest.first().and_then(|&character| child_slot(memory, ptr, character));
                    let Some(child) = child else { return stop(slot, ptr, consumed, 0, Ptr::NONE) };
                    consumed += 1;
                    slot = child;
                }
            }
        }
    }

    /// In a copying operation: replaces the node at `slot` by a copy, unless it is the operation's own already (W4).
    #[inline]
    pub(crate) fn own(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        if self.store.is_copying() && !self.store.is_fresh(ptr) { self.copy_node(slot, ptr) } else { Ok(ptr) }
    }

    fn copy_node(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        let copy = match ptr.node_kind() {
            CHAIN => self.chain_node(chain_steps(memory, ptr), memory.load(ptr.node_slot(CHAIN_CHILD_WORD)))?,
            PREFIX => {
                let content = memory.load(ptr.node_slot(CONTENT_WORD));
                self.prefix(content, memory.load(ptr.node_slot(PREFIX_CHILD_WORD)))?
            }
            FLAT => {
                let copy = self.store.allocate_node(FLAT, flat_units())?;
                for word in 0..256 {
                    memory.set_word(copy.node_slot(word), memory.load(ptr.node_slot(word)).bits());
                }
                copy
            }
            kind => {
                let shape = shape(kind);
                let count = shape.count(memory, ptr);
                let copy = self.store.allocate_node(kind, shape.units)?;
                let mut characters = [0; CHILDREN_MAX];
                for place in 0..count {
                    characters[place as usize] = shape.character(memory, ptr, place);
                    memory.publish(shape.child_slot(copy, place), memory.load(shape.child_slot(ptr, place)));
                }
                shape.fill(memory, copy, &characters[..count as usize]);
                copy
            }
        };
        self.store.replace(ptr);
        memory.publish(slot, copy);
        Ok(copy)
    }

    /// The branch that starts `skip` bytes within the node or leaf `ptr`; a new one if that is within it.
    fn below(&mut self, ptr: Ptr, skip: usize) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        if skip == 0 {
            return Ok(ptr);
        }
        if ptr.is_leaf() {
            return self.shortened(ptr, skip);
        }
        self.chain(&chain_steps(memory, ptr)[skip..], memory.load(ptr.node_slot(CHAIN_CHILD_WORD)))
    }

    /// Puts what is new at `key`, whose locus this is.
    fn put(&mut self, locus: &Locus, key: &[u8], new: New<'_>) -> Result<(), TrieFull> {
        let Locus { slot, ptr, consumed, matched, content } = *locus;
        let memory = self.memory;
        let rest = &key[consumed..];
        if !content.is_none() {
            return self.replace_content(locus, rest, new);
        }
        let node = if ptr.is_none() {
            self.branch(rest, new)?
        } else if ptr.is_leaf() {
            let tail = memory.leaf(ptr).tail;
            let node = self.part(tail, matched, rest, new, |operation, from| operation.moved(ptr, from))?;
            if !tail.is_empty() && (matched > 0 || rest.len() > matched) {
                self.store.replace(ptr);
            }
            node
        } else {
            match ptr.node_kind() {
                CHAIN => {
                    let steps = chain_steps(memory, ptr);
                    let child = memory.load(ptr.node_slot(CHAIN_CHILD_WORD));
                    self.store.replace(ptr);
                    self.part(steps, matched, rest, new, |operation, from| operation.chain(&steps[from..], child))?
                }
                _ if rest.is_empty() => {
                    let content = self.content(new)?;
                    self.prefix(content, ptr)?
                }
                _ => return self.add_child(slot, ptr, rest, new),
            }
        };
        memory.publish(slot, node);
        Ok(())
    }

    fn replace_content(&mut self, locus: &Locus, rest: &[u8], new: New<'_>) -> Result<(), TrieFull> {
        self.store.replace(locus.content);
        if locus.ptr.is_leaf() {
            let leaf = self.branch(rest, new)?;
            self.memory.publish(locus.slot, leaf);
        } else {
            let leaf = self.content(new)?;
            self.memory.publish(locus.ptr.node_slot(CONTENT_WORD), leaf);
        }
        Ok(())
    }

    /// A leaf without a tail.
    fn content(&mut self, new: New<'_>) -> Result<Ptr, TrieFull> {
        match new {
            New::Content(content) => self.store.allocate_leaf(self.memory, &[], content),
            // Whoever attaches a branch has taken what was at its place for it.
            New::Subtree(_) => unreachable!("a branch never goes where something is"),
        }
    }

    /// What was at one place goes on by `path`, of which the first `matched` bytes are those of `rest`: a chain of these, and then
    /// both, or one as the prefix of the other. `old` makes what comes `from` bytes along the path.
    fn part(
        &mut self,
        path: &[u8],
        matched: usize,
        rest: &[u8],
        new: New<'_>,
        old: impl FnOnce(&mut Self, usize) -> Result<Ptr, TrieFull>,
    ) -> Result<Ptr, TrieFull> {
        let node = match (path.get(matched), rest.get(matched)) {
            (Some(&old_character), Some(&new_character)) => {
                let old = old(self, matched + 1)?;
                let new = self.branch(&rest[matched + 1..], new)?;
                self.sparse(&[(old_character, old), (new_character, new)])?
            }
            (Some(_), None) => {
                let content = self.content(new)?;
                let old = old(self, matched)?;
                self.prefix(content, old)?
            }
            // Only a leaf ends so: a chain is followed beyond its end.
            (None, _) => {
                let content = old(self, matched)?;
                let new = self.branch(&rest[matched..], new)?;
                self.prefix(content, new)?
            }
        };
        self.chain(&rest[..matched], node)
    }

    fn add_child(&mut self, slot: Slot, node: Ptr, rest: &[u8], new: New<'_>) -> Result<(), TrieFull> {
        let memory = self.memory;
        let branch = self.branch(&rest[1..], new)?;
        if node.node_kind() == FLAT {
            memory.publish(node.node_slot(u32::from(rest[0])), branch);
            return Ok(());
        }
        let shape = shape(node.node_kind());
        let count = shape.count(memory, node);
        if count < shape.capacity {
            shape.add(memory, node, rest[0], branch);
            return Ok(());
        }
        let mut children = [(0, Ptr::NONE); CHILDREN_MAX + 1];
        for place in 0..count {
            children[place as usize] =
                (shape.character(memory, node, place), memory.load(shape.child_slot(node, place)));
        }
        children[count as usize] = (rest[0], branch);
        let larger = self.sparse(&children[..=count as usize])?;
        self.store.replace(node);
        memory.publish(slot, larger);
        Ok(())
    }

    /// A new branch that has what is new at the end of `path`.
    fn branch(&mut self, path: &[u8], new: New<'_>) -> Result<Ptr, TrieFull> {
        match new {
            New::Content(content) => self.leaf(path, content),
            New::Subtree(ptr) => self.chain(path, ptr),
        }
    }

    /// A new leaf at the end of `path`, with as much of that as may be in its tail.
    fn leaf(&mut self, path: &[u8], content: &[u8]) -> Result<Ptr, TrieFull> {
        let tail_bytes = if content.len() > TAIL_CONTENT_MAX { 0 } else { path.len().min(TAIL_MAX) };
        let (steps, tail) = path.split_at(path.len() - tail_bytes);
        let leaf = self.store.allocate_leaf(self.memory, tail, content)?;
        self.chain(steps, leaf)
    }

    /// The leaf `ptr` without the first `from` bytes of its tail; itself if that is none.
    fn moved(&mut self, ptr: Ptr, from: usize) -> Result<Ptr, TrieFull> {
        if from == 0 { Ok(ptr) } else { self.shortened(ptr, from) }
    }

    fn shortened(&mut self, ptr: Ptr, from: usize) -> Result<Ptr, TrieFull> {
        let leaf = self.memory.leaf(ptr);
        self.store.allocate_leaf(self.memory, &leaf.tail[from..], leaf.content)
    }

    /// New chains for `steps`, leading to `child`.
    #[inline]
    pub(crate) fn chain(&mut self, mut steps: &[u8], child: Ptr) -> Result<Ptr, TrieFull> {
        let mut ptr = child;
        while !steps.is_empty() {
            let (before, own) = steps.split_at(steps.len().saturating_sub(CHAIN_STEPS_MAX));
            ptr = self.chain_node(own, ptr)?;
            steps = before;
        }
        Ok(ptr)
    }

    fn chain_node(&mut self, steps: &[u8], child: Ptr) -> Result<Ptr, TrieFull> {
        debug_assert!((1..=CHAIN_STEPS_MAX).contains(&steps.len()));
        let node = self.store.allocate_node(CHAIN, chain_units(steps.len()))?;
        let mut bytes = [0; CHAIN_STEPS_MAX + 1];
        bytes[0] = steps.len() as u8;
        bytes[1..=steps.len()].copy_from_slice(steps);
        let words = bytes.as_chunks::<4>().0.iter().take((steps.len() + 4) / 4);
        for (word, chunk) in words.enumerate() {
            self.memory.set_word(node.node_slot(CHAIN_STEPS_WORD + word as u32), u32::from_le_bytes(*chunk));
        }
        self.memory.publish(node.node_slot(CHAIN_CHILD_WORD), child);
        Ok(node)
    }

    /// A new prefix. `content` is a leaf without a tail (W6).
    fn prefix(&mut self, content: Ptr, child: Ptr) -> Result<Ptr, TrieFull> {
        debug_assert!(self.memory.leaf(content).tail.is_empty());
        let node = self.store.allocate_node(PREFIX, prefix_units())?;
        self.memory.publish(node.node_slot(CONTENT_WORD), content);
        self.memory.publish(node.node_slot(PREFIX_CHILD_WORD), child);
        Ok(node)
    }

    /// A new node of the smallest size with these children, in any order.
    pub(crate) fn sparse(&mut self, children: &[(u8, Ptr)]) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        let Some(shape) = shape_for(children.len()) else {
            let flat = self.store.allocate_node(FLAT, flat_units())?;
            (0..256).for_each(|word| memory.set_word(flat.node_slot(word), 0));
            for &(character, child) in children {
                memory.publish(flat.node_slot(u32::from(character)), child);
            }
            return Ok(flat);
        };
        let node = self.store.allocate_node(shape.kind, shape.units)?;
        let mut characters = [0; CHILDREN_MAX];
        for (place, &(character, child)) in children.iter().enumerate() {
            characters[place] = character;
            memory.publish(shape.child_slot(node, place as u32), child);
        }
        shape.fill(memory, node, &characters[..children.len()]);
        Ok(node)
    }

    /// Up to `most` children of a flat node, but not the one for `except`.
    pub(crate) fn flat_children(&self, flat: Ptr, except: u8, most: usize) -> Vec<(u8, Ptr)> {
        let mut children = Vec::with_capacity(most);
        let mut from = Some(0);
        while let Some(start) = from
            && children.len() < most
            && let Some((character, child)) = flat_next(self.memory, flat, start, false)
        {
            if character != except {
                children.push((character, child));
            }
            from = character.checked_add(1);
        }
        children
    }
}

/// How many bytes two paths have in common at their starts.
#[inline]
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
