//! Memtables: the newest writes of a table, in memory and in order.
//!
//! A memtable takes [`model::PartitionUpdate`]s and gives them back through [`model::UnfilteredCursor`], reconciled. It
//! knows nothing of logs, files or clocks.
#![forbid(unsafe_code)]

mod memtable;
mod reference;

pub use memtable::{Memtable, MemtableFull, MemtableStatistics, MemtableUse};
pub use reference::ReferenceMemtable;
