//! Values as CQL literals, for error texts, traces and DESCRIBE.

use std::fmt::Write as _;

use crate::collection::{self, Parts};
use crate::identifier::Quoted;
use crate::text::{Separator, format_date, format_inet, format_time, format_timestamp, format_uuid};
use crate::{CqlType, Decimal, Duration, float_text, hex, utf8};

impl CqlType {
    /// The literal that CQL reads back as this value; `null` for an empty value of a type that has no literal for it,
    /// and for invalid bytes.
    pub fn to_cql_literal(&self, value: &[u8]) -> String {
        let mut out = String::new();
        self.write_literal(value, &mut out);
        out
    }

    fn write_literal(&self, value: &[u8], out: &mut String) {
        match self {
            CqlType::Text | CqlType::Ascii => {
                let _ = write!(out, "'{}'", utf8::to_str(value).replace('\'', "''"));
            }
            CqlType::Blob | CqlType::Custom(_) => {
                out.push_str("0x");
                hex::write(value, out);
            }
            CqlType::Tuple(_) | CqlType::Udt { .. } => self.write_fields(value, out),
            CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } | CqlType::Vector { .. } => {
                self.write_elements(value, out);
            }
            _ => match plain_text(self, value) {
                Some(text) if is_quoted(self) => {
                    let _ = write!(out, "'{text}'");
                }
                Some(text) => out.push_str(&text),
                None => out.push_str("null"),
            },
        }
    }

    fn write_optional(&self, value: Option<&[u8]>, out: &mut String) {
        match value {
            Some(value) => self.write_literal(value, out),
            None => out.push_str("null"),
        }
    }

    fn write_elements(&self, value: &[u8], out: &mut String) {
        if value.is_empty() {
            return out.push_str("null");
        }
        let (open, close) = match self {
            CqlType::Set { .. } | CqlType::Map { .. } => ('{', '}'),
            _ => ('[', ']'),
        };
        out.push(open);
        match self {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                write_parts(collection::elements(value).ok(), |_| (", ", element), out);
            }
            CqlType::Map { key, value: mapped, .. } => {
                let part = |i| if i % 2 == 0 { (", ", &**key) } else { (": ", &**mapped) };
                write_parts(collection::entries(value).ok(), part, out);
            }
            CqlType::Vector { element, dimension } => {
                for (i, part) in collection::vector_elements(element, *dimension, value).enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    element.write_optional(part.ok(), out);
                }
            }
            _ => {}
        }
        out.push(close);
    }

    /// Writes only the fields that the value has: one serialized before the type grew has fewer.
    fn write_fields(&self, value: &[u8], out: &mut String) {
        match self {
            CqlType::Tuple(elements) => {
                out.push('(');
                for (i, (element, part)) in elements.iter().zip(collection::fields(value)).enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    element.write_optional(part.ok().flatten(), out);
                }
                out.push(')');
            }
            CqlType::Udt { definition, .. } => {
                out.push('{');
                for (i, ((name, field), part)) in definition.fields().iter().zip(collection::fields(value)).enumerate()
                {
                    let separator = if i == 0 { "" } else { ", " };
                    let _ = write!(out, "{separator}{}: ", Quoted(name));
                    field.write_optional(part.ok().flatten(), out);
                }
                out.push('}');
            }
            _ => {}
        }
    }
}

/// `part` returns the text in front of the i-th part (unless it is the first) and its type.
fn write_parts<'t>(parts: Option<Parts<'_>>, part: impl Fn(usize) -> (&'static str, &'t CqlType), out: &mut String) {
    for (i, value) in parts.into_iter().flatten().enumerate() {
        let (separator, cql_type) = part(i);
        out.push_str(if i == 0 { "" } else { separator });
        cql_type.write_optional(value.ok().flatten(), out);
    }
}

fn is_quoted(cql_type: &CqlType) -> bool {
    matches!(cql_type, CqlType::Date | CqlType::Time | CqlType::Timestamp | CqlType::Inet)
}

/// A value that is not text, a blob or made of parts, as text without quotes; `None` if it is empty or invalid.
pub(crate) fn plain_text(cql_type: &CqlType, value: &[u8]) -> Option<String> {
    Some(match cql_type {
        CqlType::Boolean => (*value.first()? != 0).to_string(),
        CqlType::Tinyint => i8::from_be_bytes(value.try_into().ok()?).to_string(),
        CqlType::Smallint => i16::from_be_bytes(value.try_into().ok()?).to_string(),
        CqlType::Int => i32::from_be_bytes(value.try_into().ok()?).to_string(),
        CqlType::Bigint | CqlType::Counter => i64::from_be_bytes(value.try_into().ok()?).to_string(),
        CqlType::Varint if value.is_empty() => return None,
        CqlType::Varint => num_bigint::BigInt::from_signed_bytes_be(value).to_string(),
        CqlType::Decimal => Decimal::from_bytes(value)?.to_string(),
        CqlType::Float => float_text::float(f32::from_be_bytes(value.try_into().ok()?)),
        CqlType::Double => float_text::double(f64::from_be_bytes(value.try_into().ok()?)),
        CqlType::Date => format_date(u32::from_be_bytes(value.try_into().ok()?)),
        CqlType::Time => format_time(i64::from_be_bytes(value.try_into().ok()?)),
        CqlType::Timestamp => format_timestamp(i64::from_be_bytes(value.try_into().ok()?), Separator::Literal),
        CqlType::Uuid | CqlType::Timeuuid => format_uuid(value.try_into().ok()?),
        CqlType::Inet => format_inet(value)?,
        CqlType::Duration => Duration::from_bytes(value)?.to_string(),
        _ => return None,
    })
}
