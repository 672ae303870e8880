//! Where the values of a row's simple columns lie, so that they are copied without being decoded.

use std::ops::Range;

use super::{Row, flag};
use crate::Table;

/// Where the values of one row's simple columns lie in its bytes, by index in the table's current set. Keeps its memory
/// from row to row.
#[derive(Clone, Debug, Default)]
pub struct ValuePlaces {
    /// Starts of the slots and the end of the last, where the row's slots are what the protocol wants.
    slots: Vec<u32>,
    /// Otherwise: start and length of each value.
    places: Vec<(u32, i32)>,
    is_dense: bool,
}

/// No data for this column.
const ABSENT: i32 = -1;
/// A cell that is deleted or has expired.
const DEAD: i32 = -2;

impl<'a> Row<'a> {
    /// The slots of all columns, where those of simple columns are values as the native protocol has them (an i32 length and
    /// bytes, or -1): the row is dense, of the table's current columns, and no cell has times of its own or has expired.
    pub fn slots(&self, table: &Table, now_seconds: u32) -> Option<&'a [u8]> {
        let header = self.header();
        let is_plain = header.flags & (flag::SPARSE | flag::CELL_META) == 0
            && (header.flags & flag::EXPIRING == 0 || now_seconds < header.expiration)
            && table.column_sets(header.flags & flag::STATIC != 0).is_current(header.version);
        if is_plain { self.as_bytes().get(header.columns..) } else { None }
    }
}

impl ValuePlaces {
    /// Looks up the columns below `count`, all simple, as a client sees them at `now_seconds`.
    pub fn locate(&mut self, row: Row<'_>, table: &Table, now_seconds: u32, count: usize) {
        self.is_dense = row.slots(table, now_seconds).is_some_and(|slots| {
            let start = row.as_bytes().len() - slots.len();
            self.locate_slots(row.as_bytes(), start, count).is_some()
        });
        if self.is_dense {
            return;
        }
        let places = &mut self.places;
        places.clear();
        places.resize(count, (0, ABSENT));
        row.columns(table).pass_simple(now_seconds, |index, range| {
            if let Some(place) = places.get_mut(index) {
                *place = range.map_or((0, DEAD), |range| (range.start as u32, range.len() as i32));
            }
        });
    }

    /// `None` where bytes are missing, which only bytes that were not checked can lack.
    fn locate_slots(&mut self, bytes: &[u8], start: usize, count: usize) -> Option<()> {
        self.slots.resize(count + 1, 0);
        let mut at = start;
        for slot in &mut self.slots[..count] {
            *slot = at as u32;
            let length = i32::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
            at += 4 + length.max(0) as usize;
        }
        self.slots[count] = at as u32;
        (at <= bytes.len()).then_some(())
    }

    /// Appends the values of `columns` of the row that was looked up last, each as i32 length and bytes, or -1 for none.
    /// Returns how many deleted or expired cells were among them.
    pub fn copy(&self, row: Row<'_>, columns: Range<usize>, out: &mut Vec<u8>) -> u64 {
        if self.is_dense {
            out.extend_from_slice(
                &row.as_bytes()[self.slots[columns.start] as usize..self.slots[columns.end] as usize],
            );
            return 0;
        }
        let mut dead = 0;
        for &(start, length) in &self.places[columns] {
            dead += u64::from(length == DEAD);
            out.extend_from_slice(&length.max(-1).to_be_bytes());
            let start = start as usize;
            out.extend_from_slice(&row.as_bytes()[start..start + length.max(0) as usize]);
        }
        dead
    }
}
