//! Changes to partitions in their serialized form, which the log records and the memtable applies.
//!
//! ```text
//! update := 16 bytes table id, u16 key length, key
//!           u8 flags: 1 partition deletion, 2 static row, 4 rows, 8 range deletions
//!           [i64 marked_for_delete_at, u32 ldt]
//!           [u32 length, static row blob]
//!           [uvint count, count * (u32 clustering length, clustering, u32 blob length, blob)]   in clustering order
//!           [uvint count, count * (bound, bound, i64 marked_for_delete_at, u32 ldt)]
//! bound  := u8 side (0 before, 1 after), u32 length, clustering prefix
//! record := updates, one after the other
//! ```
//!
//! Integers are big-endian. `row/FORMAT.md` describes the blobs.

use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

use types::{Token, murmur3, vint};
use uuid::Uuid;

use crate::row::Reader;
use crate::{
    ClusteringBound, Clusterings, CorruptMutation, DeletionTime, PartitionKey, Row, RowRef, Schema, Side, Slice, Table,
    TableId,
};

const PARTITION_DELETION: u8 = 1;
const STATIC_ROW: u8 = 2;
const ROWS: u8 = 4;
const RANGE_DELETIONS: u8 = 8;

/// A deletion of a range of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeDeletion {
    /// The rows.
    pub slice: Slice,
    /// The time of the deletion.
    pub deletion: DeletionTime,
}

/// The changes of one write to one partition, which the memtable applies atomically.
#[derive(Clone, Debug)]
pub struct PartitionUpdate {
    table: Arc<Table>,
    key: PartitionKey,
    bytes: Vec<u8>,
    parts: Parts,
}

/// The parts of an update in its bytes.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// The deletion of the whole partition, `LIVE` if none.
    deletion: DeletionTime,
    /// The offset of the static row, after its length; 0 if there is none.
    static_row: usize,
    /// The offset of the first row, and the number of rows.
    rows: (usize, usize),
    /// The offset of the first range, and the number of ranges.
    ranges: (usize, usize),
}

impl Parts {
    const NONE: Parts = Parts { deletion: DeletionTime::LIVE, static_row: 0, rows: (0, 0), ranges: (0, 0) };
}

// Updates and their builders are moved several times on their way to the log. The compiler moves up to 128 bytes
// without a call of memcpy.
const _: () = assert!(size_of::<Mutation>() <= 128 && size_of::<PartitionUpdateBuilder>() <= 96);

impl PartitionUpdate {
    /// The table, as it was when the update was made.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The partition.
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// The serialized update.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The deletion of the whole partition, `LIVE` if none.
    pub fn partition_deletion(&self) -> DeletionTime {
        self.parts.deletion
    }

    /// The static row.
    pub fn static_row(&self) -> Option<Row<'_>> {
        let start = self.parts.static_row;
        let length = Reader { bytes: self.bytes.get(start.checked_sub(4)?..)? }.u32() as usize;
        Some(Row::new(&self.bytes[start..start + length]))
    }

    /// The number of rows that are written.
    pub fn row_count(&self) -> usize {
        self.parts.rows.1
    }

    /// The rows in clustering order.
    pub fn rows(&self) -> impl Iterator<Item = RowRef<'_>> {
        read_rows(&self.bytes[self.parts.rows.0..], self.parts.rows.1)
    }

    /// The number of deleted ranges.
    pub fn range_deletion_count(&self) -> usize {
        self.parts.ranges.1
    }

    /// The deleted ranges, in no particular order.
    pub fn range_deletions(&self) -> impl Iterator<Item = RangeDeletion> {
        let mut reader = Reader { bytes: &self.bytes[self.parts.ranges.0..] };
        (0..self.parts.ranges.1).map(move |_| {
            let slice = Slice { start: read_bound(&mut reader), end: read_bound(&mut reader) };
            RangeDeletion { slice, deletion: DeletionTime::new(reader.i64(), reader.u32()) }
        })
    }
}

fn read_bound(reader: &mut Reader<'_>) -> ClusteringBound {
    let side = if reader.u8() == 0 { Side::Before } else { Side::After };
    let length = reader.u32() as usize;
    ClusteringBound::new(reader.take(length).to_vec(), side)
}

/// Collects the changes to one partition.
#[derive(Debug)]
pub struct PartitionUpdateBuilder {
    table: Arc<Table>,
    key: PartitionKey,
    /// If there are only rows: the head of the update, and then clusterings and blobs in serialized form, in order of
    /// arrival. Few rows alone, as in most updates, then stay where they are. Empty before the first row.
    bytes: Vec<u8>,
    row_count: usize,
    /// The parts that most updates do not have.
    extras: Option<Box<Extras>>,
}

