//! Removal: a key's content goes, and with it every ancestor that is left with nothing.

use super::edit::{Operation, SPLIT_CHILDREN_MIN, Seen};
use super::node::{
    CHAIN_STEPS_MAX, CHILD_WORD, Kind, PREFIX, SparseWord, chain_steps, kind, prefix, split_mid_slot, split_slot,
    split_tail_slot,
};
use crate::TrieFull;
use crate::raw::memory::{Ptr, Slot};

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
pub(crate) fn remove(operation: &mut Operation<'_>, root: Slot, key: &[u8]) -> Result<(), TrieFull> {
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
pub(crate) fn cut_branch(operation: &mut Operation<'_>, root: Slot, path: &[u8]) -> Result<(), TrieFull> {
    match find(operation, root, path, false) {
        Found::Branch { joint, .. } => cut(operation, root, path, joint),
        Found::Absent | Found::Inner => Ok(()),
    }
}

fn find(operation: &Operation<'_>, root: Slot, key: &[u8], to_content: bool) -> Found {
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
            return if rest.is_empty() { Found::Branch { joint, content: ptr } } else { Found::Absent };
        }
        let Some(&character) = rest.first() else {
            return if ptr.kind() == PREFIX { Found::Inner } else { Found::Absent };
        };
        if ptr.kind() == PREFIX {
            joint = Some(Joint { slot, consumed });
        }
        let node = Seen::at(memory, slot, ptr).node;
        match kind(node) {
            Kind::Chain => {
                let steps = chain_steps(memory, node);
                if !rest.starts_with(steps) {
                    let ends_within = !to_content && steps.starts_with(rest);
                    return if ends_within { Found::Branch { joint, content: Ptr::NONE } } else { Found::Absent };
                }
                consumed += steps.len();
                slot = node.slot(CHILD_WORD);
            }
            Kind::Sparse => {
                let Some(place) = SparseWord::load(memory, node).find(character) else { return Found::Absent };
                joint = Some(Joint { slot, consumed });
                consumed += 1;
                slot = node.slot(place);
            }
            _ => {
                joint = Some(Joint { slot, consumed });
                slot = split_slot(node, character);
                for next in [split_mid_slot, split_tail_slot] {
                    let block = memory.load(slot);
                    if block.is_none() {
                        return Found::Absent;
                    }
                    slot = next(block, character);
                }
                consumed += 1;
            }
        }
    }
}

/// Takes the content off a node that keeps its children.
fn remove_inner(operation: &mut Operation<'_>, root: Slot, key: &[u8]) -> Result<(), TrieFull> {
    let locus = operation.locate(root, key)?;
    let prefix = prefix(operation.memory, locus.ptr);
    operation.store.replace(prefix.content);
    if prefix.child_slot.is_some() {
        operation.store.replace(locus.ptr);
    }
    operation.memory.publish(locus.slot, prefix.child);
    Ok(())
}

fn cut(operation: &mut Operation<'_>, root: Slot, key: &[u8], joint: Option<Joint>) -> Result<(), TrieFull> {
    let memory = operation.memory;
    let Some(joint) = joint else {
        let branch = memory.load(root);
        operation.replace_path(branch, key);
        memory.publish(root, Ptr::NONE);
        return Ok(());
    };
    let (slot, ptr) = if operation.store.is_copying() {
        let own = operation.locate(root, &key[..joint.consumed])?;
        (own.slot, own.ptr)
    } else {
        (joint.slot, memory.load(joint.slot))
    };
    let seen = Seen::at(memory, slot, ptr);
    let rest = &key[joint.consumed..];
    match kind(seen.node) {
        Kind::Chain => {
            // Content and a chain to the key: the content is what stays.
            let prefix = prefix(memory, ptr);
            if prefix.child_slot.is_some() {
                operation.store.replace(ptr);
            }
            operation.replace_path(seen.node, rest);
            memory.publish(slot, prefix.content);
            Ok(())
        }
        Kind::Sparse => operation.cut_from_sparse(&seen, rest),
        _ => operation.cut_from_split(seen, rest),
    }
}

