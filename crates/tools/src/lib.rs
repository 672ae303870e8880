//! Tools for inspecting files: each function reads one kind of file and prints what it finds, as text or JSON.

#![forbid(unsafe_code)]

pub mod log;
pub mod sstable;
