//! Looking up the row of a partition that has no more than one, without a cursor, where the cache has all that it takes.
//!
//! Nothing here waits for the disk and nothing is told of damage: a cursor, which is opened then, does both.

use std::cell::RefCell;
use std::sync::Arc;

use bytecomp::encode_decorated_key;
use model::{Row, RowBuilder, Table};
use types::{Token, murmur3};

use super::SSTableReader;
use crate::cache::NotCached;
use crate::data::{UnfilteredHead, read_partition_deletion};
use crate::input::Input;
use crate::partition_index::Place;

/// What came of looking a row up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLookup {
    /// It was handed over.
    Found,
    /// There is none, and nothing deletes it.
    Absent,
    /// A cursor says.
    Unknown,
}

/// Buffers that keep their memory from look-up to look-up.
#[derive(Default)]
struct Scratch {
    encoded: Vec<u8>,
    spill: Vec<u8>,
    clustering: Vec<u8>,
    builder: RowBuilder,
    row: Vec<u8>,
}

/// What a thread keeps of a buffer, bytes.
const KEPT_BYTES_MAX: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Tables that are asked together: a bit for each.
const TOGETHER: usize = u64::BITS as usize;

/// Looks up the row of the partition `key` in SSTables of a table without clustering columns and static columns, and hands it to `take` if
/// it is in one of them alone and nothing may shadow it.
///
/// All filters are asked before any index is looked at, so that the processor waits for all of them at once.
pub fn find_only_row(
    sstables: &[Arc<SSTableReader>],
    table: &Table,
    (token, key): (Token, &[u8]),
    take: &mut dyn FnMut(Row<'_>),
) -> RowLookup {
    if sstables.len() > TOGETHER {
        return RowLookup::Unknown;
    }
    let sought = Sought { token, key, hash: murmur3::hash128(key) };
    let mut passing = 0_u64;
    for (index, sstable) in sstables.iter().enumerate() {
        passing |= u64::from(sstable.may_have(&sought)) << index;
    }
    if passing == 0 {
        return RowLookup::Absent;
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let found = sought.look_up(sstables, passing, table, scratch, take);
        scratch.shrink();
        found.unwrap_or(RowLookup::Unknown)
    })
}

/// A partition that is looked for, hashed once for all tables.
struct Sought<'k> {
    token: Token,
    key: &'k [u8],
    hash: (u64, u64),
}

impl Sought<'_> {
    /// In those tables whose bits are set in `passing`.
    fn look_up(
        &self,
        sstables: &[Arc<SSTableReader>],
        mut passing: u64,
        table: &Table,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(Row<'_>),
    ) -> Result<RowLookup, NotCached> {
        scratch.encoded.clear();
        encode_decorated_key(self.token, self.key, &mut scratch.encoded);
        let mut only: Option<(&SSTableReader, Place)> = None;
        while passing != 0 {
            let sstable = &*sstables[passing.trailing_zeros() as usize];
            passing &= passing - 1;
            let Some(place) = sstable.files.partitions.cached_candidate(&scratch.encoded, self.hash)? else { continue };
            if only.replace((sstable, place)).is_some() {
                return Ok(RowLookup::Unknown);
            }
        }
        match only {
            Some((sstable, Place::Data(position))) => sstable.cached_only_row(self, position, table, scratch, take),
            Some((_, Place::Rows(_))) => Ok(RowLookup::Unknown),
            None => Ok(RowLookup::Absent),
        }
    }
}

impl Scratch {
    fn shrink(&mut self) {
        for buffer in [&mut self.encoded, &mut self.spill, &mut self.clustering, &mut self.row] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        if self.builder.kept_bytes() > KEPT_BYTES_MAX {
            self.builder = RowBuilder::default();
        }
    }
}

impl SSTableReader {
    /// Whether the partition may be here, by the outer tokens and the filter.
    fn may_have(&self, sought: &Sought<'_>) -> bool {
        let tokens = self.first_key().token()..=self.last_key().token();
        tokens.contains(&sought.token) & self.filter_passes(sought.hash)
    }

    /// The row of the partition at a data position, if that is the one sought.
    fn cached_only_row(
        &self,
        sought: &Sought<'_>,
        position: u64,
        table: &Table,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(Row<'_>),
    ) -> Result<RowLookup, NotCached> {
        let is_plain = self.view.columns.unknown.is_none() && self.files.statistics.header.statics.is_empty();
        if !is_plain || !std::ptr::eq(&*self.view.table, table) {
            return Ok(RowLookup::Unknown);
        }
        let (version, decoder) = (self.files.descriptor.version, self.decoder());
        let Scratch { spill, clustering, builder, row, .. } = scratch;
        let lookup = self.files.data.decode_cached(position, spill, |input| {
            if input.short_bytes("partition key")? != sought.key {
                return Ok(RowLookup::Absent);
            }
            if !read_partition_deletion(version, input)?.is_live() {
                return Ok(RowLookup::Unknown);
            }
            let head = decoder.head(input, clustering)?;
            if head.is_end() {
                return Ok(RowLookup::Absent);
            }
            if !is_simple(&head) {
                return Ok(RowLookup::Unknown);
            }
            let start = input.offset();
            let body = input.take(head.body_length, "row body")?;
            decoder.row(&head, &mut Input::new(&self.files.data.name, start, body), None, builder)?;
            Ok(RowLookup::Found)
        })?;
        if lookup != RowLookup::Found {
            return Ok(lookup);
        }
        if builder.is_empty() {
            return Ok(RowLookup::Absent);
        }
        builder.finish(row);
        take(Row::new(row));
        Ok(RowLookup::Found)
    }
}

/// Whether it is a row that no deletion of its own comes with.
fn is_simple(head: &UnfilteredHead) -> bool {
    !head.is_marker() && head.extended == 0 && !head.has_deletion()
}
