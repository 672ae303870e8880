//! Merges of tables with random content: what a client sees is the same before and after, at every purge time.

mod content;
mod merging;
