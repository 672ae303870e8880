//! How the writer changes a trie of the adaptive layout.
//!
//! Every change ends in one publishing store: of a pointer word, of a content word, or of a sparse node's count. All
//! nodes and leaves that it needs are allocated and written before. W1 to W7 are in `FORMAT.md`.

use super::check::takes_a_step;
use super::node::{
    CHAIN, CHAIN_BYTES_MAX, CHAIN_CHILD_WORD, CHAIN_HEAD_BYTES, CHAIN_STEPS_MAX, CHAIN_STEPS_WORD, CHILDREN_MAX,
    CONTENT_CHAIN, CONTENT_CHAIN_HEAD_BYTES, CONTENT_CHAIN_STEPS_MAX, CONTENT_WORD, ContentChain, FLAT,
    INNER_CONTENT_MAX, PREFIX, PREFIX_CHILD_WORD, SPARSE_3, chain_steps, chain_units, child_slot, content_chain,
    flat_units, list, prefix_units, shape, shape_for,
};
use crate::edit::{Clearing, Joint, Locus, Start, Structure};
use crate::raw::leaf::TAIL_MAX;
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::store::Store;
use crate::terms::TrieFull;

/// A leaf with a longer content has no tail, so that it need not be copied when it moves further down.
const TAIL_CONTENT_MAX: usize = 1024;

/// The running operation: the memory it reads and the allocators it uses.
pub(crate) struct Operation<'o, 's> {
    pub(crate) memory: Memory<'o>,
    pub(crate) store: &'s mut Store,
}

/// The addition at a place.
#[derive(Clone, Copy)]
enum New<'n> {
    Content(&'n [u8]),
    Branch(Ptr),
}

impl<'n> New<'n> {
    fn content(self) -> &'n [u8] {
        match self {
            New::Content(content) => content,
            // The caller that attaches a branch has already removed what was at its place.
            New::Branch(_) => unreachable!("a branch never goes where something is"),
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
        let mut chain = None;
        loop {
            let mut ptr = memory.load(slot);
            let rest = &key[consumed..];
            let here = |ptr, matched, content| Ok(Locus { slot, ptr, consumed, matched, content, chain, joint });
            if ptr.is_leaf() {
                let leaf = memory.leaf(ptr);
                let matched = common(leaf.tail, rest);
                let content = (matched == leaf.tail.len() && matched == rest.len()).then_some(leaf.content);
                return here(ptr, matched, content);
            }
            if ptr.is_none() {
                return here(ptr, 0, None);
            }
            ptr = self.own(slot, ptr)?;
            let at = Joint { slot, consumed, is_root: false, chain };
            match ptr.node_kind() {
                CHAIN => {
                    let steps = chain_steps(memory, ptr);
                    let matched = common(steps, rest);
                    if matched < steps.len() {
                        return here(ptr, matched, None);
                    }
                    consumed += matched;
                    chain = Some(slot);
                    slot = ptr.node_slot(CHAIN_CHILD_WORD);
                    continue;
                }
                PREFIX => {
                    if rest.is_empty() {
                        let content = memory.leaf(memory.load(ptr.node_slot(CONTENT_WORD))).content;
                        return here(ptr, 0, Some(content));
                    }
                    joint = at;
                    slot = ptr.node_slot(PREFIX_CHILD_WORD);
                }
                CONTENT_CHAIN => {
                    let ContentChain { steps, content, .. } = content_chain(memory, ptr);
                    let matched = common(steps, rest);
                    if matched < steps.len() || matched == rest.len() {
                        let content = (matched == steps.len()).then_some(content);
                        return here(ptr, matched, content);
                    }
                    joint = at;
                    consumed += matched;
                    slot = ptr.node_slot(CHAIN_CHILD_WORD);
                }
                _ => {
                    let child = rest.first().and_then(|&character| child_slot(memory, ptr, character));
                    let Some(child) = child else { return here(ptr, 0, None) };
                    joint = at;
                    consumed += 1;
                    slot = child;
                }
            }
            chain = None;
        }
    }

