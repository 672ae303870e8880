//! Going down many ways at once: while one key's next node is on its way from memory, the others take their steps.

use crate::node::{Place, Step, pass_top, prefetch_step, step};
use crate::raw::memory::{Memory, Ptr};

/// So many keys go together: more than the memory has requests under way, few enough for their state to stay near.
const TOGETHER: usize = 64;

/// A key that has not arrived: its index, the node it is at, and how many of its bytes are used up.
#[derive(Clone, Copy)]
struct Way {
    index: usize,
    ptr: Ptr,
    consumed: usize,
}

/// Finds the contents of `keys` and hands each over with its key's index, in the order in which they are found.
pub(crate) fn get_together<'a>(memory: Memory<'a>, keys: &[&[u8]], found: impl FnMut(usize, Option<&'a [u8]>)) {
    go_together::<true>(memory, keys, found);
}

/// Brings near what the ways of `keys` look at.
pub(crate) fn prefetch_together(memory: Memory<'_>, keys: &[&[u8]]) {
    go_together::<false>(memory, keys, |_, _| {});
}

/// Goes to the contents, or (without `TO_CONTENTS`) only until all leaves have been asked for.
fn go_together<'a, const TO_CONTENTS: bool>(
    memory: Memory<'a>,
    keys: &[&[u8]],
    mut found: impl FnMut(usize, Option<&'a [u8]>),
) {
    let root = Place::root(memory).ptr;
    let mut ways = [Way { index: 0, ptr: Ptr::NONE, consumed: 0 }; TOGETHER];
    for first in (0..keys.len()).step_by(TOGETHER) {
        let mut count = (keys.len() - first).min(TOGETHER);
        for (offset, way) in ways[..count].iter_mut().enumerate() {
            let index = first + offset;
            let (ptr, consumed) = pass_top(memory, root, keys[index]);
            prefetch_step(memory, ptr, &keys[index][consumed..]);
            *way = Way { index, ptr, consumed };
        }
        while count > 0 {
            let mut kept = 0;
            for at in 0..count {
                let way = ways[at];
                let content = match step(memory, way.ptr, &keys[way.index][way.consumed..]) {
                    Step::To(ptr, bytes) => {
                        let consumed = way.consumed + bytes;
                        prefetch_step(memory, ptr, &keys[way.index][consumed..]);
                        ways[kept] = Way { ptr, consumed, ..way };
                        kept += usize::from(TO_CONTENTS | !ptr.is_leaf());
                        continue;
                    }
                    Step::Found(content) => Some(content),
                    Step::Absent => None,
                };
                found(way.index, content);
            }
            count = kept;
        }
    }
}