/// The changes of an update besides its rows.
#[derive(Debug)]
struct Extras {
    deletion: DeletionTime,
    /// The versions of the static row.
    static_rows: Vec<Vec<u8>>,
    ranges: Vec<RangeDeletion>,
}

impl Default for Extras {
    fn default() -> Extras {
        Extras { deletion: DeletionTime::LIVE, static_rows: Vec::new(), ranges: Vec::new() }
    }
}

impl Extras {
    /// Merges the versions of the static row. The result is empty if there is none.
    fn take_static_row(&mut self, table: &Table) -> Vec<u8> {
        let mut versions = std::mem::take(&mut self.static_rows);
        if versions.len() < 2 {
            return versions.pop().unwrap_or_default();
        }
        let rows: Vec<Row<'_>> = versions.iter().map(|version| Row::new(version)).collect();
        let mut merged = Vec::new();
        crate::RowMerger::of_all_written().merge(table, &rows, DeletionTime::LIVE, &mut merged);
        merged
    }
}

/// An update of at most this many rows has their count in one byte.
const SHORT_COUNT_MAX: usize = 127;

impl PartitionUpdateBuilder {
    /// A builder without changes.
    pub fn new(table: Arc<Table>, key: PartitionKey) -> Self {
        PartitionUpdateBuilder { table, key, bytes: Vec::new(), row_count: 0, extras: None }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The partition.
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// Deletes the whole partition. A deletion with a negative timestamp is ignored, because no SSTable can store it; a
    /// caller that takes one from a user must refuse it.
    pub fn delete_partition(&mut self, deletion: DeletionTime) {
        if deletion.has_whole_form() {
            let extras = self.extras.get_or_insert_default();
            extras.deletion = extras.deletion.max(deletion);
        }
    }

    /// Deletes a range of rows.
    pub fn delete_range(&mut self, slice: Slice, deletion: DeletionTime) {
        self.extras.get_or_insert_default().ranges.push(RangeDeletion { slice, deletion });
    }

    /// Adds a version of the static row, a blob of [`crate::RowBuilder`].
    pub fn static_row(&mut self, blob: &[u8]) {
        self.extras.get_or_insert_default().static_rows.push(blob.to_vec());
    }

    /// Adds a version of the row at `clustering`, a blob of [`crate::RowBuilder`]. The same row may be added again.
    pub fn row(&mut self, clustering: &[u8], blob: &[u8]) {
        self.row_with(clustering, blob.len(), |out| out.extend_from_slice(blob));
    }

    /// Like [`row`](Self::row), for a blob of about `size_bytes` that `write` appends.
    pub fn row_with(&mut self, clustering: &[u8], size_bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let head = if self.bytes.is_empty() { self.rows_start() } else { 0 };
        self.bytes.reserve(head + clustering.len() + size_bytes + 8);
        if head > 0 {
            write_head(&self.table, &self.key, ROWS, &mut self.bytes);
            // The count of rows, filled in when it is known.
            self.bytes.push(0);
        }
        write_sized(clustering, &mut self.bytes);
        let start = self.bytes.len() + 4;
        self.bytes.extend_from_slice(&[0; 4]);
        write(&mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start - 4..start].copy_from_slice(&length.to_be_bytes());
        self.row_count += 1;
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.row_count == 0 && self.extras.is_none()
    }

    /// The finished update as a mutation of its own.
    #[inline]
    pub fn into_mutation(self) -> Mutation {
        Mutation(Updates::One(self.build()))
    }

    /// The finished update.
    #[inline]
    pub fn build(mut self) -> PartitionUpdate {
        if self.row_count > 1 {
            self.sort_rows();
        }
        if self.extras.is_some() || self.row_count > SHORT_COUNT_MAX || self.row_count == 0 {
            return self.build_parts();
        }
        let start = self.rows_start();
        self.bytes[start - 1] = self.row_count as u8;
        let parts = Parts { rows: (start, self.row_count), ..Parts::NONE };
        PartitionUpdate { table: self.table, key: self.key, bytes: self.bytes, parts }
    }

    /// The finished update, with any combination of parts.
    fn build_parts(self) -> PartitionUpdate {
        let rows_start = self.rows_start();
        let mut extras = self.extras.map(|extras| *extras).unwrap_or_default();
        let static_row = extras.take_static_row(&self.table);
        let rows = self.bytes.get(rows_start..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(64 + self.key.bytes().len() + static_row.len() + rows.len());
        let bits = [
            (!extras.deletion.is_live(), PARTITION_DELETION),
            (!static_row.is_empty(), STATIC_ROW),
            (!rows.is_empty(), ROWS),
            (!extras.ranges.is_empty(), RANGE_DELETIONS),
        ];
        let flags = bits.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit);
        write_head(&self.table, &self.key, flags, &mut bytes);
        let mut parts = Parts { deletion: extras.deletion, ..Parts::NONE };
        if !extras.deletion.is_live() {
            write_deletion(extras.deletion, &mut bytes);
        }
        if !static_row.is_empty() {
            write_sized(&static_row, &mut bytes);
            parts.static_row = bytes.len() - static_row.len();
        }
        if !rows.is_empty() {
            vint::write_uvint(self.row_count as u64, &mut bytes);
            parts.rows = (bytes.len(), self.row_count);
            bytes.extend_from_slice(rows);
        }
        if !extras.ranges.is_empty() {
            vint::write_uvint(extras.ranges.len() as u64, &mut bytes);
            parts.ranges = (bytes.len(), extras.ranges.len());
            for range in &extras.ranges {
                write_bound(&range.slice.start, &mut bytes);
                write_bound(&range.slice.end, &mut bytes);
                write_deletion(range.deletion, &mut bytes);
            }
        }
        PartitionUpdate { table: self.table, key: self.key, bytes, parts }
    }

    /// Where rows begin in `bytes`: after the table's id, the key with its length, the flags and a one-byte count.
    fn rows_start(&self) -> usize {
        16 + 2 + self.key.bytes().len() + 1 + 1
    }

    /// Sorts rows into clustering order and merges versions of the same row.
    fn sort_rows(&mut self) {
        let compare =
            |left: &RowRef<'_>, right: &RowRef<'_>| self.table.comparator().compare(left.clustering, right.clustering);
        let (head, rows) = self.bytes.split_at(self.rows_start());
        let mut rows: Vec<RowRef<'_>> = read_rows(rows, self.row_count).collect();
        if rows.is_sorted_by(|left, right| compare(left, right) == Ordering::Less) {
            return;
        }
        rows.sort_by(compare);
        // What a column's drop removes is removed when the row is read: an empty row could not be read back from the
        // log.
        let mut merger = crate::RowMerger::of_all_written();
        let (mut sorted, mut merged, mut count) = (Vec::with_capacity(self.bytes.len()), Vec::new(), 0);
        sorted.extend_from_slice(head);
        for versions in rows.chunk_by(|left, right| compare(left, right) == Ordering::Equal) {
            write_sized(versions[0].clustering, &mut sorted);
            match versions {
                [only] => write_sized(only.row.as_bytes(), &mut sorted),
                _ => {
                    merged.clear();
                    let blobs: Vec<Row<'_>> = versions.iter().map(|version| version.row).collect();
                    merger.merge(&self.table, &blobs, DeletionTime::LIVE, &mut merged);
                    write_sized(&merged, &mut sorted);
                }
            }
            count += 1;
        }
        (self.bytes, self.row_count) = (sorted, count);
    }
}

/// The rows of an update, from where the first one begins.
fn read_rows(bytes: &[u8], count: usize) -> impl Iterator<Item = RowRef<'_>> {
    let mut reader = Reader { bytes };
    (0..count).map(move |_| {
        let clustering_length = reader.u32() as usize;
        let clustering = reader.take(clustering_length);
        let row_length = reader.u32() as usize;
        RowRef { clustering, row: Row::new(reader.take(row_length)) }
    })
}

