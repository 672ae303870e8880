//! The negotiation of a connection's parameters in STARTUP.

use protocol::{Compression, ProtocolError, Startup, Version};

/// The parameters that client and server agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) compression: Option<Compression>,
    /// Under overload the server answers with an error instead of pausing the connection.
    pub(crate) throw_on_overload: bool,
    pub(crate) driver_name: Option<String>,
    pub(crate) driver_version: Option<String>,
}

/// Checks a STARTUP message of this version.
pub(crate) fn negotiate(startup: &Startup<'_>, version: Version) -> Result<Agreement, ProtocolError> {
    let cql_version =
        startup.get("CQL_VERSION").ok_or_else(|| ProtocolError::new("Missing value CQL_VERSION in STARTUP message"))?;
    check_cql_version(cql_version)?;
    let compression = startup.get("COMPRESSION").map(Compression::from_name).transpose()?;
    if compression == Some(Compression::Snappy) && version == Version::V5 {
        return Err(ProtocolError::new("Snappy compression is not supported in protocol V5"));
    }
    Ok(Agreement {
        compression,
        throw_on_overload: startup.get("THROW_ON_OVERLOAD") == Some("1"),
        driver_name: startup.get("DRIVER_NAME").map(str::to_owned),
        driver_version: startup.get("DRIVER_VERSION").map(str::to_owned),
    })
}

/// Whether the version is CQL 3 or later, with at least two numbers.
fn check_cql_version(text: &str) -> Result<(), ProtocolError> {
    let invalid = || ProtocolError::new(format!("Invalid version value: {text}"));
    let (numbers, _) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let mut parts = numbers.split('.');
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    let (major, minor) = number().zip(number()).ok_or_else(invalid)?;
    if !parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        return Err(invalid());
    }
    if (major, minor) >= (2, 99) {
        return Ok(());
    }
    Err(ProtocolError::new(format!(
        "CQL version {text} is not supported by the binary protocol (supported version are >= 3.0.0)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup(options: &[(&'static str, &'static str)], version: Version) -> Result<Agreement, String> {
        negotiate(&Startup { options: options.to_vec() }, version).map_err(|error| error.message)
    }

    #[test]
    fn refusals_are_cassandras() {
        let refused = |options: &[_], version| startup(options, version).unwrap_err();
        assert_eq!(refused(&[], Version::V4), "Missing value CQL_VERSION in STARTUP message");
        assert_eq!(refused(&[("CQL_VERSION", "x")], Version::V4), "Invalid version value: x");
        assert_eq!(
            refused(&[("CQL_VERSION", "2.0.0")], Version::V4),
            "CQL version 2.0.0 is not supported by the binary protocol (supported version are >= 3.0.0)"
        );
        let gzip = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", "gzip")];
        assert_eq!(refused(&gzip, Version::V4), "Unknown compression algorithm: gzip");
        let snappy = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", "snappy")];
        assert_eq!(refused(&snappy, Version::V5), "Snappy compression is not supported in protocol V5");
        assert_eq!(startup(&snappy, Version::V4).unwrap().compression, Some(Compression::Snappy));
    }

    #[test]
    fn versions_of_drivers_are_accepted() {
        for version in ["3.0.0", "3.4.7", "3.4", "3.4.7-SNAPSHOT", "4.0.0"] {
            assert!(check_cql_version(version).is_ok(), "{version}");
        }
    }
}
