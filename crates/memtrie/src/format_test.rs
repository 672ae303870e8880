//! Runs the examples of `FORMAT.md`. Each is a script (`puts` and `removes` have a key for each character). Below a
//! command are the stores to words that a reader could reach before it, and all blocks of the trie after it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::node::adaptive;
use crate::node::paper::node::{
    CHILD_WORD, CONTENT_WORD, FLAGS_WORD, Kind, SPLIT_WORDS_FROM, SparseWord, kind, prefix, split_blocks, split_next,
};
use crate::raw::memory::{Memory, Ptr, Slot};
use crate::terms::{Edit, Layout, TrieOptions};
use crate::trie::Trie;

/// What readers may read: by node and word, the bits that are meaningful to them, and whether it is a wide word.
type Words = BTreeMap<(u32, u32), (u64, u64, bool)>;

/// A trie as readers see it: its words, and a dump of all of it.
struct Seen {
    words: Words,
    text: String,
}

fn look(memory: Memory<'_>) -> Seen {
    let root = memory.load(Slot::ROOT);
    let mut text = format!("  root {:08x}\n", root.bits());
    match memory.layout {
        Layout::Paper => {
            let reachable = Reachable::of(memory);
            reachable.write(&mut text);
            Seen { words: reachable.words, text }
        }
        Layout::Adaptive => {
            let mut words = Words::new();
            words.insert((0, 0), (u64::from(root.bits()), u64::MAX, false));
            let mut lines = BTreeMap::new();
            look_at(memory, root, &mut words, &mut lines);
            write_lines(&lines, &mut text);
            Seen { words, text }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adjacent leaves with the same contents share a line.
fn write_lines(lines: &BTreeMap<(bool, u32), String>, text: &mut String) {
    let lines: Vec<_> = lines.iter().collect();
    let same = |a: &Line<'_>, b: &Line<'_>| a.0.0 && b.0.0 && a.0.1 + 1 == b.0.1 && a.1 == b.1;
    for run in lines.chunk_by(same) {
        let ((is_leaf, first), line) = run[0];
        let _ = match (is_leaf, run.len()) {
            (false, _) => write!(text, "{line}"),
            (true, 1) => write!(text, "  {:08x} {line}", !first),
            (true, count) => write!(text, "  {:08x} down to {:08x}, each {line}", !first, !(first + count as u32 - 1)),
        };
    }
}

/// Whether it is a leaf, its unit, and its line in the dump.
type Line<'a> = (&'a (bool, u32), &'a String);

/// Dumps a node of the adaptive layout and everything below it; meaningless bytes are shown as dots.
fn look_at(memory: Memory<'_>, ptr: Ptr, words: &mut Words, lines: &mut BTreeMap<(bool, u32), String>) {
    if ptr.is_none() {
        return;
    }
    if ptr.is_leaf() {
        let leaf = memory.leaf(ptr);
        let line = format!("leaf: tail {} content {}\n", hex(leaf.tail), hex(leaf.content));
        lines.insert((true, ptr.unit()), line);
        return;
    }
    let mut line = format!("  {:3} {}:", ptr.node_unit(), adaptive::node::kind_name(ptr));
    let mut below = Vec::new();
    let mut pointer = |word: u32, words: &mut Words, line: &mut String| {
        let child = memory.load(ptr.node_slot(word));
        words.insert((ptr.node_unit(), word), (u64::from(child.bits()), u64::MAX, false));
        let _ = write!(line, " {}", hex(&child.bits().to_le_bytes()));
        below.push(child);
    };
    match ptr.node_kind() {
        adaptive::node::CHAIN => {
            pointer(0, words, &mut line);
            let steps = adaptive::node::chain_steps(memory, ptr);
            let _ = write!(line, " {:02x} {}", steps.len(), hex(steps));
        }
        adaptive::node::CONTENT_CHAIN => {
            pointer(0, words, &mut line);
            let chain = adaptive::node::content_chain(memory, ptr);
            let (steps, content) = (chain.steps, chain.content);
            let _ = write!(line, " {:02x}{:02x} {} {}", steps.len(), content.len(), hex(steps), hex(content));
        }
        adaptive::node::PREFIX => (0..2).for_each(|word| pointer(word, words, &mut line)),
        adaptive::node::FLAT => {
            for word in 0..256 {
                let child = memory.load(ptr.node_slot(word));
                words.insert((ptr.node_unit(), word), (u64::from(child.bits()), u64::MAX, false));
                if !child.is_none() {
                    let _ = write!(line, " {word:02x}");
                    pointer(word, words, &mut line);
                }
            }
        }
        kind => {
            let shape = adaptive::node::shape(kind);
            let count = shape.count(memory, ptr);
            for (slot_word, mask, wide) in shape.meaning(count) {
                let slot = ptr.node_slot(slot_word);
                let bits = if wide { memory.load_wide(slot) } else { u64::from(memory.load(slot).bits()) };
                words.insert((ptr.node_unit(), slot_word), (bits & mask, mask, wide));
                line.push(' ');
                for byte in 0..if wide { 8 } else { 4 } {
                    let _ = match mask >> (8 * byte) & 0xFF {
                        0 => write!(line, ".."),
                        _ => write!(line, "{:02x}", bits >> (8 * byte) & 0xFF),
                    };
                }
            }
            line.push_str(" |");
            (0..count).for_each(|place| pointer(shape.child_word(place), words, &mut line));
        }
    }
    line.push('\n');
    lines.insert((false, ptr.node_unit()), line);
    below.into_iter().for_each(|child| look_at(memory, child, words, lines));
}

struct Reachable<'a> {
    memory: Memory<'a>,
    words: Words,
    /// For each block its kind, and its bytes in use.
    blocks: BTreeMap<u32, (&'static str, [Option<u8>; 32])>,
}

impl Reachable<'_> {
    fn of(memory: Memory<'_>) -> Reachable<'_> {
        let mut reachable = Reachable { memory, words: Words::new(), blocks: BTreeMap::new() };
        let root = memory.load(Slot::ROOT);
        reachable.words.insert((0, 0), (u64::from(root.bits()), u64::MAX, false));
        reachable.visit(root);
        reachable
    }

    fn word(&mut self, name: &'static str, ptr: Ptr, word: u32, from_byte: usize, to_byte: usize) {
        let bytes = self.memory.word(ptr.slot(word)).to_le_bytes();
        self.words.insert((ptr.block_number(), word), (u64::from(u32::from_le_bytes(bytes)), u64::MAX, false));
        let (kind, block) = self.blocks.entry(ptr.block_number()).or_insert((name, [None; 32]));
        if *kind != name {
            *kind = name;
        }
        for byte in from_byte..to_byte {
            block[word as usize * 4 + byte] = Some(bytes[byte]);
        }
    }

    fn pointer(&mut self, name: &'static str, ptr: Ptr, word: u32) -> Ptr {
        self.word(name, ptr, word, 0, 4);
        self.memory.load(ptr.slot(word))
    }

    fn visit(&mut self, ptr: Ptr) {
        if ptr.is_none() || ptr.is_leaf() {
            return;
        }
        match kind(ptr) {
            Kind::Prefix => {
                let prefix = prefix(self.memory, ptr);
                if prefix.child_slot.is_some() {
                    self.pointer("prefix", ptr, CHILD_WORD);
                    self.visit(prefix.child);
                } else {
                    self.visit(prefix.child);
                }
                let name = if prefix.child_slot.is_some() { "prefix" } else { "embedded prefix" };
                self.word(name, ptr, CONTENT_WORD, 0, 4);
                self.word(name, ptr, FLAGS_WORD, 0, 1);
            }
            Kind::Chain => {
                for word in ptr.kind() / 4..7 {
                    let from = (ptr.kind() as usize).saturating_sub(word as usize * 4).min(4);
                    self.word("chain", ptr, word, from, 4);
                }
                let child = self.pointer("chain", ptr, CHILD_WORD);
                self.visit(child);
            }
            Kind::Sparse => {
                let word = SparseWord::load(self.memory, ptr);
                for place in 0..word.count() {
                    let child = self.pointer("sparse", ptr, place);
                    self.visit(child);
                }
                self.words.insert((ptr.block_number(), 6), (word.0, u64::MAX, true));
                if let Some((_, block)) = self.blocks.get_mut(&ptr.block_number()) {
                    for (byte, value) in word.0.to_le_bytes().into_iter().enumerate() {
                        block[24 + byte] = Some(value);
                    }
                }
            }
            Kind::Split => {
                for (index, block) in split_blocks(self.memory, ptr).into_iter().enumerate() {
                    let name = if index == 0 { "split" } else { "split, lower" };
                    for word in if index == 0 { SPLIT_WORDS_FROM } else { 0 }..8 {
                        self.pointer(name, block, word);
                    }
                }
                let mut from = Some(0);
                while let Some((character, child)) = from.and_then(|from| split_next(self.memory, ptr, from, false)) {
                    self.visit(child);
                    from = character.checked_add(1);
                }
            }
        }
    }

    fn write(&self, out: &mut String) {
        for (number, (kind, bytes)) in &self.blocks {
            let _ = write!(out, "  {number:2}");
            for word in bytes.chunks(4) {
                out.push(' ');
                for byte in word {
                    let _ = match byte {
                        Some(byte) => write!(out, "{byte:02x}"),
                        None => write!(out, ".."),
                    };
                }
            }
            let _ = writeln!(out, "  {kind}");
        }
    }
}

fn run(script: &str, layout: Layout) -> String {
    let trie = Trie::new(TrieOptions { layout, ..TrieOptions::default() });
    let mut out = String::new();
    for line in script.lines().filter(|line| !line.starts_with(' ')) {
        let _ = writeln!(out, "{line}");
        // The pin prevents reachable pieces from being recycled.
        let _pin = trie.pin();
        let before = trie.raw_memory().map(|memory| look(memory).words).unwrap_or_default();
        let mut words = line.split_whitespace().map(|word| word.trim_matches('"'));
        let (command, key) = (words.next().expect("a command"), words.next().expect("a key"));
        let mut writer = trie.writer();
        match command {
            "put" => writer.put(key.as_bytes(), words.next().expect("a content").as_bytes()).expect("room"),
            "puts" => {
                let content = words.next().expect("a content");
                key.bytes().for_each(|character| writer.put(&[character], content.as_bytes()).expect("room"));
            }
            "remove" => assert!(writer.remove(key.as_bytes()).expect("room")),
            "removes" => key.bytes().for_each(|character| assert!(writer.remove(&[character]).expect("room"))),
            "apply" => {
                let edits: Vec<Edit<'_>> = words
                    .map(|edit| match edit.split_once('=') {
                        Some((suffix, content)) => {
                            Edit { suffix: suffix.as_bytes(), content: Some(content.as_bytes()) }
                        }
                        None => Edit { suffix: edit.as_bytes(), content: None },
                    })
                    .collect();
                writer.apply(key.as_bytes(), &edits).expect("room");
            }
            command => panic!("{command}?"),
        }
        writer.verify().expect("sound");
        let memory = trie.raw_memory().expect("written");
        let changed: Vec<_> = before
            .iter()
            .filter_map(|(&(node, word), &(old, mask, is_wide))| {
                let slot = match layout {
                    Layout::Paper => Ptr::for_block(node).slot(word),
                    Layout::Adaptive => Ptr::node(node, 0).node_slot(word),
                };
                let bits = if is_wide { memory.load_wide(slot) } else { u64::from(memory.load(slot).bits()) };
                (bits & mask != old).then_some((node, word, old, bits, is_wide))
            })
            .collect();
        if command.ends_with('s') {
            out.push_str(&look(memory).text);
            continue;
        }
        // W1: readers can reach the result of any change through one store only.
        assert!(changed.len() == 1 || before.is_empty(), "{line}: {changed:?}");
        for (block, word, old, new, is_wide) in changed {
            let _ = match is_wide {
                true => writeln!(out, "  store {block}.{word}: {old:016x} -> {new:016x}"),
                false => writeln!(out, "  store {block}.{word}: {old:08x} -> {new:08x}"),
            };
        }
        out.push_str(&look(memory).text);
    }
    out
}

#[test]
fn the_examples_of_the_format_are_true() {
    let format = include_str!("../FORMAT.md");
    let (mut examples, mut wrong) = (0, String::new());
    for (fence, layout) in [("```trie\n", Layout::Paper), ("```trie adaptive\n", Layout::Adaptive)] {
        for block in format.split(fence).skip(1) {
            let (script, _) = block.split_once("```").expect("the example ends");
            let actual = run(script, layout);
            if actual != script {
                let _ = writeln!(wrong, "```{actual}```");
            }
            examples += 1;
        }
    }
    assert!(wrong.is_empty(), "this is what happens:\n{wrong}");
    assert!(examples >= 32, "{examples}");
}

/// Every change of every small trie is one store to words that readers could reach (W1).
#[test]
fn every_change_is_published_by_one_store() {
    let mut seed = 9_u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let mut keys: Vec<String> = Vec::new();
    let mut script = String::new();
    for _ in 0..600 {
        let key: String = (0..1 + below(5)).map(|_| char::from(b'a' + below(9) as u8)).collect();
        if keys.contains(&key) && below(3) > 0 {
            keys.retain(|other| *other != key);
            let _ = writeln!(script, "remove {key}");
        } else {
            keys.push(key.clone());
            let _ = writeln!(script, "put {key} {}", below(1000));
        }
        if below(5) == 0 && !keys.iter().any(|key| key.starts_with("zz")) {
            let _ = writeln!(script, "apply {} x={} xy={}", &key[..1], below(1000), below(1000));
        }
    }
    run(&script, Layout::Paper);
    run(&script, Layout::Adaptive);
}
