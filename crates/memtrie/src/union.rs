//! A union of several cursors.

use crate::cursor::Cursor;
use crate::terms::Direction;

/// The keys of several cursors in one order, each key once. Several contents of one key are resolved to one.
///
/// All cursors move in the same direction. Moving allocates nothing in the long run.
pub struct Union<'a, R> {
    cursors: Vec<Cursor<'a>>,
    /// The indexes of the cursors that have an entry, as a heap with the first key (and of equal keys the first cursor)
    /// on top.
    heap: Vec<usize>,
    /// The cursors that are on the current key, in their order; the heap has the others.
    current: Vec<usize>,
    reverse: bool,
    started: bool,
    resolve: R,
    /// The contents of the current key.
    met: Vec<&'a [u8]>,
    resolved: Vec<u8>,
}

impl<'a, R: FnMut(&[&[u8]], &mut Vec<u8>)> Union<'a, R> {
    /// A union of `cursors`, which are before their first entries and all move in `direction`. Where several have a
    /// key, `resolve` receives their contents in the order of `cursors` and writes the result to an empty buffer.
    pub fn new(cursors: Vec<Cursor<'a>>, direction: Direction, resolve: R) -> Union<'a, R> {
        let (heap, current) = (Vec::with_capacity(cursors.len()), Vec::with_capacity(cursors.len()));
        let reverse = direction == Direction::Reverse;
        Union { cursors, heap, current, reverse, started: false, resolve, met: Vec::new(), resolved: Vec::new() }
    }

    /// The current key. Empty before the first entry and after the last.
    pub fn key(&self) -> &[u8] {
        self.current.first().map_or(&[], |&first| self.cursors[first].key())
    }

    /// The current content: that of the only cursor that has the key, or the resolved one.
    pub fn content(&self) -> &[u8] {
        match self.current[..] {
            [] => &[],
            [only] => self.cursors[only].content(),
            _ => &self.resolved,
        }
    }

    /// Moves to the next key. Returns false if there is none.
    pub fn advance(&mut self) -> bool {
        if self.started {
            while let Some(index) = self.current.pop() {
                if self.cursors[index].advance() {
                    self.push(index);
                }
            }
        } else {
            self.start(|cursor| cursor.advance());
        }
        self.take_first()
    }

    /// Moves forward (in the direction) to the first key at `target` or after it, or stays if it is there already.
    /// Returns false if there is none.
    pub fn skip_to(&mut self, target: &[u8]) -> bool {
        if !self.started {
            self.start(|cursor| cursor.skip_to(target));
            return self.take_first();
        }
        if !self.current.is_empty() && !self.before(self.key(), target) {
            return true;
        }
        while let Some(index) = self.current.pop() {
            if self.cursors[index].skip_to(target) {
                self.push(index);
            }
        }
        while let Some(&top) = self.heap.first()
            && self.before(self.cursors[top].key(), target)
        {
            self.pop();
            if self.cursors[top].skip_to(target) {
                self.push(top);
            }
        }
        self.take_first()
    }

    fn start(&mut self, mut go: impl FnMut(&mut Cursor<'a>) -> bool) {
        self.started = true;
        for index in 0..self.cursors.len() {
            if go(&mut self.cursors[index]) {
                self.push(index);
            }
        }
    }

    /// Takes all cursors with the first key out of the heap.
    fn take_first(&mut self) -> bool {
        let Some(first) = self.pop() else { return false };
        self.current.push(first);
        while let Some(&top) = self.heap.first()
            && self.cursors[top].key() == self.cursors[first].key()
        {
            self.pop();
            self.current.push(top);
        }
        if self.current.len() > 1 {
            self.resolved.clear();
            self.met.clear();
            self.met.extend(self.current.iter().map(|&index| self.cursors[index].content()));
            (self.resolve)(&self.met, &mut self.resolved);
        }
        true
    }

    fn before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.reverse { a > b } else { a < b }
    }

    /// Whether the entry of cursor `a` comes before that of cursor `b`.
    fn is_first(&self, a: usize, b: usize) -> bool {
        let (key_a, key_b) = (self.cursors[a].key(), self.cursors[b].key());
        self.before(key_a, key_b) || key_a == key_b && a < b
    }

    fn push(&mut self, index: usize) {
        let mut at = self.heap.len();
        self.heap.push(index);
        while at > 0 && self.is_first(self.heap[at], self.heap[(at - 1) / 2]) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let top = *self.heap.first()?;
        self.heap.swap_remove(0);
        let mut at = 0;
        loop {
            let first = [2 * at + 1, 2 * at + 2].into_iter().filter(|&below| below < self.heap.len()).fold(
                at,
                |first, below| {
                    if self.is_first(self.heap[below], self.heap[first]) { below } else { first }
                },
            );
            if first == at {
                return Some(top);
            }
            self.heap.swap(at, first);
            at = first;
        }
    }
}
