//! Types as statements write them.

use std::sync::Arc;

use cql::ast::{Identifier, NativeType, TypeName, UserTypeName};
use model::Schema;
use types::CqlType;

use super::check_depth;
use crate::QueryError;

/// The type that a type name says; user types are looked up in `keyspace` unless they name their own.
pub(crate) fn resolve_type(name: &TypeName, schema: &Schema, keyspace: &str) -> Result<CqlType, QueryError> {
    let ty = resolve_part(name, schema, keyspace)?;
    check_depth(&ty)?;
    Ok(ty)
}

fn resolve_part(name: &TypeName, schema: &Schema, keyspace: &str) -> Result<CqlType, QueryError> {
    let inner = |name: &TypeName| resolve_part(name, schema, keyspace).map(Arc::new);
    Ok(match name {
        TypeName::Native(native) => native_type(*native),
        TypeName::List { element, frozen } => CqlType::List { element: inner(element)?, frozen: *frozen },
        TypeName::Set { element, frozen } => CqlType::Set { element: inner(element)?, frozen: *frozen },
        TypeName::Map { key, value, frozen } => {
            CqlType::Map { key: inner(key)?, value: inner(value)?, frozen: *frozen }
        }
        TypeName::Tuple(elements) => {
            let elements: Result<Vec<CqlType>, QueryError> =
                elements.iter().map(|element| resolve_part(element, schema, keyspace)).collect();
            CqlType::tuple(elements?)
        }
        TypeName::Vector { element, dimension } => {
            let positive = u32::try_from(*dimension).ok().filter(|dimension| *dimension > 0);
            let dimension = positive.ok_or_else(|| {
                QueryError::invalid(format!("vectors may only have positive dimensions; given {dimension}"))
            })?;
            CqlType::vector(resolve_part(element, schema, keyspace)?, dimension)
        }
        TypeName::UserType { name, frozen } => {
            let keyspace = name.keyspace.as_ref().map_or(keyspace, |keyspace| keyspace.as_str());
            let known = schema.keyspace(keyspace).and_then(|keyspace| keyspace.types.get(name.name.as_str()));
            let unknown = || QueryError::invalid(format!("Unknown type {keyspace}.{}", name.name.as_str()));
            let ty = CqlType::Udt { definition: known.ok_or_else(unknown)?.clone(), frozen: false };
            if *frozen { ty.freeze() } else { ty }
        }
        TypeName::Custom(class) => CqlType::parse_marshal_class(class)
            .map_err(|error| QueryError::syntax(format!("Error setting type {class}: {}", error.message())))?,
    })
}

/// The type name with the keyspace of its user types written out.
pub(crate) fn qualified(name: &TypeName, keyspace: &str) -> TypeName {
    let inner = |name: &TypeName| Box::new(qualified(name, keyspace));
    match name {
        TypeName::UserType { name, frozen } if name.keyspace.is_none() => {
            let name = UserTypeName { keyspace: Some(Identifier::quoted(keyspace)), name: name.name.clone() };
            TypeName::UserType { name, frozen: *frozen }
        }
        TypeName::List { element, frozen } => TypeName::List { element: inner(element), frozen: *frozen },
        TypeName::Set { element, frozen } => TypeName::Set { element: inner(element), frozen: *frozen },
        TypeName::Map { key, value, frozen } => TypeName::Map { key: inner(key), value: inner(value), frozen: *frozen },
        TypeName::Tuple(elements) => TypeName::Tuple(elements.iter().map(|name| qualified(name, keyspace)).collect()),
        TypeName::Vector { element, dimension } => TypeName::Vector { element: inner(element), dimension: *dimension },
        other => other.clone(),
    }
}

/// A native type.
pub(crate) fn native_type(native: NativeType) -> CqlType {
    match native {
        NativeType::Ascii => CqlType::Ascii,
        NativeType::Bigint => CqlType::Bigint,
        NativeType::Blob => CqlType::Blob,
        NativeType::Boolean => CqlType::Boolean,
        NativeType::Counter => CqlType::Counter,
        NativeType::Date => CqlType::Date,
        NativeType::Decimal => CqlType::Decimal,
        NativeType::Double => CqlType::Double,
        NativeType::Duration => CqlType::Duration,
        NativeType::Float => CqlType::Float,
        NativeType::Inet => CqlType::Inet,
        NativeType::Int => CqlType::Int,
        NativeType::Smallint => CqlType::Smallint,
        NativeType::Text | NativeType::Varchar => CqlType::Text,
        NativeType::Time => CqlType::Time,
        NativeType::Timestamp => CqlType::Timestamp,
        NativeType::Timeuuid => CqlType::Timeuuid,
        NativeType::Tinyint => CqlType::Tinyint,
        NativeType::Uuid => CqlType::Uuid,
        NativeType::Varint => CqlType::Varint,
    }
}
