//! Locating the values of a row's simple columns, so that they can be copied without decoding.

use std::ops::Range;

use super::{Row, flag};
use crate::Table;

/// The places of the values of one row's simple columns in its bytes, by index in the table's current set. It reuses
/// its memory for all rows.
#[derive(Clone, Debug, Default)]
pub struct ValuePlaces {
    /// If the row's slots have the protocol's form: the start of each, counted from `first_slot`, and the start of what
    /// follows the last.
    slots: Vec<Slot>,
    first_slot: usize,
    /// Otherwise, the start and length of each value.
    places: Vec<(u32, i32)>,
    is_dense: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    start: u32,
    /// The length as it is stored; none after the last slot.
    length: [u8; 4],
}

impl Slot {
    /// Returns zero if the slot that starts at the same place in `slots` has the same length.
    #[inline]
    fn differs(&self, slots: &[u8]) -> u32 {
        let start = self.start as usize;
        let length = slots.get(start..start + size_of::<i32>()).and_then(|length| length.first_chunk());
        length.map_or(u32::MAX, |length| u32::from_ne_bytes(*length) ^ u32::from_ne_bytes(self.length))
    }
}

/// No data for this column.
const ABSENT: i32 = -1;
/// The cell is deleted or has expired.
const DEAD: i32 = -2;

impl<'a> Row<'a> {
    /// The slots of all columns, if those of simple columns are values in the native protocol's form (an i32 length and
    /// bytes, or -1): the row is dense, of the table's current columns, and no cell has times of its own or has
    /// expired.
    pub fn slots(&self, table: &Table, now_seconds: u32) -> Option<&'a [u8]> {
        let header = self.header();
        let is_plain = header.flags & (flag::SPARSE | flag::CELL_META | flag::PIECE) == 0
            && (header.flags & flag::EXPIRING == 0 || now_seconds < header.expiration)
            && table.column_sets(header.flags & flag::STATIC != 0).is_current(header.version);
        if is_plain { self.as_bytes().get(header.columns..) } else { None }
    }
}

impl ValuePlaces {
    /// Locates the columns below `count`, all simple, as a client sees them at `now_seconds`.
    pub fn locate(&mut self, row: Row<'_>, table: &Table, now_seconds: u32, count: usize) {
        self.is_dense = row.slots(table, now_seconds).is_some_and(|slots| {
            self.first_slot = row.as_bytes().len() - slots.len();
            self.locate_slots(slots, count).is_some()
        });
        if self.is_dense {
            return;
        }
        self.slots.clear();
        let places = &mut self.places;
        places.clear();
        places.resize(count, (0, ABSENT));
        row.columns(table).pass_simple(now_seconds, |index, range| {
            if let Some(place) = places.get_mut(index) {
                *place = range.map_or((0, DEAD), |range| (range.start as u32, range.len() as i32));
            }
        });
    }

    /// Locates the first `count` slots. Returns `None` if bytes are missing, which can only happen with unchecked
    /// bytes.
    fn locate_slots(&mut self, slots: &[u8], count: usize) -> Option<()> {
        let known = if self.slots.len() == count + 1 { self.agreeing(slots) } else { 0 };
        self.slots.resize(count + 1, Slot::default());
        let mut at = self.slots[known].start as usize;
        for slot in &mut self.slots[known..count] {
            slot.start = at as u32;
            slot.length = *slots.get(at..)?.first_chunk()?;
            at += size_of::<i32>() + usize::try_from(i32::from_be_bytes(slot.length)).unwrap_or(0);
        }
        self.slots[count].start = at as u32;
        (at <= slots.len()).then_some(())
    }

    /// How many leading slots surely have the same lengths as those of the previous row. Rows of a table are often
    /// alike, and this check neither waits for one length to find the next slot nor branches for each.
    fn agreeing(&self, slots: &[u8]) -> usize {
        const TOGETHER: usize = 8;
        let known = &self.slots[..self.slots.len() - 1];
        let differs = |some: &[Slot]| some.iter().fold(0, |differs, slot| differs | slot.differs(slots)) != 0;
        let (groups, rest) = known.as_chunks::<TOGETHER>();
        match groups.iter().position(|group| differs(group)) {
            Some(group) => group * TOGETHER,
            None if differs(rest) => known.len() - rest.len(),
            None => known.len(),
        }
    }

    /// Appends the values of the columns in `runs` of the row that was located last, each as i32 length and bytes, or
    /// -1 for none. Returns how many deleted or expired cells were among them.
    pub fn copy(&self, row: Row<'_>, runs: &[Range<usize>], out: &mut Vec<u8>) -> u64 {
        if self.is_dense {
            self.copy_slots(&row.as_bytes()[self.first_slot..], runs, out);
            return 0;
        }
        let mut dead = 0;
        for &(start, length) in runs.iter().flat_map(|run| &self.places[run.clone()]) {
            dead += u64::from(length == DEAD);
            out.extend_from_slice(&length.max(-1).to_be_bytes());
            append(&row.as_bytes()[start as usize..], length.max(0) as usize, out);
        }
        dead
    }

    /// Copies the runs of a row of slots. The space for all of them is reserved at once, because the runs of a wide row
    /// are many and short.
    fn copy_slots(&self, slots: &[u8], runs: &[Range<usize>], out: &mut Vec<u8>) {
        let end = self.slots.last().map_or(0, |last| last.start as usize);
        out.reserve(end + BLOCK_BYTES);
        for run in runs {
            let (start, end) = (self.slots[run.start].start as usize, self.slots[run.end].start as usize);
            append(&slots[start..], end - start, out);
        }
    }
}

/// A few bytes are copied faster as a block of fixed size, which is then truncated, than by a call.
const BLOCK_BYTES: usize = 64;

/// Appends the first `length` bytes.
#[inline]
fn append(bytes: &[u8], length: usize, out: &mut Vec<u8>) {
    match bytes.first_chunk::<BLOCK_BYTES>() {
        Some(block) if length <= BLOCK_BYTES => {
            let end = out.len() + length;
            out.extend_from_slice(block);
            out.truncate(end);
        }
        _ => out.extend_from_slice(&bytes[..length]),
    }
}
