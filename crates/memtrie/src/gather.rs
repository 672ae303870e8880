//! Compaction of contents: they move out of runs that are mostly empty, so that these become free pages for pieces of
//! any size.
//!
//! A content that is never replaced keeps its run allocated, and where sizes drift every size class leaves such runs
//! behind. With each batch of pieces that it replaced, the writer walks a little further through the trie and rewrites
//! the contents that it finds in such runs. Readers see no difference.

use std::ops::{Bound, Range};

use crate::node::{self, NodePosition};
use crate::raw::epoch::Epochs;
use crate::raw::memory::Memory;
use crate::store::Store;
use crate::tail::Tail;
use crate::terms::{Bounds, Direction};

/// The most entries that a step examines.
const STEP_ENTRIES: usize = 256;
const STEP_BYTES: usize = 64 << 10;
/// Between two passes, one byte in this many of the trie's must be replaced.
const REST_SHARE: usize = 4;

/// The progress of the passes.
#[derive(Default)]
pub(crate) struct Gathering {
    /// The key at which the next step starts.
    next: Vec<u8>,
    /// A pass is complete. The next one starts when this many bytes were replaced, so that the cost of passes stays
    /// proportional to the writes.
    rest_bytes: usize,
    /// The keys and contents to move.
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, Range<usize>)>,
}

/// Does a step if there is need, after a batch of `replaced_bytes` was closed.
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
    /// Copies the contents that have to move.
    fn find(&mut self, memory: Memory<'_>, store: &Store) {
        self.bytes.clear();
        self.entries.clear();
        let bounds = Bounds { start: Bound::Included(self.next.as_slice()), end: Bound::Unbounded };
        let mut cursor = Tail::find(Some(memory), NodePosition::root(memory), &[]).cursor(bounds, Direction::Forward);
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
