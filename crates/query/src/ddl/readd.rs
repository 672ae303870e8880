//! The types with which a dropped column may be added again: old SSTables still hold its cells.

use model::{ColumnKind, Table};
use types::CqlType;

use crate::QueryError;

/// Refuses a type that cannot read the values of the dropped column of that name, and another kind of column.
pub(super) fn check_dropped(table: &Table, name: &str, ty: &CqlType, kind: ColumnKind) -> Result<(), QueryError> {
    let Ok(place) = table.dropped().binary_search_by(|dropped| (*dropped.name).cmp(name)) else { return Ok(()) };
    let dropped = &table.dropped()[place];
    if !reads_cells_of(ty, &dropped.ty) {
        return Err(QueryError::invalid(format!(
            "Cannot add a column '{name}' of type {ty}, incompatible with previously dropped column '{name}' of type {}",
            dropped.ty
        )));
    }
    if dropped.kind != kind {
        let name_of = |kind| if kind == ColumnKind::Static { "STATIC" } else { "REGULAR" };
        return Err(QueryError::invalid(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with previous kind {}",
            name_of(kind),
            name_of(dropped.kind)
        )));
    }
    if dropped.ty == CqlType::Counter {
        return Err(QueryError::invalid(format!("Cannot re-add previously dropped counter column {name}")));
    }
    Ok(())
}

/// Whether cells written as `previous` can be read as `ty`: Cassandra's serialization compatibility.
fn reads_cells_of(ty: &CqlType, previous: &CqlType) -> bool {
    let parts_fit = match (ty, previous) {
        (CqlType::List { element, .. }, CqlType::List { element: before, .. }) => reads_cells_of(element, before),
        (CqlType::Map { value, .. }, CqlType::Map { value: before, .. }) => reads_cells_of(value, before),
        // Inside a tuple, they may be read as bytes.
        (CqlType::Blob, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. }) => false,
        _ => true,
    };
    reads_values_of(ty, previous)
        && parts_fit
        && ty.fixed_length() == previous.fixed_length()
        && ty.is_multi_cell() == previous.is_multi_cell()
}

/// Whether a value of `previous` is one of `ty`, wherever it sorts.
fn reads_values_of(ty: &CqlType, previous: &CqlType) -> bool {
    use CqlType::{Bigint, Blob, Int, List, Map, Timestamp, Timeuuid, Tuple, Uuid, Varint};
    match (ty, previous) {
        (Blob, previous) => !previous.is_multi_cell(),
        (Varint, Int | Bigint | Timestamp) | (Bigint, Timestamp) | (Timestamp, Bigint) | (Uuid, Timeuuid) => true,
        (Tuple(elements), Tuple(before)) => are_extended_by(elements, before, reads_values_of),
        (List { element, frozen: true }, List { element: before, frozen: true }) => reads_values_of(element, before),
        (Map { key, value, frozen: true }, Map { key: key_before, value: before, frozen: true }) => {
            sorts_as(key, key_before) && reads_values_of(value, before)
        }
        (Map { key, value, frozen: false }, Map { key: key_before, value: before, frozen: false }) => {
            sorts_as(key, key_before) && reads_cells_of(value, before)
        }
        (List { element, frozen: false }, List { element: before, frozen: false }) => reads_cells_of(element, before),
        _ => sorts_as(ty, previous),
    }
}

/// Whether values of `previous` are values of `ty` in the same order.
fn sorts_as(ty: &CqlType, previous: &CqlType) -> bool {
    use CqlType::{Ascii, Blob, List, Map, Set, Text, Tuple};
    match (ty, previous) {
        (Blob, Ascii | Text) | (Text, Ascii) => true,
        (Tuple(elements), Tuple(before)) => are_extended_by(elements, before, sorts_as),
        (List { element, frozen: true }, List { element: before, frozen: true }) => sorts_as(element, before),
        (Set { element, frozen }, Set { element: before, frozen: frozen_before }) => {
            frozen == frozen_before && sorts_as(element, before)
        }
        (Map { key, value, frozen: true }, Map { key: key_before, value: before, frozen: true }) => {
            sorts_as(key, key_before) && sorts_as(value, before)
        }
        _ => ty == previous,
    }
}

