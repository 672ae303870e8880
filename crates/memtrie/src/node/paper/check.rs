//! Checks of one node's shape.

use super::node::{
    CHAIN_LAST, CHILD_WORD, CONTENT_WORD, FLAGS_WORD, PREFIX, SPARSE, SPARSE_CHILDREN_MAX, SPLIT, SPLIT_CHILDREN_MIN,
    SPLIT_WORDS_FROM, STANDALONE, SparseWord,
};
use crate::raw::blocks::BLOCK_BYTES;
use crate::raw::memory::{Memory, Ptr};
use crate::store::piece_bytes;

/// The bytes of a node or leaf, including a prefix's content. The block that an embedded prefix shares is counted for
/// the other node.
pub(crate) fn check(memory: Memory<'_>, ptr: Ptr) -> Result<usize, String> {
    if ptr.is_leaf() {
        return Ok(piece_bytes(memory, ptr));
    }
    match ptr.kind() {
        0..=CHAIN_LAST => Ok(BLOCK_BYTES),
        SPARSE => check_sparse(memory, ptr),
        SPLIT => check_split(memory, ptr),
        PREFIX => check_prefix(memory, ptr),
        kind => Err(format!("node {:08x} has no known kind: {kind}", ptr.bits())),
    }
}

fn check_prefix(memory: Memory<'_>, ptr: Ptr) -> Result<usize, String> {
    let content = memory.load(ptr.slot(CONTENT_WORD));
    if !content.is_leaf() {
        return Err(format!("prefix {:08x} has content {:08x}", ptr.bits(), content.bits()));
    }
    let flags = memory.word(ptr.slot(FLAGS_WORD)) & 0xFF;
    if flags != STANDALONE {
        if flags != SPLIT && flags > CHAIN_LAST {
            return Err(format!("prefix {:08x} has flags {flags:02x}", ptr.bits()));
        }
        return Ok(piece_bytes(memory, content));
    }
    let child = memory.load(ptr.slot(CHILD_WORD));
    if child.is_leaf() || child.kind() == PREFIX {
        return Err(format!("prefix {:08x} is on {:08x}", ptr.bits(), child.bits()));
    }
    Ok(BLOCK_BYTES + piece_bytes(memory, content))
}

fn check_sparse(memory: Memory<'_>, ptr: Ptr) -> Result<usize, String> {
    let word = SparseWord::load(memory, ptr);
    let characters: Vec<u8> = word.places().map(|place| word.character(place)).collect();
    let sorted = characters.windows(2).all(|pair| pair[0] < pair[1]);
    if !sorted || !(2..=SPARSE_CHILDREN_MAX).contains(&characters.len()) {
        return Err(format!("sparse node {:08x} has the characters {characters:02x?}", ptr.bits()));
    }
    Ok(BLOCK_BYTES)
}

fn check_split(memory: Memory<'_>, ptr: Ptr) -> Result<usize, String> {
    let blocks_at =
        |block: Ptr, from: u32| (from..8).map(move |word| memory.load(block.slot(word))).filter(|next| !next.is_none());
    let (mut blocks, mut children) = (1, 0);
    for middle in blocks_at(ptr, SPLIT_WORDS_FROM) {
        blocks += 1;
        let before = blocks;
        for tail in blocks_at(middle, 0) {
            blocks += 1;
            let below = blocks_at(tail, 0).count();
            if below == 0 {
                return Err(format!("split {:08x} has an empty tail block", ptr.bits()));
            }
            children += below;
        }
        if blocks == before {
            return Err(format!("split {:08x} has an empty middle block", ptr.bits()));
        }
    }
    if children <= SPLIT_CHILDREN_MIN {
        return Err(format!("split {:08x} has {children} children", ptr.bits()));
    }
    Ok(blocks * BLOCK_BYTES)
}
