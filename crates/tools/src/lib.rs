//! What people look into files with: each function reads one kind of file and prints what it finds, as text or JSON.

#![forbid(unsafe_code)]

pub mod log;
pub mod sstable;
