//! Behaviour of the log: its promises under faults, concurrency, damage and kills.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod allocations;
mod concurrency;
mod crash;
mod damage;
mod device;
mod format;
mod holding_disk;
mod kill;
mod metrics;
mod preview;
mod real_disk;
mod segments;
