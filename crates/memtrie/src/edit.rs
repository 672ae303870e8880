//! Changes of a trie of either layout: puts, removals and sets of edits, apart from the nodes.
//!
//! A layout's writer finds where a key leaves the trie. On the way it records where a branch that only leads to the key
//! could be cut off. The rest follows from that.

use crate::raw::memory::{Memory, Ptr, Slot};
use crate::store::Store;
use crate::terms::Edit;
use crate::terms::TrieFull;

/// The deepest place on a key's path whose node has something besides the branch to the key. There the branch is cut
/// off.
#[derive(Clone, Copy)]
pub(crate) struct Joint {
    pub slot: Slot,
    /// The number of the key's bytes consumed on the way to `slot`.
    pub consumed: usize,
    /// There is no such place: `slot` is the root, and nothing will remain.
    pub is_root: bool,
    /// The slot of the pointer to the chain above `slot`, if the layout can join a chain with what follows.
    pub chain: Option<Slot>,
}

/// A place on a key's path from which to follow the key.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub slot: Slot,
    /// The number of the key's bytes consumed on the way to `slot`.
    pub consumed: usize,
}

impl Start {
    pub(crate) const ROOT: Start = Start { slot: Slot::ROOT, consumed: 0 };
}

/// Where a key leaves the trie, or ends in it.
pub(crate) struct Locus<'a> {
    pub slot: Slot,
    /// The pointer in `slot`.
    pub ptr: Ptr,
    /// The number of the key's bytes consumed on the way to `slot`.
    pub consumed: usize,
    /// The number of bytes of the steps or the tail at `ptr` that the key follows beyond `consumed`.
    pub matched: usize,
    /// The content at the key.
    pub content: Option<&'a [u8]>,
    /// As in [`Joint`], for `slot`.
    pub chain: Option<Slot>,
    pub joint: Joint,
}

impl Joint {
    /// A joint before any step from `root`.
    pub(crate) fn root(root: Slot) -> Joint {
        Joint { slot: root, consumed: 0, is_root: true, chain: None }
    }
}

impl Locus<'_> {
    /// Whether the key ends here, in the trie.
    fn is_end_of(&self, key: &[u8]) -> bool {
        self.consumed + self.matched == key.len() && !self.ptr.is_none()
    }
}

