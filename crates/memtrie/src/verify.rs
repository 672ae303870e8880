//! Checks a whole trie: its shape, and that it consists of exactly the memory that the accounting reports.

use std::collections::HashSet;

use crate::node::paper::node::PREFIX;
use crate::node::{View, check, children, own_steps};
use crate::raw::memory::{Ptr, Slot};
use crate::terms::Layout;
use crate::trie::Writer;

impl Writer<'_> {
    /// Walks everything and checks the invariants of `FORMAT.md`, and that exactly the used bytes are reachable
    /// (nothing leaked, nothing freed too early). For tests and tools: the time is proportional to the trie's size.
    ///
    /// # Errors
    ///
    /// A description of what is wrong.
    pub fn verify(&self) -> Result<(), String> {
        let (Some(memory), Some(store)) = self.raw_parts() else { return Ok(()) };
        let mut bytes = 0;
        let mut reached = HashSet::new();
        let mut todo = vec![memory.load(Slot::ROOT)];
        todo.retain(|root| !root.is_none());
        while let Some(ptr) = todo.pop() {
            bytes += check(memory, ptr)?;
            if !reached.insert(piece_of(memory.layout, ptr)) {
                return Err(format!("{:08x} is reached twice", ptr.bits()));
            }
            let below: Vec<Ptr> = match own_steps(memory, ptr).1 {
                View::None | View::Leaf { .. } => Vec::new(),
                View::Chain { next, .. } => vec![next.ptr],
                View::Prefix { child, .. } => vec![child],
                View::Few | View::Many => children(memory, ptr).into_iter().map(|(_, child)| child).collect(),
            };
            if below.iter().any(|child| child.is_none()) {
                return Err(format!("node {:08x} has a child that is none", ptr.bits()));
            }
            todo.extend(below);
        }
        let used = store.memory_use().used;
        if used != bytes {
            return Err(format!("accounting says {used} bytes are used, {bytes} are reachable"));
        }
        Ok(())
    }
}

/// Identifies what must not be reached twice (W3). An embedded prefix and the node that shares its block are two.
fn piece_of(layout: Layout, ptr: Ptr) -> (u32, bool) {
    match layout {
        _ if ptr.is_leaf() => (ptr.bits(), false),
        Layout::Paper => (ptr.block_number(), ptr.kind() == PREFIX),
        Layout::Adaptive => (ptr.node_unit(), false),
    }
}
