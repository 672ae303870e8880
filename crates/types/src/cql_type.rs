//! The CQL types, and how they print in CQL.

use std::fmt;
use std::sync::Arc;

use crate::identifier::QuotedType;
use crate::user_type::UserType;

/// A CQL type of a column, a bind marker or a function argument. Cheap to clone.
///
/// A type nested in a frozen one (a tuple counts as frozen) is always frozen itself: [`CqlType::freeze`] and the
/// parsers ensure that, so that equal types are equal values. The element of a vector is an exception: a vector is a
/// single value whatever its element is, and Cassandra reports the element as it was declared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CqlType {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    /// Not a CQL type: the value of a compact table's missing column, whose only value is the empty one.
    Empty,
    Float,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    Varint,
    List {
        element: Arc<CqlType>,
        frozen: bool,
    },
    Set {
        element: Arc<CqlType>,
        frozen: bool,
    },
    Map {
        key: Arc<CqlType>,
        value: Arc<CqlType>,
        frozen: bool,
    },
    /// Always frozen.
    Tuple(Arc<[CqlType]>),
    Udt {
        definition: Arc<UserType>,
        frozen: bool,
    },
    /// `dimension` elements, none of them null. The element is as it was declared, frozen or not.
    Vector {
        element: Arc<CqlType>,
        dimension: u32,
    },
    /// A marshal class without a CQL type; its values are opaque and ordered as unsigned bytes.
    Custom(Arc<str>),
}

impl CqlType {
    /// A non-frozen list.
    pub fn list(element: CqlType) -> CqlType {
        CqlType::List { element: Arc::new(element), frozen: false }
    }

    /// A non-frozen set.
    pub fn set(element: CqlType) -> CqlType {
        CqlType::Set { element: Arc::new(element), frozen: false }
    }

    /// A non-frozen map.
    pub fn map(key: CqlType, value: CqlType) -> CqlType {
        CqlType::Map { key: Arc::new(key), value: Arc::new(value), frozen: false }
    }

    /// A tuple; its elements are frozen.
    pub fn tuple(elements: impl IntoIterator<Item = CqlType>) -> CqlType {
        CqlType::Tuple(elements.into_iter().map(|element| element.freeze()).collect())
    }

    /// A vector; its element stays as it is.
    pub fn vector(element: CqlType, dimension: u32) -> CqlType {
        CqlType::Vector { element: Arc::new(element), dimension }
    }

    /// Whether a column of this type is stored as many cells: a collection or user type that is not frozen.
    pub fn is_multi_cell(&self) -> bool {
        match self {
            CqlType::List { frozen, .. }
            | CqlType::Set { frozen, .. }
            | CqlType::Map { frozen, .. }
            | CqlType::Udt { frozen, .. } => !frozen,
            _ => false,
        }
    }

    /// Whether this is a list, set or map, frozen or not.
    pub fn is_collection(&self) -> bool {
        matches!(self, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. })
    }

    /// The frozen form of this type, frozen all the way down to vectors.
    pub fn freeze(&self) -> CqlType {
        match self {
            CqlType::List { element, .. } => CqlType::List { element: freeze_shared(element), frozen: true },
            CqlType::Set { element, .. } => CqlType::Set { element: freeze_shared(element), frozen: true },
            CqlType::Map { key, value, .. } => {
                CqlType::Map { key: freeze_shared(key), value: freeze_shared(value), frozen: true }
            }
            CqlType::Udt { definition, .. } => CqlType::Udt { definition: definition.freeze_fields(), frozen: true },
            other => other.clone(),
        }
    }

    /// Whether `matches` holds for this type or any type inside it.
    pub fn any(&self, matches: &dyn Fn(&CqlType) -> bool) -> bool {
        matches(self)
            || match self {
                CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
                    element.any(matches)
                }
                CqlType::Map { key, value, .. } => key.any(matches) || value.any(matches),
                CqlType::Tuple(elements) => elements.iter().any(|element| element.any(matches)),
                CqlType::Udt { definition, .. } => definition.fields().iter().any(|(_, field)| field.any(matches)),
                _ => false,
            }
    }

    /// The length in bytes that sstables omit because every (non-empty) value has it; `None` where it is written.
    pub fn fixed_length(&self) -> Option<usize> {
        match self {
            CqlType::Empty => Some(0),
            CqlType::Boolean => Some(1),
            CqlType::Int | CqlType::Float => Some(4),
            CqlType::Bigint | CqlType::Double | CqlType::Timestamp => Some(8),
            CqlType::Uuid | CqlType::Timeuuid => Some(16),
            CqlType::Vector { element, dimension } => {
                element.fixed_length().map(|length| length.saturating_mul(*dimension as usize))
            }
            CqlType::Custom(class) if matches!(&**class, LEXICAL_UUID | LEGACY_TIMEUUID) => Some(16),
            _ => None,
        }
    }
}

