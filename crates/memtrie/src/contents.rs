//! Contents in order of their keys, without building the keys.

use crate::item_queue::ItemQueue;
use crate::node::{self, NodePosition, View, view};
use crate::raw::memory::Memory;
use crate::terms::Direction;
use crate::walk::Item;

/// The contents of a trie or a branch in order of their keys; see [`crate::Tail::contents`].
pub struct Contents<'a> {
    memory: Option<Memory<'a>>,
    /// Where it starts.
    root: Option<NodePosition>,
    queue: ItemQueue,
}

impl<'a> Contents<'a> {
    /// The contents below `root`.
    pub(crate) fn new(memory: Option<Memory<'a>>, root: NodePosition, direction: Direction) -> Contents<'a> {
        Contents { memory, root: Some(root), queue: ItemQueue::new(direction, root.ptr.is_none()) }
    }
}

impl<'a> Iterator for Contents<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let memory = self.memory?;
        if let Some(root) = self.root.take() {
            self.queue.start(memory, root);
        }
        loop {
            match self.queue.next(memory)? {
                Item::Leaf { ptr, .. } => return Some(node::leaf(memory, ptr).1),
                Item::Entry { ptr, skip } => {
                    return Some(content_of(memory, NodePosition { ptr, skip: u32::from(skip) }));
                }
                Item::Back { .. } | Item::Step { .. } | Item::Chain { .. } => {}
            }
        }
    }
}

impl std::iter::FusedIterator for Contents<'_> {}

fn content_of(memory: Memory<'_>, place: NodePosition) -> &[u8] {
    match view(memory, place) {
        View::Leaf { content, .. } | View::Prefix { content, .. } => content,
        // The walk only yields places with content.
        View::None | View::Chain { .. } | View::Few | View::Many => &[],
    }
}
