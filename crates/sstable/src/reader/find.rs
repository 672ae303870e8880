//! Looking up rows without a cursor, if the cache has everything needed: the common part of find_only_row and
//! [`super::find_rows`], and the row of a partition that has no more than one.
//!
//! Nothing here waits for the disk or reports damage. In those cases the caller opens a cursor, which does both.

use std::cell::RefCell;
use std::sync::Arc;

use bytecomp::encode_decorated_key;
use model::{Row, RowBuilder, Table};
use types::{Token, murmur3};

use super::SSTableReader;
use super::cached_window::CachedWindow;
use super::waypoints::Trail;
use crate::cache::NotCached;
use crate::data::{Decoder, UnfilteredHead, read_partition_deletion};
use crate::error::Decoded;
use crate::input::Input;
use crate::partition_index::PartitionPosition;

/// The result of a row look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLookup {
    /// The row was passed to the caller.
    Found,
    /// There is no row, and nothing deletes it.
    Absent,
    /// Only a cursor can show whether there is a row.
    Unknown,
}

/// The probable place of a partition, from an index. The key there is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionHint {
    /// The number of the SSTable's open files: see [`SSTableReader::number`].
    pub sstable: u64,
    /// The position of the partition in the uncompressed data.
    pub position: u64,
}

/// Buffers that are reused for all look-ups.
#[derive(Default)]
pub(super) struct Scratch {
    pub encoded: Vec<u8>,
    pub spill: Vec<u8>,
    pub clustering: Vec<u8>,
    builder: RowBuilder,
    pub row: Vec<u8>,
    pub trail: Trail,
}

/// The largest buffer that a thread keeps, in bytes.
const KEPT_BYTES_MAX: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    /// Calls `look_up` with the thread's own buffers.
    pub fn with<T>(look_up: impl FnOnce(&mut Scratch) -> T) -> T {
        SCRATCH.with_borrow_mut(|scratch| {
            let found = look_up(scratch);
            scratch.shrink();
            found
        })
    }

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

/// The buffers for decoding a row.
pub(super) struct RowBuffers<'s> {
    pub builder: &'s mut RowBuilder,
    pub row: &'s mut Vec<u8>,
}

impl RowBuffers<'_> {
    /// Decodes a body, the next in `input`, into `row`. Returns false if that is empty.
    pub fn decode(&mut self, decoder: &Decoder<'_>, head: &UnfilteredHead, input: &mut Input<'_>) -> Decoded<bool> {
        let body = input.part(head.body_length, "row body")?;
        if decoder.plain_row(head, &mut body.clone(), self.row)? {
            return Ok(true);
        }
        decoder.row(head, &mut body.clone(), None, self.builder)?;
        self.row.clear();
        if self.builder.is_empty() {
            return Ok(false);
        }
        self.builder.finish(self.row);
        Ok(true)
    }
}

/// Whether it is a row without a deletion of its own.
pub(super) fn is_simple(head: &UnfilteredHead) -> bool {
    !head.is_marker() && head.extended == 0 && !head.has_deletion()
}

/// The number of tables that are checked together: one bit for each.
const TOGETHER: usize = u64::BITS as usize;

/// A partition to look up, hashed once for all tables.
pub(super) struct Sought<'k> {
    token: Token,
    key: &'k [u8],
    hash: (u64, u64),
}

/// How many tables may have a partition.
pub(super) enum Candidates<'s> {
    None,
    One(&'s SSTableReader, PartitionPosition),
    Several,
}

impl<'k> Sought<'k> {
    pub fn new(token: Token, key: &'k [u8]) -> Self {
        Sought { token, key, hash: murmur3::hash128(key) }
    }

    /// The tables that may have the partition, by their outer tokens and filters, as bits. `None` if there are too many
    /// tables.
    ///
    /// All filters are checked before any index is read, so that the processor waits for all of them at once.
    pub fn passing(&self, sstables: &[Arc<SSTableReader>]) -> Option<u64> {
        let bit = |(index, sstable): (usize, &Arc<SSTableReader>)| u64::from(sstable.may_have(self)) << index;
        (sstables.len() <= TOGETHER).then(|| sstables.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit))
    }

    /// Checks the indexes of the tables whose bits are set in `passing`.
    pub fn candidates<'s>(
        &self,
        sstables: &'s [Arc<SSTableReader>],
        mut passing: u64,
        encoded: &mut Vec<u8>,
    ) -> Result<Candidates<'s>, NotCached> {
        encoded.clear();
        encode_decorated_key(self.token, self.key, encoded);
        let mut candidates = Candidates::None;
        while passing != 0 {
            let sstable = &*sstables[passing.trailing_zeros() as usize];
            passing &= passing - 1;
            let Some(place) = sstable.files.partitions.cached_candidate(encoded, self.hash)? else { continue };
            if !matches!(candidates, Candidates::None) {
                return Ok(Candidates::Several);
            }
            candidates = Candidates::One(sstable, place);
        }
        Ok(candidates)
    }
}

