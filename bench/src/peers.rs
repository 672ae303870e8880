//! The maps that are compared.

use std::collections::BTreeMap;

use crossbeam_skiplist::SkipMap;
use memtrie::{Bounds, Direction, Layout, Trie, TrieOptions};
use scc::{Guard, TreeIndex};

/// Gets within a session.
pub type Get<'s> = dyn Fn(&[u8]) -> Option<u64> + 's;
/// Inserts within a session.
pub type Insert<'s> = dyn FnMut(&[u8], u64) + 's;

/// An ordered map from byte strings to numbers. The benchmark uses one writer only.
pub trait OrderedMap {
    /// The name in the tables.
    fn name(&self) -> &'static str;

    /// Inserts a new key, or a new value for an existing key.
    fn insert(&mut self, key: &[u8], value: u64);

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Option<u64>;

    /// Runs `session` with a `get` that keeps for the whole session what every single `get` would acquire (a pin, a
    /// guard).
    fn reading(&self, session: &mut dyn FnMut(&Get<'_>)) {
        session(&|key| self.get(key));
    }

    /// Like `reading`, with an `insert`.
    fn writing(&mut self, session: &mut dyn FnMut(&mut Insert<'_>)) {
        session(&mut |key, value| self.insert(key, value));
    }

    /// The values of many keys at once, in the order of the keys. Returns None if this map only gets one by one.
    fn get_many(&self, _keys: &[&[u8]]) -> Option<Vec<Option<u64>>> {
        None
    }

    /// Inserts many entries at once. Returns false if this map only inserts one by one.
    fn insert_many(&mut self, _entries: &[(&[u8], u64)]) -> bool {
        false
    }

    /// Visits all entries in order, with their keys, and returns their number. Returns None if this map has no such
    /// scan.
    fn scan(&self, reverse: bool, visit: &mut dyn FnMut(&[u8], u64)) -> Option<u64>;

    /// Visits all values in the order of their keys, without the keys. Returns None if this map always gives keys.
    fn scan_values(&self, _reverse: bool, _visit: &mut dyn FnMut(u64)) -> Option<u64> {
        None
    }

    /// Empties the map but keeps its memory, so that inserting again touches no new memory. Returns false if it cannot.
    fn empty(&mut self, _keys: &mut dyn FnMut(u64) -> Option<Vec<u8>>) -> bool {
        false
    }

    /// The bytes that the map holds, if it knows them. Otherwise the growth of the process counts.
    fn held_bytes(&self) -> Option<u64> {
        None
    }
}

/// Our trie.
#[derive(Debug)]
pub struct TriePeer(Trie);

impl TriePeer {
    /// An empty trie, in one of the two layouts.
    pub fn new(layout: Layout) -> Self {
        Self(Trie::new(TrieOptions { layout, ..TrieOptions::default() }))
    }
}

impl TriePeer {
    /// The trie.
    pub fn trie(&self) -> &Trie {
        &self.0
    }
}

impl OrderedMap for TriePeer {
    fn name(&self) -> &'static str {
        match self.0.layout() {
            Layout::Adaptive => "memtrie",
            Layout::Paper => "memtrie, paper's layout",
        }
    }

    fn insert(&mut self, key: &[u8], value: u64) {
        self.0.writer().put(key, &value.to_le_bytes()).expect("room for the benchmark's keys");
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.pin().get(key).and_then(|content| content.try_into().ok()).map(u64::from_le_bytes)
    }

    fn reading(&self, session: &mut dyn FnMut(&Get<'_>)) {
        let pin = self.0.pin();
        session(&|key| pin.get(key).and_then(|content| content.try_into().ok()).map(u64::from_le_bytes));
    }

    fn writing(&mut self, session: &mut dyn FnMut(&mut Insert<'_>)) {
        let mut writer = self.0.writer();
        session(&mut |key, value| writer.put(key, &value.to_le_bytes()).expect("room for the benchmark's keys"));
    }

    fn get_many(&self, keys: &[&[u8]]) -> Option<Vec<Option<u64>>> {
        let mut values = vec![None; keys.len()];
        self.0.pin().get_many(keys, |index, content| {
            values[index] = content.and_then(|content| content.try_into().ok()).map(u64::from_le_bytes);
        });
        Some(values)
    }

    fn insert_many(&mut self, entries: &[(&[u8], u64)]) -> bool {
        let values: Vec<[u8; 8]> = entries.iter().map(|(_, value)| value.to_le_bytes()).collect();
        let entries: Vec<(&[u8], &[u8])> =
            entries.iter().zip(&values).map(|((key, _), value)| (*key, value.as_slice())).collect();
        self.0.writer().put_many(&entries).expect("room for the benchmark's keys");
        true
    }

    fn scan(&self, reverse: bool, visit: &mut dyn FnMut(&[u8], u64)) -> Option<u64> {
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let pin = self.0.pin();
        let mut cursor = pin.cursor(Bounds::ALL, direction);
        let mut count = 0;
        while cursor.advance() {
            let value = cursor.content().try_into().map(u64::from_le_bytes).ok()?;
            visit(cursor.key(), value);
            count += 1;
        }
        Some(count)
    }

    fn scan_values(&self, reverse: bool, visit: &mut dyn FnMut(u64)) -> Option<u64> {
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let pin = self.0.pin();
        let mut count = 0;
        for content in pin.tail(&[]).contents(direction) {
            visit(content.try_into().map(u64::from_le_bytes).ok()?);
            count += 1;
        }
        Some(count)
    }

    fn empty(&mut self, keys: &mut dyn FnMut(u64) -> Option<Vec<u8>>) -> bool {
        let mut writer = self.0.writer();
        let mut index = 0;
        while let Some(key) = keys(index) {
            writer.remove(&key).expect("removal needs no memory that is not there");
            index += 1;
        }
        writer.reclaim();
        true
    }

    fn held_bytes(&self) -> Option<u64> {
        Some(self.0.memory().reserved as u64)
    }
}

/// The standard library's map, as the simplest choice.
#[derive(Default, Debug)]
pub struct BTree(BTreeMap<Box<[u8]>, u64>);

impl OrderedMap for BTree {
    fn name(&self) -> &'static str {
        "BTreeMap"
    }

    fn insert(&mut self, key: &[u8], value: u64) {
        self.0.insert(key.into(), value);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(key).copied()
    }

    fn scan(&self, reverse: bool, visit: &mut dyn FnMut(&[u8], u64)) -> Option<u64> {
        if reverse {
            self.0.iter().rev().for_each(|(key, value)| visit(key, *value));
        } else {
            self.0.iter().for_each(|(key, value)| visit(key, *value));
        }
        Some(self.0.len() as u64)
    }
}

/// A concurrent skip list, as the usual choice.
#[derive(Default, Debug)]
pub struct SkipList(SkipMap<Box<[u8]>, u64>);

impl OrderedMap for SkipList {
    fn name(&self) -> &'static str {
        "crossbeam-skiplist"
    }

    fn insert(&mut self, key: &[u8], value: u64) {
        self.0.insert(key.into(), value);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(key).map(|entry| *entry.value())
    }

    fn scan(&self, reverse: bool, visit: &mut dyn FnMut(&[u8], u64)) -> Option<u64> {
        if reverse {
            self.0.iter().rev().for_each(|entry| visit(entry.key(), *entry.value()));
        } else {
            self.0.iter().for_each(|entry| visit(entry.key(), *entry.value()));
        }
        Some(self.0.len() as u64)
    }
}

/// An adaptive radix tree for one thread.
#[derive(Default)]
pub struct Blart(blart::TreeMap<Box<[u8]>, u64>);

impl OrderedMap for Blart {
    fn name(&self) -> &'static str {
        "blart"
    }

