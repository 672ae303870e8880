//! Choosing the function that a call means.

use std::sync::Arc;

use cql::ast::FunctionName;
use types::CqlType;

use super::{CAST_PREFIX, Function, NEGATION, native, operator_symbol};
use crate::preparing::Preparing;
use crate::terms::{Assignable, Assignment, assign_type};
use crate::{ColumnSpec, QueryError};

/// The function that a call means, `None` if there is none of that name. `receiver` is what gets the result, if known.
pub(crate) fn resolve(
    name: &FunctionName,
    arguments: &[&dyn Assignable],
    receiver: Option<&ColumnSpec>,
    preparing: &Preparing<'_>,
) -> Result<Option<Arc<Function>>, QueryError> {
    if name.keyspace.as_ref().is_some_and(|keyspace| keyspace.as_str() != "system") {
        return Ok(None);
    }
    let mut candidates = native::candidates(name.name.as_str(), arguments, receiver, preparing)?;
    match candidates.len() {
        0 => Ok(None),
        1 => {
            let only = candidates.remove(0);
            check_arguments(&only, arguments, receiver, preparing)?;
            Ok(Some(Arc::new(only)))
        }
        _ => pick_best(name, candidates, arguments, receiver, preparing).map(|best| Some(Arc::new(best))),
    }
}

/// Stands in where a call has no receiver: only names matter there.
fn nowhere(receiver: Option<&ColumnSpec>) -> ColumnSpec {
    receiver.cloned().unwrap_or_else(|| ColumnSpec {
        keyspace: "".into(),
        table: "".into(),
        name: "".into(),
        ty: CqlType::Blob,
    })
}

fn check_arguments(
    function: &Function,
    arguments: &[&dyn Assignable],
    receiver: Option<&ColumnSpec>,
    preparing: &Preparing<'_>,
) -> Result<(), QueryError> {
    let (name, expected, got) = (function.qualified_name(), function.arguments.len(), arguments.len());
    if expected != got {
        return Err(QueryError::invalid(format!(
            "Invalid number of arguments in call to function {name}: {expected} required but {got} provided"
        )));
    }
    let beside = nowhere(receiver);
    for (place, argument) in arguments.iter().enumerate() {
        let spec = function.argument_spec(place, &beside);
        if !argument.assignment(preparing, &spec)?.is_assignable() {
            return Err(QueryError::invalid(format!(
                "Type error: {argument} cannot be passed as argument {place} of function {name} of type {}",
                spec.ty
            )));
        }
    }
    Ok(())
}

fn pick_best(
    name: &FunctionName,
    candidates: Vec<Function>,
    arguments: &[&dyn Assignable],
    receiver: Option<&ColumnSpec>,
    preparing: &Preparing<'_>,
) -> Result<Function, QueryError> {
    let beside = nowhere(receiver);
    let mut compatible = Vec::new();
    let signatures: Vec<String> = candidates.iter().map(Function::signature).collect();
    for function in candidates {
        if receiver.is_some_and(|receiver| !assign_type(&function.returns, &receiver.ty).is_assignable()) {
            continue;
        }
        match fit(&function, arguments, &beside, preparing)? {
            Assignment::Exact => return Ok(function),
            Assignment::Weak => compatible.push(function),
            Assignment::No => {}
        }
    }
    if compatible.len() > 1 {
        return disambiguate(name, compatible, arguments, receiver);
    }
    compatible.pop().ok_or_else(|| match (operator_symbol(name.name.as_str()), arguments) {
        (Some(symbol), [left, right]) => {
            QueryError::invalid(format!("the '{symbol}' operation is not supported between {left} and {right}"))
        }
        _ => {
            let (name, known) = (shown(name), signatures.join(", "));
            QueryError::invalid(format!(
                "Invalid call to function {name}, none of its type signatures match (known type signatures: {known})"
            ))
        }
    })
}

/// Casts and operators are always printed with their keyspace.
fn shown(name: &FunctionName) -> String {
    let plain = name.name.as_str();
    let hidden = plain == NEGATION || plain.starts_with(CAST_PREFIX);
    if hidden && name.keyspace.is_none() { format!("system.{plain}") } else { name.to_string() }
}

fn fit(
    function: &Function,
    arguments: &[&dyn Assignable],
    beside: &ColumnSpec,
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    if function.arguments.len() != arguments.len() {
        return Ok(Assignment::No);
    }
    Assignment::all(
        arguments
            .iter()
            .enumerate()
            .map(|(place, argument)| argument.assignment(preparing, &function.argument_spec(place, beside))),
    )
}

fn disambiguate(
    name: &FunctionName,
    compatible: Vec<Function>,
    arguments: &[&dyn Assignable],
    receiver: Option<&ColumnSpec>,
) -> Result<Function, QueryError> {
    let plain = name.name.as_str();
    if let (Some(symbol), [left, right]) = (operator_symbol(plain), arguments) {
        if let Some(receiver) = receiver
            && !arguments.iter().any(|argument| argument.contains_marker())
        {
            let same = |function: &Function| function.arguments.iter().all(|ty| *ty == receiver.ty);
            if let Some(function) = compatible.into_iter().find(same) {
                return Ok(function);
            }
        }
        return Err(QueryError::invalid(format!(
            "Ambiguous '{symbol}' operation with args {left} and {right}: use type hint to disambiguate, example '(int) ?'"
        )));
    }
    if plain == NEGATION {
        return Err(QueryError::invalid("Ambiguous negation: use type casts to disambiguate"));
    }
    let signatures: Vec<String> = compatible.iter().map(Function::signature).collect();
    Err(QueryError::invalid(format!(
        "Ambiguous call to function {} (can be matched by following signatures: {}): use type casts to disambiguate",
        shown(name),
        signatures.join(", ")
    )))
}
