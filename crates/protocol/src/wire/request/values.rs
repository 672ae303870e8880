//! Bound values, in place.

use crate::wire::reader::Reader;
use crate::{ProtocolError, Value, Version};

/// The values of a statement: checked once, then read in place any number of times.
#[derive(Clone, Copy, Debug)]
pub struct EncodedValues<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
    version: Version,
}

impl<'a> EncodedValues<'a> {
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        version: Version,
        named: bool,
    ) -> Result<EncodedValues<'a>, ProtocolError> {
        let count = reader.short()?;
        let bytes = reader.rest();
        for _ in 0..count {
            if named {
                reader.string()?;
            }
            reader.value(version)?;
        }
        let bytes = &bytes[..bytes.len() - reader.rest().len()];
        Ok(EncodedValues { bytes, count, named, version })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True when each has a name.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The bytes of unnamed values as they were sent, one value after another; empty if they have names.
    pub fn positional_bytes(&self) -> &'a [u8] {
        if self.named { &[] } else { self.bytes }
    }

    /// Puts values without names into these places in their order, as many as there are of both.
    #[inline]
    pub fn read_into(&self, places: &mut [Value<'a>]) {
        debug_assert!(!self.named, "a name is no value");
        let mut reader = Reader::new(self.bytes);
        for place in places.iter_mut().take(self.len()) {
            // The values were checked when the request was parsed, so that none is missing.
            let Ok(value) = reader.value(self.version) else { return };
            *place = value;
        }
    }

    /// Each value with its name, if they have names.
    pub fn iter(&self) -> NamedValues<'a> {
        let EncodedValues { bytes, count, named, version } = *self;
        NamedValues { reader: Reader::new(bytes), remaining: count, named, version }
    }
}

/// Iterates over values and their names.
#[derive(Clone, Debug)]
pub struct NamedValues<'a> {
    reader: Reader<'a>,
    remaining: u16,
    named: bool,
    version: Version,
}

impl<'a> Iterator for NamedValues<'a> {
    type Item = (Option<&'a str>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let name = if self.named { Some(self.reader.string().ok()?) } else { None };
        Some((name, self.reader.value(self.version).ok()?))
    }

    /// They were checked, so none is missing.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.remaining), Some(usize::from(self.remaining)))
    }
}

impl ExactSizeIterator for NamedValues<'_> {}
