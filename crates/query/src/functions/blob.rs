//! Conversions to and from blobs: `int_as_blob`, `blob_as_int`, and the older `intasblob`, `blobasint`.

use types::{CqlType, hex};

use super::Function;
use crate::QueryError;

/// The function of this name, if it is one of these.
pub(super) fn functions(name: &str) -> Vec<Function> {
    let to_blob = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob"));
    let from_blob = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas"));
    let ty = |name: &str| CqlType::native(name).filter(|ty| *ty != CqlType::Blob);
    if let Some(from) = to_blob.and_then(ty) {
        let name = name.to_owned();
        return vec![Function::scalar(&name, vec![from], CqlType::Blob, |_, arguments| {
            Ok(arguments[0].map(<[u8]>::to_vec))
        })];
    }
    if let Some(to) = from_blob.and_then(ty) {
        return vec![Function::scalar(name, vec![CqlType::Blob], to, |call, arguments| {
            let Some(bytes) = arguments[0] else { return Ok(None) };
            let ty = &call.function.returns;
            if ty.validate(bytes).is_err() {
                let (name, value) = (call.function.qualified_name(), hex::to_string(bytes));
                return Err(QueryError::invalid(format!(
                    "In call to function {name}, value 0x{value} is not a valid binary representation for type {ty}"
                )));
            }
            Ok(Some(bytes.to_vec()))
        })];
    }
    Vec::new()
}