/// Writes the head of every update.
fn write_head(table: &Table, key: &PartitionKey, flags: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(table.id.0.as_bytes());
    out.extend_from_slice(&(key.bytes().len() as u16).to_be_bytes());
    out.extend_from_slice(key.bytes());
    out.push(flags);
}

fn write_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn write_deletion(deletion: DeletionTime, out: &mut Vec<u8>) {
    out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
    out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
}

fn write_bound(bound: &ClusteringBound, out: &mut Vec<u8>) {
    out.push(u8::from(bound.side == Side::After));
    write_sized(&bound.prefix, out);
}

/// Updates that are logged as one record: after a crash either all of them exist or none.
#[derive(Clone, Debug)]
pub struct Mutation(Updates);

/// A single update, which most mutations have, needs no allocation.
#[allow(clippy::large_enum_variant, reason = "a box for the single update would cost the allocation that this avoids")]
#[derive(Clone, Debug)]
enum Updates {
    One(PartitionUpdate),
    Some(Vec<PartitionUpdate>),
}

impl From<PartitionUpdate> for Mutation {
    fn from(update: PartitionUpdate) -> Self {
        Mutation(Updates::One(update))
    }
}

impl Mutation {
    /// A mutation of these updates.
    pub fn new(updates: Vec<PartitionUpdate>) -> Self {
        Mutation(Updates::Some(updates))
    }

