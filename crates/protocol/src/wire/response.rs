//! Response bodies, written straight into the output buffer.

mod error;
mod event;
mod result;
mod type_option;

pub use result::{PreparedMetadata, ResultColumns, ResultMetadata, RowsWriter, write_prepared, write_void};

use crate::wire::compression::Compression;
use crate::wire::version::SUPPORTED_VERSIONS;
use crate::wire::writer::{put_bytes, put_short, put_string, put_string_list};

/// SUPPORTED: versions, compressions and the CQL version.
pub fn write_supported(out: &mut Vec<u8>, cql_version: &str) {
    put_short(out, 3);
    put_string(out, "PROTOCOL_VERSIONS");
    put_string_list(out, &SUPPORTED_VERSIONS);
    put_string(out, "COMPRESSION");
    put_string_list(out, &Compression::NAMES);
    put_string(out, "CQL_VERSION");
    put_string_list(out, &[cql_version]);
}

/// AUTHENTICATE: the class of the authenticator.
pub fn write_authenticate(out: &mut Vec<u8>, class: &str) {
    put_string(out, class);
}

/// AUTH_SUCCESS, with the authenticator's final token if it has one.
pub fn write_auth_success(out: &mut Vec<u8>, token: Option<&[u8]>) {
    match token {
        Some(token) => put_bytes(out, token),
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
    }
}
