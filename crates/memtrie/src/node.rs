//! The interface of nodes, independent of the layout: what readers, cursors and tools see of them, and what the writer
//! can change.

pub(crate) mod adaptive;
pub(crate) mod paper;

use crate::edit;
use crate::edit::Start;
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::store::Store;
use crate::terms::{Edit, Layout, TrieFull};

/// A place in the trie: a node, and how many bytes of its steps or tail were already passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodePosition {
    pub ptr: Ptr,
    pub skip: u32,
}

impl NodePosition {
    pub(crate) const NONE: NodePosition = NodePosition::of(Ptr::NONE);

    #[inline]
    pub(crate) const fn of(ptr: Ptr) -> NodePosition {
        NodePosition { ptr, skip: 0 }
    }

    pub(crate) fn root(memory: Memory<'_>) -> NodePosition {
        NodePosition::of(memory.load(Slot::ROOT))
    }

    /// The place `bytes` further within the same chain or leaf.
    #[inline]
    pub(crate) fn further(self, bytes: usize) -> NodePosition {
        NodePosition { skip: self.skip + bytes as u32, ..self }
    }
}

/// A node as readers see it.
pub(crate) enum View<'a> {
    None,
    /// The rest of a key, and its content.
    Leaf {
        tail: &'a [u8],
        content: &'a [u8],
    },
    /// One or more steps, and where they lead.
    Chain {
        steps: &'a [u8],
        next: NodePosition,
    },
    /// A content, and the node that follows.
    Prefix {
        content: &'a [u8],
        child: Ptr,
    },
    /// Children that are best listed all at once.
    Few,
    /// Children that are best searched one after another (`next_of_many`).
    Many,
}

#[inline]
pub(crate) fn view<'a>(memory: Memory<'a>, place: NodePosition) -> View<'a> {
    match memory.layout {
        Layout::Paper => paper::node::view(memory, place),
        Layout::Adaptive => adaptive::node::view(memory, place),
    }
}

/// The tail and the content of a leaf.
#[inline]
pub(crate) fn leaf<'a>(memory: Memory<'a>, ptr: Ptr) -> (&'a [u8], &'a [u8]) {
    match memory.layout {
        Layout::Paper => (&[], memory.blob(ptr)),
        Layout::Adaptive => {
            let leaf = memory.leaf(ptr);
            (leaf.tail, leaf.content)
        }
    }
}

/// The child of a node with several, or none.
#[inline]
pub(crate) fn child(memory: Memory<'_>, ptr: Ptr, character: u8) -> Ptr {
    match memory.layout {
        Layout::Paper => paper::node::child(memory, ptr, character),
        Layout::Adaptive => adaptive::node::child(memory, ptr, character),
    }
}

/// Appends all children of a node with several, in order.
#[inline]
pub(crate) fn list(memory: Memory<'_>, ptr: Ptr, descending: bool, out: &mut Vec<(u8, Ptr)>) {
    match memory.layout {
        Layout::Paper => paper::node::list(memory, ptr, descending, out),
        Layout::Adaptive => adaptive::node::list(memory, ptr, descending, out),
    }
}

/// The first child at or after `from` (descending: at or before it) of a node that has many.
#[inline]
pub(crate) fn next_of_many(memory: Memory<'_>, ptr: Ptr, from: u8, descending: bool) -> Option<(u8, Ptr)> {
    match memory.layout {
        Layout::Paper => paper::node::split_next(memory, ptr, from, descending),
        Layout::Adaptive => adaptive::node::flat_next(memory, ptr, from, descending),
    }
}

/// Prefetches the nodes below a large node that is itself in the cache; no node has very many.
#[inline]
pub(crate) fn prefetch_below_large(memory: Memory<'_>, ptr: Ptr) {
    match memory.layout {
        Layout::Paper => {}
        Layout::Adaptive => adaptive::node::prefetch_below_large(memory, ptr),
    }
}

/// Prefetches all of a flat node; does nothing for other nodes.
#[inline]
pub(crate) fn prefetch_flat(memory: Memory<'_>, ptr: Ptr) {
    match memory.layout {
        Layout::Paper => {}
        Layout::Adaptive => adaptive::node::prefetch_flat(memory, ptr),
    }
}

/// Prefetches a node; does nothing for a leaf.
#[inline]
pub(crate) fn prefetch_node(memory: Memory<'_>, ptr: Ptr) {
    match memory.layout {
        Layout::Paper if ptr.is_leaf() => {}
        Layout::Paper => memory.prefetch_slot(ptr.slot(0)),
        Layout::Adaptive => adaptive::node::prefetch_node(memory, ptr),
    }
}

