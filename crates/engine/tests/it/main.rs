//! Behaviour of the engine over real and simulated disks.
#![allow(clippy::unwrap_used)]

mod damage;
mod fixture;
mod memory;
mod pressure;
mod promises;
mod schema;
mod sstables;
mod torture;
