//! Behaviour of the engine over real and simulated disks.
#![allow(clippy::unwrap_used)]

mod fixture;
mod schema;
mod torture;
