//! Prefetch for the requests in a connection's buffer. Before the first request is begun, the memory that all of them
//! will read is prefetched, so that its latencies overlap. Without it each request would wait for its memory alone.

use std::mem::replace;
use std::ptr;

use model::PartitionKey;
use protocol::{Value, Values};

use crate::Processor;
use crate::prepared::Prepared;

/// For fewer requests a prefetch does not pay.
const REQUESTS_MIN: usize = 4;

/// Prefetches the memory that these statements will read in large memtables.
pub(super) fn prefetch<'c>(
    processor: &Processor,
    coming: impl Iterator<Item = (&'c Prepared, impl FnOnce() -> Option<Values<'c>>)>,
) {
    let mut keys = Keys { bytes: Vec::new(), ends: Vec::new() };
    // The last statement, and whether a prefetch pays for it.
    let mut last: Option<(&Prepared, bool)> = None;
    for (statement, values) in coming {
        let pays = match last {
            Some((last, pays)) if ptr::eq(last, statement) => pays,
            _ => processor.pays_for_prefetch(statement),
        };
        last = Some((statement, pays));
        if pays && let Some(values) = values() {
            keys.push(statement, &values);
        }
    }
    if keys.ends.len() >= REQUESTS_MIN {
        keys.prefetch(processor);
    }
}

impl Processor {
    /// Whether a prefetch pays, because the memtables of the statement's table are large. Writes that wait for the log
    /// read the memtables later, and are prefetched then.
    fn pays_for_prefetch(&self, statement: &Prepared) -> bool {
        let comes_later = statement.plan.is_modification() && self.engine().writes_wait();
        let is_large = || matches!(&statement.plan.tables[..], [table] if self.engine().has_large_memtables(table));
        !statement.partition_key_bind_indexes.is_empty() && !comes_later && is_large()
    }
}

/// The serialized partition keys of statements.
struct Keys<'c> {
    /// The keys one after the other.
    bytes: Vec<u8>,
    /// For each key its statement and its end in `bytes`.
    ends: Vec<(&'c Prepared, usize)>,
}

impl<'c> Keys<'c> {
    fn push(&mut self, statement: &'c Prepared, values: &Values<'_>) {
        let before = self.bytes.len();
        match push_key(&statement.partition_key_bind_indexes, values, &mut self.bytes) {
            Some(()) => self.ends.push((statement, self.bytes.len())),
            None => self.bytes.truncate(before),
        }
    }

    fn prefetch(&self, processor: &Processor) {
        let mut start = 0;
        for same in self.ends.chunk_by(|(one, _), (other, _)| ptr::eq(*one, *other)) {
            let mut key = |(_, end): &(_, usize)| PartitionKey::new(&self.bytes[replace(&mut start, *end)..*end]);
            let keys: Vec<PartitionKey> = same.iter().map(&mut key).collect();
            if let [table] = &same[0].0.plan.tables[..] {
                processor.engine().prefetch(table, &keys.iter().collect::<Vec<_>>());
            }
        }
    }
}

/// Appends a serialized partition key. A single value is the key itself. Of several values each is preceded by its
/// length and followed by a zero. `None` if a value is missing.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(places: &[u16], values: &[Value<'_>]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        push_key(places, &Values::Positional(values), &mut key).map(|()| key)
    }

    #[test]
    fn a_key_of_several_columns_is_serialized_in_its_order() {
        let values = [Value::Bytes(b"second"), Value::Bytes(b"1st")];
        assert_eq!(key(&[1, 0], &values).as_deref(), Some(&b"\0\x031st\0\0\x06second\0"[..]));
        assert_eq!(key(&[0], &values).as_deref(), Some(&b"second"[..]));
    }

    #[test]
    fn a_key_whose_value_is_missing_is_none() {
        assert_eq!(key(&[0], &[Value::Null]), None);
        assert_eq!(key(&[1], &[Value::Bytes(b"k")]), None);
        assert_eq!(push_key(&[0], &Values::Named(&[("k", Value::Bytes(b"k"))]), &mut Vec::new()), None);
    }
}
