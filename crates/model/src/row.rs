#![doc = include_str!("row/FORMAT.md")]

mod builder;
mod cells;
mod counter;
mod merge;
mod pieces;
mod places;

use builder::{PlainPiece, Shared};
pub use builder::{RowBuilder, begin_plain_row};
use cells::Scope;
pub use cells::{Cell, Cells, ColumnData, ComplexCells};
pub use counter::{NodeCount, counter_increment, counter_total};
pub use merge::{RowMerger, compare_paths, reconcile_cells};
pub use pieces::{CellPlace, PieceSize, RowCutter, RowJoiner};
pub use places::ValuePlaces;

use types::vint;

use crate::{CorruptMutation, DeletionTime, NO_DELETION_TIME, Table};

/// The TTL of data that does not expire.
pub const TTL_NONE: i32 = 0;

/// The TTL of the liveness that Cassandra gives rows of views which their base rows left.
const TTL_EXPIRED: i32 = i32::MAX;

pub(crate) mod flag {
    pub const TIMESTAMP: u8 = 0x01;
    pub const LIVENESS: u8 = 0x02;
    pub const EXPIRING: u8 = 0x04;
    pub const DELETION: u8 = 0x08;
    pub const SPARSE: u8 = 0x10;
    pub const CELL_META: u8 = 0x20;
    pub const STATIC: u8 = 0x40;
    pub const PIECE: u8 = 0x80;
}

pub(crate) mod cell_flag {
    pub const OWN_TIMESTAMP: u8 = 0x01;
    pub const TOMBSTONE: u8 = 0x02;
    pub const EXPIRING: u8 = 0x04;
    pub const NOT_EXPIRING: u8 = 0x08;
}

/// Primary-key liveness of a row: whether it was INSERTed, and until when that holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// Microseconds; `i64::MIN` if the row has no liveness.
    pub timestamp: i64,
    /// Seconds; [`TTL_NONE`] if it does not expire.
    pub ttl: i32,
    /// Seconds since the epoch; [`NO_DELETION_TIME`] if it does not expire.
    pub expiration: u32,
}

impl Liveness {
    /// No liveness: only its cells make the row exist.
    pub const EMPTY: Liveness = Liveness { timestamp: i64::MIN, ttl: TTL_NONE, expiration: NO_DELETION_TIME };

    /// Liveness that does not expire.
    pub fn at(timestamp: i64) -> Self {
        Liveness { timestamp, ..Liveness::EMPTY }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.timestamp == i64::MIN
    }

    /// Whether it expires at some time.
    pub fn is_expiring(&self) -> bool {
        self.ttl != TTL_NONE
    }

    /// Whether the row is live by it at `now_seconds`.
    pub fn is_live(&self, now_seconds: u32) -> bool {
        !self.is_empty() && (!self.is_expiring() || now_seconds < self.expiration)
    }

    /// Whether this wins over `other`: the newer wins; at equal timestamps one that Cassandra made expired, then one
    /// that expires, then the one that expires later, then the one with the smaller TTL. Source:
    /// `LivenessInfo.supersedes` of Cassandra 5.0.8.
    pub fn supersedes(&self, other: &Liveness) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        if (self.ttl == TTL_EXPIRED) != (other.ttl == TTL_EXPIRED) {
            return self.ttl == TTL_EXPIRED;
        }
        if self.is_expiring() != other.is_expiring() {
            return self.is_expiring();
        }
        self.expiration > other.expiration || (self.expiration == other.expiration && self.ttl < other.ttl)
    }
}

/// A row blob, read in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    bytes: &'a [u8],
}

/// A row with its clustering (empty in tables without clustering columns).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowRef<'a> {
    /// The serialized clustering.
    pub clustering: &'a [u8],
    /// The row.
    pub row: Row<'a>,
}

/// The result of [`Row::plain`].
#[derive(Clone, Copy, Debug)]
pub struct PlainRow<'a> {
    /// The timestamp of the row and all its cells, microseconds.
    pub timestamp: i64,
    /// One value for each column of the table.
    pub values: PlainValues<'a>,
}

/// The result of [`Row::written`].
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// See [`Row::is_static`].
    pub is_static: bool,
    /// See [`Row::column_set_version`].
    pub column_set_version: u32,
    /// See [`Row::only_times`].
    pub only_times: Option<Liveness>,
}

/// Iterates over the values of a plain row, column by column; `None` where there is no cell.
#[derive(Clone, Copy, Debug)]
pub struct PlainValues<'a> {
    reader: Reader<'a>,
    remaining: usize,
}

