//! The parser against what Cassandra 5.0.8 answered, and against garbage.
#![allow(clippy::unwrap_used)] // helpers of tests

mod cassandra;
mod display;
mod garbage;
mod tree;
