//! Builds a trie bottom-up from sorted keys and packs it into pages exactly as Cassandra does.
//!
//! The path of the last key is kept as a stack of open nodes. When a key diverges, the nodes below the point of
//! divergence are *complete*. A complete node stays in memory while it and its unwritten descendants fit a page. When
//! they do not, its children are laid out, the largest branch that fits the rest of the page first. A branch in memory
//! is therefore always smaller than about one page, which bounds memory and the depth of every recursion here.

use super::node::{self, PAGE_SIZE};
use super::payload::Payload;

/// About the number of nodes with children that are written at a time; most of them have few.
const SPARE_MAX: usize = 512;
const SPARE_CHILDREN_MAX: usize = 32;

/// A node of the part of the trie that is in memory.
#[derive(Debug, Default)]
struct Open {
    transition: u8,
    payload: Option<Payload>,
    children: Vec<Open>,
    /// Where the node was written; its children and payload are dropped then.
    position: Option<u64>,
    /// Bytes of its descendants that are not written yet.
    branch_size: usize,
    /// Bytes of the node itself, for the position at which it was last measured.
    node_size: usize,
    /// Whether a child is already written.
    out_of_page_children: bool,
    /// Whether a descendant below the children is.
    out_of_page_in_branch: bool,
}

impl Open {
    fn total_size(&self) -> usize {
        self.branch_size + self.node_size
    }

    fn has_out_of_page(&self) -> bool {
        self.out_of_page_children || self.out_of_page_in_branch
    }

    /// The largest distance that a pointer of this node may have to span when it is written at `position`.
    fn distance_bound(&self, position: u64) -> u64 {
        let unwritten = |child: &Open| (self.branch_size - child.branch_size) as u64;
        if !self.out_of_page_children {
            return self.children.first().map_or(0, unwritten);
        }
        let placed =
            self.children.iter().filter_map(|child| child.position).map(|at| position.saturating_sub(at)).max();
        let unplaced = self.children.iter().find(|child| child.position.is_none()).map(unwritten);
        placed.unwrap_or(0).max(unplaced.unwrap_or(0))
    }

    fn choose(&self, position: u64) -> (u8, usize) {
        let (first, last) = match (self.children.first(), self.children.last()) {
            (Some(first), Some(last)) => (first.transition, last.transition),
            _ => (0, 0),
        };
        node::choose(self.children.len(), first, last, self.distance_bound(position), self.payload.is_some())
    }

    fn size_at(&self, position: u64) -> usize {
        self.choose(position).1 + self.payload.as_ref().map_or(0, |payload| payload.bytes().len())
    }

    /// Measures the branch again for `position`, because pointers to written nodes may have grown.
    fn recalculate(&mut self, position: u64) -> usize {
        if self.out_of_page_in_branch {
            let mut size = 0;
            for child in self.children.iter_mut().filter(|child| child.position.is_none()) {
                size += child.recalculate(position + size as u64);
            }
            self.branch_size = size;
        }
        if self.has_out_of_page() {
            self.node_size = self.size_at(position + self.branch_size as u64);
        }
        self.total_size()
    }
}

/// Trie bytes to be written to a file.
#[derive(Debug, Default)]
struct Pages {
    /// The bytes that the caller has not taken yet.
    bytes: Vec<u8>,
    /// File position of `bytes[0]`.
    base: u64,
    /// Transitions and distances of the node being written.
    pointers: Vec<(u8, u64)>,
    /// Vectors for children, from nodes that were written.
    spare: Vec<Vec<Open>>,
}

