//! Requests that lie in a connection's buffer: before the first is carried out, the memory that they will look at is
//! asked for. While it is on its way to one the others' is as well, where each on its own would wait for all of its.

use crate::handler::QueryHandler;
use crate::prepared::{Prepared, RecentStatements};
use protocol::{Body, Decoder, Opcode, Request, Value, Values};
use std::mem::replace;
use std::ptr;

/// So many are looked at together: as many as the memory has under way, and what they need stays near until their turn
/// comes.
const REQUESTS_MAX: usize = 32;
/// For fewer than these it is not worth its time.
const REQUESTS_MIN: usize = 4;

/// Has what the next requests look at brought near, as far as they carry out statements that the client has used
/// before. How many were looked at, at least one: after these it is worth to look again.
pub(crate) fn look_ahead<H: QueryHandler>(handler: &H, statements: &RecentStatements<H>, decoder: &Decoder) -> usize {
    let mut coming = Coming { handler, last: None, keys: Vec::new(), places: Vec::new() };
    let mut count = 0;
    for (header, body) in decoder.ahead().take(REQUESTS_MAX) {
        count += 1;
        if header.opcode != Opcode::Execute {
            continue;
        }
        let Ok(Body { request: Request::Execute { id, options, .. }, .. }) = Body::parse(&header, body) else {
            continue;
        };
        if let Some(prepared) = statements.known(id) {
            coming.add(prepared, &options.values);
        }
    }
    coming.bring_near();
    count.max(1)
}

struct Coming<'s, H: QueryHandler> {
    handler: &'s H,
    /// The statement that was asked about last, and whether it looks far.
    last: Option<(&'s Prepared<H>, bool)>,
    /// Serialized partition keys, one behind the other.
    keys: Vec<u8>,
    /// Of each the statement, and the end in `keys`.
    places: Vec<(&'s Prepared<H>, usize)>,
}

impl<'s, H: QueryHandler> Coming<'s, H> {
    fn add(&mut self, prepared: &'s Prepared<H>, values: &Values<'_>) {
        let looks_far = match self.last {
            Some((last, looks_far)) if ptr::eq(last, prepared) => looks_far,
            _ => !prepared.partition_key.is_empty() && self.handler.looks_far(&prepared.statement),
        };
        self.last = Some((prepared, looks_far));
        if looks_far && push_key(&prepared.partition_key, values, &mut self.keys).is_some() {
            self.places.push((prepared, self.keys.len()));
        }
        self.keys.truncate(self.places.last().map_or(0, |(_, end)| *end));
    }

    fn bring_near(&self) {
        if self.places.len() < REQUESTS_MIN {
            return;
        }
        let mut start = 0;
        let keys = self
            .places
            .iter()
            .map(|(prepared, end)| (&*prepared.statement, &self.keys[replace(&mut start, *end)..*end]));
        self.handler.look_ahead(&keys.collect::<Vec<_>>());
    }
}

/// Appends the partition key as it is serialized: its only value, or of each its length, itself and a zero. `None` if a
/// value is missing.
fn push_key(places: &[u16], values: &Values<'_>, key: &mut Vec<u8>) -> Option<()> {
    if values.is_named() {
        return None;
    }
    for place in places {
        let Some((_, Value::Bytes(value))) = values.iter().nth(usize::from(*place)) else { return None };
        if places.len() > 1 {
            key.extend_from_slice(&u16::try_from(value.len()).ok()?.to_be_bytes());
        }
        key.extend_from_slice(value);
        if places.len() > 1 {
            key.push(0);
        }
    }
    Some(())
}
