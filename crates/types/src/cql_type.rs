//! The CQL types, and how they print in CQL.

use std::fmt;
use std::sync::Arc;

use crate::identifier::Quoted;

/// A CQL type as a column, a bind marker or a function argument has it. Cheap to clone.
///
/// A type nested in a frozen one (a tuple and a vector count as frozen) is always frozen itself: [`CqlType::freeze`]
/// and the parsers keep to that, so that equal types are equal values.
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
    /// No CQL type: the value of a compact table's missing column; its only value is the empty one.
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
    /// `dimension` elements, none of them null.
    Vector {
        element: Arc<CqlType>,
        dimension: u32,
    },
    /// A marshal class we know no CQL type for; its values are opaque and ordered as unsigned bytes.
    Custom(Arc<str>),
}

/// A user-defined type: a tuple whose fields have names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserType {
    pub keyspace: Arc<str>,
    pub name: Arc<str>,
    /// Names and types, in declaration order.
    pub fields: Vec<(Arc<str>, CqlType)>,
}

impl UserType {
    /// The position of the field with this (case-sensitive) name.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| &**field == name)
    }
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

    /// A vector; its element is frozen.
    pub fn vector(element: CqlType, dimension: u32) -> CqlType {
        CqlType::Vector { element: Arc::new(element.freeze()), dimension }
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

    /// The frozen form of this type, frozen all the way down.
    pub fn freeze(&self) -> CqlType {
        match self {
            CqlType::List { element, .. } => CqlType::List { element: freeze_shared(element), frozen: true },
            CqlType::Set { element, .. } => CqlType::Set { element: freeze_shared(element), frozen: true },
            CqlType::Map { key, value, .. } => {
                CqlType::Map { key: freeze_shared(key), value: freeze_shared(value), frozen: true }
            }
            CqlType::Udt { definition, .. } => CqlType::Udt { definition: freeze_fields(definition), frozen: true },
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
                CqlType::Udt { definition, .. } => definition.fields.iter().any(|(_, field)| field.any(matches)),
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
            CqlType::Custom(class) if &**class == LEXICAL_UUID => Some(16),
            _ => None,
        }
    }
}

/// The one class without a CQL type whose values sstables write without a length.
const LEXICAL_UUID: &str = "org.apache.cassandra.db.marshal.LexicalUUIDType";

fn freeze_shared(inner: &Arc<CqlType>) -> Arc<CqlType> {
    if is_frozen_all_the_way(inner) { inner.clone() } else { Arc::new(inner.freeze()) }
}

fn freeze_fields(definition: &Arc<UserType>) -> Arc<UserType> {
    if definition.fields.iter().all(|(_, field)| is_frozen_all_the_way(field)) {
        return definition.clone();
    }
    Arc::new(UserType {
        keyspace: definition.keyspace.clone(),
        name: definition.name.clone(),
        fields: definition.fields.iter().map(|(name, field)| (name.clone(), field.freeze())).collect(),
    })
}

fn is_frozen_all_the_way(inner: &CqlType) -> bool {
    !inner.any(&CqlType::is_multi_cell)
}

impl fmt::Display for CqlType {
    /// The type as CQL text, as `system_schema` stores it: `map<text, frozen<list<int>>>`.
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
            CqlType::Udt { definition, .. } => write!(f, "{}", Quoted(&definition.name))?,
            CqlType::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>")?,
            CqlType::Custom(class) => write!(f, "'{class}'")?,
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

    /// The type without parameters that has this lower-case name; `varchar` is text, `empty` is no name a user may say.
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
