//! Checks of one node's shape.

use super::node::{
    CONTENT_CHAIN, CONTENT_CHAIN_STEPS_MAX, CONTENT_WORD, FLAT, FLAT_CHILDREN_MIN, INNER_CONTENT_MAX,
    PREFIX_CHILD_WORD, content_chain, flat_next, kind_name, list, shape, view,
};
use crate::node::{NodePosition, View};
use crate::raw::memory::{Memory, Ptr};
use crate::store::piece_bytes;

/// The bytes of a node or leaf, including a prefix's content.
pub(crate) fn check(memory: Memory<'_>, ptr: Ptr) -> Result<usize, String> {
    if ptr.is_leaf() {
        return Ok(piece_bytes(memory, ptr));
    }
    if kind_name(ptr) == "unknown" {
        return Err(format!("node {:08x} has no known kind", ptr.bits()));
    }
    let mut bytes = piece_bytes(memory, ptr);
    match view(memory, NodePosition::of(ptr)) {
        _ if ptr.node_kind() == CONTENT_CHAIN => check_content_chain(memory, ptr)?,
        View::Chain { steps: [], .. } => return Err(format!("chain {:08x} is empty", ptr.bits())),
        View::Few => check_sparse(memory, ptr)?,
        View::Many => check_flat(memory, ptr)?,
        View::Prefix { .. } => {
            let (content, child) =
                (memory.load(ptr.node_slot(CONTENT_WORD)), memory.load(ptr.node_slot(PREFIX_CHILD_WORD)));
            if !content.is_leaf() || !memory.leaf(content).tail.is_empty() {
                return Err(format!("prefix {:08x} has content {:08x}", ptr.bits(), content.bits()));
            }
            check_below_content(memory, ptr, child)?;
            bytes += piece_bytes(memory, content);
        }
        _ => {}
    }
    Ok(bytes)
}

fn check_content_chain(memory: Memory<'_>, ptr: Ptr) -> Result<(), String> {
    let chain = content_chain(memory, ptr);
    if chain.steps.len() > CONTENT_CHAIN_STEPS_MAX || chain.content.len() > INNER_CONTENT_MAX {
        return Err(format!("chain with content {:08x} is too long", ptr.bits()));
    }
    check_below_content(memory, ptr, chain.child)
}

fn check_below_content(memory: Memory<'_>, ptr: Ptr, child: Ptr) -> Result<(), String> {
    if takes_a_step(memory, child) {
        return Ok(());
    }
    Err(format!("content {:08x} is on content {:08x}", ptr.bits(), child.bits()))
}

/// W7: whether this node has no content before its first step.
pub(super) fn takes_a_step(memory: Memory<'_>, ptr: Ptr) -> bool {
    !matches!(view(memory, NodePosition::of(ptr)), View::None | View::Prefix { .. } | View::Leaf { tail: [], .. })
}

fn check_sparse(memory: Memory<'_>, ptr: Ptr) -> Result<(), String> {
    let mut children = Vec::new();
    list(memory, ptr, false, &mut children);
    let shape = shape(ptr.node_kind());
    let distinct = children.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if !distinct || !(2..=shape.capacity as usize).contains(&children.len()) {
        return Err(format!("{} {:08x} has the children {children:02x?}", kind_name(ptr), ptr.bits()));
    }
    let found = |&(character, _): &(u8, Ptr)| {
        shape.find(memory, ptr, character).map(|place| shape.character(memory, ptr, place)) == Some(character)
    };
    if children.iter().all(found) {
        return Ok(());
    }
    Err(format!("{} {:08x} does not find all of {children:02x?}", kind_name(ptr), ptr.bits()))
}

fn check_flat(memory: Memory<'_>, ptr: Ptr) -> Result<(), String> {
    debug_assert_eq!(ptr.node_kind(), FLAT);
    let mut from = Some(0);
    let mut count = 0;
    while let Some((character, _)) = from.and_then(|from| flat_next(memory, ptr, from, false)) {
        count += 1;
        from = character.checked_add(1);
    }
    if count > FLAT_CHILDREN_MIN { Ok(()) } else { Err(format!("flat {:08x} has {count} children", ptr.bits())) }
}
