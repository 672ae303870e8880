//! Names: the current ones, those that a crash would leave, and the changes between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Choices;
use crate::DirectoryEntry;

/// The object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    /// A file, by index.
    File(usize),
}

/// A name, and what it refers to from now on.
type Change = (PathBuf, Option<Node>);
type Map = BTreeMap<PathBuf, Node>;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    now: Map,
    durable: Map,
    /// The changes since, oldest first; those of one operation are atomic.
    pending: Vec<Vec<Change>>,
}

impl Names {
    pub fn get(&self, path: &Path) -> Option<Node> {
        if is_root(path) { Some(Node::Directory) } else { self.now.get(path).copied() }
    }

    pub fn has_parent(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.get(parent) == Some(Node::Directory))
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
        if self.get(dir) != Some(Node::Directory) {
            return None;
        }
        let inside = below(&self.now, dir).filter(|(path, _)| path.parent() == Some(dir));
        let entries = inside.filter_map(|(path, node)| {
            let name = path.file_name()?.to_str()?.to_owned();
            Some(DirectoryEntry { name, is_dir: *node == Node::Directory })
        });
        Some(entries.collect())
    }

    /// Makes changes atomically; they are not durable yet.
    pub fn change(&mut self, changes: Vec<Change>) {
        apply(&mut self.now, &changes);
        self.pending.push(changes);
    }

    pub fn rename(&mut self, from: &Path, to: &Path) {
        let mut changes = Vec::new();
        for (path, node) in below(&self.now, from) {
            let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
            let moved = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            changes.push((path.clone(), None));
            changes.push((moved, Some(*node)));
        }
        self.change(changes);
    }

    pub fn remove_tree(&mut self, path: &Path) {
        let changes = below(&self.now, path).map(|(name, _)| (name.clone(), None)).collect();
        self.change(changes);
    }

    /// Makes the names in a directory durable: every change to one of them, and the changes that those depend on.
    pub fn sync(&mut self, dir: &Path) {
        let mut needed: BTreeSet<PathBuf> = BTreeSet::new();
        let mut flush = vec![false; self.pending.len()];
        for (index, changes) in self.pending.iter().enumerate().rev() {
            if changes.iter().any(|(path, _)| path.parent() == Some(dir) || needed.contains(path)) {
                flush[index] = true;
                needed.extend(changes.iter().map(|(path, _)| path.clone()));
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
        let orphan = |path: &Path, names: &Map| {
            let mut above = path.ancestors().skip(1).filter(|ancestor| !is_root(ancestor));
            above.any(|ancestor| names.get(ancestor) != Some(&Node::Directory))
        };
        let whole: Map =
            names.iter().filter(|(path, _)| !orphan(path, &names)).map(|(path, node)| (path.clone(), *node)).collect();
        Names { now: whole.clone(), durable: whole, pending: Vec::new() }
    }
}

/// A name and those below it, which are adjacent because paths are ordered by their parts.
fn below<'a>(map: &'a Map, path: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
    map.range(path.to_path_buf()..).take_while(move |(name, _)| name.starts_with(path))
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

fn apply(names: &mut Map, changes: &[Change]) {
    for (path, node) in changes {
        match node {
            Some(node) => names.insert(path.clone(), *node),
            None => names.remove(path),
        };
    }
}
