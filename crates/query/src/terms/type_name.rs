//! Types as statements write them.

use std::sync::Arc;

use cql::ast::{Identifier, NativeType, TypeName, UserTypeName};
use model::Schema;
use types::{CqlType, UserType};

use crate::QueryError;

/// The type that a type name denotes. User types are those of `keyspace`, and the name may not use another keyspace.
pub(crate) fn resolve_type(name: &TypeName, schema: &Schema, keyspace: &str) -> Result<CqlType, QueryError> {
    let ty = resolve_part(name, schema, keyspace)?;
    ty.check_size().map_err(QueryError::invalid)?;
    Ok(ty)
}

fn resolve_part(name: &TypeName, schema: &Schema, keyspace: &str) -> Result<CqlType, QueryError> {
    let inner = |name: &TypeName| resolve_part(name, schema, keyspace);
    let frozen_if = |frozen: bool, ty: CqlType| if frozen { ty.freeze() } else { ty };
    Ok(match name {
        TypeName::Native(native) => native_type(*native),
        TypeName::List { element, frozen } => frozen_if(*frozen, CqlType::list(element_type(inner(element)?, element))),
        TypeName::Set { element, frozen } => frozen_if(*frozen, CqlType::set(element_type(inner(element)?, element))),
        TypeName::Map { key, value, frozen } => {
            let (key, value) = (element_type(inner(key)?, key), element_type(inner(value)?, value));
            frozen_if(*frozen, CqlType::map(key, value))
        }
        TypeName::Tuple(elements) => {
            CqlType::tuple(elements.iter().map(inner).collect::<Result<Vec<CqlType>, QueryError>>()?)
        }
        TypeName::Vector { element, dimension } => {
            let positive = u32::try_from(*dimension).ok().filter(|dimension| *dimension > 0);
            let dimension = positive.ok_or_else(|| {
                QueryError::invalid(format!("vectors may only have positive dimensions; given {dimension}"))
            })?;
            CqlType::vector(inner(element)?, dimension)
        }
        TypeName::UserType { name, frozen } => {
            let definition = user_type(name, schema, keyspace)?.clone();
            frozen_if(*frozen, CqlType::Udt { definition, frozen: false })
        }
        TypeName::Custom(class) => custom_type(class, schema, keyspace)?,
    })
}

/// A class as the element of a collection may be that of an unfrozen collection, which no collection can contain.
fn element_type(ty: CqlType, written: &TypeName) -> CqlType {
    if matches!(written, TypeName::Custom(_)) { ty.freeze() } else { ty }
}

fn user_type<'s>(name: &UserTypeName, schema: &'s Schema, keyspace: &str) -> Result<&'s Arc<UserType>, QueryError> {
    if let Some(other) = name.keyspace.as_ref().map(Identifier::as_str).filter(|named| *named != keyspace) {
        return Err(QueryError::invalid(format!(
            "Statement on keyspace {keyspace} cannot refer to a user type in keyspace {other}; \
             user types can only be used in the keyspace they are defined in"
        )));
    }
    let known = schema.keyspace(keyspace).and_then(|keyspace| keyspace.types.get(name.name.as_str()));
    known.ok_or_else(|| QueryError::invalid(format!("Unknown type {keyspace}.{}", name.name.as_str())))
}

/// The type of a marshal class. User types in it are those of the schema, since no other could be stored.
fn custom_type(class: &str, schema: &Schema, keyspace: &str) -> Result<CqlType, QueryError> {
    let parsed = CqlType::parse_marshal_class(class)
        .map_err(|error| QueryError::syntax(format!("Error setting type {class}: {}", error.message())))?;
    let known = |written: &Arc<UserType>| schema.keyspace(keyspace).and_then(|known| known.types.get(&written.name));
    with_definitions(&parsed, &mut |written| match known(written).filter(|_| *written.keyspace == *keyspace) {
        Some(known) if known.freeze_fields() == written.freeze_fields() => Ok(known.clone()),
        _ => Err(QueryError::invalid(format!(
            "{class} is not supported: its user type {}.{} is not the type of that name in keyspace {keyspace}",
            written.keyspace, written.name
        ))),
    })
}

/// The type with other definitions of its user types. Types inside the new definitions stay unchanged.
pub(crate) fn with_definitions<E>(
    ty: &CqlType,
    replace: &mut impl FnMut(&Arc<UserType>) -> Result<Arc<UserType>, E>,
) -> Result<CqlType, E> {
    let mut inner = |ty: &Arc<CqlType>| with_definitions(ty, replace).map(Arc::new);
    Ok(match ty {
        CqlType::List { element, frozen } => CqlType::List { element: inner(element)?, frozen: *frozen },
        CqlType::Set { element, frozen } => CqlType::Set { element: inner(element)?, frozen: *frozen },
        CqlType::Map { key, value, frozen } => CqlType::Map { key: inner(key)?, value: inner(value)?, frozen: *frozen },
        CqlType::Vector { element, dimension } => CqlType::Vector { element: inner(element)?, dimension: *dimension },
        CqlType::Tuple(elements) => {
            let elements = elements.iter().map(|element| with_definitions(element, replace));
            CqlType::Tuple(elements.collect::<Result<_, E>>()?)
        }
        CqlType::Udt { definition, frozen } => {
            let definition = replace(definition)?;
            let ty = CqlType::Udt { definition, frozen: false };
            if *frozen { ty.freeze() } else { ty }
        }
        other => other.clone(),
    })
}

/// The type name with the explicit keyspace of its user types.
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
