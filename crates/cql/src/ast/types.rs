//! Types as written, before user types are looked up.

use std::fmt;

use super::names::UserTypeName;

/// A type of fixed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NativeType {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
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
    /// Synonym of `Text`.
    Varchar,
    Varint,
}

impl NativeType {
    /// The CQL name, as written (`varchar` stays `varchar`).
    pub fn name(self) -> &'static str {
        match self {
            NativeType::Ascii => "ascii",
            NativeType::Bigint => "bigint",
            NativeType::Blob => "blob",
            NativeType::Boolean => "boolean",
            NativeType::Counter => "counter",
            NativeType::Date => "date",
            NativeType::Decimal => "decimal",
            NativeType::Double => "double",
            NativeType::Duration => "duration",
            NativeType::Float => "float",
            NativeType::Inet => "inet",
            NativeType::Int => "int",
            NativeType::Smallint => "smallint",
            NativeType::Text => "text",
            NativeType::Time => "time",
            NativeType::Timestamp => "timestamp",
            NativeType::Timeuuid => "timeuuid",
            NativeType::Tinyint => "tinyint",
            NativeType::Uuid => "uuid",
            NativeType::Varchar => "varchar",
            NativeType::Varint => "varint",
        }
    }
}

impl fmt::Display for NativeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A type as written. `frozen` is handled as in Cassandra: freezing a type also freezes the types inside, down to
/// vectors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeName {
    Native(NativeType),
    List {
        element: Box<TypeName>,
        frozen: bool,
    },
    Set {
        element: Box<TypeName>,
        frozen: bool,
    },
    Map {
        key: Box<TypeName>,
        value: Box<TypeName>,
        frozen: bool,
    },
    /// Always frozen.
    Tuple(Vec<TypeName>),
    /// Always a single value, with the element as written. The dimension is checked later: it can be zero or negative
    /// here.
    Vector {
        element: Box<TypeName>,
        dimension: i32,
    },
    UserType {
        name: UserTypeName,
        frozen: bool,
    },
    /// A marshal class, as in `'org.apache.cassandra.db.marshal.BytesType'`.
    Custom(String),
}

impl TypeName {
    /// Whether `frozen<...>` may be written around this type.
    pub fn supports_freezing(&self) -> bool {
        !matches!(self, TypeName::Native(_) | TypeName::Custom(_))
    }

    /// Whether values of this type are written and read as a whole.
    pub fn is_frozen(&self) -> bool {
        match self {
            TypeName::Native(_) | TypeName::Custom(_) => false,
            TypeName::Tuple(_) | TypeName::Vector { .. } => true,
            TypeName::List { frozen, .. }
            | TypeName::Set { frozen, .. }
            | TypeName::Map { frozen, .. }
            | TypeName::UserType { frozen, .. } => *frozen,
        }
    }

    /// The recursively frozen form; types that cannot be frozen stay as they are.
    pub fn freeze(self) -> TypeName {
        let freeze = |t: Box<TypeName>| Box::new(t.freeze());
        match self {
            TypeName::Native(_) | TypeName::Custom(_) => self,
            TypeName::List { element, .. } => TypeName::List { element: freeze(element), frozen: true },
            TypeName::Set { element, .. } => TypeName::Set { element: freeze(element), frozen: true },
            TypeName::Map { key, value, .. } => TypeName::Map { key: freeze(key), value: freeze(value), frozen: true },
            TypeName::Tuple(elements) => TypeName::Tuple(elements.into_iter().map(TypeName::freeze).collect()),
            // A vector is a single value whatever its element is, and the element stays as declared.
            TypeName::Vector { .. } => self,
            TypeName::UserType { name, .. } => TypeName::UserType { name, frozen: true },
        }
    }

    fn write_bare(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeName::Native(native) => write!(f, "{native}"),
            TypeName::List { element, .. } => write!(f, "list<{element}>"),
            TypeName::Set { element, .. } => write!(f, "set<{element}>"),
            TypeName::Map { key, value, .. } => write!(f, "map<{key}, {value}>"),
            TypeName::Tuple(elements) => {
                f.write_str("tuple<")?;
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{element}")?;
                }
                f.write_str(">")
            }
            TypeName::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>"),
            TypeName::UserType { name, .. } => write!(f, "{name}"),
            TypeName::Custom(class) => write!(f, "'{class}'"),
        }
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrapped = self.is_frozen() && !matches!(self, TypeName::Tuple(_) | TypeName::Vector { .. });
        if !wrapped {
            return self.write_bare(f);
        }
        f.write_str("frozen<")?;
        self.write_bare(f)?;
        f.write_str(">")
    }
}
