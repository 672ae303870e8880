//! Functions of collections: keys and values of maps, size, and aggregates over the elements.

use types::{CqlType, collection};

use super::number::NUMERIC_TYPES;
use super::{Function, aggregate};
use crate::QueryError;
use crate::terms::Assignable;

/// The name of the parameter in messages, for the function of this name; `None` if it is not one of these.
pub(super) fn parameter(name: &str) -> Option<&'static str> {
    Some(match name {
        "map_keys" | "map_values" => "map",
        "collection_count" => "collection",
        "collection_min" | "collection_max" | "collection_sum" | "collection_avg" => "numeric_set_or_list",
        _ => return None,
    })
}

/// The function of this name for a collection of this type.
pub(super) fn function(name: &str, ty: CqlType, arguments: &[&dyn Assignable]) -> Result<Function, QueryError> {
    let refuse = |wanted: &str| {
        let argument = arguments.first().map(ToString::to_string).unwrap_or_default();
        QueryError::invalid(format!(
            "Function system.{name} requires a {wanted} argument, but found argument {argument} of type {ty}"
        ))
    };
    match (name, &ty) {
        ("map_keys", CqlType::Map { key, .. }) => Ok(map_part(name, &ty, CqlType::set((**key).clone()).freeze(), 0)),
        ("map_values", CqlType::Map { value, .. }) => {
            Ok(map_part(name, &ty, CqlType::list((**value).clone()).freeze(), 1))
        }
        ("map_keys" | "map_values", _) => Err(refuse("map")),
        ("collection_count", CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. }) => Ok(count(name, &ty)),
        ("collection_count", _) => Err(refuse("collection")),
        (_, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            let numeric = matches!(name, "collection_sum" | "collection_avg");
            if numeric && !NUMERIC_TYPES.contains(element) {
                return Err(refuse("numeric set/list"));
            }
            Ok(over_elements(name, &ty, element))
        }
        (_, _) if matches!(name, "collection_sum" | "collection_avg") => Err(refuse("numeric set/list")),
        _ => Err(refuse("set or list")),
    }
}

/// Every second part of a map, starting with the part at `first`.
fn map_part(name: &str, ty: &CqlType, returns: CqlType, first: usize) -> Function {
    Function::of_values(name, vec![ty.clone()], returns, move |_, values| {
        let mut parts = Vec::new();
        for part in collection::entries(values[0])?.skip(first).step_by(2) {
            parts.push(part?.unwrap_or_default());
        }
        Ok(Some(collection::list(parts.into_iter())))
    })
}

fn count(name: &str, ty: &CqlType) -> Function {
    Function::of_values(name, vec![ty.clone()], CqlType::Int, |_, values| {
        let count = collection::count(values[0]).unwrap_or(0);
        Ok(Some(i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes().to_vec()))
    })
}

fn over_elements(name: &str, ty: &CqlType, element: &CqlType) -> Function {
    let aggregate = aggregate::over(name.trim_start_matches("collection_"), element);
    Function::of_values(name, vec![ty.clone()], element.clone(), move |_, values| {
        let mut accumulator = aggregate.accumulator();
        for part in collection::elements(values[0])? {
            accumulator.add(&[part?])?;
        }
        accumulator.result()
    })
}
