//! Schema changes, and the events that clients register for.

use std::net::SocketAddr;
use std::sync::Arc;

/// An event, which is sent to the connections that registered for its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The schema changed.
    Schema(SchemaChange),
    /// A node came up or went down.
    Status {
        /// Up, or down.
        up: bool,
        /// Where clients reach it.
        node: SocketAddr,
    },
    /// A node joined, left or moved.
    Topology {
        /// `NEW_NODE`, `REMOVED_NODE` or `MOVED_NODE`.
        change: &'static str,
        /// Where clients reach it.
        node: SocketAddr,
    },
}

/// A change of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The keyspace.
    pub keyspace: Arc<str>,
    /// The changed object.
    pub target: SchemaTarget,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Created,
    Updated,
    Dropped,
}

/// The thing that changed, in the keyspace of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaTarget {
    /// The keyspace itself.
    Keyspace,
    /// A table or view.
    Table(Arc<str>),
    /// A user type.
    Type(Arc<str>),
    /// A function, with the CQL names of its argument types.
    Function(Arc<str>, Vec<String>),
    /// An aggregate, with the CQL names of its argument types.
    Aggregate(Arc<str>, Vec<String>),
}