    /// The updates.
    pub fn updates(&self) -> &[PartitionUpdate] {
        match &self.0 {
            Updates::One(update) => slice::from_ref(update),
            Updates::Some(updates) => updates,
        }
    }

    /// The updates, by value.
    pub fn into_updates(self) -> Vec<PartitionUpdate> {
        match self.0 {
            Updates::One(update) => vec![update],
            Updates::Some(updates) => updates,
        }
    }

    /// The length of the log record, in bytes.
    pub fn record_size(&self) -> usize {
        self.updates().iter().map(|update| update.bytes.len()).sum()
    }

    /// Appends the log record to `out`.
    pub fn write_record(&self, out: &mut Vec<u8>) {
        self.updates().iter().for_each(|update| out.extend_from_slice(&update.bytes));
    }

    /// Reads a log record under `schema`. Updates of tables that no longer exist are left out and counted.
    pub fn read_record(record: &[u8], schema: &Schema) -> Result<(Mutation, usize), CorruptMutation> {
        let mut read = ReadUpdates::default();
        let unknown = read.read_record(record, |id| schema.table_by_id(id))?;
        Ok((Mutation::new(read.updates), unknown))
    }

    /// The updates of a log record in serialized form, each with its table's id. This does not need to know the tables'
    /// columns.
    pub fn split_record(record: &[u8]) -> impl Iterator<Item = Result<(TableId, &[u8]), CorruptMutation>> {
        let mut rest = record;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let parsed = parse_update(rest, &|_| None);
            let split = parsed.map(|(_, length)| {
                let (update, behind) = rest.split_at(length);
                rest = behind;
                let id = update.first_chunk().copied().unwrap_or_default();
                (TableId(Uuid::from_bytes(id)), update)
            });
            if split.is_err() {
                rest = &[];
            }
            Some(split)
        })
    }

    /// The table and the token of the first update of a log record, for dividing records among threads. Nothing is
    /// checked; damaged bytes may give `None`.
    pub fn first_partition(record: &[u8]) -> Option<(TableId, Token)> {
        let (table, rest) = record.split_first_chunk::<16>()?;
        let (key_length, rest) = rest.split_first_chunk::<2>()?;
        let key = rest.get(..usize::from(u16::from_be_bytes(*key_length)))?;
        Some((TableId(Uuid::from_bytes(*table)), murmur3::token(key)))
    }
}

/// Updates read from log records into reused memory: a replay reads millions.
#[derive(Debug, Default)]
pub struct ReadUpdates {
    updates: Vec<PartitionUpdate>,
    /// How many of the updates are valid; the others are memory for reuse.
    count: usize,
}

impl ReadUpdates {
    /// The updates that were read since the last `clear`.
    pub fn updates(&self) -> &[PartitionUpdate] {
        self.updates.get(..self.count).unwrap_or_default()
    }

    /// Removes all updates and keeps their memory.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Reads a log record and appends its updates. Updates of tables for which `table` returns `None` are left out and
    /// counted; their columns need not be known.
    pub fn read_record<'t>(
        &mut self,
        record: &[u8],
        table: impl Fn(TableId) -> Option<&'t Arc<Table>>,
    ) -> Result<usize, CorruptMutation> {
        let mut unknown = 0;
        let mut rest = record;
        while !rest.is_empty() {
            let offset = record.len() - rest.len();
            let (update, length) = parse_update(rest, &table)
                .map_err(|error| CorruptMutation { offset: error.offset + offset, ..error })?;
            let (bytes, behind) = rest.split_at(length);
            match update {
                Some(update) => self.push(&update, bytes),
                None => unknown += 1,
            }
            rest = behind;
        }
        Ok(unknown)
    }

    fn push(&mut self, &(table, key, parts): &ParsedUpdate<'_, '_>, bytes: &[u8]) {
        match self.updates.get_mut(self.count) {
            Some(update) => {
                // Avoids changing the table's reference count, which other threads change too.
                if !Arc::ptr_eq(&update.table, table) {
                    update.table = table.clone();
                }
                update.key.replace(murmur3::token(key), key);
                update.bytes.clear();
                update.bytes.extend_from_slice(bytes);
                update.parts = parts;
            }
            None => {
                let (table, key) = (table.clone(), PartitionKey::new(key));
                self.updates.push(PartitionUpdate { table, key, bytes: bytes.to_vec(), parts });
            }
        }
        self.count += 1;
    }
}

