//! Behaviour of the trie against a `BTreeMap`.

mod concurrency;
mod history;
mod limits;
mod model;
mod node_cursor;
mod recycling;
mod small_scope;
