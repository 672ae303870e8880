//! Reads: the rows of a table, from its memtables and SSTables, reconciled.
//!
//! A read takes no lock, and sees every write in exactly one place, because it works on one view of the table.
//! [`rows`] is the source of rows; [`newest_first`] leaves SSTables out that are too old to matter. It knows nothing of
//! CQL, and *now* only as far as its caller says.

mod newest_first;
mod rows;

pub use rows::Sought;
