//! Messages that concern the connection itself: its start, the login, and the events that the client asked for.

use super::{Connection, OUTPUT_WAITING_BYTES_MAX};
use crate::login::PendingLogin;
use crate::startup::{Agreement, negotiate};
use protocol::response::{write_auth_success, write_authenticate, write_supported};
use protocol::{Body, Compression, ErrorResponse, Header, Opcode, ProtocolError, Request, ResponseHead, Version};
use query::QueryHandler;
use std::task::{Context, Poll};

impl<H: QueryHandler> Connection<H> {
    /// Answers a message that concerns the connection itself.
    pub(super) fn answer_control(
        &mut self,
        stream: i16,
        version: Version,
        request: Request<'_>,
    ) -> Result<(), ProtocolError> {
        match request {
            Request::Options => {
                let head = ResponseHead::new(stream, Opcode::Supported);
                self.encoder.envelope(&head, |out| write_supported(out, crate::CQL_VERSION));
            }
            Request::Startup(startup) => {
                let agreement = negotiate(&startup, version)?;
                self.started(stream, version, agreement);
            }
            Request::Register(types) => {
                let (_, registered) =
                    self.subscription.get_or_insert_with(|| (self.shared.events.subscribe(), Vec::new()));
                for event_type in types {
                    if !registered.contains(&event_type) {
                        registered.push(event_type);
                    }
                }
                self.encoder.envelope(&ResponseHead::new(stream, Opcode::Ready), |_| {});
            }
            // A role is for the whole connection.
            Request::AuthResponse(_) if self.session.client.user.is_some() => {
                return Err(ProtocolError::new("Unexpected message AUTH_RESPONSE, the client has logged in"));
            }
            Request::AuthResponse(_) => {
                // Every client is accepted.
                let head = ResponseHead::new(stream, Opcode::AuthSuccess);
                self.encoder.envelope(&head, |out| write_auth_success(out, None));
            }
            Request::Query { .. } | Request::Prepare { .. } | Request::Execute { .. } | Request::Batch(_) => {}
        }
        Ok(())
    }

    pub(super) fn started(&mut self, stream: i16, version: Version, agreement: Agreement) {
        let authenticator = self.shared.handler.authenticator();
        let head = ResponseHead::new(stream, authenticator.map_or(Opcode::Ready, |_| Opcode::Authenticate));
        let answer = |out: &mut Vec<u8>| authenticator.iter().for_each(|class| write_authenticate(out, class));
        let compression = agreement.compression;
        tracing::debug!(
            client = ?self.session.client.address,
            driver = agreement.driver_name.as_deref().unwrap_or("unknown"),
            driver_version = agreement.driver_version.as_deref().unwrap_or("unknown"),
            %version,
            ?compression,
            "connection started"
        );
        self.decoder.set_limit(self.shared.options.frame_size_bytes_max);
        self.decoder.started(version, compression);
        if version == Version::V5 {
            // This answer is the last envelope outside of segments.
            self.encoder.envelope(&head, answer);
            self.encoder.start_segments(compression == Some(Compression::Lz4));
        } else {
            self.encoder.set_compression(compression);
            self.encoder.envelope(&head, answer);
        }
        match authenticator {
            None => self.agreement = Some(agreement),
            Some(_) => self.pending_login = Some(PendingLogin::new(agreement)),
        }
    }

    /// Whether the client's login is being checked. Nothing else is begun or read meanwhile.
    pub(super) fn checks_login(&self) -> bool {
        self.pending_login.as_ref().is_some_and(PendingLogin::is_checking)
    }

    /// Accepts a message of a client that has to log in.
    pub(super) fn accept_login(&mut self, header: &Header, body: &[u8]) {
        let Some(pending_login) = &mut self.pending_login else { return };
        if header.opcode != Opcode::AuthResponse {
            let message = format!("Unexpected message {}, expecting SASL_RESPONSE", header.opcode.name());
            return self.protocol_error(header.stream, message);
        }
        match Body::parse(header, body) {
            Ok(Body { request: Request::AuthResponse(token), .. }) => {
                let certificate = self.stream.client_certificate();
                pending_login.check(header.stream, token, self.session.client.address, certificate, &self.shared);
            }
            Ok(_) => {}
            Err(error) => self.protocol_error(header.stream, error.message),
        }
    }

    /// Answers a login that was checked. After a failure the client may try again.
    pub(super) fn collect_login(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pending_login) = &mut self.pending_login else { return false };
        let Poll::Ready((stream, outcome)) = pending_login.poll(cx) else { return false };
        match outcome {
            Ok(login) => {
                self.agreement = self.pending_login.take().map(|pending_login| pending_login.agreement);
                self.session.set_user(login, &self.shared.notices.login_notices);
                let head = ResponseHead::new(stream, Opcode::AuthSuccess);
                self.encoder.envelope(&head, |out| write_auth_success(out, None));
            }
            Err(error) => {
                let client = self.session.client.address;
                self.shared.notices.logins.log(|left_out| {
                    tracing::info!(?client, "login refused: {}{left_out}", error.message);
                });
                self.answer_error(stream, ErrorResponse { kind: error.kind, message: error.message });
            }
        }
        true
    }

    pub(super) fn collect_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX {
            let Some((subscription, types)) = &mut self.subscription else { break };
            let Poll::Ready(Some(event)) = subscription.poll(cx) else { break };
            if types.contains(&event.event_type()) {
                let version = self.encoder.version();
                let head = ResponseHead::new(-1, Opcode::Event);
                self.encoder.envelope(&head, |out| event.write(out, version));
            }
            progress = true;
        }
        progress
    }
}
