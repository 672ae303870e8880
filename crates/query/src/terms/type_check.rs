//! The types that columns and fields may have, as written.

use cql::ast::{NativeType, TypeName};

use types::{CqlType, LEGACY_TIMEUUID, LEXICAL_UUID};

use crate::QueryError;

fn is_counter(name: &TypeName) -> bool {
    matches!(name, TypeName::Native(NativeType::Counter))
}

fn is_duration(name: &TypeName) -> bool {
    matches!(name, TypeName::Native(NativeType::Duration))
}

fn is_collection(name: &TypeName) -> bool {
    matches!(name, TypeName::List { .. } | TypeName::Set { .. } | TypeName::Map { .. })
}

/// Checks a type as written, at every depth.
pub(crate) fn check(name: &TypeName) -> Result<(), QueryError> {
    let invalid = |message: String| Err(QueryError::invalid(message));
    match name {
        TypeName::Native(_) | TypeName::Custom(_) | TypeName::UserType { .. } => Ok(()),
        TypeName::List { element, frozen } => check_element(name, element, *frozen),
        TypeName::Set { element, frozen } => {
            check_element(name, element, *frozen)?;
            if is_duration(element) {
                invalid(format!("Durations are not allowed inside sets: {name}"))
            } else {
                Ok(())
            }
        }
        TypeName::Map { key, value, frozen } => {
            check_element(name, key, *frozen)?;
            if is_duration(key) {
                return invalid(format!("Durations are not allowed as map keys: {name}"));
            }
            check_element(name, value, *frozen)
        }
        TypeName::Tuple(elements) => elements.iter().try_for_each(|element| match is_counter(element) {
            true => invalid("Counters are not allowed inside tuples".into()),
            false => check(element),
        }),
        TypeName::Vector { element, .. } => match is_counter(element) {
            true => invalid(format!("Counters are not allowed inside vectors: {name}")),
            false => check(element),
        },
    }
}

fn check_element(collection: &TypeName, element: &TypeName, frozen: bool) -> Result<(), QueryError> {
    let invalid = |message: &str| Err(QueryError::invalid(format!("{message}: {collection}")));
    if is_counter(element) {
        return invalid("Counters are not allowed inside collections");
    }
    if !frozen && !element.is_frozen() {
        if is_collection(element) {
            return invalid("Non-frozen collections are not allowed inside collections");
        }
        if matches!(element, TypeName::UserType { .. }) {
            return invalid("Non-frozen UDTs are not allowed inside collections");
        }
    }
    check(element)
}

/// Refuses sets and maps, at any depth, whose order of elements or keys is not known.
pub(crate) fn check_elements(ty: &CqlType) -> Result<(), QueryError> {
    match ty {
        CqlType::List { element, .. } | CqlType::Vector { element, .. } => check_elements(element),
        CqlType::Set { element, .. } => check_order(element).and_then(|()| check_elements(element)),
        CqlType::Map { key, value, .. } => {
            check_order(key)?;
            check_elements(key)?;
            check_elements(value)
        }
        CqlType::Tuple(elements) => elements.iter().try_for_each(check_elements),
        // Its fields were checked when it was created.
        _ => Ok(()),
    }
}

/// Refuses a type of clusterings, elements of sets or keys of maps whose order is not known.
pub(crate) fn check_order(ty: &CqlType) -> Result<(), QueryError> {
    let has_order = |class: &str| matches!(class, LEGACY_TIMEUUID | LEXICAL_UUID);
    let is_opaque = |inner: &CqlType| matches!(inner, CqlType::Custom(class) if !has_order(class));
    match ty.any(&is_opaque) {
        true => Err(QueryError::not_supported(format!("sorting by values of {ty}"))),
        false => Ok(()),
    }
}
