//! Tests of the index crate.
#![allow(clippy::unwrap_used)]

mod collections;
mod common;
mod files;
mod format;
mod model;
mod rows;
mod sstables;
mod support;
mod text;
mod vectors;
