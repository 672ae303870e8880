//! Values of bind markers.

/// A value for a bind marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null: deletes, or matches nothing.
    Null,
    /// No value (version 4 and later): the statement behaves as if the marker's part were absent.
    Unset,
    /// A serialized value, possibly of no bytes.
    Bytes(&'a [u8]),
}