/// The table, key and parts of an update.
type ParsedUpdate<'t, 'b> = (&'t Arc<Table>, &'b [u8], Parts);

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], CorruptMutation> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(self.fail(expected))?;
        self.at += length;
        Ok(taken)
    }

    fn fail(&self, expected: &'static str) -> CorruptMutation {
        CorruptMutation { offset: self.at, expected }
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], CorruptMutation> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, expected)?);
        Ok(array)
    }

    fn sized(&mut self, expected: &'static str) -> Result<&'a [u8], CorruptMutation> {
        let length = u32::from_be_bytes(self.array(expected)?);
        self.take(length as usize, expected)
    }

    fn uvint(&mut self, expected: &'static str) -> Result<usize, CorruptMutation> {
        let mut rest = &self.bytes[self.at..];
        let value = vint::read_uvint(&mut rest).ok_or(self.fail(expected))?;
        self.at = self.bytes.len() - rest.len();
        usize::try_from(value).map_err(|_| self.fail(expected))
    }

    fn deletion(&mut self) -> Result<DeletionTime, CorruptMutation> {
        let marked_for_delete_at = i64::from_be_bytes(self.array("deletion time")?);
        Ok(DeletionTime::new(marked_for_delete_at, u32::from_be_bytes(self.array("deletion time")?)))
    }
}

/// Parses and checks one update; `None` for an unknown table. Also returns its length.
fn parse_update<'t, 'b>(
    bytes: &'b [u8],
    table: &impl Fn(TableId) -> Option<&'t Arc<Table>>,
) -> Result<(Option<ParsedUpdate<'t, 'b>>, usize), CorruptMutation> {
    let mut at = Parser { bytes, at: 0 };
    let known = table(TableId(Uuid::from_bytes(at.array("table id")?)));
    let table = known.map(|table| &**table);
    let key_length = u16::from_be_bytes(at.array("key length")?);
    let key = at.take(key_length as usize, "partition key")?;
    let [flags] = at.array("update flags")?;
    if flags & !(PARTITION_DELETION | STATIC_ROW | ROWS | RANGE_DELETIONS) != 0 {
        return Err(at.fail("update flags of a known version"));
    }
    let mut parts = Parts::NONE;
    if flags & PARTITION_DELETION != 0 {
        // Older builds logged deletions that no SSTable can store. They are ignored here as in the builder.
        parts.deletion = Some(at.deletion()?).filter(DeletionTime::has_whole_form).unwrap_or(DeletionTime::LIVE);
    }
    if flags & STATIC_ROW != 0 {
        let blob = at.sized("static row")?;
        check_row(blob, table)?;
        parts.static_row = at.at - blob.len();
    }
    if flags & ROWS != 0 {
        let count = at.uvint("row count")?;
        parts.rows = (at.at, count);
        for _ in 0..count {
            check_clustering(at.sized("clustering")?, table, true)?;
            check_row(at.sized("row")?, table)?;
        }
    }
    if flags & RANGE_DELETIONS != 0 {
        let count = at.uvint("range deletion count")?;
        parts.ranges = (at.at, count);
        for _ in 0..count {
            for _ in 0..2 {
                at.array::<1>("bound side")?;
                check_clustering(at.sized("bound prefix")?, table, false)?;
            }
            at.deletion()?;
        }
    }
    Ok((known.map(|table| (table, key, parts)), at.at))
}

fn check_row(blob: &[u8], table: Option<&Table>) -> Result<(), CorruptMutation> {
    table.map_or(Ok(()), |table| Row::check(blob, table))
}

fn check_clustering(bytes: &[u8], table: Option<&Table>, whole: bool) -> Result<(), CorruptMutation> {
    let mut components = Clusterings(bytes);
    let count = components.by_ref().count();
    let columns = table.map_or(count, |table| table.clustering().len());
    let fits = if whole { count == columns } else { count <= columns };
    if components.0.is_empty() && fits {
        Ok(())
    } else {
        Err(CorruptMutation { offset: 0, expected: "clustering of the table" })
    }
}
