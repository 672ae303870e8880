//! The parser compared with Cassandra 5.0.8's answers, and fed with garbage.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod cassandra;
mod display;
mod garbage;
mod tree;
