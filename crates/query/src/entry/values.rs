//! The values of a request in the order of its statement's bind markers.

use std::collections::HashMap;

use protocol::{ColumnSpec, Value, Values};

/// Up to this number of values need no allocation.
const FEW_VALUES: usize = 8;

/// Values by the number of their marker.
pub(super) enum BoundValues<'a> {
    /// An array, and the number of values in it.
    Few([Value<'a>; FEW_VALUES], usize),
    Many(Vec<Value<'a>>),
    Given(&'a [Value<'a>]),
}

impl<'a> BoundValues<'a> {
    /// Puts values that were sent by name into the order of the markers, without those that belong to no marker.
    #[inline(always)]
    pub fn of(values: &Values<'a>, markers: &[ColumnSpec]) -> BoundValues<'a> {
        let values = match values {
            Values::Positional(values) => return BoundValues::Given(values),
            Values::Encoded(values) if !values.is_named() => values,
            named => return BoundValues::Many(by_name(named, markers)),
        };
        if values.len() > FEW_VALUES {
            return BoundValues::Many(values.iter().map(|(_, value)| value).collect());
        }
        let mut few = [Value::Null; FEW_VALUES];
        values.read_into(&mut few);
        BoundValues::Few(few, values.len())
    }

    #[inline]
    pub fn as_slice(&self) -> &[Value<'a>] {
        match self {
            BoundValues::Few(values, count) => &values[..*count],
            BoundValues::Many(values) => values,
            BoundValues::Given(values) => values,
        }
    }
}

/// If several values have the same name, the last one counts.
fn by_name<'a>(values: &Values<'a>, markers: &[ColumnSpec]) -> Vec<Value<'a>> {
    let named: HashMap<&str, Value<'a>> = values.iter().filter_map(|(name, value)| Some((name?, value))).collect();
    markers.iter().filter_map(|marker| named.get(&*marker.name).copied()).collect()
}
