//! Consistency levels, with the numbers that the protocol gives them.

use std::fmt;

use crate::ProtocolError;

/// How many replicas must answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    Any = 0,
    #[default]
    One = 1,
    Two = 2,
    Three = 3,
    Quorum = 4,
    All = 5,
    LocalQuorum = 6,
    EachQuorum = 7,
    Serial = 8,
    LocalSerial = 9,
    LocalOne = 10,
    NodeLocal = 11,
}

impl Consistency {
    /// The level of this number.
    pub fn from_number(number: u16) -> Result<Consistency, ProtocolError> {
        Ok(match number {
            0 => Consistency::Any,
            1 => Consistency::One,
            2 => Consistency::Two,
            3 => Consistency::Three,
            4 => Consistency::Quorum,
            5 => Consistency::All,
            6 => Consistency::LocalQuorum,
            7 => Consistency::EachQuorum,
            8 => Consistency::Serial,
            9 => Consistency::LocalSerial,
            10 => Consistency::LocalOne,
            11 => Consistency::NodeLocal,
            _ => return Err(ProtocolError::new(format!("Unknown code {number} for a consistency level"))),
        })
    }

    /// The number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Whether it is SERIAL or LOCAL_SERIAL.
    pub fn is_serial(self) -> bool {
        matches!(self, Consistency::Serial | Consistency::LocalSerial)
    }

    /// The name as CQL and error texts print it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Any => "ANY",
            Consistency::One => "ONE",
            Consistency::Two => "TWO",
            Consistency::Three => "THREE",
            Consistency::Quorum => "QUORUM",
            Consistency::All => "ALL",
            Consistency::LocalQuorum => "LOCAL_QUORUM",
            Consistency::EachQuorum => "EACH_QUORUM",
            Consistency::Serial => "SERIAL",
            Consistency::LocalSerial => "LOCAL_SERIAL",
            Consistency::LocalOne => "LOCAL_ONE",
            Consistency::NodeLocal => "NODE_LOCAL",
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
