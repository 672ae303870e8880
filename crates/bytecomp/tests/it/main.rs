//! The encoding against what Cassandra encodes, and against the order of types on seeded random values.

#![allow(clippy::unwrap_used)]

mod clusterings;
mod format;
mod keys;
mod random;
mod values;
mod vectors;
