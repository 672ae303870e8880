//! `to_json` and `from_json`.

use types::{CqlType, utf8};

use super::Function;
use super::native::check_type;
use super::number::refuse_long;
use crate::QueryError;
use crate::preparing::Preparing;
use crate::terms::Assignable;

/// The prefix of Cassandra's messages about invalid values: the name of its exception.
const MARSHAL_EXCEPTION: &str = "org.apache.cassandra.serializers.MarshalException";

/// A value of this type as JSON text.
pub(super) fn to_json(name: &str, ty: CqlType) -> Function {
    Function::scalar(name, vec![ty], CqlType::Text, |call, arguments| {
        let text = match arguments[0] {
            Some(bytes) => {
                let ty = &call.function.arguments[0];
                refuse_long(ty, bytes)?;
                ty.to_json(bytes)
            }
            None => "null".to_owned(),
        };
        Ok(Some(text.into_bytes()))
    })
}

/// JSON text as a value of the receiver's type.
pub(super) fn from_json(
    name: &str,
    arguments: &[&dyn Assignable],
    receiver: Option<&CqlType>,
    preparing: &Preparing<'_>,
) -> Result<Function, QueryError> {
    let [argument] = arguments else {
        let message = format!("Invalid number of arguments for function system.{name}(text)");
        return Err(QueryError::invalid(message));
    };
    check_type(name, *argument, &CqlType::Text, preparing)?;
    let Some(receiver) = receiver else {
        return Err(QueryError::invalid(format!(
            "{name}() cannot be used in the selection clause of a SELECT statement"
        )));
    };
    Ok(Function::scalar(name, vec![CqlType::Text], receiver.clone(), |call, arguments| {
        let Some(bytes) = arguments[0] else { return Ok(None) };
        let function = call.function;
        let text = utf8::to_str(bytes);
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
            let why = crate::terms::unreadable_json(&text, &error);
            let message = format!("Could not decode JSON string '{text}': {why}");
            function.failure(&function.name, format!("execution of 'system.{}[text]' failed: {message}", function.name))
        })?;
        if value.is_null() {
            return Ok(None);
        }
        let bytes = function.returns.from_json(&value);
        bytes
            .map(Some)
            .map_err(|error| function.failure(&function.name, format!("{MARSHAL_EXCEPTION}: {}", error.message())))
    }))
}
