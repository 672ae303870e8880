//! The tables that every node has, and reading and writing their rows by column name.

mod definitions;
mod rows;

pub use definitions::{SYSTEM_KEYSPACES, is_local_system_keyspace, is_system_keyspace, system_keyspaces, table_id};
pub(crate) use rows::{SystemRow, SystemWrite, newest_timestamp, read_rows, rows_of};
