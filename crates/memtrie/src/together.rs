//! Following many keys at once: while one key's next node is being fetched from memory, the others take their steps.

use crate::edit::Start;
use crate::node::{self, NodePosition, Step, pass_top, prefetch_step, step};
use crate::raw::memory::{Memory, Ptr};

/// How many keys are followed together: more than memory can have requests in flight, and few enough for their state to
/// stay in the cache.
pub(crate) const TOGETHER: usize = 64;

/// A key in progress: its index, its current node, and how many of its bytes were consumed.
#[derive(Clone, Copy)]
struct Lookup {
    index: usize,
    ptr: Ptr,
    consumed: usize,
}

/// Finds the contents of `keys` and passes each on with its key's index, in the order in which they are found.
pub(crate) fn get_together<'a>(memory: Memory<'a>, keys: &[&[u8]], mut found: impl FnMut(usize, Option<&'a [u8]>)) {
    for (chunk, keys) in keys.chunks(TOGETHER).enumerate() {
        let mut lookups = Lookups::from_top(memory, keys.iter().copied());
        lookups.run::<true>(memory, |index| keys[index], |index, content| found(chunk * TOGETHER + index, content));
    }
}

/// Prefetches what look-ups of `keys` read.
pub(crate) fn prefetch_together(memory: Memory<'_>, keys: &[&[u8]]) {
    for keys in keys.chunks(TOGETHER) {
        Lookups::from_top(memory, keys.iter().copied()).run::<false>(memory, |index| keys[index], |_, _| {});
    }
}

/// Like `prefetch_together`, for the keys of at most `TOGETHER` entries. Returns for each how far its path was followed
/// through nodes that do not change while the others are put.
#[inline]
pub(crate) fn start_together(memory: Memory<'_>, entries: &[(&[u8], &[u8])]) -> [Start; TOGETHER] {
    let root = NodePosition::root(memory).ptr;
    let mut starts = [Start::ROOT; TOGETHER];
    for (start, (key, _)) in starts.iter_mut().zip(entries) {
        *start = node::start(memory, root, key);
        memory.prefetch_slot(start.slot);
    }
    let mut lookups = Lookups::NONE;
    for (index, start) in starts[..entries.len()].iter().enumerate() {
        let ptr = memory.load(start.slot);
        node::prefetch(memory, ptr);
        if !node::is_small(memory, ptr) {
            lookups.push(Lookup { index, ptr, consumed: start.consumed });
        }
    }
    lookups.run::<false>(memory, |index| entries[index].0, |_, _| {});
    starts
}

struct Lookups {
    lookups: [Lookup; TOGETHER],
    count: usize,
}

impl Lookups {
    const NONE: Lookups = Lookups { lookups: [Lookup { index: 0, ptr: Ptr::NONE, consumed: 0 }; TOGETHER], count: 0 };

    #[inline]
    fn push(&mut self, lookup: Lookup) {
        self.lookups[self.count] = lookup;
        self.count += 1;
    }

    #[inline]
    fn from_top<'k>(memory: Memory<'_>, keys: impl Iterator<Item = &'k [u8]>) -> Lookups {
        let root = NodePosition::root(memory).ptr;
        let mut lookups = Lookups::NONE;
        for (index, key) in keys.enumerate() {
            let (ptr, consumed) = pass_top(memory, root, key);
            prefetch_step(memory, ptr, &key[consumed..]);
            lookups.push(Lookup { index, ptr, consumed });
        }
        lookups
    }

    /// Follows the keys to their contents, or (without `TO_CONTENTS`) only until all leaves were prefetched.
    #[inline]
    fn run<'a, 'k, const TO_CONTENTS: bool>(
        &mut self,
        memory: Memory<'a>,
        key: impl Fn(usize) -> &'k [u8],
        mut found: impl FnMut(usize, Option<&'a [u8]>),
    ) {
        while self.count > 0 {
            let mut kept = 0;
            for at in 0..self.count {
                let lookup = self.lookups[at];
                let content = match step(memory, lookup.ptr, &key(lookup.index)[lookup.consumed..]) {
                    Step::To(ptr, bytes) => {
                        let consumed = lookup.consumed + bytes;
                        prefetch_step(memory, ptr, &key(lookup.index)[consumed..]);
                        self.lookups[kept] = Lookup { ptr, consumed, ..lookup };
                        kept += usize::from(TO_CONTENTS | !ptr.is_leaf());
                        continue;
                    }
                    Step::Found(content) => Some(content),
                    Step::Absent => None,
                };
                found(lookup.index, content);
            }
            self.count = kept;
        }
    }
}
