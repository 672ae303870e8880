//! Merges of tables with random content: what a client sees is the same before and after, at every purge time.

#![allow(clippy::unwrap_used)]

mod content;
mod counters;
mod merging;
mod seeking;
mod stored;
