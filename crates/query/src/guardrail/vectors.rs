//! The guardrails of vectors in new columns and fields: `vector_type_enabled`, `vector_dimensions`.

use types::CqlType;

use super::Texts;
use crate::QueryError;
use crate::execution::Execution;

const VECTOR_DIMENSIONS: Texts = Texts::with_level(
    "vector_dimensions",
    "{what} has a vector of {value} dimensions, this exceeds the {level} threshold of {threshold}.",
);

/// Checks the type of a new column, or of a new field, of this name. `kind` is `Column` or `Field`.
pub(crate) fn check(kind: &str, name: &str, ty: &CqlType, execution: &Execution<'_>) -> Result<(), QueryError> {
    let guardrails = &execution.processor.options().guardrails;
    let is_allowed = guardrails.flags.vector_type_enabled && !guardrails.vector_dimensions.is_set();
    if is_allowed || !execution.is_guarded() {
        return Ok(());
    }
    check_type(&format!("{kind} {name}"), ty, execution)
}

/// As in Cassandra, the elements of a vector, and the fields of a user type, are not checked.
fn check_type(what: &str, ty: &CqlType, execution: &Execution<'_>) -> Result<(), QueryError> {
    match ty {
        CqlType::Vector { dimension, .. } => {
            let guardrails = &execution.processor.options().guardrails;
            super::flags::require(guardrails.flags.vector_type_enabled, "vector_type_enabled", what)?;
            guardrails.vector_dimensions.check(&VECTOR_DIMENSIONS, what, *dimension as usize, execution)
        }
        CqlType::List { element, .. } | CqlType::Set { element, .. } => check_type(what, element, execution),
        CqlType::Map { key, value, .. } => {
            check_type(what, key, execution)?;
            check_type(what, value, execution)
        }
        CqlType::Tuple(elements) => elements.iter().try_for_each(|element| check_type(what, element, execution)),
        _ => Ok(()),
    }
}
