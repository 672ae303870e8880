//! Changes of a trie of either layout: what there is to a put, a removal and a set of edits besides the nodes.
//!
//! A layout's writer finds where a key leaves the trie, on the way noting where a branch that only leads to the key
//! would be cut off. The rest follows from that.

use crate::TrieFull;
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::store::Store;
use crate::trie::Edit;

/// The deepest place on a key's way whose node has something besides the branch to the key: there the branch is cut
/// off.
#[derive(Clone, Copy)]
pub(crate) struct Joint {
    pub slot: Slot,
    /// Bytes of the key used up on the way to `slot`.
    pub consumed: usize,
    /// There is no such place: `slot` is the root, and nothing will be left.
    pub is_root: bool,
    /// Where the pointer to the chain is whose child `slot` has, if a layout makes one piece of a chain and what
    /// follows.
    pub chain: Option<Slot>,
}

/// A place on a key's way from which it is followed.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub slot: Slot,
    /// Bytes of the key used up on the way to `slot`.
    pub consumed: usize,
}

impl Start {
    pub(crate) const ROOT: Start = Start { slot: Slot::ROOT, consumed: 0 };
}

/// Where a key leaves the trie, or ends in it.
pub(crate) struct Locus<'a> {
    pub slot: Slot,
    /// What `slot` holds.
    pub ptr: Ptr,
    /// Bytes of the key used up on the way to `slot`.
    pub consumed: usize,
    /// Bytes of the steps or of the tail at `ptr` that the key follows beyond `consumed`.
    pub matched: usize,
    /// The content at the key.
    pub content: Option<&'a [u8]>,
    /// As in [`Joint`], of `slot`.
    pub chain: Option<Slot>,
    pub joint: Joint,
}

impl Joint {
    /// Before any step from `root`.
    pub(crate) fn root(root: Slot) -> Joint {
        Joint { slot: root, consumed: 0, is_root: true, chain: None }
    }
}

impl Locus<'_> {
    /// True if the key ends here, in the trie.
    fn is_end_of(&self, key: &[u8]) -> bool {
        self.consumed + self.matched == key.len() && !self.ptr.is_none()
    }
}

/// A layout's writer.
pub(crate) trait Structure<'o> {
    fn memory(&self) -> Memory<'o>;

    fn store(&mut self) -> &mut Store;

    /// Follows `key` down from `root` as far as it goes. A copying operation makes every node on the way its own.
    fn locate(&mut self, root: Slot, key: &[u8]) -> Result<Locus<'o>, TrieFull> {
        self.locate_from(Start { slot: root, consumed: 0 }, key)
    }

    /// As `locate`, from somewhere on the way. The locus has no joint above that.
    fn locate_from(&mut self, start: Start, key: &[u8]) -> Result<Locus<'o>, TrieFull>;

    /// Puts `content` at `key`, whose locus this is.
    fn put(&mut self, locus: &Locus<'o>, key: &[u8], content: &[u8]) -> Result<(), TrieFull>;

    /// What is at and below the key that ends at this locus; unlinks what it takes apart for that.
    fn below(&mut self, locus: &Locus<'o>) -> Result<Ptr, TrieFull>;

    /// Puts a branch at `key`, whose locus this is, instead of what `below` gave.
    fn attach(&mut self, locus: &Locus<'o>, key: &[u8], branch: Ptr) -> Result<(), TrieFull>;

    /// Takes the content off the inner node at this locus.
    fn take_content(&mut self, locus: &Locus<'o>) -> Result<(), TrieFull>;

    /// Cuts off the branch that leads from the joint along `rest`. What is at its end was unlinked.
    fn cut(&mut self, joint: &Joint, rest: &[u8]) -> Result<(), TrieFull>;
}

/// Changes the content of one key, which leads through `start`, in place. `decide` gets what is there and answers:
/// `None` keeps it, `Some(None)` removes it, `Some(Some(content))` replaces it.
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
        // The joint may be above the start.
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

/// Makes all edits below `prefix` visible by one store: they are made to copies, below a root that no reader sees.
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
            // The way to a key that is not there is not copied.
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

/// Removes the content at `key`, whose locus this is, if there is one, and every ancestor that is left with nothing.
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
