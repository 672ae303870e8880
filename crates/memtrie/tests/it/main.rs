//! Behaviour of the trie against a `BTreeMap`.

mod concurrency;
mod history;
mod limits;
mod model;
mod recycling;
mod small_scope;
