//! The way through the children of a node that has many: which there are, and what will be looked at soon.

use crate::node;
use crate::raw::memory::{Memory, Ptr};

/// Characters, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CharacterSet([u64; 4]);

impl CharacterSet {
    #[inline]
    pub(crate) fn insert(&mut self, character: u8) {
        self.0[usize::from(character >> 6)] |= 1 << (character & 63);
    }

    /// The first at or after `from`, descending the first at or before it. Nothing is there beyond a byte's range.
    #[inline]
    fn next(&self, from: i32, descending: bool) -> Option<u8> {
        let from = u8::try_from(from).ok()?;
        let mut word = usize::from(from >> 6);
        if descending {
            let mut bits = self.0[word] << (63 - (from & 63)) >> (63 - (from & 63));
            while bits == 0 {
                word = word.checked_sub(1)?;
                bits = self.0[word];
            }
            return Some((word as u8) << 6 | (63 - bits.leading_zeros()) as u8);
        }
        let mut bits = self.0[word] >> (from & 63) << (from & 63);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some((word as u8) << 6 | bits.trailing_zeros() as u8)
    }
}

/// How many children ahead of a walk nodes are brought near, and what they lead to.
const NODES_AHEAD: u32 = 20;
const LEAVES_AHEAD: u32 = 10;

/// What is left of a node's children, as it was when the first of them was taken.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// None before that.
    children: Option<CharacterSet>,
    /// Next character to give; beyond a byte's range when done.
    next: i32,
    /// As `next`, of what is brought near, and how far ahead that is.
    nodes: (i32, u32),
    leaves: (i32, u32),
}

impl Walk {
    /// The children at or after `from` in the walk's direction. Looks at nothing yet.
    pub(crate) fn from(from: i32) -> Walk {
        Walk { children: None, next: from, nodes: (from, 0), leaves: (from, 0) }
    }

    /// All children of `node`. The first of them are brought near at once.
    pub(crate) fn through(memory: Memory<'_>, node: Ptr, descending: bool) -> Walk {
        let mut walk = Walk::from(if descending { 0xFF } else { 0 });
        let children = node::characters_of_many(memory, node);
        walk.children = Some(children);
        (0..NODES_AHEAD).for_each(|_| walk.look_ahead(memory, node, &children, descending));
        walk
    }

    /// Where the walk is: characters before this one were given.
    pub(crate) fn position(&self) -> i32 {
        self.next
    }

    /// The next child, if there is one.
    #[inline]
    pub(crate) fn take(&mut self, memory: Memory<'_>, node: Ptr, descending: bool) -> Option<(u8, Ptr)> {
        let children = match self.children {
            Some(children) => children,
            None => *self.children.insert(node::characters_of_many(memory, node)),
        };
        loop {
            let character = children.next(self.next, descending)?;
            self.next = after(character, descending);
            self.nodes.1 = self.nodes.1.saturating_sub(1);
            self.leaves.1 = self.leaves.1.saturating_sub(1);
            self.look_ahead(memory, node, &children, descending);
            let child = node::child(memory, node, character);
            // It may have gone since.
            if !child.is_none() {
                return Some((character, child));
            }
        }
    }

    /// Brings two more children near, and what one of those leads to that are near, until that is far enough ahead.
    #[inline]
    fn look_ahead(&mut self, memory: Memory<'_>, node: Ptr, children: &CharacterSet, descending: bool) {
        let Walk { next, nodes, leaves, .. } = self;
        let reach = |ahead: &mut (i32, u32), upto: u32, bring: fn(Memory<'_>, Ptr)| {
            if ahead.1 >= upto {
                return;
            }
            let passed = if descending { ahead.0 > *next } else { ahead.0 < *next };
            let from = if passed { *next } else { ahead.0 };
            if let Some(character) = children.next(from, descending) {
                *ahead = (after(character, descending), ahead.1 + 1);
                let child = node::child(memory, node, character);
                if !child.is_none() {
                    bring(memory, child);
                }
            }
        };
        reach(nodes, NODES_AHEAD, node::prefetch);
        reach(nodes, NODES_AHEAD, node::prefetch);
        if nodes.1 > LEAVES_AHEAD {
            reach(leaves, LEAVES_AHEAD, node::prefetch_below);
        }
    }
}

#[inline]
fn after(character: u8, descending: bool) -> i32 {
    i32::from(character) + if descending { -1 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_found_in_both_directions() {
        let members = [0, 1, 62, 63, 64, 127, 128, 191, 200, 255];
        let mut set = CharacterSet::default();
        members.iter().for_each(|&character| set.insert(character));
        for from in -1..=256 {
            let ascending = members.iter().find(|&&member| (from..256).contains(&i32::from(member)) && from >= 0);
            assert_eq!(set.next(from, false).as_ref(), ascending, "from {from}");
            let descending = members.iter().rev().find(|&&member| i32::from(member) <= from && from < 256);
            assert_eq!(set.next(from, true).as_ref(), descending, "down from {from}");
        }
        assert_eq!(CharacterSet::default().next(0, false), None);
        assert_eq!(CharacterSet::default().next(255, true), None);
    }
}
