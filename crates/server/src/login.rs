//! The login of a client, between STARTUP and AUTH_SUCCESS.
//!
//! A password is hashed on a blocking thread of the runtime, and only a few are hashed at a time (`hash_permits.rs`).
//! The connection is not read meanwhile. A login that needs no hash does not wait.

use crate::Shared;
use crate::startup::Agreement;
use query::{Login, LoginStart, QueryError, QueryHandler};
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::spawn_blocking;

/// The largest message of a client to the authenticator, bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

type Checking = Pin<Box<dyn Future<Output = Result<Login, QueryError>> + Send>>;

/// A client that has not logged in yet.
pub(crate) struct PendingLogin {
    /// The result of STARTUP, which holds once the client has logged in.
    pub(crate) agreement: Agreement,
    /// The check of its last message, and the stream of that message.
    checking: Option<(i16, Checking)>,
}

impl PendingLogin {
    pub(crate) fn new(agreement: Agreement) -> PendingLogin {
        PendingLogin { agreement, checking: None }
    }

    /// Whether a message is being checked. The connection begins nothing else meanwhile.
    pub(crate) fn is_checking(&self) -> bool {
        self.checking.is_some()
    }

    /// Begins to check a message.
    pub(crate) fn check<H: QueryHandler>(
        &mut self,
        stream: i16,
        token: Option<&[u8]>,
        client: Option<SocketAddr>,
        certificate: Option<&[u8]>,
        shared: &Arc<Shared<H>>,
    ) {
        let token = token.unwrap_or_default();
        let token = &token[..token.len().min(TOKEN_BYTES_MAX)];
        let checking: Checking = match shared.handler.begin_login(token, client, certificate) {
            LoginStart::Done(outcome) => Box::pin(ready(outcome)),
            LoginStart::MustHash(role) => {
                let (token, certificate) = (token.to_vec(), certificate.map(<[u8]>::to_vec));
                let (handler, permits) = (shared.handler.clone(), shared.hash_permits.clone());
                Box::pin(async move {
                    let gone = || QueryError::server("the login was given up");
                    let permit = permits.take(role).await.ok_or_else(gone)?;
                    // The permit belongs to the hash, which continues if the client leaves.
                    let checked = spawn_blocking(move || {
                        let _permit = permit;
                        handler.log_in(&token, client, certificate.as_deref())
                    });
                    checked.await.map_err(|_| gone())?
                })
            }
        };
        self.checking = Some((stream, checking));
    }

    /// The outcome of the check, once it is known, and the stream of its message.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(i16, Result<Login, QueryError>)> {
        let Some((stream, checking)) = &mut self.checking else { return Poll::Pending };
        let (stream, Poll::Ready(outcome)) = (*stream, checking.as_mut().poll(cx)) else { return Poll::Pending };
        self.checking = None;
        Poll::Ready((stream, outcome))
    }
}
