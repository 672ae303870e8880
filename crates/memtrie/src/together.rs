//! Going down many ways at once: while one key's next node is on its way from memory, the others take their steps.

use crate::node::{Place, Step, prefetch_step, step};
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
pub(crate) fn get_together<'a>(memory: Memory<'a>, keys: &[&[u8]], mut found: impl FnMut(usize, Option<&'a [u8]>)) {
    let root = Place::root(memory).ptr;
    let mut ways = [Way { index: 0, ptr: Ptr::NONE, consumed: 0 }; TOGETHER];
    for first in (0..keys.len()).step_by(TOGETHER) {
        let mut count = (keys.len() - first).min(TOGETHER);
        for (offset, way) in ways[..count].iter_mut().enumerate() {
            *way = Way { index: first + offset, ptr: root, consumed: 0 };
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
                        kept += 1;
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
