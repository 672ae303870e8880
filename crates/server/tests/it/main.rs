//! The server over real sockets, with a handler whose answers the tests choose.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod events;
mod fake;
mod hostile;
mod limits;
mod log;
mod login;
mod pipelining;
mod prefetch;
mod prepared;
mod stalled_reads;
mod startup;
mod tls;
mod wire;
