//! Merges of tables with random content: what a client sees is the same before and after, at every purge time.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod content;
mod counters;
mod merging;
mod seeking;
mod stored;