impl<'a> Iterator for PlainValues<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let length = self.reader.i32();
        Some((length >= 0).then(|| self.reader.take(length as usize)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for PlainValues<'_> {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub flags: u8,
    pub version: u32,
    pub timestamp: i64,
    pub ttl: i32,
    pub expiration: u32,
    pub deletion: DeletionTime,
    /// The offset of the columns.
    pub columns: usize,
}

impl Header {
    fn is_static(&self) -> bool {
        self.flags & flag::STATIC != 0
    }

    /// See [`Row::only_times`].
    fn only_times(&self, table: &Table) -> Option<Liveness> {
        const UNLIKE: u8 = flag::DELETION | flag::CELL_META | flag::PIECE;
        let is_simple = table.column_sets(self.is_static()).is_simple();
        let is_alike = self.flags & (flag::TIMESTAMP | UNLIKE) == flag::TIMESTAMP && is_simple;
        is_alike.then_some(Liveness { timestamp: self.timestamp, ttl: self.ttl, expiration: self.expiration })
    }
}

impl<'a> Row<'a> {
    /// A row from bytes that this module wrote: built here, or checked by [`Row::check`] if they came from outside.
    pub fn new(bytes: &'a [u8]) -> Self {
        Row { bytes }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The beginning of a row: the flags, and the version of the column set under which the row was written.
    fn flags_and_version(reader: &mut Reader<'_>) -> (u8, u32) {
        (reader.u8(), reader.uvint() as u32)
    }

    pub(crate) fn header(&self) -> Header {
        let mut reader = Reader { bytes: self.bytes };
        let (flags, version) = Self::flags_and_version(&mut reader);
        let mut header = Header {
            flags,
            version,
            timestamp: i64::MIN,
            ttl: TTL_NONE,
            expiration: NO_DELETION_TIME,
            deletion: DeletionTime::LIVE,
            columns: 0,
        };
        if flags & flag::TIMESTAMP != 0 {
            header.timestamp = reader.i64();
        }
        if flags & flag::EXPIRING != 0 {
            header.ttl = reader.i32();
            header.expiration = reader.u32();
        }
        if flags & flag::DELETION != 0 {
            header.deletion = DeletionTime::new(reader.i64(), reader.u32());
        }
        header.columns = self.bytes.len() - reader.bytes.len();
        header
    }

    /// The primary-key liveness.
    pub fn liveness(&self) -> Liveness {
        let header = self.header();
        if header.flags & flag::LIVENESS == 0 {
            return Liveness::EMPTY;
        }
        Liveness { timestamp: header.timestamp, ttl: header.ttl, expiration: header.expiration }
    }

    /// The deletion of the whole row, `LIVE` if none.
    pub fn deletion(&self) -> DeletionTime {
        self.header().deletion
    }

    /// Whether the whole row was deleted at some time; cells may have been written later.
    pub fn has_deletion(&self) -> bool {
        self.bytes.first().is_some_and(|flags| flags & flag::DELETION != 0)
    }

    /// Whether this is a static row.
    pub fn is_static(&self) -> bool {
        self.bytes.first().is_some_and(|flags| flags & flag::STATIC != 0)
    }

    /// The version of the column set under which the row was written.
    pub fn column_set_version(&self) -> u32 {
        Self::flags_and_version(&mut Reader { bytes: self.bytes }).1
    }

    /// The data of the columns that the table has now, ascending by index in `table.columns(self.is_static())`. Data of
    /// dropped columns is left out, and for a column that was added again, data that is not newer than the drop.
    pub fn columns<'t>(&self, table: &'t Table) -> Cells<'a, 't> {
        Cells::new(*self, table, Scope::Shown)
    }

    /// The data to be kept: like [`Row::columns`], and also those cells of dropped columns that are newer than the
    /// drop. Merges, flushes and compactions use this.
    pub fn kept_columns<'t>(&self, table: &'t Table) -> Cells<'a, 't> {
        Cells::new(*self, table, Scope::Kept)
    }

    /// All data that was written, whatever was dropped since.
    pub fn written_columns<'t>(&self, table: &'t Table) -> Cells<'a, 't> {
        Cells::new(*self, table, Scope::Written)
    }

    /// The times of all cells of simple columns, if they share them; `None` if some have times of their own, or nothing
    /// has times.
    pub fn shared_times(&self) -> Option<Liveness> {
        let Header { flags, timestamp, ttl, expiration, .. } = self.header();
        let shares = flags & (flag::TIMESTAMP | flag::CELL_META) == flag::TIMESTAMP;
        shares.then_some(Liveness { timestamp, ttl, expiration })
    }

    /// The times of the row and of all its cells, if all were written at the same time, nothing is deleted, and the
    /// table never had a complex column.
    pub fn only_times(&self, table: &Table) -> Option<Liveness> {
        self.header().only_times(table)
    }

    /// How and when the row was written, read in one pass.
    pub fn written(&self, table: &Table) -> Written {
        let header = self.header();
        Written {
            is_static: header.is_static(),
            column_set_version: header.version,
            only_times: header.only_times(table),
        }
    }

    /// Whether nothing of `older`, a version of the same row, remains beside this row: it has a value for each column
    /// that the table has or had, all of them simple and newer than anything in `older`. If false, this is not known.
    pub fn replaces(&self, older: &Row<'_>, table: &Table) -> bool {
        const UNLIKE: u8 = flag::EXPIRING | flag::SPARSE | flag::STATIC;
        let (header, columns) = (self.header(), table.column_sets(false));
        let is_later = || Some(older.only_times(table)?.timestamp < header.only_times(table)?.timestamp);
        header.flags & (flag::LIVENESS | UNLIKE) == flag::LIVENESS
            && columns.is_current(header.version)
            && is_later() == Some(true)
            && self.has_all_values(header.columns, columns.current().columns.len())
    }

    /// Whether the `count` slots of simple columns that begin at `start` all have values.
    fn has_all_values(&self, start: usize, count: usize) -> bool {
        let mut values =
            PlainValues { reader: Reader { bytes: self.bytes.get(start..).unwrap_or_default() }, remaining: count };
        values.all(|value| value.is_some())
    }

    /// The row's timestamp and values, if it is as simple as most rows: it never expires, is not deleted, was written
    /// under the table's current columns, all of them simple, and no cell has times of its own.
    pub fn plain(&self, table: &Table) -> Option<PlainRow<'a>> {
        const UNLIKE: u8 =
            flag::EXPIRING | flag::DELETION | flag::CELL_META | flag::SPARSE | flag::STATIC | flag::PIECE;
        let header = self.header();
        if header.flags & (flag::LIVENESS | flag::TIMESTAMP | UNLIKE) != flag::LIVENESS | flag::TIMESTAMP {
            return None;
        }
        let sets = table.column_sets(false);
        let set = sets.get(header.version)?;
        if sets.places(header.version).is_some() || set.first_complex() < set.columns.len() {
            return None;
        }
        let reader = Reader { bytes: self.bytes.get(header.columns..).unwrap_or_default() };
        Some(PlainRow { timestamp: header.timestamp, values: PlainValues { reader, remaining: set.columns.len() } })
    }

    /// The slots of a piece that [`RowBuilder`] can copy without decoding each cell: all cells are of simple columns as
    /// the table has them now, are adjacent and have the same times.
    fn plain_piece(&self, table: &Table) -> Option<PlainPiece<'a>> {
        const UNLIKE: u8 = flag::DELETION | flag::CELL_META | flag::SPARSE;
        let header = self.header();
        let sets = table.column_sets(header.is_static());
        if header.flags & (flag::PIECE | flag::TIMESTAMP | UNLIKE) != flag::PIECE | flag::TIMESTAMP
            || !sets.is_current(header.version)
        {
            return None;
        }
        let mut reader = Reader { bytes: self.bytes.get(header.columns..).unwrap_or_default() };
        let (first, count) = (reader.uvint() as usize, reader.uvint() as usize);
        let is_simple = first + count <= sets.current().first_complex();
        is_simple.then_some(PlainPiece { times: Shared::of_row(*self), first, count, slots: reader.bytes })
    }

    /// Whether the row and all its cells are live at any time: nothing is deleted and nothing expires. If false, this
    /// is not known.
    pub fn is_permanent(&self, table: &Table) -> bool {
        const UNLIKE: u8 =
            flag::EXPIRING | flag::DELETION | flag::CELL_META | flag::SPARSE | flag::STATIC | flag::PIECE;
        let (flags, version) = Self::flags_and_version(&mut Reader { bytes: self.bytes });
        flags & (flag::LIVENESS | UNLIKE) == flag::LIVENESS && table.column_sets(false).is_current(version)
    }

    /// Whether a client would see the row at `now_seconds`: by its own liveness or by one of its cells.
    pub fn is_live(&self, table: &Table, now_seconds: u32) -> bool {
        self.liveness().is_live(now_seconds)
            || self.columns(table).any(|(_, data)| match data {
                ColumnData::Simple(cell) => cell.is_live(now_seconds),
                ColumnData::Complex(cells) => cells.into_iter().any(|cell| cell.is_live(now_seconds)),
            })
    }

    /// Whether the row has nothing to be kept: no liveness, no deletion, no cell, no complex deletion.
    pub fn is_empty(&self, table: &Table) -> bool {
        let header = self.header();
        header.flags & (flag::LIVENESS | flag::DELETION) == 0 && self.kept_columns(table).next().is_none()
    }

    /// Checks that bytes from a log are a well-formed row of `table`, so that they can be read as one.
    pub fn check(bytes: &[u8], table: &Table) -> Result<(), CorruptMutation> {
        check::row(bytes, table)
    }
}

