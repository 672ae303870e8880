//! The state of a client that its connection keeps between requests.

use crate::blocking_pool::WorkSource;
use crate::log_limit::LogRateLimit;
use query::{ClientState, Login, MemoryBudget};
use std::net::SocketAddr;
use std::sync::Arc;

/// A client's state, and the warnings for its next answer.
pub(crate) struct Session {
    /// Requests in flight share it, and keep the keyspace with which they began.
    pub(crate) client: Arc<ClientState>,
    /// The queue in which its requests wait for threads of the blocking pools.
    pub(crate) source: Arc<WorkSource>,
    warnings: Vec<String>,
    warned_about_use: bool,
}

impl Session {
    pub(crate) fn new(address: SocketAddr, memory: Arc<MemoryBudget>, source: Arc<WorkSource>) -> Session {
        let (address, memory, number) = (Some(address), Some(memory), source.id());
        let client = ClientState { address, memory, number, ..ClientState::default() };
        Session { client: Arc::new(client), source, warnings: Vec::new(), warned_about_use: false }
    }

    /// Sets the keyspace after USE.
    pub(crate) fn set_keyspace(&mut self, keyspace: Arc<str>) {
        self.client = Arc::new(ClientState { keyspace: Some(keyspace), ..(*self.client).clone() });
    }

    /// Sets the role after the login.
    pub(crate) fn set_user(&mut self, login: Login, limit: &LogRateLimit) {
        let Login { user, user_id, notice } = login;
        if let Some(notice) = notice {
            limit.log(|left_out| tracing::warn!("{notice}{left_out}"));
        }
        self.client = Arc::new(ClientState { user: Some(user), user_id, ..(*self.client).clone() });
    }

    /// Adds a warning, once per connection, that prepared statements without a keyspace depend on USE.
    pub(crate) fn warn_about_use(&mut self, id: &[u8], statement_keyspace: Option<&str>) {
        if std::mem::replace(&mut self.warned_about_use, true) {
            return;
        }
        let used = self.client.keyspace.as_deref().unwrap_or("null");
        let statement = statement_keyspace.unwrap_or("null");
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        self.warnings.push(format!(
            "`USE <keyspace>` with prepared statements is considered to be an anti-pattern due to ambiguity in \
             non-qualified table names. Please consider removing instances of `Session#setKeyspace(<keyspace>)`, \
             `Session#execute(\"USE <keyspace>\")` and `cluster.newSession(<keyspace>)` from your code, and always use \
             fully qualified table names (e.g. <keyspace>.<table>). Keyspace used: {used}, statement keyspace: \
             {statement}, statement id: {id}"
        ));
    }

    pub(crate) fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
