//! The parser compared with Cassandra 5.0.8's answers, and fed with garbage.
#![allow(clippy::unwrap_used)] // helpers of tests

mod cassandra;
mod display;
mod garbage;
mod tree;
