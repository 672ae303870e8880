//! The encoding compared with Cassandra's, and with the order of types on seeded random values.

#![allow(clippy::unwrap_used)]

mod clusterings;
mod format;
mod keys;
mod random;
mod values;
mod vectors;
