//! Values of CQL types, as clients send them.

use crate::keys::types;

/// The first byte chooses the type; the rest is a value. What passes the check must be readable.
pub(crate) fn value(bytes: &[u8]) {
    let Some((kind, value)) = bytes.split_first() else { return };
    let types = types();
    let ty = &types[usize::from(*kind) % types.len()];
    if ty.validate(value).is_err() {
        return;
    }
    let _ = ty.to_json(value);
    let _ = ty.to_cql_literal(value);
}
