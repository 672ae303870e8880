//! Removal in the adaptive layout. The remaining steps are joined, so that a trie that lost keys looks like one that
//! never had them.

use super::edit::Operation;
use super::node::{
    CHAIN, CHAIN_CHILD_WORD, CHILDREN_MAX, CONTENT_CHAIN, CONTENT_WORD, ContentChain, FLAT, FLAT_CHILDREN_MIN, PREFIX,
    PREFIX_CHILD_WORD, chain_steps, content_chain, shape,
};
use crate::edit::{Joint, Locus};
use crate::raw::memory::{Ptr, Slot};
use crate::terms::TrieFull;

impl Operation<'_, '_> {
    pub(super) fn take_content_off(&mut self, locus: &Locus<'_>) -> Result<(), TrieFull> {
        let memory = self.memory;
        let branch = if locus.ptr.node_kind() == CONTENT_CHAIN {
            let ContentChain { steps, child, .. } = content_chain(memory, locus.ptr);
            self.extended(steps, child)?
        } else {
            self.store.replace(memory.load(locus.ptr.node_slot(CONTENT_WORD)));
            memory.load(locus.ptr.node_slot(PREFIX_CHILD_WORD))
        };
        self.store.replace(locus.ptr);
        self.publish_joined(locus.slot, locus.chain, branch)
    }

    pub(super) fn cut_off(&mut self, joint: &Joint, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let node = memory.load(joint.slot);
        if joint.is_root {
            self.replace_chains(node, rest);
            self.publish(joint.slot, Ptr::NONE);
            return Ok(());
        }
        let stays = match node.node_kind() {
            PREFIX => {
                self.replace_chains(memory.load(node.node_slot(PREFIX_CHILD_WORD)), rest);
                memory.load(node.node_slot(CONTENT_WORD))
            }
            CONTENT_CHAIN => {
                let ContentChain { steps, content, child } = content_chain(memory, node);
                self.replace_chains(child, &rest[steps.len()..]);
                self.leaf(steps, content)?
            }
            FLAT => return self.cut_from_flat(joint.slot, node, rest),
            _ => self.without_branch(node, rest)?,
        };
        self.store.replace(node);
        self.publish_joined(joint.slot, joint.chain, stays)
    }

    /// Publishes `ptr` at `slot`, joined with the chain that leads there if possible.
    pub(super) fn publish_joined(&mut self, slot: Slot, chain: Option<Slot>, ptr: Ptr) -> Result<(), TrieFull> {
        let memory = self.memory;
        if let Some(above) = chain {
            let before = memory.load(above);
            if let Some(joined) = self.joined(chain_steps(memory, before), ptr)? {
                self.store.replace(before);
                self.publish(above, joined);
                return Ok(());
            }
        }
        self.publish(slot, ptr);
        Ok(())
    }

    /// Unlinks the chains from `ptr` along `key`. A chain inside which the key ends is left alone: the edit of what
    /// follows has already unlinked it.
    fn replace_chains(&mut self, mut ptr: Ptr, mut key: &[u8]) {
        while !ptr.is_leaf() && ptr.node_kind() == CHAIN {
            let Some(rest) = key.strip_prefix(chain_steps(self.memory, ptr)) else { return };
            self.store.replace(ptr);
            key = rest;
            ptr = self.memory.load(ptr.node_slot(CHAIN_CHILD_WORD));
        }
    }

    /// The replacement of a sparse node that loses the branch along `rest`.
    fn without_branch(&mut self, node: Ptr, rest: &[u8]) -> Result<Ptr, TrieFull> {
        let memory = self.memory;
        let shape = shape(node.node_kind());
        let mut kept = [(0, Ptr::NONE); CHILDREN_MAX];
        let mut count = 0;
        for place in 0..shape.count(memory, node) {
            let child = memory.load(shape.child_slot(node, place));
            let character = shape.character(memory, node, place);
            if character == rest[0] {
                self.replace_chains(child, &rest[1..]);
            } else {
                kept[count] = (character, child);
                count += 1;
            }
        }
        match &kept[..count] {
            [(character, child)] => self.extended(&[*character], *child),
            children => self.sparse(children),
        }
    }

    fn cut_from_flat(&mut self, slot: Slot, node: Ptr, rest: &[u8]) -> Result<(), TrieFull> {
        let memory = self.memory;
        let word = |character: u8| node.node_slot(u32::from(character));
        self.replace_chains(memory.load(word(rest[0])), &rest[1..]);
        let mut kept = [(0, Ptr::NONE); FLAT_CHILDREN_MIN];
        let mut count = 0;
        for character in (0..=0xFF).filter(|&character| character != rest[0]) {
            let child = memory.load(word(character));
            if child.is_none() {
                continue;
            }
            if count == FLAT_CHILDREN_MIN {
                self.publish(word(rest[0]), Ptr::NONE);
                return Ok(());
            }
            kept[count] = (character, child);
            count += 1;
        }
        let sparse = self.sparse(&kept[..count])?;
        self.store.replace(node);
        self.publish(slot, sparse);
        Ok(())
    }
}
