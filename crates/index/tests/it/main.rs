//! Tests of the index crate.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod collections;
mod files;
mod format;
mod model;
mod nan;
mod rows;
mod sstables;
mod support;
mod text;
mod two_indexes;
mod vectors;
