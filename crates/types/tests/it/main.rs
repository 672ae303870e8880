//! Types and values against what Cassandra itself says of them.

mod classes;
mod collections;
mod garbage;
mod order;
mod primitives;
mod texts;
