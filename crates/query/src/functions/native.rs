//! The native functions of each name: fixed ones, and those that are created for the types of their arguments.

use std::sync::Arc;

use types::CqlType;

use super::{Function, aggregate, arithmetic, blob, cast, collections, json, mask, math, time, vector};
use crate::QueryError;
use crate::preparing::Preparing;
use crate::terms::{Assignable, assign_type};

/// The functions of this name. Some are created for the types of the given arguments, which can fail.
pub(super) fn candidates(
    name: &str,
    arguments: &[&dyn Assignable],
    receiver: Option<&CqlType>,
    preparing: &Preparing<'_>,
) -> Result<Arc<[Arc<Function>]>, QueryError> {
    let fixed = preparing.functions(name, || fixed(name));
    if !fixed.is_empty() {
        return Ok(fixed);
    }
    let made = match name {
        "token" => Some(token(preparing)),
        "max" | "min" => Some(aggregate::extremum(name, argument_type(name, "any", arguments, preparing)?)),
        "tojson" | "to_json" => Some(json::to_json(name, argument_type(name, "any", arguments, preparing)?)),
        "fromjson" | "from_json" => Some(json::from_json(name, arguments, receiver, preparing)?),
        _ => match collections::parameter(name) {
            Some(parameter) => {
                let ty = argument_type(name, parameter, arguments, preparing)?;
                Some(collections::function(name, ty, arguments)?)
            }
            None => match mask::function(name, arguments, preparing)? {
                Some(function) => Some(function),
                None => vector::function(name, arguments, preparing)?,
            },
        },
    };
    Ok(made.into_iter().map(Arc::new).collect())
}

/// The functions of this name that are the same for all arguments.
fn fixed(name: &str) -> Vec<Function> {
    let sources: [fn(&str) -> Vec<Function>; 6] = [
        arithmetic::functions,
        cast::functions,
        time::functions,
        math::functions,
        blob::functions,
        aggregate::functions,
    ];
    sources.iter().map(|source| source(name)).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Whether functions of this name are created for the types of their arguments. Their results are only a weak match.
pub(crate) fn is_made_for_arguments(name: &str) -> bool {
    matches!(name, "token" | "max" | "min" | "tojson" | "to_json" | "fromjson" | "from_json")
        || collections::parameter(name).is_some()
        || name.starts_with("similarity_")
        || name.starts_with("mask_")
}

/// The type of the only argument of a function that is created for it. `parameter` is its name in messages.
pub(super) fn argument_type(
    name: &str,
    parameter: &str,
    arguments: &[&dyn Assignable],
    preparing: &Preparing<'_>,
) -> Result<CqlType, QueryError> {
    let [argument] = arguments else {
        return Err(QueryError::invalid(format!(
            "Invalid number of arguments for function system.{name}({parameter})"
        )));
    };
    argument.compatible_type(preparing).ok_or_else(|| cannot_infer(*argument, name, parameter))
}

pub(super) fn cannot_infer(argument: &dyn Assignable, name: &str, parameters: &str) -> QueryError {
    QueryError::invalid(format!(
        "Cannot infer type of argument {argument} in call to function system.{name}({parameters}): use type casts to disambiguate"
    ))
}

/// Refuses an argument of such a function if its type is known and is not that of the parameter.
pub(super) fn check_type(
    name: &str,
    argument: &dyn Assignable,
    parameter: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<(), QueryError> {
    match argument.compatible_type(preparing) {
        Some(ty) if !assign_type(&ty, parameter).is_assignable() => Err(QueryError::invalid(format!(
            "Function system.{name} requires an argument of type {parameter}, but found argument {argument} of type {ty}"
        ))),
        _ => Ok(()),
    }
}

/// The token of a partition key of the given table.
fn token(preparing: &Preparing<'_>) -> Function {
    let types = preparing
        .tables()
        .last()
        .map(|table| table.partition_key().iter().map(|column| column.ty.clone()).collect::<Vec<_>>())
        .unwrap_or_default();
    Function::scalar("token", types, CqlType::Bigint, |_, arguments| {
        let Some(key) = partition_key(arguments) else { return Ok(None) };
        Ok(Some(types::murmur3::token(&key).0.to_be_bytes().to_vec()))
    })
}

/// The serialized partition key of these column values; `None` if one is null or the key would be empty.
fn partition_key(values: &[Option<&[u8]>]) -> Option<Vec<u8>> {
    if let [only] = values {
        return only.filter(|value| !value.is_empty()).map(<[u8]>::to_vec);
    }
    let mut key = Vec::new();
    for value in values {
        let value = (*value)?;
        key.extend_from_slice(&u16::try_from(value.len()).ok()?.to_be_bytes());
        key.extend_from_slice(value);
        key.push(0);
    }
    Some(key)
}
