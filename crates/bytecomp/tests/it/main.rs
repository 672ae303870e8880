//! The encoding compared with Cassandra's, and with the order of types on seeded random values.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod clusterings;
mod format;
mod keys;
mod random;
mod values;
mod vectors;
