//! Positions in a partition: rows, and the bounds of slices and range tombstones.

use types::{CqlType, collection};

use crate::decode::{decode, with_length};
use crate::encode::{encode_value, encode_value_reversed};
use crate::reader::{DecodeError, Reader};
use crate::separator::{
    EXCLUDED, GT_NEXT_COMPONENT, LT_NEXT_COMPONENT, NEXT_COMPONENT, NEXT_COMPONENT_EMPTY,
    NEXT_COMPONENT_EMPTY_REVERSED, NEXT_COMPONENT_NULL, TERMINATOR,
};

/// The type and direction of one clustering column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusteringColumnType {
    pub cql_type: CqlType,
    /// Whether the column is in descending order.
    pub reversed: bool,
}

/// Appends a position: the given components (at most as many as there are columns; `None` for null), each after its
/// separator, then `terminator`: [`TERMINATOR`] for a row, [`EXCLUDED`] for the static row, [`LT_NEXT_COMPONENT`] or
/// [`GT_NEXT_COMPONENT`] for a bound before or after everything with this prefix.
pub fn encode_clustering<'a>(
    columns: &[ClusteringColumnType],
    components: impl IntoIterator<Item = Option<&'a [u8]>>,
    terminator: u8,
    out: &mut Vec<u8>,
) {
    for (column, component) in columns.iter().zip(components) {
        encode_component(column, component, out);
    }
    out.push(terminator);
}

/// Like [`encode_clustering`], for components in the form that [`decode_clustering`] writes: `[i32 length][bytes]`
/// each, length -1 for null.
pub fn encode_serialized_clustering(
    columns: &[ClusteringColumnType],
    serialized: &[u8],
    terminator: u8,
    out: &mut Vec<u8>,
) {
    let components = collection::fields(serialized).map(|part| part.ok().flatten());
    encode_clustering(columns, components, terminator, out);
}

fn encode_component(column: &ClusteringColumnType, component: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(value) = component else {
        out.push(NEXT_COMPONENT_NULL);
        return;
    };
    let separator = out.len();
    out.push(NEXT_COMPONENT);
    let (has_encoding, empty) = if column.reversed {
        (encode_value_reversed(&column.cql_type, value, out), NEXT_COMPONENT_EMPTY_REVERSED)
    } else {
        (encode_value(&column.cql_type, value, out), NEXT_COMPONENT_EMPTY)
    };
    if !has_encoding {
        out[separator] = empty;
    }
}

/// Appends the components of the position at the start of `input` as `[i32 length][bytes]` each (length -1 for null).
/// Moves `input` past the terminator and returns it.
pub fn decode_clustering(
    columns: &[ClusteringColumnType],
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Result<u8, DecodeError> {
    const EXPECTED: &str = "the separator or terminator of a clustering";
    let mut reader = Reader::new(input);
    let mut columns = columns.iter();
    loop {
        let separator = reader.byte(EXPECTED)?;
        if matches!(separator, TERMINATOR | EXCLUDED | LT_NEXT_COMPONENT | GT_NEXT_COMPONENT) {
            *input = reader.rest();
            return Ok(separator);
        }
        let column = columns.next().ok_or_else(|| reader.error_before("the terminator of a clustering"))?;
        match separator {
            NEXT_COMPONENT => {
                reader.set_inverted(column.reversed);
                with_length(out, |out| decode(&column.cql_type, &mut reader, out))?;
                reader.set_inverted(false);
            }
            NEXT_COMPONENT_NULL => collection::write_part(None, out),
            NEXT_COMPONENT_EMPTY | NEXT_COMPONENT_EMPTY_REVERSED => collection::write_part(Some(&[]), out),
            _ => return Err(reader.error_before(EXPECTED)),
        }
    }
}
