//! The session of the client that sent a request.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::MemoryBudget;

/// A client's session: its keyspace and its identity. The server keeps one per connection.
#[derive(Clone, Debug, Default)]
pub struct ClientState {
    /// The keyspace that USE selected. Unqualified names are looked up in it.
    pub keyspace: Option<Arc<str>>,
    /// The client's address; `None` for a client in the same process.
    pub address: Option<SocketAddr>,
    /// The role it logged in as; `None` for an anonymous one.
    pub user: Option<Arc<str>>,
    /// The budget for the memory that its statements hold while they run; `None` means no limit.
    pub memory: Option<Arc<MemoryBudget>>,
    /// The number of its connection; 0 for a client in the same process.
    pub number: u64,
    /// The number of that role ([`Login::user_id`](crate::Login::user_id)); 0 for an anonymous client.
    pub user_id: u32,
}
