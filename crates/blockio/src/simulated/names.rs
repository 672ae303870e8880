//! Names: the current ones, those that a crash would leave, and the changes between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use super::Choices;
use crate::DirectoryEntry;

/// The object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    /// A file, by index.
    File(usize),
}

/// A path: for each part a zero byte and the part's bytes. So paths are ordered by their parts, and a directory is
/// right before everything below it. The root is empty.
type Name = Arc<[u8]>;
/// A name, and what it refers to from now on.
type Change = (Name, Option<Node>);
type Map = BTreeMap<Name, Node>;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    now: Map,
    durable: Map,
    /// The changes since, oldest first; those of one operation are atomic.
    pending: Vec<Vec<Change>>,
}

impl Names {
    pub fn get(&self, path: &Path) -> Option<Node> {
        self.of_name(&name_of(path))
    }

    fn of_name(&self, name: &[u8]) -> Option<Node> {
        if name.is_empty() { Some(Node::Directory) } else { self.now.get(name).copied() }
    }

    pub fn has_parent(&self, path: &Path) -> bool {
        parent_of(&name_of(path)).is_some_and(|parent| self.of_name(parent) == Some(Node::Directory))
    }

    /// The files, each once.
    pub fn files(&self) -> impl Iterator<Item = usize> {
        let inodes: BTreeSet<usize> = self
            .now
            .values()
            .filter_map(|node| match node {
                Node::File(inode) => Some(*inode),
                Node::Directory => None,
            })
            .collect();
        inodes.into_iter()
    }

    pub fn list(&self, dir: &Path) -> Option<Vec<DirectoryEntry>> {
        let dir = name_of(dir);
        if self.of_name(&dir) != Some(Node::Directory) {
            return None;
        }
        let entries = below(&self.now, &dir).filter_map(|(name, node)| {
            let last = name.get(dir.len()..)?.strip_prefix(&[0])?;
            let is_inside = !last.contains(&0);
            let name = is_inside.then(|| str::from_utf8(last)).and_then(Result::ok)?.to_owned();
            Some(DirectoryEntry { name, is_dir: *node == Node::Directory })
        });
        Some(entries.collect())
    }

    /// Makes a name refer to something, or to nothing. This is not durable yet.
    pub fn set(&mut self, path: &Path, node: Option<Node>) {
        self.change(vec![(name_of(path).into(), node)]);
    }

    /// Makes changes atomically; they are not durable yet.
    fn change(&mut self, changes: Vec<Change>) {
        apply(&mut self.now, &changes);
        self.pending.push(changes);
    }

    pub fn rename(&mut self, from: &Path, to: &Path) {
        let (from, to) = (name_of(from), name_of(to));
        let mut changes = Vec::new();
        for (name, node) in below(&self.now, &from) {
            let moved = [&to, name.get(from.len()..).unwrap_or_default()].concat();
            changes.push((Arc::clone(name), None));
            changes.push((moved.into(), Some(*node)));
        }
        self.change(changes);
    }

    pub fn remove_tree(&mut self, path: &Path) {
        let changes = below(&self.now, &name_of(path)).map(|(name, _)| (Arc::clone(name), None)).collect();
        self.change(changes);
    }

    /// Makes the names in a directory durable: every change to one of them, and the changes that those depend on.
    pub fn sync(&mut self, dir: &Path) {
        let dir = name_of(dir);
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut flush = vec![false; self.pending.len()];
        for (index, changes) in self.pending.iter().enumerate().rev() {
            if changes.iter().any(|(name, _)| parent_of(name) == Some(&dir[..]) || needed.contains(name)) {
                flush[index] = true;
                needed.extend(changes.iter().map(|(name, _)| Arc::clone(name)));
            }
        }
        let mut kept = Vec::new();
        for (changes, flush) in std::mem::take(&mut self.pending).into_iter().zip(flush) {
            if flush {
                apply(&mut self.durable, &changes);
            } else {
                kept.push(changes);
            }
        }
        self.pending = kept;
    }

    /// The names after a power cut: the durable ones, and any of the other changes, in order.
    pub fn after_crash(&self, choices: &mut Choices) -> Names {
        let mut names = self.durable.clone();
        for changes in &self.pending {
            if choices.coin() {
                apply(&mut names, changes);
            }
        }
        let whole = without_orphans(names);
        Names { now: whole.clone(), durable: whole, pending: Vec::new() }
    }
}

/// The names all of whose directories exist.
fn without_orphans(mut names: Map) -> Map {
    // The directories of the previous name, each in the one before it: a directory comes before its content.
    let mut above: Vec<Name> = Vec::new();
    names.retain(|name, node| {
        let Some(parent) = parent_of(name) else { return true };
        while above.last().is_some_and(|directory| directory.len() > parent.len()) {
            above.pop();
        }
        if !parent.is_empty() && above.last().is_none_or(|directory| **directory != *parent) {
            return false;
        }
        if *node == Node::Directory {
            above.push(Arc::clone(name));
        }
        true
    });
    names
}

fn name_of(path: &Path) -> Vec<u8> {
    let mut name = Vec::with_capacity(path.as_os_str().len() + 1);
    for part in path.components() {
        if let Component::Normal(part) = part {
            name.push(0);
            name.extend_from_slice(part.as_bytes());
        }
    }
    name
}

/// The directory of a name; `None` for the root.
fn parent_of(name: &[u8]) -> Option<&[u8]> {
    name.get(..name.iter().rposition(|byte| *byte == 0)?)
}

/// A name and those below it.
fn below<'a>(map: &'a Map, name: &'a [u8]) -> impl Iterator<Item = (&'a Name, &'a Node)> {
    let from = map.range::<[u8], _>((Bound::Included(name), Bound::Unbounded));
    from.take_while(move |(found, _)| found.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|b| *b == 0)))
}

fn apply(names: &mut Map, changes: &[Change]) {
    for (name, node) in changes {
        match node {
            Some(node) => names.insert(Arc::clone(name), *node),
            None => names.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_if_every_directory_above_it_is_there() {
        let choices = &mut Choices(1);
        let mut left_out = 0;
        for _ in 0..1000 {
            let mut names = Map::new();
            for _ in 0..12 {
                let depth = 1 + choices.below(4);
                let part = |choices: &mut Choices| ["a", "a.b", "b"][choices.below(3) as usize];
                let path = (0..depth).map(|_| part(choices)).collect::<Vec<_>>().join("/");
                let node = if choices.below(4) == 0 { Node::File(7) } else { Node::Directory };
                names.insert(name_of(Path::new(&path)).into(), node);
            }
            let is_whole = |name: &[u8]| {
                let mut above = std::iter::successors(parent_of(name), |name| parent_of(name));
                above.all(|name| name.is_empty() || names.get(name) == Some(&Node::Directory))
            };
            let whole: Map =
                names.iter().filter(|(name, _)| is_whole(name)).map(|(n, node)| (n.clone(), *node)).collect();
            left_out += names.len() - whole.len();
            assert_eq!(without_orphans(names), whole);
        }
        assert!(left_out > 1000, "{left_out}");
    }
}
