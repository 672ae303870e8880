//! Rows that are passed on in stored form.

use model::StoredRow;

use super::cursor::{Current, SSTableCursor};
use crate::data::{STORED_ROW, UnfilteredHead, flag};
use crate::error::SSTableError;
use crate::input::Input;

/// A row in the file's encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub head: UnfilteredHead,
    timestamp: i64,
    /// The data position and length of its cells.
    cells: (u64, usize),
}

impl SSTableCursor {
    /// Makes the next unfiltered the current one in one step, if it is a row that may be passed on in stored form and
    /// the window has all of it. Everything else, including damage, is left to the general path. The end of the
    /// partition is detected.
    pub(super) fn leave_stored(&mut self) -> bool {
        if self.peeked.is_some() || self.at_end {
            return false;
        }
        let Self { window, reader, clustering, position, .. } = self;
        let bytes = window.buffered(*position);
        match bytes.first() {
            Some(&STORED_ROW) => {}
            Some(&flag::END_OF_PARTITION) => {
                self.at_end = true;
                return false;
            }
            _ => return false,
        }
        let (decoder, name) = (reader.decoder(), &window.data().name);
        let Ok(head) = decoder.head(&mut Input::new(name, *position, bytes), clustering) else { return false };
        let Some(body) = bytes.get(head.head_length..head.length()) else { return false };
        let start = *position + head.head_length as u64;
        let Ok(Some((timestamp, offset))) = decoder.stored_row(&head, &mut Input::new(name, start, body)) else {
            self.peeked = Some(head);
            return false;
        };
        let cells = (start + offset as u64, body.len() - offset);
        self.current = Current::Stored(Stored { head, timestamp, cells });
        self.item = *position;
        *position += head.length() as u64;
        true
    }

    /// The row at a data position, if it may be passed on in stored form.
    pub(super) fn stored_row(&mut self, position: u64, head: &UnfilteredHead) -> Result<Option<Stored>, SSTableError> {
        let Self { window, reader, .. } = self;
        let decoder = reader.decoder();
        let start = position + head.head_length as u64;
        let stored = window.decode_sized(start, head.body_length, |input| decoder.stored_row(head, input))?;
        Ok(stored.map(|(timestamp, offset)| {
            let cells = (start + offset as u64, head.body_length - offset);
            Stored { head: *head, timestamp, cells }
        }))
    }

    /// The current row in stored form, if it was left so.
    #[inline]
    pub(super) fn current_stored(&self) -> Option<StoredRow<'_>> {
        let Current::Stored(Stored { timestamp, cells: (position, length), .. }) = self.current else { return None };
        Some(StoredRow { clustering: &self.clustering, timestamp, cells: self.window.held(position, length) })
    }
}