    fn insert(&mut self, key: &[u8], value: u64) {
        // This map refuses a key that is a prefix of another key. Encoded partition keys never are.
        assert!(self.0.try_insert(key.into(), value).is_ok(), "encoded keys are prefix-free");
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(key).copied()
    }

    fn scan(&self, reverse: bool, visit: &mut dyn FnMut(&[u8], u64)) -> Option<u64> {
        if reverse {
            self.0.iter().rev().for_each(|(key, value)| visit(key, *value));
        } else {
            self.0.iter().for_each(|(key, value)| visit(key, *value));
        }
        Some(self.0.len() as u64)
    }
}

/// A concurrent B+ tree that favours reads.
#[derive(Default, Debug)]
pub struct BPlusTree(TreeIndex<Box<[u8]>, u64>);

impl OrderedMap for BPlusTree {
    fn name(&self) -> &'static str {
        "scc::TreeIndex"
    }

    fn insert(&mut self, key: &[u8], value: u64) {
        assert!(self.0.insert_sync(key.into(), value).is_ok(), "the benchmark's keys are new");
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.peek_with(key, |_, value| *value)
    }

    fn reading(&self, session: &mut dyn FnMut(&Get<'_>)) {
        let guard = Guard::new();
        session(&|key| self.0.peek(key, &guard).copied());
    }

    fn scan(&self, reverse: bool, visit: &mut dyn FnMut(&[u8], u64)) -> Option<u64> {
        let guard = Guard::new();
        let entries = self.0.iter(&guard);
        if reverse {
            entries.rev().for_each(|(key, value)| visit(key, *value));
        } else {
            entries.for_each(|(key, value)| visit(key, *value));
        }
        Some(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests;