/// Whether tuples of `elements` read those of `before`: more elements may follow.
fn are_extended_by(elements: &[CqlType], before: &[CqlType], fits: fn(&CqlType, &CqlType) -> bool) -> bool {
    elements.len() >= before.len() && elements.iter().zip(before).all(|(element, before)| fits(element, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types with which a column of each type may be added again, other than itself: Cassandra 5.0.8's answers for
    /// every pair of these types.
    const TAKEN: [(&str, &[&str]); 74] = [
        ("int", &[]),
        ("text", &["blob"]),
        ("ascii", &["text", "blob"]),
        ("blob", &[]),
        ("bigint", &["timestamp"]),
        ("varint", &["blob"]),
        ("timestamp", &["bigint"]),
        ("uuid", &[]),
        ("timeuuid", &["uuid"]),
        ("boolean", &[]),
        ("list<int>", &[]),
        ("list<varint>", &["list<blob>"]),
        ("list<ascii>", &["list<text>", "list<blob>"]),
        ("list<text>", &["list<blob>"]),
        ("list<blob>", &[]),
        ("list<bigint>", &["list<timestamp>"]),
        ("list<timestamp>", &["list<bigint>"]),
        ("set<int>", &[]),
        ("set<varint>", &[]),
        ("set<ascii>", &["set<text>", "set<blob>"]),
        ("set<text>", &["set<blob>"]),
        ("set<blob>", &[]),
        ("set<timeuuid>", &[]),
        ("set<uuid>", &[]),
        ("set<bigint>", &[]),
        ("set<timestamp>", &[]),
        ("map<int, int>", &[]),
        ("map<int, varint>", &[]),
        ("map<ascii, ascii>", &["map<text, text>", "map<text, blob>", "map<blob, blob>"]),
        ("map<text, text>", &["map<text, blob>", "map<blob, blob>"]),
        ("map<text, blob>", &["map<blob, blob>"]),
        ("map<blob, blob>", &[]),
        ("map<int, text>", &[]),
        ("map<varint, text>", &[]),
        ("frozen<list<int>>", &[]),
        ("frozen<list<varint>>", &["frozen<list<blob>>"]),
        ("frozen<list<ascii>>", &["frozen<list<text>>", "frozen<list<blob>>"]),
        ("frozen<list<text>>", &["frozen<list<blob>>"]),
        ("frozen<list<blob>>", &[]),
        ("frozen<set<ascii>>", &["frozen<set<text>>", "frozen<set<blob>>"]),
        ("frozen<set<text>>", &["frozen<set<blob>>"]),
        ("frozen<set<blob>>", &[]),
        ("frozen<set<int>>", &[]),
        ("frozen<set<varint>>", &[]),
        ("frozen<set<timeuuid>>", &[]),
        ("frozen<set<uuid>>", &[]),
        (
            "frozen<map<ascii, ascii>>",
            &["frozen<map<text, text>>", "frozen<map<text, blob>>", "frozen<map<blob, blob>>"],
        ),
        ("frozen<map<text, text>>", &["frozen<map<text, blob>>", "frozen<map<blob, blob>>"]),
        ("frozen<map<text, blob>>", &["frozen<map<blob, blob>>"]),
        ("frozen<map<blob, blob>>", &[]),
        ("frozen<map<text, int>>", &[]),
        ("frozen<map<text, varint>>", &["frozen<map<text, blob>>", "frozen<map<blob, blob>>"]),
        ("tuple<int>", &["blob", "tuple<varint>", "tuple<blob>", "tuple<int, text>"]),
        ("tuple<varint>", &["blob", "tuple<blob>"]),
        ("tuple<text>", &["blob", "tuple<blob>"]),
        ("tuple<blob>", &["blob"]),
        ("tuple<int, text>", &["blob"]),
        ("tuple<ascii>", &["blob", "tuple<text>", "tuple<blob>"]),
        ("tuple<bigint>", &["blob", "tuple<varint>", "tuple<blob>", "tuple<timestamp>"]),
        ("tuple<timestamp>", &["blob", "tuple<varint>", "tuple<blob>", "tuple<bigint>"]),
        ("tuple<frozen<list<int>>>", &["blob", "tuple<blob>"]),
        ("frozen<list<frozen<list<int>>>>", &[]),
        ("list<frozen<list<int>>>", &[]),
        ("list<frozen<tuple<int>>>", &["list<blob>", "list<frozen<tuple<int, text>>>"]),
        ("list<frozen<tuple<int, text>>>", &["list<blob>"]),
        ("vector<float, 2>", &[]),
        ("vector<int, 2>", &[]),
        ("vector<text, 2>", &["blob"]),
        ("vector<blob, 2>", &["blob"]),
        ("vector<varint, 2>", &["blob"]),
        ("vector<ascii, 2>", &["blob"]),
        ("vector<bigint, 2>", &[]),
        ("vector<timestamp, 2>", &[]),
        ("vector<text, 3>", &["blob"]),
    ];

    fn parse(name: &str) -> CqlType {
        CqlType::parse_name(name, &|_| None).expect("a type's name")
    }

    #[test]
    fn a_dropped_column_is_added_again_with_the_types_that_cassandra_accepts() {
        for (previous, taken) in TAKEN {
            for (ty, _) in TAKEN {
                let expected = ty == previous || taken.contains(&ty);
                assert_eq!(reads_cells_of(&parse(ty), &parse(previous)), expected, "{ty} over {previous}");
            }
        }
    }
}
