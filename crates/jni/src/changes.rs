//! The rows that an update changed, for Cassandra's indexes.
//!
//! ```text
//! change := u8 kind: 1 the row is new, 2 the row was there; u8 is static
//!           the row as an unfiltered of a message: what it is now (1), what it was (2)
//! ```

use model::{PartitionKey, Row, RowObserver, RowRef, Table};
use sstable::MessageEncoder;

const IS_NEW: u8 = 1;
const WAS_THERE: u8 = 2;

/// Collects the rows that change while an update is applied. It calls no other code, so the writer's lock may be held.
pub(crate) struct Changes {
    encoder: MessageEncoder,
    bytes: Vec<u8>,
    error: Option<String>,
}

impl Changes {
    pub(crate) fn new(encoder: MessageEncoder) -> Changes {
        Changes { encoder, bytes: Vec::new(), error: None }
    }

    /// The changes in their serialized form, unless one of them could not be written.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, String> {
        self.error.map_or(Ok(self.bytes), Err)
    }

    fn push(&mut self, kind: u8, clustering: &[u8], row: Row<'_>) {
        let is_static = row.is_static();
        self.bytes.extend_from_slice(&[kind, u8::from(is_static)]);
        let written = match is_static {
            true => self.encoder.static_row(Some(row), &mut self.bytes),
            false => self.encoder.row(RowRef { clustering, row }, &mut self.bytes),
        };
        if let Err(error) = written {
            self.error.get_or_insert(error.to_string());
        }
    }
}

impl RowObserver for Changes {
    fn row_changed(
        &mut self,
        _: &Table,
        _: &PartitionKey,
        clustering: &[u8],
        before: Option<Row<'_>>,
        after: Option<Row<'_>>,
    ) {
        match (before, after) {
            (Some(before), _) => self.push(WAS_THERE, clustering, before),
            (None, Some(after)) => self.push(IS_NEW, clustering, after),
            (None, None) => {}
        }
    }
}