/// The children of a node of the smallest size, in order.
pub(crate) struct SmallLeaves {
    pub(crate) leaves: [(u8, Ptr); 3],
    pub(crate) count: usize,
}

impl SmallLeaves {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[(u8, Ptr)] {
        self.leaves.get(..self.count).unwrap_or_default()
    }
}

/// The children of a node, if it is of the smallest size and all of them are leaves.
#[inline]
pub(crate) fn small_of_leaves(memory: Memory<'_>, ptr: Ptr, descending: bool) -> Option<SmallLeaves> {
    match memory.layout {
        Layout::Paper => None,
        Layout::Adaptive => adaptive::node::small_of_leaves(memory, ptr, descending),
    }
}

/// Prefetches a node or leaf.
#[inline]
pub(crate) fn prefetch(memory: Memory<'_>, ptr: Ptr) {
    match memory.layout {
        Layout::Paper if ptr.is_leaf() => memory.prefetch_blob(ptr),
        Layout::Paper => memory.prefetch_slot(ptr.slot(0)),
        Layout::Adaptive => adaptive::node::prefetch(memory, ptr),
    }
}

/// All children of a node with several, in ascending order. For tools.
pub(crate) fn children(memory: Memory<'_>, ptr: Ptr) -> Vec<(u8, Ptr)> {
    let mut children = Vec::new();
    list(memory, ptr, false, &mut children);
    children
}

/// A node's steps to its own content, if it has both, and the view after them. For tools.
pub(crate) fn own_steps(memory: Memory<'_>, ptr: Ptr) -> (&[u8], View<'_>) {
    match view(memory, NodePosition::of(ptr)) {
        View::Chain { steps, next } if next.ptr == ptr => (steps, view(memory, next)),
        view => (&[], view),
    }
}

/// The result of one step along a key.
pub(crate) enum Step<'a> {
    /// The next node, and the number of key bytes consumed.
    To(Ptr, usize),
    Found(&'a [u8]),
    Absent,
}

/// Passes one node along `key`, from which the bytes consumed so far were removed.
#[inline]
pub(crate) fn step<'a>(memory: Memory<'a>, ptr: Ptr, key: &[u8]) -> Step<'a> {
    match memory.layout {
        Layout::Paper => paper::node::step(memory, ptr, key),
        Layout::Adaptive => adaptive::node::step(memory, ptr, key),
    }
}

/// The content at `key` in the trie.
#[inline]
pub(crate) fn get_from_root<'a>(memory: Memory<'a>, key: &[u8]) -> Option<&'a [u8]> {
    let root = memory.load(Slot::ROOT);
    match memory.layout {
        Layout::Paper => get(memory, NodePosition::of(root), key),
        Layout::Adaptive => adaptive::node::get(memory, root, key),
    }
}

/// The content at `key` below `place`.
#[inline]
pub(crate) fn get<'a>(memory: Memory<'a>, place: NodePosition, key: &[u8]) -> Option<&'a [u8]> {
    let mut ptr = place.ptr;
    if place.skip > 0 {
        match view(memory, place) {
            View::Leaf { tail, content } => return (tail == key).then_some(content),
            View::Chain { steps, next } => return get(memory, next, key.strip_prefix(steps)?),
            View::Prefix { content, .. } if key.is_empty() => return Some(content),
            View::Prefix { child, .. } => ptr = child,
            View::None | View::Few | View::Many => {}
        }
    }
    match memory.layout {
        Layout::Paper => descend(ptr, key, |ptr, key| paper::node::step(memory, ptr, key)),
        Layout::Adaptive => adaptive::node::get(memory, ptr, key),
    }
}

#[inline]
fn descend<'a>(mut ptr: Ptr, mut key: &[u8], step: impl Fn(Ptr, &[u8]) -> Step<'a>) -> Option<&'a [u8]> {
    loop {
        match step(ptr, key) {
            Step::To(next, bytes) => {
                ptr = next;
                key = &key[bytes..];
            }
            Step::Found(content) => return Some(content),
            Step::Absent => return None,
        }
    }
}

/// Whether there is content at `key` below the node in slot `root`.
pub(crate) fn has(memory: Memory<'_>, root: Slot, key: &[u8]) -> bool {
    get(memory, NodePosition::of(memory.load(root)), key).is_some()
}

