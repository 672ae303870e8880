//! Removal in the adaptive layout: a key's content goes, and with it every ancestor that is left with nothing.

use super::edit::Operation;
use super::node::{
    CHAIN, CHAIN_CHILD_WORD, CHAIN_STEPS_MAX, CHILDREN_MAX, CONTENT_WORD, FLAT, PREFIX, PREFIX_CHILD_WORD, chain_steps,
    child_slot, shape,
};
use crate::TrieFull;
use crate::raw::leaf::TAIL_MAX;
use crate::raw::memory::{Ptr, Slot};

/// A flat node that has at most this many children after a removal becomes sparse again.
pub(crate) const FLAT_CHILDREN_MIN: usize = 40;

/// The deepest node on a key's way that has something besides the branch to the key: there the branch is cut off.
struct Joint {
    slot: Slot,
    /// Bytes of the key used up on the way to `slot`.
    consumed: usize,
}

enum Found {
    Absent,
    /// The key ends at a node that has children.
    Inner,
    /// The key ends at a leaf, or (if only a path was asked for) anywhere.
    Branch {
        joint: Option<Joint>,
        content: Ptr,
    },
}

/// Removes the content of `key` below `root`, if it is there.
pub(crate) fn remove(operation: &mut Operation<'_, '_>, root: Slot, key: &[u8]) -> Result<(), TrieFull> {
    match find(operation, root, key, true) {
        Found::Absent => Ok(()),
        Found::Inner => remove_inner(operation, root, key),
        Found::Branch { joint, content } => {
            operation.store.replace(content);
            cut(operation, root, key, joint)
        }
    }
}

/// Cuts off the branch that leads to `path`. What is at its end was taken care of.
pub(crate) fn cut_branch(operation: &mut Operation<'_, '_>, path: &[u8]) -> Result<(), TrieFull> {
    match find(operation, Slot::ROOT, path, false) {
        Found::Branch { joint, .. } => cut(operation, Slot::ROOT, path, joint),
        Found::Absent | Found::Inner => Ok(()),
    }
}

fn find(operation: &Operation<'_, '_>, root: Slot, key: &[u8], to_content: bool) -> Found {
    let memory = operation.memory;
    let mut slot = root;
    let mut consumed = 0;
    let mut joint = None;
    loop {
        let ptr = memory.load(slot);
        let rest = &key[consumed..];
        if rest.is_empty() && !to_content {
            return Found::Branch { joint, content: ptr };
        }
        if ptr.is_none() {
            return Found::Absent;
        }
        if ptr.is_leaf() {
            let tail = memory.leaf(ptr).tail;
            let is_it = if to_content { tail == rest } else { tail.starts_with(rest) };
            return if is_it { Found::Branch { joint, content: ptr } } else { Found::Absent };
        }
        match ptr.node_kind() {
            CHAIN => {
                let steps = chain_steps(memory, ptr);
                if !rest.starts_with(steps) {
                    let ends_within = !to_content && steps.starts_with(rest);
                    return if ends_within { Found::Branch { joint, content: Ptr::NONE } } else { Found::Absent };
                }
                consumed += steps.len();
                slot = ptr.node_slot(CHAIN_CHILD_WORD);
            }
            PREFIX => {
                if rest.is_empty() {
                    return Found::Inner;
                }
                joint = Some(Joint { slot, consumed });
                slot = ptr.node_slot(PREFIX_CHILD_WORD);
            }
            _ => {
                let child = rest.first().and_then(|&character| child_slot(memory, ptr, character));
                let Some(child) = child else { return Found::Absent };
                joint = Some(Joint { slot, consumed });
                consumed += 1;
                slot = child;
            }
        }
    }
}

/// Takes the content off a node that keeps its children.
fn remove_inner(operation: &mut Operation<'_, '_>, root: Slot, key: &[u8]) -> Result<(), TrieFull> {
    let locus = operation.locate(root, key)?;
    let child = operation.memory.load(locus.ptr.node_slot(PREFIX_CHILD_WORD));
    operation.store.replace(locus.content);
    operation.store.replace(locus.ptr);
    operation.memory.publish(locus.slot, child);
    Ok(())
}

fn cut(operation: &mut Operation<'_, '_>, root: Slot, key: &[u8], joint: Option<Joint>) -> Result<(), TrieFull> {
    let memory = operation.memory;
    let Some(joint) = joint else {
        operation.replace_chains(memory.load(root), key);
        memory.publish(root, Ptr::NONE);
        return Ok(());
    };
    let rest = &key[joint.consumed..];
    let slot = operation.own_way(root, &key[..joint.consumed], joint.slot, rest)?;
    let node = memory.load(slot);
    match node.node_kind() {
        PREFIX => {
            // Content and a way to the key: the content is what stays.
            operation.replace_chains(memory.load(node.node_slot(PREFIX_CHILD_WORD)), rest);
            operation.store.replace(node);
            memory.publish(slot, memory.load(node.node_slot(CONTENT_WORD)));
            Ok(())
        }
        FLAT => operation.cut_from_flat(slot, node, rest),
        _ => operation.cut_from_sparse(slot, node, rest),
    }
}

