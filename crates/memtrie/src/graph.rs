//! A drawing of a small trie, for people.

use std::fmt::Write;

use crate::node::{
    CHILD_WORD, ChainBytes, Kind, SPLIT_WORDS_FROM, SparseWord, kind, prefix, split_mid_slot, split_next, split_slot,
    split_tail_slot,
};
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::trie::Pin;

impl Pin<'_> {
    /// The trie as a Graphviz graph: a box for each node with its block, an edge for each child. For small tries.
    pub fn graph(&self) -> String {
        let mut out = String::from("digraph trie {\n  node [shape=box, fontname=monospace];\n");
        if let Some(memory) = self.raw_memory() {
            let mut todo = vec![memory.load(Slot::ROOT)];
            while let Some(ptr) = todo.pop().filter(|ptr| !ptr.is_none()) {
                draw(memory, ptr, &mut todo, &mut out);
            }
        }
        out.push_str("}\n");
        out
    }
}

fn draw(memory: Memory<'_>, ptr: Ptr, todo: &mut Vec<Ptr>, out: &mut String) {
    let name = |ptr: Ptr| format!("n{:08x}", ptr.bits());
    let mut node = |label: String, children: &[(String, Ptr)]| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {} [label=\"{label}\"];", name(ptr));
        for (edge, child) in children {
            let _ = writeln!(out, "  {} -> {} [label=\"{edge}\"];", name(ptr), name(*child));
        }
        todo.extend(children.iter().map(|(_, child)| *child));
    };
    if ptr.is_leaf() {
        return node(format!("leaf {}", shown(memory.blob(ptr))), &[]);
    }
    let block = ptr.block_number();
    match kind(ptr) {
        Kind::Prefix => {
            let prefix = prefix(memory, ptr);
            let place = if prefix.child_slot.is_some() { "prefix" } else { "embedded prefix" };
            let label = format!("{place} @{block} {}", shown(memory.blob(prefix.content)));
            node(label, &[(String::new(), prefix.child)]);
        }
        Kind::Chain => {
            let bytes = ChainBytes::load(memory, ptr);
            let steps = bytes.steps(ptr);
            node(format!("chain @{block}"), &[(shown(steps), memory.load(ptr.slot(CHILD_WORD)))]);
        }
        Kind::Sparse => {
            let word = SparseWord::load(memory, ptr);
            let child = |place| (shown(&[word.character(place)]), memory.load(ptr.slot(place)));
            node(format!("sparse @{block}"), &word.places().map(child).collect::<Vec<_>>());
        }
        Kind::Split => {
            let mut children = Vec::new();
            let mut from = Some(0);
            while let Some((character, child)) = from.and_then(|from| split_next(memory, ptr, from, false)) {
                children.push((shown(&[character]), child));
                from = character.checked_add(1);
            }
            node(format!("split @{block} and {} more", split_blocks(memory, ptr).len() - 1), &children);
        }
    }
}

/// All blocks of a split.
pub(crate) fn split_blocks(memory: Memory<'_>, split: Ptr) -> Vec<Ptr> {
    let mut blocks = vec![split];
    for word in SPLIT_WORDS_FROM..8 {
        let middle = memory.load(split.slot(word));
        if !middle.is_none() {
            blocks.push(middle);
            blocks.extend((0..8).map(|word| memory.load(middle.slot(word))).filter(|tail| !tail.is_none()));
        }
    }
    // The three slot functions and this walk must agree on where things are.
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

/// Bytes as text where they are that, else as hex; shortened.
fn shown(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b" .,-_".contains(byte));
    let short = &bytes[..bytes.len().min(32)];
    let text = match std::str::from_utf8(short) {
        Ok(text) if is_text && !bytes.is_empty() => text.to_string(),
        _ => short.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if short.len() < bytes.len() { format!("{text}.. ({} bytes)", bytes.len()) } else { text }
}
