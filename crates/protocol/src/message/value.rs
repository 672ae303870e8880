//! The values of bind markers.

use std::slice;

use crate::wire::{EncodedValues, NamedValues};

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

/// The values of a statement's bind markers.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Values as a client sent them, by the number or the name of their marker.
    Encoded(EncodedValues<'a>),
    /// Values by the number of their marker.
    Positional(&'a [Value<'a>]),
    /// Values by the name of their marker.
    Named(&'a [(&'a str, Value<'a>)]),
}

impl<'a> Values<'a> {
    /// No values.
    pub const NONE: Values<'static> = Values::Positional(&[]);

    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Encoded(values) => values.len(),
            Values::Positional(values) => values.len(),
            Values::Named(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each has a name.
    pub fn is_named(&self) -> bool {
        match self {
            Values::Encoded(values) => values.is_named(),
            Values::Positional(_) => false,
            Values::Named(_) => true,
        }
    }

    /// Positional values as they were sent: an i32 length and the bytes of each value, one after the other. Empty if
    /// the values have another form.
    pub fn positional_bytes(&self) -> &'a [u8] {
        match self {
            Values::Encoded(values) => values.positional_bytes(),
            Values::Positional(_) | Values::Named(_) => &[],
        }
    }

    /// Each value with its name, if they have names.
    pub fn iter(&self) -> ValueIterator<'a> {
        match self {
            Values::Encoded(values) => ValueIterator::Encoded(values.iter()),
            Values::Positional(values) => ValueIterator::Positional(values.iter()),
            Values::Named(values) => ValueIterator::Named(values.iter()),
        }
    }
}

/// Iterates over values and their names.
#[derive(Clone, Debug)]
pub enum ValueIterator<'a> {
    /// Of [`Values::Encoded`].
    Encoded(NamedValues<'a>),
    /// Of [`Values::Positional`].
    Positional(slice::Iter<'a, Value<'a>>),
    /// Of [`Values::Named`].
    Named(slice::Iter<'a, (&'a str, Value<'a>)>),
}

impl<'a> Iterator for ValueIterator<'a> {
    type Item = (Option<&'a str>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            ValueIterator::Encoded(values) => values.next(),
            ValueIterator::Positional(values) => values.next().map(|value| (None, *value)),
            ValueIterator::Named(values) => values.next().map(|(name, value)| (Some(*name), *value)),
        }
    }
}
