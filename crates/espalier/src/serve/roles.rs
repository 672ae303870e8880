//! The roles of a node at its start, and the warnings about them.

use crate::config::Config;
use query::Processor;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The least time between two reads of tables that were written directly.
const REFRESH_MIN: Duration = Duration::from_millis(100);

/// Reads the roles. A node that cannot read them does not start, since no client could log in.
pub(super) async fn start(config: &Config, processor: &Arc<Processor>) -> Result<(), String> {
    if !config.auth.authenticator.is_required() {
        if !config.listen.is_loopback() {
            tracing::warn!(
                "every client that reaches {} may do everything: set authenticator and authorizer",
                config.listen
            );
        }
        return Ok(());
    }
    if !config.auth.permissions {
        tracing::warn!("every role that can log in may do everything: set authorizer: CassandraAuthorizer");
    }
    let reading = processor.clone();
    let started = spawn_blocking(move || reading.start_roles()).await;
    let has_first_password = match started {
        Ok(Ok(has_first_password)) => has_first_password,
        Ok(Err(error)) => return Err(format!("the roles cannot be read: {error}")),
        Err(error) => return Err(format!("the roles cannot be read: {error}")),
    };
    if has_first_password {
        tracing::warn!("the superuser cassandra has its first password: change it with ALTER ROLE");
    }
    tokio::spawn(refresh(processor.clone(), refresh_period(config)));
    Ok(())
}

/// The time between two reads of tables that were written directly.
pub(super) fn refresh_period(config: &Config) -> Duration {
    config.roles_validity.min(config.permissions_validity).max(REFRESH_MIN)
}

/// Follows rows of `system_auth` that are written directly.
async fn refresh(processor: Arc<Processor>, period: Duration) {
    loop {
        sleep(period).await;
        let reading = processor.clone();
        if let Ok(Err(error)) = spawn_blocking(move || reading.refresh_roles()).await {
            tracing::error!("the roles cannot be read, and the known ones hold: {error}");
        }
    }
}
