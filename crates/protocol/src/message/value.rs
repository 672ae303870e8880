//! Values of bind markers.

/// A value for a bind marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null: deletes, or matches nothing.
    Null,
    /// Nothing at all (version 4 and later): the statement behaves as if the marker's part were not there.
    Unset,
    /// A serialized value, possibly of no bytes.
    Bytes(&'a [u8]),
}
