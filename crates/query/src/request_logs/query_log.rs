//! The full query log: each request that succeeded, as a client could send it again.
//!
//! A line has the fields that Cassandra's `fqltool dump` prints, and the options of the request. Values are shown in
//! hexadecimal. Neither passwords nor their hashes are shown.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use protocol::{BatchKind, Value, Values};
use types::hex;

use crate::audit::OneLine;
use crate::auth::HIDDEN;
use crate::entry::{BatchEntry, Parts};
use crate::{Request, Statement, without_passwords};

/// The line of a statement with this text.
pub(super) fn of_statement(text: &str, request: &Request<'_>) -> String {
    line(|out| {
        write_request("single-query", request, out)?;
        write_query(text, &request.options.values, out)
    })
}

/// The line of a BATCH.
pub(super) fn of_batch(parts: &Parts, entries: &[BatchEntry<'_>], request: &Request<'_>) -> String {
    line(|out| {
        write_request("batch", request, out)?;
        let kind = match &request.statement {
            Statement::Batch { kind: BatchKind::Unlogged, .. } => "UNLOGGED",
            Statement::Batch { kind: BatchKind::Counter, .. } => "COUNTER",
            _ => "LOGGED",
        };
        write!(out, "|batch type:{kind}")?;
        let mut queries = parts.iter().zip(entries);
        queries.try_for_each(|((statement, _), entry)| write_query(&statement.text, &entry.values, out))
    })
}

fn line(write: impl FnOnce(&mut OneLine<'_, String>) -> fmt::Result) -> String {
    let mut line = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut OneLine(&mut line));
    line
}

fn write_request(kind: &str, request: &Request<'_>, out: &mut impl Write) -> fmt::Result {
    let (options, client) = (request.options, request.client);
    let start_millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let version = request.version as u8;
    write!(out, "type:{kind}|query start time:{start_millis}|protocol version:{version}")?;
    if let Some(timestamp) = options.timestamp {
        write!(out, "|timestamp:{timestamp}")?;
    }
    if let Some(now) = options.now_in_seconds {
        write!(out, "|now in seconds:{now}")?;
    }
    if let Some(keyspace) = options.keyspace.or(client.keyspace.as_deref()) {
        write!(out, "|keyspace:{keyspace}")?;
    }
    write!(out, "|consistency level:{}|serial consistency level:{}", options.consistency, options.serial_consistency)?;
    match options.page_size {
        Some(page_size) => write!(out, "|page size:{page_size}"),
        None => Ok(()),
    }
}

fn write_query(text: &str, values: &Values<'_>, out: &mut impl Write) -> fmt::Result {
    let shown = without_passwords(text);
    write!(out, "|query:{shown}|values:")?;
    if matches!(shown, Cow::Owned(_)) {
        return out.write_str(if values.is_empty() { "" } else { HIDDEN.trim_start() });
    }
    for (place, (name, value)) in values.iter().enumerate() {
        out.write_str(if place == 0 { "" } else { "," })?;
        if let Some(name) = name {
            write!(out, "{name}=")?;
        }
        match value {
            Value::Null => out.write_str("null")?,
            Value::Unset => out.write_str("unset")?,
            Value::Bytes(bytes) => write!(out, "0x{}", hex::to_string(bytes))?,
        }
    }
    Ok(())
}
