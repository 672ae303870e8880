//! A drawing of a small trie, for people.

use std::fmt::Write;

use crate::node::{View, children, kind_name, own_steps};
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::terms::Layout;
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
    let mut named = |label: String, children: &[(String, Ptr)]| {
        node(format!("{} @{}{label}", kind_name(memory, ptr), number(memory, ptr)), children);
    };
    let (steps, view) = own_steps(memory, ptr);
    match view {
        View::None => {}
        View::Leaf { tail: [], content } => node(format!("leaf {}", shown(content)), &[]),
        View::Leaf { tail, content } => node(format!("leaf {}: {}", shown(tail), shown(content)), &[]),
        View::Chain { steps, next } => named(String::new(), &[(shown(steps), next.ptr)]),
        View::Prefix { content, child } if steps.is_empty() => {
            named(format!(" {}", shown(content)), &[(String::new(), child)]);
        }
        View::Prefix { content, child } => {
            named(format!(" {}: {}", shown(steps), shown(content)), &[(String::new(), child)]);
        }
        View::Few | View::Many => {
            let shown = |(character, child)| (shown(&[character]), child);
            named(String::new(), &children(memory, ptr).into_iter().map(shown).collect::<Vec<_>>());
        }
    }
}

/// The node's block, or the 16-byte unit where it starts.
fn number(memory: Memory<'_>, ptr: Ptr) -> u32 {
    match memory.layout {
        Layout::Paper => ptr.block_number(),
        Layout::Adaptive => ptr.node_unit(),
    }
}

/// Shows bytes as text if they are printable, otherwise as hex; shortened.
fn shown(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b" .,-_".contains(byte));
    let short = &bytes[..bytes.len().min(32)];
    let text = match std::str::from_utf8(short) {
        Ok(text) if is_text && !bytes.is_empty() => text.to_string(),
        _ => short.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if short.len() < bytes.len() { format!("{text}.. ({} bytes)", bytes.len()) } else { text }
}
