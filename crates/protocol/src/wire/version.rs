//! Protocol versions.

use std::fmt;

/// A version of the native protocol that this crate speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 3 (Cassandra 2.1).
    V3 = 3,
    /// Version 4 (Cassandra 2.2).
    V4 = 4,
    /// Version 5 (Cassandra 4.0): segments, result metadata ids.
    V5 = 5,
}

/// The versions as Cassandra 5.0 lists them, in SUPPORTED and in error texts. Like Cassandra, this lists its beta
/// version and refuses it (see [`crate::Decoder`]).
pub const SUPPORTED_VERSIONS: [&str; 4] = ["3/v3", "4/v4", "5/v5", "6/v6-beta"];

impl Version {
    /// How many there are.
    pub(crate) const COUNT: usize = 3;

    /// Its index among all, from 0.
    pub(crate) fn place(self) -> usize {
        self as usize - Version::V3 as usize
    }

    /// The version of this number, if this crate speaks it.
    #[inline]
    pub fn from_number(number: u8) -> Option<Version> {
        match number {
            3 => Some(Version::V3),
            4 => Some(Version::V4),
            5 => Some(Version::V5),
            _ => None,
        }
    }

    /// The number in the header's version byte.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{0}/v{0}", self.number())
    }
}

/// The text for an unsupported version.
pub(crate) fn unsupported(number: u8) -> String {
    let supported = SUPPORTED_VERSIONS.join(", ");
    format!("Invalid or unsupported protocol version ({number}); supported versions are ({supported})")
}

/// The text for the beta version without the beta flag.
pub(crate) const BETA_WITHOUT_FLAG: &str = "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset";
