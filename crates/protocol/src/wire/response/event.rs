//! EVENT bodies, and the schema change that events and results share.

use std::net::SocketAddr;

use crate::message::{ChangeKind, Event, SchemaChange, SchemaTarget};
use crate::wire::writer::{put_int, put_short, put_string, put_string_list};
use crate::{EventType, Version};

impl Event {
    /// The type that a client registers for.
    pub fn event_type(&self) -> EventType {
        match self {
            Event::Schema(_) => EventType::SchemaChange,
            Event::Status { .. } => EventType::StatusChange,
            Event::Topology { .. } => EventType::TopologyChange,
        }
    }

    /// Writes the body of an EVENT.
    pub fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_string(out, self.event_type().name());
        match self {
            Event::Schema(change) => change.write(out, version),
            Event::Status { up, node } => {
                put_string(out, if *up { "UP" } else { "DOWN" });
                put_inet(out, node);
            }
            Event::Topology { change, node } => {
                put_string(out, change);
                put_inet(out, node);
            }
        }
    }
}

impl SchemaChange {
    /// Writes change, target and names. Version 3 knows no functions and aggregates: there they are a change of the
    /// keyspace.
    pub(crate) fn write(&self, out: &mut Vec<u8>, version: Version) {
        let (kind, target, name, arguments) = self.parts(version);
        put_string(out, kind);
        put_string(out, target);
        put_string(out, &self.keyspace);
        if let Some(name) = name {
            put_string(out, name);
        }
        if let Some(arguments) = arguments {
            put_string_list(out, arguments);
        }
    }

    fn parts(&self, version: Version) -> (&'static str, &'static str, Option<&str>, Option<&[String]>) {
        let kind = match self.kind {
            ChangeKind::Created => "CREATED",
            ChangeKind::Updated => "UPDATED",
            ChangeKind::Dropped => "DROPPED",
        };
        match &self.target {
            SchemaTarget::Keyspace => (kind, "KEYSPACE", None, None),
            SchemaTarget::Table(name) => (kind, "TABLE", Some(name), None),
            SchemaTarget::Type(name) => (kind, "TYPE", Some(name), None),
            SchemaTarget::Function(..) | SchemaTarget::Aggregate(..) if version < Version::V4 => {
                ("UPDATED", "KEYSPACE", None, None)
            }
            SchemaTarget::Function(name, arguments) => (kind, "FUNCTION", Some(name), Some(arguments)),
            SchemaTarget::Aggregate(name, arguments) => (kind, "AGGREGATE", Some(name), Some(arguments)),
        }
    }
}

/// `[inet]`: size, address, port.
fn put_inet(out: &mut Vec<u8>, node: &SocketAddr) {
    put_inetaddr(out, &node.ip());
    put_int(out, i32::from(node.port()));
}

/// `[inetaddr]`: size and address.
pub(crate) fn put_inetaddr(out: &mut Vec<u8>, address: &std::net::IpAddr) {
    match address {
        std::net::IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        std::net::IpAddr::V6(v6) => {
            out.push(16);
            out.extend_from_slice(&v6.octets());
        }
    }
}

/// A map from addresses to reasons, for failures.
pub(crate) fn put_reasons(out: &mut Vec<u8>, reasons: &[(std::net::IpAddr, u16)]) {
    put_int(out, reasons.len() as i32);
    for (address, reason) in reasons {
        put_inetaddr(out, address);
        put_short(out, *reason);
    }
}
