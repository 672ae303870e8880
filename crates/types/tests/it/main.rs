//! Types and values compared with Cassandra's own answers.

mod classes;
mod collections;
mod distances;
mod garbage;
mod order;
mod primitives;
mod texts;
