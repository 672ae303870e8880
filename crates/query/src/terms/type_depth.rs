//! How deep types may be nested.

use std::collections::HashMap;

use types::{CqlType, UserType};

use crate::QueryError;

/// The deepest type, user types and what is in their fields counted. Stored types are read to 64 levels, of which a frozen
/// collection takes two.
const TYPE_DEPTH_MAX: usize = 30;

/// Refuses a type that is nested too deeply to be stored.
pub(crate) fn check_depth(ty: &CqlType) -> Result<(), QueryError> {
    if depth(ty, &mut HashMap::new()) <= TYPE_DEPTH_MAX {
        return Ok(());
    }
    Err(QueryError::invalid(format!("Type is nested too deeply: more than {TYPE_DEPTH_MAX} levels")))
}

/// The levels of a type; those of each user type are counted once.
fn depth(ty: &CqlType, counted: &mut HashMap<*const UserType, usize>) -> usize {
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            1 + depth(element, counted)
        }
        CqlType::Map { key, value, .. } => 1 + depth(key, counted).max(depth(value, counted)),
        CqlType::Tuple(elements) => 1 + elements.iter().map(|element| depth(element, counted)).max().unwrap_or(0),
        CqlType::Udt { definition, .. } => {
            let address: *const UserType = &**definition;
            if let Some(known) = counted.get(&address) {
                return *known;
            }
            let levels = 1 + definition.fields.iter().map(|(_, field)| depth(field, counted)).max().unwrap_or(0);
            counted.insert(address, levels);
            levels
        }
        _ => 1,
    }
}
