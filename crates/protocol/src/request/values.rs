//! Bound values, in place.

use crate::reader::Reader;
use crate::{ProtocolError, Version};

/// One bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindValue<'a> {
    /// Serialized bytes, possibly none.
    Value(&'a [u8]),
    /// Null.
    Null,
    /// Not set (v4 and later): leaves the column as it is.
    Unset,
}

/// The values of a statement: checked once, then read in place as often as wanted.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
    version: Version,
}

impl<'a> Values<'a> {
    /// No values.
    pub const NONE: Values<'static> = Values { bytes: &[], count: 0, named: false, version: Version::V5 };

    pub(crate) fn read(reader: &mut Reader<'a>, version: Version, named: bool) -> Result<Values<'a>, ProtocolError> {
        let count = reader.short()?;
        let bytes = reader.rest();
        for _ in 0..count {
            if named {
                reader.string()?;
            }
            reader.value(version)?;
        }
        let bytes = &bytes[..bytes.len() - reader.rest().len()];
        Ok(Values { bytes, count, named, version })
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

    /// Each value with its name, if they have names.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a str>, BindValue<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let (named, version) = (self.named, self.version);
        (0..self.count).map_while(move |_| {
            let name = if named { Some(reader.string().ok()?) } else { None };
            Some((name, reader.value(version).ok()?))
        })
    }
}
