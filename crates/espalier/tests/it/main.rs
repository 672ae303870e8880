//! The binary from a user's view: processes, signals, exit codes, one-line errors.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod admin;
mod index_files;
mod log;
mod node;
mod request_logs;
mod sstable;
mod start_stop;
