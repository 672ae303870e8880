//! Compaction: choosing the tables to merge by their metadata alone, and the merge itself.
//!
//! A [`Strategy`] picks tables without touching files. [`compact`] merges them with one cursor into new tables,
//! dropping what is deleted for good; [`sstable::replace_tables`] then replaces the old ones. There is no clock and no
//! thread here: callers pass *now* and run the merge where they like.
#![forbid(unsafe_code)]

mod definition;
mod expired;
mod memory_only;
mod metadata;
mod numbers;
mod options;
mod purge;
mod run;
mod shards;
mod size_tiered;
mod strategy;
mod time_window;
mod tombstones;
mod unified;

pub use definition::Definition;
pub use expired::fully_expired;
pub use memory_only::{FLUSH_BYTES_MIN, MemoryOnlyOptions, REWRITTEN_BYTES_MAX, flush_bytes, is_merge_overdue};
pub use metadata::{Pick, TableMetadata};
pub use options::{OptionError, SizeTieredOptions, TimeWindowOptions, TombstoneOptions, UnifiedOptions};
pub use purge::{Overlaps, PurgeCursor, RowPurge, oldest_overlapping_timestamp};
pub use run::{Compacted, CompactionError, CompactionInput, Newer, Progress, compact};
pub use shards::{shard_boundaries, shard_count};
pub use strategy::Strategy;
pub use tombstones::{TombstoneCandidate, gc_before, worth_compacting_alone};
