//! Whether another request may be read and begun: the limits on what is under way, on memory, and on the rate of
//! requests.

use super::{Connection, OUTPUT_WAITING_BYTES_MAX};
use crate::limits::FREE_BYTES;
use protocol::ErrorKind;
use query::QueryHandler;
use std::future::Future;
use std::task::Context;
use tokio::time::sleep;

/// The number of requests of one connection that may wait for a thread before no further request is begun.
const WAITING_PER_CONNECTION_MAX: usize = 128;

/// The answer to a client that asked for an error when it has too many requests in flight. It begins as Cassandra's.
const OVERLOADED: &str = "Request breached limit on requests in flight. Server is currently in an overloaded state and \
                          cannot accept more requests.";

/// The end of Cassandra's text for a request above the limit of requests a second.
const IS_OVERLOADED: &str = "Server is currently in an overloaded state and cannot accept more requests.";

impl<H: QueryHandler> Connection<H> {
    /// Whether the memory limits let the connection read more. If not, it is woken when they do. A client that asked
    /// for errors under overload is always read, and its requests are refused instead.
    pub(super) fn has_room(&mut self, cx: &Context<'_>) -> bool {
        let missing = self.decoder.missing_bytes();
        if self.account.poll_grow(self.held_bytes() + missing, cx).is_ready() {
            if missing > 0 {
                self.decoder.make_room();
            }
            return true;
        }
        let throws = self.throws_on_overload();
        if throws && missing > FREE_BYTES && self.decoder.refuse_arriving(ErrorKind::Overloaded, OVERLOADED) {
            self.shared.metrics.requests_discarded.add(1);
        }
        if !throws && !std::mem::replace(&mut self.paused, true) {
            self.shared.metrics.connections_paused.add(1);
        }
        throws
    }

    pub(super) fn throws_on_overload(&self) -> bool {
        self.agreement.as_ref().is_some_and(|agreement| agreement.throw_on_overload)
    }

    /// The number of requests in flight.
    pub(super) fn under_way(&self) -> usize {
        self.running.len() + self.writing.len() + self.log_queue.len()
    }

    /// Whether another request may be begun.
    pub(super) fn may_begin(&mut self) -> bool {
        let options = &self.shared.options;
        let busy = self.under_way() >= options.requests_in_flight_max
            || self.source.waiting() >= WAITING_PER_CONNECTION_MAX
            || self.encoder.pending_bytes() >= OUTPUT_WAITING_BYTES_MAX;
        let throws = self.throws_on_overload() && self.encoder.pending_bytes() < OUTPUT_WAITING_BYTES_MAX;
        if busy && !throws && !std::mem::replace(&mut self.paused, true) {
            self.shared.metrics.connections_paused.add(1);
        }
        self.paused &= busy;
        !self.closing && (!busy || throws)
    }

    /// Whether too much is in flight, or memory is short and the client asked for errors in that case.
    pub(super) fn overloaded(&self) -> bool {
        self.under_way() >= self.shared.options.requests_in_flight_max
            || self.source.waiting() >= WAITING_PER_CONNECTION_MAX
            || (self.account.is_waiting() && self.throws_on_overload())
    }

    /// Whether the limit on requests a second lets a request begin now. If not, the task is woken when it does.
    pub(super) fn slot_has_come(&mut self, cx: &mut Context<'_>) -> bool {
        let has_come = self.slot.as_mut().is_none_or(|slot| slot.as_mut().poll(cx).is_ready());
        if has_come {
            self.slot = None;
        }
        has_come
    }

    /// The reason for which a request must be refused, if any. Takes a slot of the limit on requests a second.
    pub(super) fn refusal(&mut self) -> Option<String> {
        if self.overloaded() {
            return Some(OVERLOADED.to_owned());
        }
        let rate = self.shared.request_rate.as_ref()?;
        if self.throws_on_overload() {
            return (!rate.try_reserve()).then(|| {
                let max = rate.requests_per_second();
                format!("Request breached global limit of {max} requests/second. {IS_OVERLOADED}")
            });
        }
        let wait = rate.reserve();
        if !wait.is_zero() {
            self.slot = Some(Box::pin(sleep(wait)));
            self.shared.metrics.connections_paused.add(1);
        }
        None
    }
}