/// Looks up the row of the partition `key` in SSTables of a table without clustering columns and static columns. Passes
/// it to `take` if only one of them has it and nothing can shadow it. With a hint that is right, the index of that
/// SSTable is not read.
pub fn find_only_row(
    sstables: &[Arc<SSTableReader>],
    table: &Table,
    (token, key): (Token, &[u8]),
    hint: Option<PartitionHint>,
    take: &mut dyn FnMut(Row<'_>),
) -> RowLookup {
    if let Some(hint) = hint
        && let Some(found) = find_hinted_row(sstables, table, (token, key), hint, take)
    {
        return found;
    }
    let sought = Sought::new(token, key);
    let Some(passing) = sought.passing(sstables) else { return RowLookup::Unknown };
    if passing == 0 {
        return RowLookup::Absent;
    }
    let found = Scratch::with(|scratch| match sought.candidates(sstables, passing, &mut scratch.encoded)? {
        Candidates::None => Ok(RowLookup::Absent),
        Candidates::One(sstable, PartitionPosition::Data(position)) => {
            let found = sstable.cached_only_row(key, position, table, scratch, take);
            found.map(|found| found.unwrap_or(RowLookup::Absent))
        }
        Candidates::One(_, PartitionPosition::Rows(_)) | Candidates::Several => Ok(RowLookup::Unknown),
    });
    found.unwrap_or(RowLookup::Unknown)
}

/// As [`find_only_row`], at the hinted position. `None` if the partition is not there, or if another SSTable may have
/// it too.
fn find_hinted_row(
    sstables: &[Arc<SSTableReader>],
    table: &Table,
    (token, key): (Token, &[u8]),
    hint: PartitionHint,
    take: &mut dyn FnMut(Row<'_>),
) -> Option<RowLookup> {
    let hinted = sstables.iter().find(|sstable| sstable.number() == hint.sstable)?;
    if sstables.len() > 1 {
        let sought = Sought::new(token, key);
        let mut others = sstables.iter().filter(|sstable| !Arc::ptr_eq(sstable, hinted));
        if others.any(|sstable| sstable.may_have(&sought)) {
            return None;
        }
    }
    Scratch::with(|scratch| hinted.cached_only_row(key, hint.position, table, scratch, take)).ok()?
}

impl Scratch {
    /// Splits the buffers into those for a window on the data and those for rows.
    pub fn split(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>, RowBuffers<'_>, &mut Trail) {
        let Scratch { spill, clustering, builder, row, trail, .. } = self;
        (spill, clustering, RowBuffers { builder, row }, trail)
    }
}

impl SSTableReader {
    /// Whether the partition may be here, by the outer tokens and the filter.
    fn may_have(&self, sought: &Sought<'_>) -> bool {
        let tokens = self.first_key().token()..=self.last_key().token();
        tokens.contains(&sought.token) & self.filter_passes(sought.hash)
    }

    /// Whether rows may be looked up here for a reader with this version of the table.
    pub(super) fn gives_rows(&self, table: &Table) -> bool {
        let is_plain = self.view.columns.unknown.is_none() && self.files.statistics.header.statics.is_empty();
        is_plain && std::ptr::eq(&*self.view.table, table)
    }

    /// The row of the partition at a data position; `None` if another partition is there.
    fn cached_only_row(
        &self,
        key: &[u8],
        position: u64,
        table: &Table,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(Row<'_>),
    ) -> Result<Option<RowLookup>, NotCached> {
        if !self.gives_rows(table) {
            return Ok(Some(RowLookup::Unknown));
        }
        let (version, decoder) = (self.files.descriptor.version, self.decoder());
        let (spill, clustering, mut buffers, _) = scratch.split();
        let lookup = CachedWindow::new(&self.files.data, spill).decode(position, |input| {
            if input.short_bytes("partition key")? != key {
                return Ok(None);
            }
            if !read_partition_deletion(version, input)?.is_live() {
                return Ok(Some(RowLookup::Unknown));
            }
            let head = decoder.head(input, clustering)?;
            if head.is_end() {
                return Ok(Some(RowLookup::Absent));
            }
            if !is_simple(&head) {
                return Ok(Some(RowLookup::Unknown));
            }
            Ok(Some(if buffers.decode(&decoder, &head, input)? { RowLookup::Found } else { RowLookup::Absent }))
        })?;
        if lookup == Some(RowLookup::Found) {
            take(Row::new(buffers.row));
        }
        Ok(lookup)
    }
}
