//! Behaviour of tables as a whole. `from_cassandra/` holds tables that Apache Cassandra wrote; see the README there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod big;
mod bytes_read;
mod crash;
mod damage;
mod decoders;
mod direct;
mod dumping;
mod every_bit;
mod fixture;
mod format;
mod found_rows;
mod hints;
mod large;
mod order;
mod reading;
mod reencode;
mod salvage;
mod sizes;
mod sparse;
mod wanted_columns;