/// A class whose values are UUIDs in the order of two signed halves.
pub const LEXICAL_UUID: &str = "org.apache.cassandra.db.marshal.LexicalUUIDType";
/// A class whose values are timeuuids in their order.
pub const LEGACY_TIMEUUID: &str = "org.apache.cassandra.db.marshal.LegacyTimeUUIDType";

fn freeze_shared(inner: &Arc<CqlType>) -> Arc<CqlType> {
    if inner.shape().holds_unfrozen { Arc::new(inner.freeze()) } else { inner.clone() }
}

impl fmt::Display for CqlType {
    /// The type as CQL text, as `system_schema` stores it: `map<text, frozen<list<int>>>`. [`CqlType::parse_name`] is
    /// the inverse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.native_name() {
            return f.write_str(name);
        }
        let frozen = !self.is_multi_cell() && !matches!(self, CqlType::Vector { .. } | CqlType::Custom(_));
        if frozen {
            f.write_str("frozen<")?;
        }
        match self {
            CqlType::List { element, .. } => write!(f, "list<{element}>")?,
            CqlType::Set { element, .. } => write!(f, "set<{element}>")?,
            CqlType::Map { key, value, .. } => write!(f, "map<{key}, {value}>")?,
            CqlType::Tuple(elements) => {
                f.write_str("tuple<")?;
                for (i, element) in elements.iter().enumerate() {
                    let separator = if i == 0 { "" } else { ", " };
                    write!(f, "{separator}{element}")?;
                }
                f.write_str(">")?;
            }
            CqlType::Udt { definition, .. } => write!(f, "{}", QuotedType(&definition.name))?,
            CqlType::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>")?,
            CqlType::Custom(class) => write!(f, "'{}'", class.replace('\'', "''"))?,
            _ => {}
        }
        if frozen { f.write_str(">") } else { Ok(()) }
    }
}

impl CqlType {
    /// The name of a type without parameters; `None` for the others.
    pub fn native_name(&self) -> Option<&'static str> {
        Some(match self {
            CqlType::Ascii => "ascii",
            CqlType::Bigint => "bigint",
            CqlType::Blob => "blob",
            CqlType::Boolean => "boolean",
            CqlType::Counter => "counter",
            CqlType::Date => "date",
            CqlType::Decimal => "decimal",
            CqlType::Double => "double",
            CqlType::Duration => "duration",
            CqlType::Empty => "empty",
            CqlType::Float => "float",
            CqlType::Inet => "inet",
            CqlType::Int => "int",
            CqlType::Smallint => "smallint",
            CqlType::Text => "text",
            CqlType::Time => "time",
            CqlType::Timestamp => "timestamp",
            CqlType::Timeuuid => "timeuuid",
            CqlType::Tinyint => "tinyint",
            CqlType::Uuid => "uuid",
            CqlType::Varint => "varint",
            _ => return None,
        })
    }

    /// The type without parameters that has this lower-case name; `varchar` is text, and users cannot write `empty`.
    pub fn native(name: &str) -> Option<CqlType> {
        Some(match name {
            "ascii" => CqlType::Ascii,
            "bigint" => CqlType::Bigint,
            "blob" => CqlType::Blob,
            "boolean" => CqlType::Boolean,
            "counter" => CqlType::Counter,
            "date" => CqlType::Date,
            "decimal" => CqlType::Decimal,
            "double" => CqlType::Double,
            "duration" => CqlType::Duration,
            "float" => CqlType::Float,
            "inet" => CqlType::Inet,
            "int" => CqlType::Int,
            "smallint" => CqlType::Smallint,
            "text" | "varchar" => CqlType::Text,
            "time" => CqlType::Time,
            "timestamp" => CqlType::Timestamp,
            "timeuuid" => CqlType::Timeuuid,
            "tinyint" => CqlType::Tinyint,
            "uuid" => CqlType::Uuid,
            "varint" => CqlType::Varint,
            _ => return None,
        })
    }
}
