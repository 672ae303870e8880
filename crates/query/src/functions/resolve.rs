//! The choice of the function that a call means.

use std::sync::Arc;

use cql::ast::FunctionName;
use types::CqlType;

use super::{CAST_PREFIX, Function, NEGATION, native, operator_symbol};
use crate::QueryError;
use crate::preparing::Preparing;
use crate::terms::{Assignable, Assignment, assign_type};

/// The function that a call means; `None` if there is none of that name. `receiver` is the type of the call's receiver,
/// if it is known.
pub(crate) fn resolve(
    name: &FunctionName,
    arguments: &[&dyn Assignable],
    receiver: Option<&CqlType>,
    preparing: &Preparing<'_>,
) -> Result<Option<Arc<Function>>, QueryError> {
    if name.keyspace.as_ref().is_some_and(|keyspace| keyspace.as_str() != "system") {
        return Ok(None);
    }
    let candidates = native::candidates(name.name.as_str(), arguments, receiver, preparing)?;
    match &*candidates {
        [] => Ok(None),
        [only] => {
            check_arguments(only, arguments, preparing)?;
            Ok(Some(only.clone()))
        }
        several => pick_best(name, several, arguments, receiver, preparing).map(Some),
    }
}

fn check_arguments(
    function: &Function,
    arguments: &[&dyn Assignable],
    preparing: &Preparing<'_>,
) -> Result<(), QueryError> {
    let (name, expected, got) = (function.qualified_name(), function.arguments.len(), arguments.len());
    if expected != got {
        return Err(QueryError::invalid(format!(
            "Invalid number of arguments in call to function {name}: {expected} required but {got} provided"
        )));
    }
    for (place, (argument, ty)) in arguments.iter().zip(&function.arguments).enumerate() {
        if !argument.assignment(preparing, ty)?.is_assignable() {
            return Err(QueryError::invalid(format!(
                "Type error: {argument} cannot be passed as argument {place} of function {name} of type {ty}"
            )));
        }
    }
    Ok(())
}

fn pick_best(
    name: &FunctionName,
    candidates: &[Arc<Function>],
    arguments: &[&dyn Assignable],
    receiver: Option<&CqlType>,
    preparing: &Preparing<'_>,
) -> Result<Arc<Function>, QueryError> {
    let mut compatible = Vec::new();
    for function in candidates {
        if receiver.is_some_and(|receiver| !assign_type(&function.returns, receiver).is_assignable()) {
            continue;
        }
        match fit(function, arguments, preparing)? {
            Assignment::Exact => return Ok(function.clone()),
            Assignment::Weak => compatible.push(function.clone()),
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
            let signatures: Vec<String> = candidates.iter().map(|function| function.signature()).collect();
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
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    preparing.findings().borrow_mut().count_step();
    if function.arguments.len() != arguments.len() {
        return Ok(Assignment::No);
    }
    let pairs = arguments.iter().zip(&function.arguments);
    Assignment::all(pairs.map(|(argument, ty)| argument.assignment(preparing, ty)))
}

fn disambiguate(
    name: &FunctionName,
    compatible: Vec<Arc<Function>>,
    arguments: &[&dyn Assignable],
    receiver: Option<&CqlType>,
) -> Result<Arc<Function>, QueryError> {
    let plain = name.name.as_str();
    if let (Some(symbol), [left, right]) = (operator_symbol(plain), arguments) {
        if let Some(receiver) = receiver
            && !arguments.iter().any(|argument| argument.contains_marker())
        {
            let same = |function: &Arc<Function>| function.arguments.iter().all(|ty| ty == receiver);
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
    let signatures: Vec<String> = compatible.iter().map(|function| function.signature()).collect();
    Err(QueryError::invalid(format!(
        "Ambiguous call to function {} (can be matched by following signatures: {}): use type casts to disambiguate",
        shown(name),
        signatures.join(", ")
    )))
}
