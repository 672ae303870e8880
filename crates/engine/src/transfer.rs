//! Transfers of SSTables: import, adoption of a Cassandra node, export, snapshots.

mod adoption;
mod export;
mod import;
mod roles;
mod snapshot;
mod stored_snapshots;

use std::sync::Arc;

use crate::compaction::Compaction;
use crate::flush::Flush;
use crate::residents::Residents;
use crate::schema::Tables;
use crate::shared::Shared;
use crate::write::Writes;

pub use adoption::AdoptedTable;
pub use stored_snapshots::SnapshotInfo;

/// Imports SSTables from other directories, and copies or links a table's SSTables to others.
pub(crate) struct Transfers {
    shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    flush: Arc<Flush>,
    residents: Arc<Residents>,
    writes: Arc<Writes>,
    tables: Arc<Tables>,
}

impl Transfers {
    pub fn new(
        shared: &Arc<Shared>,
        compaction: &Arc<Compaction>,
        flush: &Arc<Flush>,
        residents: &Arc<Residents>,
        writes: &Arc<Writes>,
        tables: &Arc<Tables>,
    ) -> Transfers {
        Transfers {
            shared: Arc::clone(shared),
            compaction: Arc::clone(compaction),
            flush: Arc::clone(flush),
            residents: Arc::clone(residents),
            writes: Arc::clone(writes),
            tables: Arc::clone(tables),
        }
    }
}
