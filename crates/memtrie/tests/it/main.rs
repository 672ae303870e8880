//! Behaviour of the trie against a `BTreeMap`.

mod history;
mod model;
mod small_scope;
