//! Gathering: contents move out of runs of which little is left, so that these become pages for pieces of any size
//! again.
//!
//! A content that is never replaced holds its run, and where sizes drift every size leaves such runs behind. The writer
//! goes through the trie a little with each batch of what it replaced, and puts what it finds there anew, as it is.
//! Readers see no difference.

use std::ops::{Bound, Range};

use crate::node::{self, Place};
use crate::raw::epoch::Epochs;
use crate::raw::memory::Memory;
use crate::store::Store;
use crate::tail::Tail;
use crate::trie::{Bounds, Direction};

/// A step looks at so many entries, and moves so many bytes.
const STEP_ENTRIES: usize = 256;
const STEP_BYTES: usize = 64 << 10;
/// Between passes one byte for so many in the trie is replaced.
const REST_SHARE: usize = 4;

/// Where it is.
#[derive(Default)]
pub(crate) struct Gathering {
    /// The next step starts here.
    next: Vec<u8>,
    /// All was looked at; the next pass starts when so many bytes were replaced, so that what passes cost stays in
    /// proportion to the writes.
    rest_bytes: usize,
    /// Keys and contents that move.
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, Range<usize>)>,
}

/// A step, if there is need; after a batch of `replaced_bytes` was closed.
pub(crate) fn gather(
    gathering: &mut Gathering,
    memory: Memory<'_>,
    store: &mut Store,
    epochs: &Epochs,
    replaced_bytes: usize,
) {
    gathering.rest_bytes = gathering.rest_bytes.saturating_sub(replaced_bytes);
    if gathering.rest_bytes > 0 || !store.has_gaps() {
        return;
    }
    gathering.find(memory, store);
    for (key, content) in gathering.entries.drain(..) {
        let (key, content) = (&gathering.bytes[key], &gathering.bytes[content]);
        if node::upsert(memory, store, key, |_| Some(Some(content))).is_err() {
            return store.roll_back(memory, epochs);
        }
        store.commit(memory, epochs);
    }
}

impl Gathering {
    /// Copies what will move.
    fn find(&mut self, memory: Memory<'_>, store: &Store) {
        self.bytes.clear();
        self.entries.clear();
        let bounds = Bounds { start: Bound::Included(self.next.as_slice()), end: Bound::Unbounded };
        let mut cursor = Tail::find(Some(memory), Place::root(memory), &[]).cursor(bounds, Direction::Forward);
        for _ in 0..STEP_ENTRIES {
            if !cursor.advance() {
                self.next = Vec::new();
                self.rest_bytes = store.memory_use().used / REST_SHARE;
                return;
            }
            if self.bytes.len() >= STEP_BYTES {
                break;
            }
            if store.is_sparse_around(cursor.content()) {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(cursor.key());
                let key = start..self.bytes.len();
                self.bytes.extend_from_slice(cursor.content());
                self.entries.push((key.clone(), key.end..self.bytes.len()));
            }
        }
        let next = cursor.key().to_vec();
        self.next = next;
    }
}
