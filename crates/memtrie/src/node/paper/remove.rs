//! Removal in the paper's layout.

use super::edit::{BareNode, Operation};
use super::node::{
    CHAIN_STEPS_MAX, CHILD_WORD, Kind, PREFIX, SPLIT_CHILDREN_MIN, SparseWord, chain_steps, kind, prefix,
    split_mid_slot, split_slot, split_tail_slot,
};
use crate::edit::{Joint, Locus};
use crate::raw::memory::{Ptr, Slot};
use crate::terms::TrieFull;

impl Operation<'_, '_> {
    pub(super) fn take_content_off(&mut self, locus: &Locus<'_>) {
        let prefix = prefix(self.memory, locus.ptr);
        self.store.replace(prefix.content);
        if prefix.child_slot.is_some() {
            self.store.replace(locus.ptr);
        }
        self.publish(locus.slot, prefix.child);
    }

    pub(super) fn cut_off(&mut self, joint: &Joint, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let slot = joint.slot;
        let ptr = memory.load(slot);
        if joint.is_root {
            self.replace_path(ptr, rest);
            self.publish(slot, Ptr::NONE);
            return Ok(());
        }
        let bare = BareNode::at(memory, slot, ptr);
        match kind(bare.node) {
            Kind::Chain => {
                self.replace_path(bare.node, rest);
                if bare.slot != slot {
                    self.store.replace(ptr);
                }
                // There is content and a chain to the key: only the content remains.
                self.publish(slot, prefix(memory, ptr).content);
                Ok(())
            }
            Kind::Sparse => self.cut_from_sparse(&bare, rest),
            _ => self.cut_from_split(&bare, rest),
        }
    }

    /// Unlinks the chains from `ptr` along `key`. A chain inside which the key ends is left alone: the edit of what
    /// follows has already unlinked it.
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

    fn cut_from_sparse(&mut self, bare: &BareNode, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let word = SparseWord::load(memory, bare.node);
        let mut kept = [(0, Ptr::NONE); 6];
        let mut count = 0;
        let mut branch = Ptr::NONE;
        for place in word.places() {
            let child = memory.load(bare.node.slot(place));
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
        let node = self.with_content(bare.carried, node, true)?;
        self.store.replace(bare.node);
        self.replace_path(branch, &rest[1..]);
        self.publish(bare.slot, node);
        Ok(())
    }

    /// A chain with one step in front of `child`: in one new block with a following chain if there is room, otherwise
    /// as a step of its own.
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

    fn cut_from_split(&mut self, bare: &BareNode, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let character = rest[0];
        let kept = self.split_children(bare.node, character, SPLIT_CHILDREN_MIN + 1);
        let top = split_slot(bare.node, character);
        let middle = memory.load(top);
        let middle_slot = split_mid_slot(middle, character);
        let tail = memory.load(middle_slot);
        let tail_slot = split_tail_slot(tail, character);
        let branch = memory.load(tail_slot);
        if kept.len() <= SPLIT_CHILDREN_MIN {
            let sparse = self.sparse(&kept)?;
            let sparse = self.with_content(bare.carried, sparse, true)?;
            self.replace_split(bare.node);
            self.replace_path(branch, &rest[1..]);
            self.publish(bare.slot, sparse);
            return Ok(());
        }
        self.replace_path(branch, &rest[1..]);
        let alone = |block: Ptr, slot: Slot| {
            (0..8).all(|word| block.slot(word) == slot || memory.load(block.slot(word)).is_none())
        };
        if !alone(tail, tail_slot) {
            self.publish(tail_slot, Ptr::NONE);
        } else if !alone(middle, middle_slot) {
            self.store.replace(tail);
            self.publish(middle_slot, Ptr::NONE);
        } else {
            self.store.replace(tail);
            self.store.replace(middle);
            self.publish(top, Ptr::NONE);
        }
        Ok(())
    }
}