impl Pages {
    fn position(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    fn left_in_page(&self) -> usize {
        PAGE_SIZE - (self.position() % PAGE_SIZE as u64) as usize
    }

    fn pad(&mut self) {
        let left = self.left_in_page();
        if left < PAGE_SIZE {
            self.bytes.resize(self.bytes.len() + left, 0);
        }
    }

    /// Writes a branch, children first. Returns the position of its root.
    fn write(&mut self, open: &mut Open) -> u64 {
        for child in &mut open.children {
            if child.position.is_none() {
                child.position = Some(self.write(child));
                self.recycle(&mut child.children);
            }
        }
        let position = self.position();
        if open.children.is_empty() {
            node::write(&mut self.bytes, node::LEAF, &[], open.payload.as_ref());
            return position;
        }
        let (number, _) = open.choose(position);
        self.pointers.clear();
        self.pointers.extend(
            open.children.iter().map(|child| {
                (child.transition, position - child.position.expect("children are written before parents"))
            }),
        );
        node::write(&mut self.bytes, number, &self.pointers, open.payload.as_ref());
        debug_assert_eq!(self.position(), position + open.node_size as u64);
        position
    }

    /// Keeps the vectors of children that were written.
    fn recycle(&mut self, children: &mut Vec<Open>) {
        if (1..=SPARE_CHILDREN_MAX).contains(&children.capacity()) && self.spare.len() < SPARE_MAX {
            children.clear();
            self.spare.push(std::mem::take(children));
        }
    }

    fn finish(&mut self, open: &mut Open) {
        let position = self.write(open);
        self.recycle(&mut open.children);
        *open = Open { transition: open.transition, position: Some(position), ..Open::default() };
    }

    fn complete(&mut self, open: &mut Open) {
        if open.children.is_empty() {
            open.node_size = 1 + open.payload.as_ref().map_or(0, |payload| payload.bytes().len());
            return;
        }
        open.branch_size = open.children.iter().map(Open::total_size).sum();
        let node_size = open.size_at(self.position());
        if node_size + open.branch_size < PAGE_SIZE {
            open.node_size = node_size;
            open.out_of_page_children = open.children.iter().any(|child| child.position.is_some());
            open.out_of_page_in_branch =
                open.children.iter().any(|child| child.position.is_none() && child.has_out_of_page());
            return;
        }
        self.lay_out_children(open);
    }

    /// Writes all children, the largest that fits the page first. The node itself stays in memory.
    fn lay_out_children(&mut self, open: &mut Open) {
        let unwritten = open.children.iter().enumerate().filter(|(_, child)| child.position.is_none());
        // Children ascend by transition byte, so of equal sizes the greater byte comes later.
        let mut waiting: Vec<(usize, usize)> = unwritten.map(|(index, child)| (child.total_size(), index)).collect();
        waiting.sort_unstable();
        while !waiting.is_empty() {
            let mut left = self.left_in_page();
            let fitting = waiting.partition_point(|(size, _)| *size <= left);
            let (_, index) = match fitting {
                0 => {
                    self.pad();
                    left = PAGE_SIZE;
                    waiting.remove(waiting.len() - 1)
                }
                _ => waiting.remove(fitting - 1),
            };
            let child = &mut open.children[index];
            if child.has_out_of_page() && child.recalculate(self.position()) > left {
                if left == PAGE_SIZE {
                    self.lay_out_children(child);
                }
                let entry = (child.total_size(), index);
                waiting.insert(waiting.partition_point(|other| *other < entry), entry);
                continue;
            }
            self.finish(child);
        }
        open.branch_size = 0;
        open.out_of_page_children = true;
        open.out_of_page_in_branch = false;
        open.node_size = open.size_at(self.position());
    }

    fn write_root(&mut self, root: &mut Open) -> u64 {
        let mut left = self.left_in_page();
        let mut size = root.recalculate(self.position());
        if size > left {
            if size <= PAGE_SIZE {
                self.pad();
                left = PAGE_SIZE;
                size = root.recalculate(self.position());
            }
            if size > left {
                self.lay_out_children(root);
                if root.node_size > self.left_in_page() {
                    self.pad();
                    root.recalculate(self.position());
                }
            }
        }
        self.write(root)
    }
}

/// Takes sorted keys with payloads and produces the bytes of their trie.
#[derive(Debug)]
pub(crate) struct TrieBuilder {
    pages: Pages,
    /// The last key's path; the first is the root.
    path: Vec<Open>,
}

impl TrieBuilder {
    /// A builder of a trie whose first byte is at `position` of the file.
    pub fn new(position: u64) -> Self {
        TrieBuilder { pages: Pages { base: position, ..Pages::default() }, path: vec![Open::default()] }
    }

    /// Adds an entry. Keys must ascend strictly; an empty first key puts its payload on the root.
    pub fn add(&mut self, key: &[u8], payload: Payload) {
        let known = self.path.iter().skip(1).zip(key).take_while(|(node, byte)| node.transition == **byte).count();
        debug_assert!(
            known < key.len() || self.path.len() == 1 && self.path[0].payload.is_none(),
            "trie keys ascend strictly"
        );
        self.close(known + 1);
        let deeper = key.iter().skip(known).map(|byte| Open { transition: *byte, ..Open::default() });
        self.path.extend(deeper);
        if let Some(last) = self.path.last_mut() {
            last.payload = Some(payload);
        }
    }

    fn close(&mut self, depth: usize) {
        while self.path.len() > depth {
            let Some(mut node) = self.path.pop() else { return };
            self.pages.complete(&mut node);
            if let Some(parent) = self.path.last_mut() {
                if parent.children.capacity() == 0 {
                    parent.children = self.pages.spare.pop().unwrap_or_default();
                }
                parent.children.push(node);
            }
        }
    }

    /// Writes what is left, and starts the next trie after it. Returns the position of the root.
    pub fn complete(&mut self) -> u64 {
        self.close(1);
        let mut root = self.path.pop().unwrap_or_default();
        self.path.push(Open::default());
        self.pages.complete(&mut root);
        self.pages.write_root(&mut root)
    }

    /// Discards the entries of a trie of which nothing was written yet.
    pub fn abandon(&mut self) {
        self.path.clear();
        self.path.push(Open::default());
    }

    /// Position after the last byte produced so far.
    pub fn position(&self) -> u64 {
        self.pages.position()
    }

    /// The bytes not taken yet; more may be appended between tries.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.pages.bytes
    }

    /// Gives up the bytes collected so far.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        // Most entries complete no page.
        if self.pages.bytes.is_empty() {
            return;
        }
        self.pages.base += self.pages.bytes.len() as u64;
        out.append(&mut self.pages.bytes);
    }
}
