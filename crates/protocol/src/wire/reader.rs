//! Reading the protocol's notations from a body, with Cassandra's texts for missing parts.

use crate::{Consistency, ProtocolError, Value, Version};

/// A cursor over a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

type Result<T> = std::result::Result<T, ProtocolError>;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The part that was not read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| ProtocolError::new(format!("Not enough bytes to read {what}")))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, size: usize, what: &str) -> Result<&'a [u8]> {
        if size > self.rest.len() {
            return Err(ProtocolError::new(format!("Not enough bytes to read {what}")));
        }
        let (bytes, rest) = self.rest.split_at(size);
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>("a byte")?[0])
    }

    pub(crate) fn short(&mut self) -> Result<u16> {
        self.array("a short").map(u16::from_be_bytes)
    }

    pub(crate) fn int(&mut self) -> Result<i32> {
        self.array("an int").map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64> {
        self.array("a long").map(i64::from_be_bytes)
    }

    /// `[string]`.
    pub(crate) fn string(&mut self) -> Result<&'a str> {
        const WHAT: &str = "an UTF8 serialized string preceded by its 2 bytes length";
        let size = u16::from_be_bytes(self.array(WHAT)?);
        utf8(self.take(usize::from(size), WHAT)?)
    }

    /// `[long string]`.
    pub(crate) fn long_string(&mut self) -> Result<&'a str> {
        const WHAT: &str = "an UTF8 serialized string preceded by its 4 bytes length";
        let size = i32::from_be_bytes(self.array(WHAT)?);
        // A negative length does not fit either.
        utf8(self.take(usize::try_from(size).unwrap_or(usize::MAX), WHAT)?)
    }

    /// `[short bytes]`.
    #[inline]
    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8]> {
        const WHAT: &str = "a byte array preceded by its 2 bytes length";
        let size = u16::from_be_bytes(self.array(WHAT)?);
        self.take(usize::from(size), WHAT)
    }

    /// `[bytes]`: any negative length is null.
    pub(crate) fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        const WHAT: &str = "a byte array preceded by its 4 bytes length";
        let size = i32::from_be_bytes(self.array(WHAT)?);
        match usize::try_from(size) {
            Ok(size) => self.take(size, WHAT).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[value]`: a bound value.
    #[inline]
    pub(crate) fn value(&mut self, version: Version) -> Result<Value<'a>> {
        match self.present_value() {
            Some(bytes) => Ok(Value::Bytes(bytes)),
            None => self.other_value(version),
        }
    }

    /// The fast path for most values: bytes that are completely there.
    #[inline]
    fn present_value(&mut self) -> Option<&'a [u8]> {
        let (size, rest) = self.rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(i32::from_be_bytes(*size)).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }

    #[cold]
    fn other_value(&mut self, version: Version) -> Result<Value<'a>> {
        const WHAT: &str = "a value preceded by its 4 bytes length";
        let size = i32::from_be_bytes(self.array(WHAT)?);
        match size {
            0.. => self.take(size as usize, WHAT).map(Value::Bytes),
            -1 => Ok(Value::Null),
            // Before v4 a negative length had only one meaning.
            _ if version < Version::V4 => Ok(Value::Null),
            -2 => Ok(Value::Unset),
            _ => Err(ProtocolError::new(format!("Invalid ByteBuf length {size}"))),
        }
    }

    pub(crate) fn consistency(&mut self) -> Result<Consistency> {
        Consistency::from_number(self.short()?)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        ProtocolError::new(format!(
            "Cannot decode string as UTF8: '{}'; {error}",
            bytes.iter().take(1024).map(|byte| format!("{byte:02x}")).collect::<String>()
        ))
    })
}