impl Operation<'_, '_> {
    /// In a copying operation: the slot that leads to the joint, all above it and the joint being its own.
    fn own_way(&mut self, root: Slot, way: &[u8], joint: Slot, rest: &[u8]) -> Result<Slot, TrieFull> {
        if !self.store.is_copying() {
            return Ok(joint);
        }
        let memory = self.memory;
        let mut slot = root;
        let mut consumed = 0;
        // The way may lead through a prefix at its end, whose node is the joint: it is found by what comes after.
        loop {
            let ptr = self.own(slot, memory.load(slot))?;
            let left = &way[consumed..];
            match ptr.node_kind() {
                CHAIN => {
                    consumed += chain_steps(memory, ptr).len();
                    slot = ptr.node_slot(CHAIN_CHILD_WORD);
                }
                PREFIX if left.is_empty() && !self.goes_on_below(ptr, rest) => return Ok(slot),
                PREFIX => slot = ptr.node_slot(PREFIX_CHILD_WORD),
                _ if left.is_empty() => return Ok(slot),
                _ => {
                    consumed += 1;
                    // It was found a moment ago.
                    slot = child_slot(memory, ptr, left[0]).unwrap_or(slot);
                }
            }
        }
    }

    /// True if the node below a prefix, where the way to the joint ends, is the joint: a node with several children.
    fn goes_on_below(&self, prefix: Ptr, rest: &[u8]) -> bool {
        let child = self.memory.load(prefix.node_slot(PREFIX_CHILD_WORD));
        debug_assert!(!rest.is_empty());
        !child.is_leaf() && child.node_kind() != CHAIN
    }

    /// Unlinks the chains from `ptr` along `key`. A chain that the key ends within is left: whoever edited what follows has
    /// unlinked it.
    fn replace_chains(&mut self, mut ptr: Ptr, mut key: &[u8]) {
        while !ptr.is_leaf() && ptr.node_kind() == CHAIN {
            let Some(rest) = key.strip_prefix(chain_steps(self.memory, ptr)) else { return };
            self.store.replace(ptr);
            key = rest;
            ptr = self.memory.load(ptr.node_slot(CHAIN_CHILD_WORD));
        }
    }

    fn cut_from_sparse(&mut self, slot: Slot, node: Ptr, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let shape = shape(node.node_kind());
        let mut kept = [(0, Ptr::NONE); CHILDREN_MAX];
        let mut count = 0;
        let mut branch = Ptr::NONE;
        for place in 0..shape.count(memory, node) {
            let child = memory.load(shape.child_slot(node, place));
            let character = shape.character(memory, node, place);
            if character == rest[0] {
                branch = child;
            } else {
                kept[count] = (character, child);
                count += 1;
            }
        }
        let smaller = match &kept[..count] {
            [(character, child)] => self.lengthened(*character, *child)?,
            children => self.sparse(children)?,
        };
        self.store.replace(node);
        self.replace_chains(branch, &rest[1..]);
        memory.publish(slot, smaller);
        Ok(())
    }

    /// `child` by one step more: in its own tail or steps, if there is room; otherwise by a chain of one.
    fn lengthened(&mut self, step: u8, child: Ptr) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        if child.is_leaf() {
            let leaf = memory.leaf(child);
            if leaf.tail.len() < TAIL_MAX && leaf.content.len() <= super::edit::TAIL_CONTENT_MAX {
                let mut tail = [0; TAIL_MAX];
                tail[0] = step;
                tail[1..=leaf.tail.len()].copy_from_slice(leaf.tail);
                let longer = self.store.allocate_leaf(memory, &tail[..=leaf.tail.len()], leaf.content)?;
                self.store.replace(child);
                return Ok(longer);
            }
        } else if child.node_kind() == CHAIN {
            let steps = chain_steps(memory, child);
            if steps.len() < CHAIN_STEPS_MAX {
                let mut longer = [0; CHAIN_STEPS_MAX];
                longer[0] = step;
                longer[1..=steps.len()].copy_from_slice(steps);
                let chain = self.chain(&longer[..=steps.len()], memory.load(child.node_slot(CHAIN_CHILD_WORD)))?;
                self.store.replace(child);
                return Ok(chain);
            }
        }
        self.chain(&[step], child)
    }

    fn cut_from_flat(&mut self, slot: Slot, node: Ptr, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let child = node.node_slot(u32::from(rest[0]));
        let branch = memory.load(child);
        let kept = self.flat_children(node, rest[0], FLAT_CHILDREN_MIN + 1);
        if kept.len() <= FLAT_CHILDREN_MIN {
            let sparse = self.sparse(&kept)?;
            self.store.replace(node);
            self.replace_chains(branch, &rest[1..]);
            memory.publish(slot, sparse);
        } else {
            self.replace_chains(branch, &rest[1..]);
            memory.publish(child, Ptr::NONE);
        }
        Ok(())
    }
}