/// The first steps of `key` from the root, through nodes that are in the cache in any large trie: where they lead, and
/// by how many bytes.
#[inline]
pub(crate) fn pass_top(memory: Memory<'_>, root: Ptr, key: &[u8]) -> (Ptr, usize) {
    match memory.layout {
        Layout::Paper => (root, 0),
        Layout::Adaptive => adaptive::node::pass_top(memory, root, key),
    }
}

/// How far `key` can be followed from the root through nodes that are in the cache in any large trie and do not change
/// while keys are put.
#[inline]
pub(crate) fn start(memory: Memory<'_>, root: Ptr, key: &[u8]) -> Start {
    match memory.layout {
        Layout::Paper => Start::ROOT,
        Layout::Adaptive => adaptive::node::start(memory, root, key),
    }
}

/// Whether there is so little below `ptr` that a put reads nothing more than it.
#[inline]
pub(crate) fn is_small(memory: Memory<'_>, ptr: Ptr) -> bool {
    match memory.layout {
        Layout::Paper => ptr.is_leaf() | ptr.is_none(),
        Layout::Adaptive => adaptive::node::is_small(ptr),
    }
}

/// Puts the content of one key, which leads through `start`.
#[inline]
pub(crate) fn put_from(
    memory: Memory<'_>,
    store: &mut Store,
    start: Start,
    key: &[u8],
    content: &[u8],
) -> Result<(), TrieFull> {
    match memory.layout {
        Layout::Paper => edit::put_from(&mut paper::edit::Operation { memory, store }, start, key, content),
        Layout::Adaptive => edit::put_from(&mut adaptive::edit::Operation { memory, store }, start, key, content),
    }
}

/// Prefetches what the step from `ptr` with `key` will read.
#[inline]
pub(crate) fn prefetch_step(memory: Memory<'_>, ptr: Ptr, key: &[u8]) {
    match memory.layout {
        Layout::Paper => prefetch(memory, ptr),
        Layout::Adaptive => adaptive::node::prefetch_step(memory, ptr, key),
    }
}

/// Changes the content of one key in place. `decide` receives the current content. Its result `None` keeps it,
/// `Some(None)` removes it, `Some(Some(content))` replaces it.
#[inline]
pub(crate) fn upsert<'c>(
    memory: Memory<'_>,
    store: &mut Store,
    key: &[u8],
    decide: impl FnOnce(Option<&[u8]>) -> Option<Option<&'c [u8]>>,
) -> Result<(), TrieFull> {
    let start = start(memory, memory.load(Slot::ROOT), key);
    match memory.layout {
        Layout::Paper => edit::upsert(&mut paper::edit::Operation { memory, store }, start, key, decide),
        Layout::Adaptive => edit::upsert(&mut adaptive::edit::Operation { memory, store }, start, key, decide),
    }
}

/// Publishes all edits below `prefix` by one store.
pub(crate) fn apply(memory: Memory<'_>, store: &mut Store, prefix: &[u8], edits: &[Edit<'_>]) -> Result<(), TrieFull> {
    match memory.layout {
        Layout::Paper => edit::apply(&mut paper::edit::Operation { memory, store }, prefix, edits),
        Layout::Adaptive => edit::apply(&mut adaptive::edit::Operation { memory, store }, prefix, edits),
    }
}

/// Puts `content` at `key` and removes everything below it, by one store. For [`Layout::Adaptive`] alone.
pub(crate) fn put_alone(memory: Memory<'_>, store: &mut Store, key: &[u8], content: &[u8]) -> Result<(), TrieFull> {
    debug_assert!(memory.layout == Layout::Adaptive, "the nodes have this layout");
    edit::put_alone(&mut adaptive::edit::Operation { memory, store }, key, content)
}

/// The kind of a node, for people.
pub(crate) fn kind_name(memory: Memory<'_>, ptr: Ptr) -> &'static str {
    match memory.layout {
        Layout::Paper => paper::node::kind_name(memory, ptr),
        Layout::Adaptive => adaptive::node::kind_name(ptr),
    }
}

/// Checks a node's own shape, and counts its bytes without those below it.
pub(crate) fn check(memory: Memory<'_>, ptr: Ptr) -> Result<usize, String> {
    match memory.layout {
        Layout::Paper => paper::check::check(memory, ptr),
        Layout::Adaptive => adaptive::check::check(memory, ptr),
    }
}
