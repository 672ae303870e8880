//! One table's data: its memtables in generations, its SSTables, its resident data, and the state that its flushes and
//! merges share. Also the memory of all memtables.
//!
//! [`TableStore`] owns the data of a table. A [`View`] is the data at one time, which a reader or writer works on; a
//! [`Generation`] is a memtable with its part of the log. Nothing here starts a flush, a merge or a write.

pub(crate) mod by_table_id;
mod data_epoch;
mod flush_size;
mod generation;
pub(crate) mod in_memory;
pub(crate) mod indexes;
pub(crate) mod merges;
mod pool;
mod store;
mod view;

pub(crate) use data_epoch::ReadEpoch;
pub(crate) use generation::Generation;
pub(crate) use pool::{MemtablePool, Taken};
pub(crate) use store::TableStore;
pub(crate) use view::View;
