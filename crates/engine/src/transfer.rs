//! SSTables that come from elsewhere and go elsewhere: import, adoption of a Cassandra node, export, snapshots.

mod adoption;
mod import;
mod roles;
mod snapshot;
mod stored_snapshots;

pub use adoption::AdoptedTable;
pub use stored_snapshots::SnapshotInfo;
