//! Functions that hide values: `mask_null`, `mask_default`, `mask_replace`, `mask_hash`, `mask_inner` and `mask_outer`.

use model::ColumnMask;
use types::{CqlType, collection, timeuuid, utf8};

use super::native::{argument_type, cannot_infer, check_type};
use super::{Function, hash};
use crate::QueryError;
use crate::preparing::Preparing;
use crate::terms::{Assignable, Typed};

/// Whether a function may mask columns.
pub(crate) fn is_mask(function: &Function) -> bool {
    function.name.starts_with("mask_")
}

/// The function of a mask of a column of this type. Its first argument is the column's value.
pub(crate) fn of_column(mask: &ColumnMask, ty: &CqlType, preparing: &Preparing<'_>) -> Result<Function, QueryError> {
    let types = std::iter::once(ty).chain(mask.arguments.iter().map(|argument| &argument.ty));
    let typed: Vec<Typed<'_>> = types.map(Typed).collect();
    let arguments: Vec<&dyn Assignable> = typed.iter().map(|argument| argument as &dyn Assignable).collect();
    let function = function(&mask.function, &arguments, preparing)?;
    function.ok_or_else(|| QueryError::invalid(format!("Unknown function 'system.{}'", mask.function)))
}

/// The masking function of this name for these arguments, if it is one.
pub(super) fn function(
    name: &str,
    arguments: &[&dyn Assignable],
    preparing: &Preparing<'_>,
) -> Result<Option<Function>, QueryError> {
    Ok(Some(match name {
        "mask_null" => {
            let ty = argument_type(name, "any", arguments, preparing)?;
            Function::scalar(name, vec![ty.clone()], ty, |_, _| Ok(None))
        }
        "mask_default" => {
            let ty = argument_type(name, "any", arguments, preparing)?;
            let masked = masked(&ty);
            Function::scalar(name, vec![ty.clone()], ty, move |_, _| Ok(masked.clone()))
        }
        "mask_replace" => {
            let [value, _] = arguments else { return Err(wrong_number(name, "any, any")) };
            let ty = value.compatible_type(preparing).ok_or_else(|| cannot_infer(*value, name, "any, any"))?;
            Function::scalar(
                name,
                vec![ty.clone(), ty.clone()],
                ty,
                |_, arguments| Ok(arguments[1].map(<[u8]>::to_vec)),
            )
        }
        "mask_hash" => hash::function(arguments, preparing)?,
        "mask_inner" | "mask_outer" => partial(name, arguments, preparing)?,
        _ => return Ok(None),
    }))
}

fn wrong_number(name: &str, parameters: &str) -> QueryError {
    QueryError::invalid(format!("Invalid number of arguments for function system.{name}({parameters})"))
}

/// Hides the characters inside, or outside of, given numbers of characters at the beginning and at the end.
fn partial(name: &str, arguments: &[&dyn Assignable], preparing: &Preparing<'_>) -> Result<Function, QueryError> {
    const PARAMETERS: &str = "[text|varchar|ascii], int, int, [text]";
    if !(3..=4).contains(&arguments.len()) {
        return Err(wrong_number(name, PARAMETERS));
    }
    let value = arguments[0];
    let ty = value.compatible_type(preparing).ok_or_else(|| cannot_infer(value, name, PARAMETERS))?;
    if !matches!(ty, CqlType::Text | CqlType::Ascii) {
        return Err(QueryError::invalid(format!(
            "Function system.{name} requires an argument of type [text|varchar|ascii], but found argument {value} of type {ty}"
        )));
    }
    let types = [ty.clone(), CqlType::Int, CqlType::Int, CqlType::Text];
    let types = types[..arguments.len()].to_vec();
    for (argument, parameter) in arguments.iter().zip(&types).skip(1) {
        check_type(name, *argument, parameter, preparing)?;
    }
    let is_ascii = ty == CqlType::Ascii;
    let mask = Function::scalar(name, types, ty, move |call, arguments| {
        let number = |place: usize| {
            let bytes: Option<[u8; 4]> = arguments[place].and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, i32::from_be_bytes).max(0) as usize
        };
        let padding = match arguments.get(3).copied().flatten() {
            Some(padding) => one_character(call.function, &utf8::to_str(padding))?,
            None => u16::from(b'*'),
        };
        let Some(text) = arguments[0] else { return Ok(None) };
        let (begin, end) = (number(1), number(2));
        let text = utf8::to_str(text);
        // Java counts the halves of characters beyond 16 bits. It writes "?" for a half without the other one, and, in
        // ascii, for characters that are not ascii.
        let units: Vec<u16> = text.encode_utf16().collect();
        let length = units.len();
        let hides_inner = call.function.name == "mask_inner";
        let hidden = |place: usize| (place >= begin && place + end < length) == hides_inner;
        let masked = units.iter().enumerate().map(|(place, unit)| if hidden(place) { padding } else { *unit });
        let written = |c: char| if is_ascii && !c.is_ascii() { '?' } else { c };
        let masked: String = char::decode_utf16(masked).map(|c| written(c.unwrap_or('?'))).collect();
        Ok(Some(masked.into_bytes()))
    });
    Ok(mask.checking(3, |mask, padding| one_character(mask, &utf8::to_str(padding)).map(|_| ())))
}

fn one_character(function: &Function, padding: &str) -> Result<u16, QueryError> {
    let units: Vec<u16> = padding.encode_utf16().collect();
    match units.as_slice() {
        [only] => Ok(*only),
        _ => Err(QueryError::invalid(format!(
            "The padding argument for function {} should be single-character, but '{padding}' has {} characters.",
            function.qualified_name(),
            units.len()
        ))),
    }
}

/// The mask that replaces every value of a type.
fn masked(ty: &CqlType) -> Option<Vec<u8>> {
    Some(match ty {
        CqlType::Ascii | CqlType::Text => b"****".to_vec(),
        CqlType::Blob | CqlType::Custom(_) | CqlType::Empty => Vec::new(),
        CqlType::Boolean | CqlType::Tinyint | CqlType::Varint => vec![0],
        CqlType::Smallint => vec![0; 2],
        CqlType::Int | CqlType::Float | CqlType::Inet => vec![0; 4],
        CqlType::Bigint | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => vec![0; 8],
        CqlType::Date => vec![0x80, 0, 0, 0],
        CqlType::Decimal => vec![0; 5],
        CqlType::Duration => vec![0; 3],
        CqlType::Uuid => vec![0; 16],
        CqlType::Timeuuid => timeuuid::min_for_millis(0).to_vec(),
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => vec![0; 4],
        CqlType::Tuple(elements) => {
            let fields: Vec<Option<Vec<u8>>> = elements.iter().map(masked).collect();
            collection::tuple(fields.iter().map(Option::as_deref))
        }
        CqlType::Udt { definition, .. } => {
            let fields: Vec<Option<Vec<u8>>> = definition.fields().iter().map(|(_, ty)| masked(ty)).collect();
            collection::tuple(fields.iter().map(Option::as_deref))
        }
        CqlType::Vector { element, dimension } => {
            let value = masked(element)?;
            collection::vector(element, (0..*dimension).map(|_| value.as_slice()))
        }
    })
}