/// Reads what this module wrote. Past the end it yields zeros, so that unchecked bytes cannot cause a panic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (head, rest) = self.bytes.split_at(length.min(self.bytes.len()));
        self.bytes = rest;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.bytes = rest;
                *head
            }
            None => {
                self.bytes = &[];
                [0; N]
            }
        }
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    pub fn uvint(&mut self) -> u64 {
        if let Some((&first, rest)) = self.bytes.split_first()
            && first < 0x80
        {
            self.bytes = rest;
            return u64::from(first);
        }
        let mut bytes = self.bytes;
        match vint::read_uvint(&mut bytes) {
            Some(value) => {
                self.bytes = bytes;
                value
            }
            None => {
                self.bytes = &[];
                0
            }
        }
    }
}

mod check {
    use super::*;

    struct Checked<'a> {
        bytes: &'a [u8],
        length: usize,
    }

    impl<'a> Checked<'a> {
        fn fail(&self, expected: &'static str) -> CorruptMutation {
            CorruptMutation { offset: self.length - self.bytes.len(), expected }
        }

        fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], CorruptMutation> {
            let (head, rest) = self.bytes.split_at_checked(length).ok_or_else(|| self.fail(expected))?;
            self.bytes = rest;
            Ok(head)
        }

        fn u8(&mut self, expected: &'static str) -> Result<u8, CorruptMutation> {
            Ok(self.take(1, expected)?[0])
        }

        fn i32(&mut self, expected: &'static str) -> Result<i32, CorruptMutation> {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(self.take(4, expected)?);
            Ok(i32::from_be_bytes(bytes))
        }

        fn uvint(&mut self, expected: &'static str) -> Result<u64, CorruptMutation> {
            vint::read_uvint(&mut self.bytes).ok_or(CorruptMutation { offset: self.length, expected })
        }
    }

    pub(super) fn row(bytes: &[u8], table: &Table) -> Result<(), CorruptMutation> {
        let mut at = Checked { bytes, length: bytes.len() };
        let flags = at.u8("row flags")?;
        if flags & flag::PIECE != 0 {
            return Err(at.fail("flags of a whole row"));
        }
        let version = at.uvint("column-set version")?;
        let sets = table.column_sets(flags & flag::STATIC != 0);
        let set = u32::try_from(version).ok().and_then(|version| sets.get(version));
        let set = set.ok_or_else(|| at.fail("version of a column set of the table"))?;
        let head = [(flag::TIMESTAMP, 8), (flag::EXPIRING, 8), (flag::DELETION, 12)];
        for (_, width) in head.iter().filter(|(bit, _)| flags & bit != 0) {
            at.take(*width, "row header")?;
        }
        if flags & flag::SPARSE != 0 {
            let mut next = 0;
            for _ in 0..at.uvint("column count")? {
                let index = at.uvint("column index")?;
                if index < next || index >= set.columns.len() as u64 {
                    return Err(at.fail("ascending column index"));
                }
                next = index + 1;
                slot(&mut at, set.columns[index as usize].is_complex(), flags)?;
            }
        } else {
            for column in &set.columns {
                slot(&mut at, column.is_complex(), flags)?;
            }
        }
        if at.bytes.is_empty() { Ok(()) } else { Err(at.fail("end of row")) }
    }

    fn slot(at: &mut Checked<'_>, complex: bool, flags: u8) -> Result<(), CorruptMutation> {
        let length = at.i32("slot length")?;
        if length < 0 {
            return Ok(());
        }
        let payload = at.take(length as usize, "slot")?;
        let mut inner = Checked { bytes: payload, length: payload.len() };
        if complex {
            if inner.u8("complex flags")? != 0 {
                inner.take(12, "complex deletion")?;
            }
            for _ in 0..inner.uvint("cell count")? {
                let path = inner.uvint("path length")?;
                inner.take(usize::try_from(path).unwrap_or(usize::MAX), "cell path")?;
                let length = inner.i32("cell length")?;
                let bytes = inner.take(usize::try_from(length).unwrap_or(usize::MAX), "cell")?;
                cell(bytes)?;
            }
            return if inner.bytes.is_empty() { Ok(()) } else { Err(inner.fail("end of column")) };
        }
        if flags & flag::CELL_META != 0 { cell(payload) } else { Ok(()) }
    }

    fn cell(bytes: &[u8]) -> Result<(), CorruptMutation> {
        let mut at = Checked { bytes, length: bytes.len() };
        let flags = at.u8("cell flags")?;
        let widths = [(cell_flag::OWN_TIMESTAMP, 8), (cell_flag::TOMBSTONE, 4), (cell_flag::EXPIRING, 8)];
        for (_, width) in widths.iter().filter(|(bit, _)| flags & bit != 0) {
            at.take(*width, "cell header")?;
        }
        Ok(())
    }
}
