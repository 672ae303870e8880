//! The native half of the plugin, without Java: updates that Cassandra 5.0.8 serialized, and damaged ones.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod ranges;
mod stored;
mod vectors;
