//! Checks a whole trie: its shape, and that what it consists of is what the accounting says it uses.

use crate::node::{
    CHAIN_LAST, CHILD_WORD, CONTENT_WORD, FLAGS_WORD, PREFIX, SPARSE, SPARSE_CHILDREN_MAX, SPLIT, SPLIT_WORDS_FROM,
    STANDALONE, SparseWord,
};
use crate::raw::blobs::Blobs;
use crate::raw::blocks::BLOCK_BYTES;
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::trie::Writer;

struct Count<'a> {
    memory: Memory<'a>,
    bytes: usize,
    todo: Vec<Ptr>,
}

impl Writer<'_> {
    /// Walks everything and checks the invariants of `FORMAT.md`, and that exactly the used bytes are reachable (nothing leaked, nothing
    /// freed too early). For tests and tools: takes time in proportion to the trie.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn verify(&self) -> Result<(), String> {
        let (Some(memory), Some(store)) = self.raw_parts() else { return Ok(()) };
        let mut count = Count { memory, bytes: 0, todo: Vec::new() };
        let root = memory.load(Slot::ROOT);
        if !root.is_none() {
            count.todo.push(root);
        }
        while let Some(ptr) = count.todo.pop() {
            count.visit(ptr)?;
        }
        let used = store.memory_use().used;
        if used != count.bytes {
            return Err(format!("accounting says {used} bytes are used, {} are reachable", count.bytes));
        }
        Ok(())
    }
}

impl Count<'_> {
    fn child(&mut self, ptr: Ptr, of: Ptr) -> Result<(), String> {
        if ptr.is_none() {
            return Err(format!("node {:08x} has a child that is none", of.bits()));
        }
        self.todo.push(ptr);
        Ok(())
    }

    fn visit(&mut self, ptr: Ptr) -> Result<(), String> {
        let memory = self.memory;
        if ptr.is_leaf() {
            self.bytes += Blobs::bytes_of(memory.blob(ptr).len() as u32);
            return Ok(());
        }
        if ptr.kind() == PREFIX {
            return self.visit_prefix(ptr);
        }
        self.bytes += BLOCK_BYTES;
        match ptr.kind() {
            0..=CHAIN_LAST => self.child(memory.load(ptr.slot(CHILD_WORD)), ptr),
            SPARSE => self.visit_sparse(ptr),
            SPLIT => self.visit_split(ptr),
            kind => Err(format!("node {:08x} has no known kind: {kind}", ptr.bits())),
        }
    }

    fn visit_prefix(&mut self, ptr: Ptr) -> Result<(), String> {
        let content = self.memory.load(ptr.slot(CONTENT_WORD));
        if !content.is_leaf() {
            return Err(format!("prefix {:08x} has content {:08x}", ptr.bits(), content.bits()));
        }
        self.todo.push(content);
        let flags = self.memory.word(ptr.slot(FLAGS_WORD)) & 0xFF;
        if flags != STANDALONE {
            if flags != SPLIT && flags > CHAIN_LAST {
                return Err(format!("prefix {:08x} has flags {flags:02x}", ptr.bits()));
            }
            return self.child(ptr.with_kind(flags), ptr);
        }
        self.bytes += BLOCK_BYTES;
        let child = self.memory.load(ptr.slot(CHILD_WORD));
        if child.is_leaf() || child.kind() == PREFIX {
            return Err(format!("prefix {:08x} is on {:08x}", ptr.bits(), child.bits()));
        }
        self.child(child, ptr)
    }

    fn visit_sparse(&mut self, ptr: Ptr) -> Result<(), String> {
        let word = SparseWord::load(self.memory, ptr);
        let characters: Vec<u8> = word.places().map(|place| word.character(place)).collect();
        let sorted = characters.windows(2).all(|pair| pair[0] < pair[1]);
        if !sorted || !(2..=SPARSE_CHILDREN_MAX).contains(&characters.len()) {
            return Err(format!("sparse node {:08x} has the characters {characters:02x?}", ptr.bits()));
        }
        for place in word.places() {
            self.child(self.memory.load(ptr.slot(place)), ptr)?;
        }
        Ok(())
    }

    fn visit_split(&mut self, ptr: Ptr) -> Result<(), String> {
        let mut children = 0;
        for word in SPLIT_WORDS_FROM..8 {
            let middle = self.memory.load(ptr.slot(word));
            if middle.is_none() {
                continue;
            }
            self.bytes += BLOCK_BYTES;
            let mut tails = 0;
            for word in 0..8 {
                let tail = self.memory.load(middle.slot(word));
                if tail.is_none() {
                    continue;
                }
                self.bytes += BLOCK_BYTES;
                tails += 1;
                let below: Vec<Ptr> =
                    (0..8).map(|word| self.memory.load(tail.slot(word))).filter(|child| !child.is_none()).collect();
                if below.is_empty() {
                    return Err(format!("split {:08x} has an empty tail block", ptr.bits()));
                }
                children += below.len();
                self.todo.extend(below);
            }
            if tails == 0 {
                return Err(format!("split {:08x} has an empty middle block", ptr.bits()));
            }
        }
        if children <= crate::edit::SPLIT_CHILDREN_MIN {
            return Err(format!("split {:08x} has {children} children", ptr.bits()));
        }
        Ok(())
    }
}
