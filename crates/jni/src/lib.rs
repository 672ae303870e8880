//! The native half of the memtable plugin for Apache Cassandra 5.0. The Java half is in `java/`.
//!
//! Java passes updates in Cassandra's messaging form, requests in the form of `request.rs`, and buffers for the replies
//! (`reply.rs`). All of them are addresses of memory outside of the Java heap, so no call needs the Java environment:
//! nothing here throws, allocates Java objects or calls Java. Errors are replies, which Java turns into exceptions.
#![deny(unsafe_code)]

pub mod boundary;
mod changes;
mod pages;
mod plugin_memtable;
mod reply;
mod request;
mod store;
mod table;

pub use pages::Pages;
pub use plugin_memtable::{Growth, PluginMemtable, Refusal, Usage};
pub use reply::{Reply, Status};
pub use store::{Choice, Store};
