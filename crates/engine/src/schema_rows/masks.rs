//! Masks of columns as rows of `system_schema.column_masks`, and back.
//!
//! A row has the function and three lists of the same length: the types of the arguments, their values as text, and
//! whether they are null. A null argument has an empty text.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ColumnMask, MaskArgument};
use types::{CqlType, UserType, collection};

use super::{text, texts};
use crate::system::SystemRow;

/// The keyspace of all functions that mask columns.
const FUNCTION_KEYSPACE: &str = "system";

/// The values of a mask's row beyond its key.
pub(super) fn values(mask: &ColumnMask) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let argument_types: Vec<String> = mask.arguments.iter().map(|argument| argument.ty.to_string()).collect();
    let text_of = |argument: &MaskArgument| argument.value.as_ref().map(|value| argument.ty.to_text(value));
    let argument_texts: Vec<String> = mask.arguments.iter().map(|a| text_of(a).unwrap_or_default()).collect();
    let is_null = |argument: &MaskArgument| if argument.value.is_none() { &[1][..] } else { &[0] };
    let nulls = mask.arguments.iter().map(is_null);
    vec![
        ("function_argument_nulls", Some(collection::list(nulls))),
        ("function_argument_types", texts(argument_types.iter().map(String::as_str))),
        ("function_argument_values", texts(argument_texts.iter().map(String::as_str))),
        ("function_keyspace", text(FUNCTION_KEYSPACE)),
        ("function_name", text(&mask.function)),
    ]
}

/// The mask in a row, or why it cannot be read.
pub(super) fn load(row: &SystemRow, types: &BTreeMap<Arc<str>, Arc<UserType>>) -> Result<ColumnMask, String> {
    let (keyspace, name) = (row.text("function_keyspace"), row.text("function_name"));
    if keyspace != FUNCTION_KEYSPACE {
        return Err(format!("is masked with {keyspace}.{name}, and user-defined functions are not supported"));
    }
    let nulls = row.get("function_argument_nulls").map(booleans).unwrap_or_default();
    let (type_names, texts) = (row.texts("function_argument_types"), row.texts("function_argument_values"));
    if type_names.len() != texts.len() || type_names.len() != nulls.len() {
        return Err("has a mask whose row in system_schema.column_masks lacks an argument".to_owned());
    }
    let argument = |((type_name, text), is_null): ((&String, &String), &bool)| {
        let ty = CqlType::parse_name(type_name, &|user| types.get(user).cloned())
            .ok_or_else(|| format!("has a mask with an argument of the unknown type {type_name:?}"))?;
        let value = match is_null {
            true => None,
            false => Some(ty.from_text(text).map_err(|error| format!("has a mask with a wrong argument: {error}"))?),
        };
        Ok(MaskArgument { ty, value })
    };
    let arguments = type_names.iter().zip(&texts).zip(&nulls).map(argument).collect::<Result<_, String>>()?;
    Ok(ColumnMask { function: name.into(), arguments })
}

fn booleans(list: &[u8]) -> Vec<bool> {
    let elements = collection::elements(list).into_iter().flatten().flatten().flatten();
    elements.map(|element| element.first().is_some_and(|byte| *byte != 0)).collect()
}