    fn put(&mut self, locus: &Locus<'o>, key: &[u8], content: &[u8]) -> Result<(), TrieFull> {
        if locus.content.is_some() {
            return self.replace_content(locus, &key[locus.consumed..], content);
        }
        self.put_new(locus, key, New::Content(content))
    }

    fn below(&mut self, locus: &Locus<'o>) -> Result<Ptr, TrieFull> {
        if locus.matched == 0 {
            return Ok(locus.ptr);
        }
        self.store.replace(locus.ptr);
        self.rest_of(locus.ptr, locus.matched)
    }

    fn attach(&mut self, locus: &Locus<'o>, key: &[u8], branch: Ptr) -> Result<(), TrieFull> {
        if locus.consumed + locus.matched < key.len() || locus.ptr.is_none() {
            return self.put_new(locus, key, New::Branch(branch));
        }
        let branch = self.extended(&key[locus.consumed..], branch)?;
        self.publish_joined(locus.slot, locus.chain, branch)
    }

    fn take_content(&mut self, locus: &Locus<'o>) -> Result<(), TrieFull> {
        self.take_content_off(locus)
    }

    fn cut(&mut self, joint: &Joint, rest: &[u8]) -> Result<(), TrieFull> {
        self.cut_off(joint, rest)
    }
}

impl<'o> Clearing<'o> for Operation<'o, '_> {
    fn unlink_all(&mut self, top: Ptr) {
        let memory = self.memory;
        let (mut todo, mut children) = (vec![top], Vec::new());
        while let Some(ptr) = todo.pop() {
            self.store.replace(ptr);
            if ptr.is_leaf() {
                continue;
            }
            match ptr.node_kind() {
                CHAIN | CONTENT_CHAIN => todo.push(memory.load(ptr.node_slot(CHAIN_CHILD_WORD))),
                PREFIX => {
                    self.store.replace(memory.load(ptr.node_slot(CONTENT_WORD)));
                    todo.push(memory.load(ptr.node_slot(PREFIX_CHILD_WORD)));
                }
                _ => {
                    list(memory, ptr, false, &mut children);
                    todo.extend(children.drain(..).map(|(_, child)| child));
                }
            }
        }
    }

    fn alone(&mut self, content: &[u8]) -> Result<Ptr, TrieFull> {
        self.store.allocate_leaf(self.memory, &[], content)
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

    /// Writes a word of a node that the operation allocated itself (R8, W2).
    #[inline]
    fn write(&self, slot: Slot, word: u32) {
        debug_assert!(self.store.is_own(slot), "W2: {slot:?}");
        self.memory.set_word(slot, word);
    }

    /// In a copying operation, replaces the node at `slot` with a copy, unless the operation allocated it (W4).
    #[inline]
    fn own(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        if self.store.is_copying() && !self.store.is_fresh(ptr) { self.copy_node(slot, ptr) } else { Ok(ptr) }
    }

    fn copy_node(&mut self, slot: Slot, ptr: Ptr) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        let copy = match ptr.node_kind() {
            CHAIN => self.chain_node(chain_steps(memory, ptr), memory.load(ptr.node_slot(CHAIN_CHILD_WORD)))?,
            CONTENT_CHAIN => {
                let ContentChain { steps, content, child } = content_chain(memory, ptr);
                self.content_chain(steps, content, child)?
            }
            PREFIX => {
                let content = memory.load(ptr.node_slot(CONTENT_WORD));
                self.prefix(content, memory.load(ptr.node_slot(PREFIX_CHILD_WORD)))?
            }
            FLAT => {
                let copy = self.store.allocate_node(FLAT, flat_units())?;
                for word in 0..256 {
                    self.write(copy.node_slot(word), memory.load(ptr.node_slot(word)).bits());
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
                    self.publish(shape.child_slot(copy, place), memory.load(shape.child_slot(ptr, place)));
                }
                shape.fill(memory, copy, &characters[..count as usize]);
                copy
            }
        };
        self.store.replace(ptr);
        self.publish(slot, copy);
        Ok(copy)
    }