impl Operation<'_> {
    /// Unlinks the chains from `ptr` along `key`. A chain that the key ends within is left: whoever edited what follows has
    /// unlinked it.
    fn replace_path(&mut self, mut ptr: Ptr, mut key: &[u8]) {
        while !key.is_empty() {
            let node = if ptr.kind() == PREFIX { prefix(self.memory, ptr).child } else { ptr };
            debug_assert_eq!(kind(node), Kind::Chain);
            let Some(rest) = key.strip_prefix(chain_steps(self.memory, node)) else { return };
            self.store.replace(node);
            key = rest;
            ptr = self.memory.load(node.slot(CHILD_WORD));
        }
    }

    fn cut_from_sparse(&mut self, seen: &Seen, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let word = SparseWord::load(memory, seen.node);
        let mut kept = [(0, Ptr::NONE); 6];
        let mut count = 0;
        let mut branch = Ptr::NONE;
        for place in word.places() {
            let child = memory.load(seen.node.slot(place));
            if word.character(place) == rest[0] {
                branch = child;
            } else {
                kept[count] = (word.character(place), child);
                count += 1;
            }
        }
        let node = match &kept[..count] {
            [(character, child)] => self.lengthened_chain(*character, *child)?,
            children => self.sparse(children)?,
        };
        let node = self.with_content(seen.carried, node, true)?;
        self.store.replace(seen.node);
        self.replace_path(branch, &rest[1..]);
        memory.publish(seen.slot, node);
        Ok(())
    }

    /// A chain of one step more than the chain that follows, in one new block if there is room; otherwise a step of its own.
    fn lengthened_chain(&mut self, step: u8, child: Ptr) -> Result<Ptr, TrieFull> {
        if child.is_leaf() || kind(child) != Kind::Chain || child.kind() == 0 {
            return self.chain(&[step], child);
        }
        let steps = chain_steps(self.memory, child);
        let mut longer = [0; CHAIN_STEPS_MAX];
        longer[0] = step;
        longer[1..=steps.len()].copy_from_slice(steps);
        let next = self.memory.load(child.slot(CHILD_WORD));
        let chain = self.chain(&longer[..=steps.len()], next)?;
        self.store.replace(child);
        Ok(chain)
    }

    fn cut_from_split(&mut self, seen: Seen, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let character = rest[0];
        let seen = Seen { node: self.own(seen.slot, seen.node)?, ..seen };
        let kept = self.split_children(seen.node, character, SPLIT_CHILDREN_MIN + 1);
        let top = split_slot(seen.node, character);
        let middle = self.own_block(top, memory.load(top))?;
        let middle_slot = split_mid_slot(middle, character);
        let tail = self.own_block(middle_slot, memory.load(middle_slot))?;
        let tail_slot = split_tail_slot(tail, character);
        let branch = memory.load(tail_slot);
        if kept.len() <= SPLIT_CHILDREN_MIN {
            let sparse = self.sparse(&kept)?;
            let sparse = self.with_content(seen.carried, sparse, true)?;
            self.replace_split(seen.node);
            self.replace_path(branch, &rest[1..]);
            memory.publish(seen.slot, sparse);
            return Ok(());
        }
        self.replace_path(branch, &rest[1..]);
        let alone = |block: Ptr, slot: Slot| {
            (0..8).all(|word| block.slot(word) == slot || memory.load(block.slot(word)).is_none())
        };
        if !alone(tail, tail_slot) {
            memory.publish(tail_slot, Ptr::NONE);
        } else if !alone(middle, middle_slot) {
            self.store.replace(tail);
            memory.publish(middle_slot, Ptr::NONE);
        } else {
            self.store.replace(tail);
            self.store.replace(middle);
            memory.publish(top, Ptr::NONE);
        }
        Ok(())
    }
}
