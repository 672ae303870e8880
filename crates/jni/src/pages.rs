//! What a read returns, page by page.
//!
//! ```text
//! first page of a partition := u8 has deletion [i64 timestamp, i64 local deletion time] u8 has static row [static row]
//!                              unfiltereds, 0x01
//! other pages of a partition := unfiltereds, 0x01
//! page of keys := (i64 token, u32 length, key)...
//! ```

use model::{BoxCursor, Unfiltered, UnfilteredCursor};
use sstable::MessageEncoder;

use crate::reply::{Reply, Status};

/// A read that is not at its end. It pins nothing: each page seeks its place again.
pub struct Pages {
    cursor: BoxCursor<'static>,
    /// `None` if only keys are read.
    encoder: Option<MessageEncoder>,
    /// What the last page had no room for.
    pending: Vec<u8>,
}

impl Pages {
    /// The keys that a cursor finds.
    pub(crate) fn of_keys(cursor: BoxCursor<'static>) -> Pages {
        Pages { cursor, encoder: None, pending: Vec::new() }
    }

    /// The partition in which a cursor is.
    pub(crate) fn of_partition(cursor: BoxCursor<'static>, mut encoder: MessageEncoder) -> Result<Pages, String> {
        let mut pending = Vec::with_capacity(64);
        let head = cursor.partition();
        pending.push(u8::from(!head.deletion.is_live()));
        if !head.deletion.is_live() {
            pending.extend_from_slice(&head.deletion.marked_for_delete_at.to_be_bytes());
            pending.extend_from_slice(&i64::from(head.deletion.local_deletion_time).to_be_bytes());
        }
        pending.push(u8::from(head.static_row.is_some()));
        if head.static_row.is_some() {
            encoder.static_row(head.static_row, &mut pending).map_err(|error| error.to_string())?;
        }
        Ok(Pages { cursor, encoder: Some(encoder), pending })
    }

    /// Puts the next item into `pending`. Returns false at the end.
    fn advance(&mut self) -> Result<bool, String> {
        self.pending.clear();
        let Some(encoder) = &mut self.encoder else {
            if !self.cursor.advance_partition().map_err(|error| error.to_string())? {
                return Ok(false);
            }
            let key = self.cursor.partition().key;
            self.pending.extend_from_slice(&key.token().0.to_be_bytes());
            self.pending.extend_from_slice(&(key.bytes().len() as u32).to_be_bytes());
            self.pending.extend_from_slice(key.bytes());
            return Ok(true);
        };
        if !self.cursor.advance().map_err(|error| error.to_string())? {
            return Ok(false);
        }
        let written = match self.cursor.unfiltered() {
            Unfiltered::Row(row) => encoder.row(row, &mut self.pending),
            Unfiltered::Marker(marker) => encoder.marker(&marker, &mut self.pending),
        };
        written.map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Writes the next page and its status, without the handle. Returns whether there is more.
    ///
    /// Fails if the memtable cannot be read.
    pub fn fill(&mut self, reply: &mut Reply<'_>) -> Result<Filled, String> {
        const END: usize = 1;
        if self.pending.is_empty() && !self.advance()? {
            self.end(reply);
            return Ok(Filled::Last);
        }
        loop {
            if !reply.push(&self.pending, END) {
                if !reply.has_content() {
                    return Ok(Filled::Nothing { wanted: self.pending.len() + END });
                }
                self.end(reply);
                return Ok(Filled::Part);
            }
            if !self.advance()? {
                self.end(reply);
                return Ok(Filled::Last);
            }
        }
    }

    fn end(&self, reply: &mut Reply<'_>) {
        if let Some(encoder) = &self.encoder {
            let mut end = Vec::new();
            encoder.end(&mut end);
            reply.push(&end, 0);
        }
    }
}

/// What [`Pages::fill`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The page is the last one.
    Last,
    /// There is more.
    Part,
    /// There was no room for the next item, which needs a buffer for this many bytes of content.
    Nothing {
        /// Bytes.
        wanted: usize,
    },
}

impl Filled {
    /// Ends the reply; `handle` continues it.
    pub fn finish(self, handle: i64, mut reply: Reply<'_>) {
        match self {
            Filled::Last => reply.finish(0, Status::Content),
            Filled::Part => reply.finish(handle, Status::Content),
            Filled::Nothing { wanted } => reply.too_small(handle, wanted),
        }
    }
}
