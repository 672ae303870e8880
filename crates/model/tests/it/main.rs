//! Behaviour of rows, merges and mutations.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod cells_model;
mod dropped_columns;
mod format_examples;
mod liveness;
mod merge_cursor;
mod mutation_record;
mod whole_rows;
