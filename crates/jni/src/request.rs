//! Requests of Java, read with bounds. Integers are big-endian.
//!
//! ```text
//! read   := u8 kind: 0 partition, 1 range
//!           partition: i64 token, u32 length, key      range: bound, bound
//!           u8 reversed, i32 count of slices (-1 all), count * (position, position)
//! ranges := i32 count, count * (i64 start, i64 end), as Cassandra's ranges of a ring: without the start
//! bound  := u8 kind: 0 none, 1 token, 2 key; u8 inclusive; token: i64; key: i64 token, u32 length, key
//! position := u8 side (0 before, 1 after), u32 length, clustering prefix as the model has it
//! ```

use std::fmt;

use model::{ClusteringBound, KeyBound, KeyRange, PartitionKey, ReadRange, Side, Slice, Slices, Table};
use types::{Token, TokenRanges};

/// A request that cannot be read: the two halves of the plugin do not fit together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RequestError {
    /// The offset in the request.
    pub offset: usize,
    /// What should be there.
    pub expected: &'static str,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid request at offset {}: expected {}", self.offset, self.expected)
    }
}

impl std::error::Error for RequestError {}

/// The bytes of a request with a read position.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Request<'a> {
    /// A request that begins with `bytes`.
    pub fn new(bytes: &'a [u8]) -> Request<'a> {
        Request { bytes, at: 0 }
    }

    pub(crate) fn error(&self, expected: &'static str) -> RequestError {
        RequestError { offset: self.at, expected }
    }

    fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], RequestError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let taken = taken.ok_or_else(|| self.error(expected))?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], RequestError> {
        let bytes = self.take(N, expected)?;
        bytes.try_into().map_err(|_| self.error(expected))
    }

    pub(crate) fn u8(&mut self, expected: &'static str) -> Result<u8, RequestError> {
        self.array::<1>(expected).map(|[byte]| byte)
    }

    pub(crate) fn i32(&mut self, expected: &'static str) -> Result<i32, RequestError> {
        self.array(expected).map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self, expected: &'static str) -> Result<i64, RequestError> {
        self.array(expected).map(i64::from_be_bytes)
    }

    pub(crate) fn id(&mut self) -> Result<[u8; 16], RequestError> {
        self.array("a table's id")
    }

    /// Bytes with a u32 length.
    pub(crate) fn sized(&mut self, expected: &'static str) -> Result<&'a [u8], RequestError> {
        let length = self.array(expected).map(u32::from_be_bytes)?;
        self.take(length as usize, expected)
    }

    /// UTF-8 with a u32 length.
    pub(crate) fn text(&mut self, expected: &'static str) -> Result<&'a str, RequestError> {
        std::str::from_utf8(self.sized(expected)?).map_err(|_| self.error(expected))
    }

    /// A count of items, each of which takes at least a byte.
    pub(crate) fn count(&mut self, expected: &'static str) -> Result<usize, RequestError> {
        let count = self.i32(expected)?;
        let left = self.bytes.len() - self.at;
        usize::try_from(count).ok().filter(|count| *count <= left).ok_or_else(|| self.error(expected))
    }

    pub(crate) fn end(&self) -> Result<(), RequestError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error("the end of the request")) }
    }

    /// What a read selects.
    pub(crate) fn read_range(&mut self, table: &Table) -> Result<ReadRange, RequestError> {
        let keys = match self.u8("a kind of read")? {
            0 => KeyRange::Single(self.key()?),
            1 => KeyRange::Range { start: self.key_bound()?, end: self.key_bound()? },
            _ => return Err(self.error("a kind of read")),
        };
        let reversed = self.u8("a direction")? != 0;
        let slices = self.slices(table)?;
        self.end()?;
        Ok(ReadRange { keys, slices, reversed })
    }

    /// The union of ranges of tokens, which a clean-up keeps.
    pub(crate) fn token_ranges(&mut self) -> Result<TokenRanges, RequestError> {
        let count = self.count("a count of ranges")?;
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            ranges.push((Token(self.i64("the start of a range")?), Token(self.i64("the end of a range")?)));
        }
        self.end()?;
        Ok(TokenRanges::new(ranges))
    }

    fn key(&mut self) -> Result<PartitionKey, RequestError> {
        let token = Token(self.i64("a token")?);
        Ok(PartitionKey::with_token(token, self.sized("a key")?))
    }

    fn key_bound(&mut self) -> Result<KeyBound, RequestError> {
        let kind = self.u8("a kind of bound")?;
        let inclusive = self.u8("whether a bound is inclusive")? != 0;
        match kind {
            0 => Ok(KeyBound::Unbounded),
            1 => Ok(KeyBound::Token { token: Token(self.i64("a token")?), inclusive }),
            2 => Ok(KeyBound::Key { key: self.key()?, inclusive }),
            _ => Err(self.error("a kind of bound")),
        }
    }

    fn slices(&mut self, table: &Table) -> Result<Slices, RequestError> {
        if self.clone().i32("a count of slices")? < 0 {
            self.i32("a count of slices")?;
            return Ok(Slices::all());
        }
        let count = self.count("a count of slices")?;
        let mut slices = Vec::with_capacity(count);
        for _ in 0..count {
            slices.push(Slice { start: self.position(table)?, end: self.position(table)? });
        }
        Ok(Slices::new(slices, table.comparator()))
    }

    fn position(&mut self, table: &Table) -> Result<ClusteringBound, RequestError> {
        let side = if self.u8("a side")? == 0 { Side::Before } else { Side::After };
        let prefix = self.sized("a clustering prefix")?;
        let (mut values, mut length) = (0, 0);
        for value in model::Clusterings(prefix) {
            values += 1;
            length += 4 + value.map_or(0, <[u8]>::len);
        }
        if length != prefix.len() || values > table.clustering().len() {
            return Err(self.error("a clustering prefix"));
        }
        Ok(ClusteringBound::new(prefix.to_vec(), side))
    }
}
