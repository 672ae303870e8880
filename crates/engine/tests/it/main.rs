//! Behaviour of the engine over real and simulated disks.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod adoption;
mod big;
mod clean_up;
mod damage;
mod derived;
mod disk_access;
mod fixture;
mod found_rows;
mod full_memtables;
mod gated_disk;
mod host_rows;
mod in_memory;
mod in_memory_limit;
mod index_builds;
mod large_batches;
mod large_rows;
mod memory;
mod output_split;
mod parallel_compactions;
mod pending;
mod pending_writes;
mod power_cuts;
mod pressure;
mod promises;
mod quarantine;
mod random_damage;
mod reads;
mod salvage;
mod schema;
mod schema_agreement;
mod sstables;
mod torture;
mod unasked_compactions;
mod uncovered;
mod unreadable;