/// The operations of a layout's writer.
pub(crate) trait Structure<'o> {
    fn memory(&self) -> Memory<'o>;

    fn store(&mut self) -> &mut Store;

    /// Follows `key` down from `root` as far as possible. A copying operation copies every node on the way that is not
    /// its own.
    fn locate(&mut self, root: Slot, key: &[u8]) -> Result<Locus<'o>, TrieFull> {
        self.locate_from(Start { slot: root, consumed: 0 }, key)
    }

    /// Like `locate`, from a place on the path. The locus has no joint above that place.
    fn locate_from(&mut self, start: Start, key: &[u8]) -> Result<Locus<'o>, TrieFull>;

    /// Puts `content` at `key`, whose locus is given.
    fn put(&mut self, locus: &Locus<'o>, key: &[u8], content: &[u8]) -> Result<(), TrieFull>;

    /// The subtree at the key that ends at this locus. Unlinks the nodes that it has to take apart.
    fn below(&mut self, locus: &Locus<'o>) -> Result<Ptr, TrieFull>;

    /// Attaches a branch at `key`, whose locus is given, in place of the result of `below`.
    fn attach(&mut self, locus: &Locus<'o>, key: &[u8], branch: Ptr) -> Result<(), TrieFull>;

    /// Removes the content of the inner node at this locus.
    fn take_content(&mut self, locus: &Locus<'o>) -> Result<(), TrieFull>;

    /// Cuts off the branch from the joint along `rest`. What is at its end was already unlinked.
    fn cut(&mut self, joint: &Joint, rest: &[u8]) -> Result<(), TrieFull>;
}

/// A layout whose writer can unlink a branch as a whole.
pub(crate) trait Clearing<'o>: Structure<'o> {
    /// Unlinks a node and all nodes and contents below it.
    fn unlink_all(&mut self, top: Ptr);

    /// A branch of this content alone, with no further steps.
    fn alone(&mut self, content: &[u8]) -> Result<Ptr, TrieFull>;
}

/// Changes the content of one key, which leads through `start`, in place. `decide` receives the current content. Its
/// result `None` keeps it, `Some(None)` removes it, `Some(Some(content))` replaces it.
#[inline]
pub(crate) fn upsert<'o, 'c>(
    structure: &mut impl Structure<'o>,
    start: Start,
    key: &[u8],
    decide: impl FnOnce(Option<&[u8]>) -> Option<Option<&'c [u8]>>,
) -> Result<(), TrieFull> {
    let locus = structure.locate_from(start, key)?;
    match decide(locus.content) {
        None => Ok(()),
        Some(Some(content)) => structure.put(&locus, key, content),
        Some(None) if locus.content.is_none() => Ok(()),
        // The joint may be above the start, so the key is located again from the root.
        Some(None) => {
            let locus = structure.locate(Slot::ROOT, key)?;
            remove(structure, &locus, key)
        }
    }
}

/// Puts the content of one key, which leads through `start`.
#[inline]
pub(crate) fn put_from<'o>(
    structure: &mut impl Structure<'o>,
    start: Start,
    key: &[u8],
    content: &[u8],
) -> Result<(), TrieFull> {
    let locus = structure.locate_from(start, key)?;
    structure.put(&locus, key, content)
}

/// Publishes all edits below `prefix` by one store: they are made to copies, below a root that no reader sees.
pub(crate) fn apply<'o>(structure: &mut impl Structure<'o>, prefix: &[u8], edits: &[Edit<'_>]) -> Result<(), TrieFull> {
    let memory = structure.memory();
    let locus = structure.locate(Slot::ROOT, prefix)?;
    let before = if locus.is_end_of(prefix) {
        structure.store().copy_from_here();
        structure.below(&locus)?
    } else {
        Ptr::NONE
    };
    let taken_apart = structure.store().has_replaced();
    memory.publish(Slot::PENDING, before);
    for edit in edits {
        match edit.content {
            Some(content) => {
                let locus = structure.locate(Slot::PENDING, edit.suffix)?;
                structure.put(&locus, edit.suffix, content)?;
            }
            // The path to a key that does not exist is not copied.
            None if crate::node::has(memory, Slot::PENDING, edit.suffix) => {
                let locus = structure.locate(Slot::PENDING, edit.suffix)?;
                remove(structure, &locus, edit.suffix)?;
            }
            None => {}
        }
    }
    let after = memory.load(Slot::PENDING);
    if after == before && !taken_apart {
        return Ok(());
    }
    structure.store().copy_to_here();
    if after.is_none() {
        return structure.cut(&locus.joint, &prefix[locus.joint.consumed..]);
    }
    structure.attach(&locus, prefix, after)
}

/// Puts `content` at `key` and removes everything below it, by one store. Nothing that was below is copied.
pub(crate) fn put_alone<'o>(structure: &mut impl Clearing<'o>, key: &[u8], content: &[u8]) -> Result<(), TrieFull> {
    let locus = structure.locate(Slot::ROOT, key)?;
    if !locus.is_end_of(key) {
        return structure.put(&locus, key, content);
    }
    structure.unlink_all(locus.ptr);
    let alone = structure.alone(content)?;
    structure.attach(&locus, key, alone)
}

/// Removes the content at `key`, whose locus is given, if there is one, and every ancestor that would be left empty.
fn remove<'o>(structure: &mut impl Structure<'o>, locus: &Locus<'o>, key: &[u8]) -> Result<(), TrieFull> {
    if locus.content.is_none() {
        return Ok(());
    }
    if !locus.ptr.is_leaf() {
        return structure.take_content(locus);
    }
    structure.store().replace(locus.ptr);
    structure.cut(&locus.joint, &key[locus.joint.consumed..])
}
