//! SSTables that come from elsewhere and go elsewhere: import, adoption of a Cassandra node, export, snapshots.

mod adoption;
mod import;
mod roles;
mod snapshot;

pub use adoption::AdoptedTable;