    /// The rest after `from` bytes along the steps or tail of `ptr`, in a new piece (or the child, if a chain is passed
    /// completely).
    fn rest_of(&mut self, ptr: Ptr, from: usize) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        if ptr.is_leaf() {
            let leaf = memory.leaf(ptr);
            return self.store.allocate_leaf(memory, &leaf.tail[from..], leaf.content);
        }
        if ptr.node_kind() == CONTENT_CHAIN {
            let ContentChain { steps, content, child } = content_chain(memory, ptr);
            return self.content_chain(&steps[from..], content, child);
        }
        self.chain(&chain_steps(memory, ptr)[from..], memory.load(ptr.node_slot(CHAIN_CHILD_WORD)))
    }

    /// Adds `new` at `key`, whose locus this is and which has no content.
    fn put_new(&mut self, locus: &Locus<'_>, key: &[u8], new: New<'_>) -> Result<(), TrieFull> {
        let Locus { slot, ptr, consumed, matched, .. } = *locus;
        let memory = self.memory;
        let rest = &key[consumed..];
        let node = if ptr.is_none() {
            self.branch(rest, new)?
        } else if ptr.is_leaf() {
            self.part(ptr, memory.leaf(ptr).tail, matched, rest, new)?
        } else {
            match ptr.node_kind() {
                CHAIN => self.part(ptr, chain_steps(memory, ptr), matched, rest, new)?,
                CONTENT_CHAIN => self.part(ptr, content_chain(memory, ptr).steps, matched, rest, new)?,
                _ if rest.is_empty() => self.inner(&[], new.content(), Ptr::NONE, ptr)?,
                _ => return self.add_child(slot, ptr, rest, new),
            }
        };
        // A chain that leads to an inner node with content absorbs the content.
        if !node.is_leaf() && node.node_kind() == CONTENT_CHAIN {
            return self.publish_joined(slot, locus.chain, node);
        }
        self.publish(slot, node);
        Ok(())
    }

    fn replace_content(&mut self, locus: &Locus<'_>, rest: &[u8], content: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let ptr = locus.ptr;
        if ptr.is_leaf() {
            self.store.replace(ptr);
            let leaf = self.leaf(rest, content)?;
            self.publish(locus.slot, leaf);
            return Ok(());
        }
        if ptr.node_kind() == CONTENT_CHAIN {
            self.store.replace(ptr);
            let ContentChain { steps, child, .. } = content_chain(memory, ptr);
            let node = self.inner(steps, content, Ptr::NONE, child)?;
            self.publish(locus.slot, node);
            return Ok(());
        }
        self.store.replace(memory.load(ptr.node_slot(CONTENT_WORD)));
        if content.len() > INNER_CONTENT_MAX {
            let leaf = self.store.allocate_leaf(memory, &[], content)?;
            self.publish(ptr.node_slot(CONTENT_WORD), leaf);
            return Ok(());
        }
        self.store.replace(ptr);
        let node = self.content_chain(&[], content, memory.load(ptr.node_slot(PREFIX_CHILD_WORD)))?;
        self.publish_joined(locus.slot, locus.chain, node)
    }

    /// Splits a path. `ptr` continues by `path`, of which the first `matched` bytes are equal to those of `rest`. The
    /// result is these common bytes, followed by both branches, or by one below the content of the other.
    fn part(&mut self, ptr: Ptr, path: &[u8], matched: usize, rest: &[u8], new: New<'_>) -> Result<Ptr, TrieFull> {
        let (shared, new_path) = rest.split_at(matched);
        let Some(&old_character) = path.get(matched) else {
            // Only a leaf ends like this: a chain is followed beyond its end.
            let content = self.memory.leaf(ptr).content;
            let below = self.branch(new_path, new)?;
            if path.is_empty() {
                return self.inner(shared, content, ptr, below);
            }
            self.store.replace(ptr);
            return self.inner(shared, content, Ptr::NONE, below);
        };
        let Some((&new_character, new_path)) = new_path.split_first() else {
            let below = if matched == 0 {
                ptr
            } else {
                self.store.replace(ptr);
                self.rest_of(ptr, matched)?
            };
            return self.inner(shared, new.content(), Ptr::NONE, below);
        };
        self.store.replace(ptr);
        let old = self.rest_of(ptr, matched + 1)?;
        let new = self.branch(new_path, new)?;
        let node = self.pair([(old_character, old), (new_character, new)])?;
        self.chain(shared, node)
    }

    /// A new inner node with `content` at the end of `path`, above `child`. If the content is already in a leaf without
    /// a tail, that leaf is reused, or unlinked.
    fn inner(&mut self, path: &[u8], content: &[u8], leaf: Ptr, child: Ptr) -> Result<Ptr, TrieFull> {
        if content.len() <= INNER_CONTENT_MAX {
            if !leaf.is_none() {
                self.store.replace(leaf);
            }
            let (before, own) = path.split_at(path.len().saturating_sub(CONTENT_CHAIN_STEPS_MAX));
            let node = self.content_chain(own, content, child)?;
            return self.chain(before, node);
        }
        let leaf = if leaf.is_none() { self.store.allocate_leaf(self.memory, &[], content)? } else { leaf };
        let node = self.prefix(leaf, child)?;
        self.chain(path, node)
    }

    fn add_child(&mut self, slot: Slot, node: Ptr, rest: &[u8], new: New<'_>) -> Result<(), TrieFull> {
        let memory = self.memory;
        let branch = self.branch(&rest[1..], new)?;
        if node.node_kind() == FLAT {
            self.publish(node.node_slot(u32::from(rest[0])), branch);
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
        self.publish(slot, larger);
        Ok(())
    }

    /// A new branch with `new` at the end of `path`.
    fn branch(&mut self, path: &[u8], new: New<'_>) -> Result<Ptr, TrieFull> {
        match new {
            New::Content(content) => self.leaf(path, content),
            New::Branch(ptr) => self.extended(path, ptr),
        }
    }

    /// A new leaf at the end of `path`, with as much of the path as possible in its tail.
    pub(super) fn leaf(&mut self, path: &[u8], content: &[u8]) -> Result<Ptr, TrieFull> {
        let tail_bytes = if content.len() > TAIL_CONTENT_MAX { 0 } else { path.len().min(TAIL_MAX) };
        let (steps, tail) = path.split_at(path.len() - tail_bytes);
        let leaf = self.store.allocate_leaf(self.memory, tail, content)?;
        self.chain(steps, leaf)
    }

    /// A path that leads to `ptr` by `path`, in one piece if possible.
    pub(super) fn extended(&mut self, path: &[u8], ptr: Ptr) -> Result<Ptr, TrieFull> {
        match self.joined(path, ptr)? {
            Some(joined) => Ok(joined),
            None => self.chain(path, ptr),
        }
    }

    /// Replaces `ptr` with one new piece that contains `path` and the tail or steps of `ptr`, if they fit into one.
    pub(super) fn joined(&mut self, path: &[u8], ptr: Ptr) -> Result<Option<Ptr>, TrieFull> {
        let memory = self.memory;
        let room = |bytes: usize, steps: &[u8]| !path.is_empty() && path.len() + steps.len() <= bytes;
        let mut buffer = [0; TAIL_MAX];
        let mut join = |steps: &[u8]| {
            buffer[..path.len()].copy_from_slice(path);
            buffer[path.len()..path.len() + steps.len()].copy_from_slice(steps);
            path.len() + steps.len()
        };
        let joined = if ptr.is_leaf() {
            let leaf = memory.leaf(ptr);
            if !room(TAIL_MAX, leaf.tail) || leaf.content.len() > TAIL_CONTENT_MAX {
                return Ok(None);
            }
            let length = join(leaf.tail);
            self.store.allocate_leaf(memory, &buffer[..length], leaf.content)?
        } else if ptr.node_kind() == CHAIN {
            let steps = chain_steps(memory, ptr);
            if !room(CHAIN_STEPS_MAX, steps) {
                return Ok(None);
            }
            let length = join(steps);
            self.chain_node(&buffer[..length], memory.load(ptr.node_slot(CHAIN_CHILD_WORD)))?
        } else if ptr.node_kind() == CONTENT_CHAIN {
            let ContentChain { steps, content, child } = content_chain(memory, ptr);
            if !room(CONTENT_CHAIN_STEPS_MAX, steps) {
                return Ok(None);
            }
            let length = join(steps);
            self.content_chain(&buffer[..length], content, child)?
        } else {
            return Ok(None);
        };
        self.store.replace(ptr);
        Ok(Some(joined))
    }

    /// New chains for `steps`, leading to `child`.
    #[inline]
    fn chain(&mut self, mut steps: &[u8], child: Ptr) -> Result<Ptr, TrieFull> {
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
        let node = self.store.allocate_node(CHAIN, chain_units(CHAIN_HEAD_BYTES + steps.len()))?;
        self.fill_chain(node, child, &[&[steps.len() as u8], steps]);
        Ok(node)
    }

    fn content_chain(&mut self, steps: &[u8], content: &[u8], child: Ptr) -> Result<Ptr, TrieFull> {
        debug_assert!(steps.len() <= CONTENT_CHAIN_STEPS_MAX && content.len() <= INNER_CONTENT_MAX);
        debug_assert!(takes_a_step(self.memory, child), "W7");
        let bytes = CONTENT_CHAIN_HEAD_BYTES + steps.len() + content.len();
        let node = self.store.allocate_node(CONTENT_CHAIN, chain_units(bytes))?;
        self.fill_chain(node, child, &[&[steps.len() as u8, content.len() as u8], steps, content]);
        Ok(node)
    }

    /// Writes the child of a new chain, and then the given parts one after another.
    fn fill_chain(&mut self, node: Ptr, child: Ptr, parts: &[&[u8]]) {
        let mut bytes = [0; CHAIN_BYTES_MAX - 4];
        let mut length = 0;
        for part in parts {
            bytes[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        for (word, chunk) in bytes.as_chunks::<4>().0[..length.div_ceil(4)].iter().enumerate() {
            self.write(node.node_slot(CHAIN_STEPS_WORD + word as u32), u32::from_le_bytes(*chunk));
        }
        self.publish(node.node_slot(CHAIN_CHILD_WORD), child);
    }

    /// A new prefix. `content` is a leaf without a tail (W6).
    fn prefix(&mut self, content: Ptr, child: Ptr) -> Result<Ptr, TrieFull> {
        debug_assert!(self.memory.leaf(content).tail.is_empty(), "W6");
        debug_assert!(takes_a_step(self.memory, child), "W7");
        let node = self.store.allocate_node(PREFIX, prefix_units())?;
        self.publish(node.node_slot(CONTENT_WORD), content);
        self.publish(node.node_slot(PREFIX_CHILD_WORD), child);
        Ok(node)
    }

    /// Like `sparse`, with two children.
    fn pair(&mut self, children: [(u8, Ptr); 2]) -> Result<Ptr, TrieFull> {
        let shape = shape(SPARSE_3);
        let node = self.store.allocate_node(SPARSE_3, shape.units)?;
        shape.fill_pair(self.memory, node, children);
        Ok(node)
    }

    /// A new node of the smallest size with these children, in any order.
    pub(super) fn sparse(&mut self, children: &[(u8, Ptr)]) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        let Some(shape) = shape_for(children.len()) else {
            let flat = self.store.allocate_node(FLAT, flat_units())?;
            (0..256).for_each(|word| self.write(flat.node_slot(word), 0));
            for &(character, child) in children {
                self.publish(flat.node_slot(u32::from(character)), child);
            }
            return Ok(flat);
        };
        let node = self.store.allocate_node(shape.kind, shape.units)?;
        let mut characters = [0; CHILDREN_MAX];
        for (place, &(character, child)) in children.iter().enumerate() {
            characters[place] = character;
            self.publish(shape.child_slot(node, place as u32), child);
        }
        shape.fill(memory, node, &characters[..children.len()]);
        Ok(node)
    }
}

/// The length of the common prefix of two paths.
#[inline]
fn common(a: &[u8], b: &[u8]) -> usize {
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (index, (a, b)) in a_words.iter().zip(b_words).enumerate() {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return index * 8 + differing.trailing_zeros() as usize / 8;
        }
    }
    let whole = a_words.len().min(b_words.len()) * 8;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}
