//! CQL types and values: the serialized form, validation, order, text and JSON forms, and tokens.
//!
//! A value is bytes: the native protocol's (version 5) form of its type. Nothing here parses a value into a tree; a
//! [`CqlType`] validates, compares and prints the bytes in place. The empty value and null are different things: null
//! is the absence of a value and is never passed in here, while the empty value is zero bytes, which most types accept.
//!
//! Facts and error texts are those of Apache Cassandra 5.0.

#![forbid(unsafe_code)]

pub mod calendar;
pub mod collection;
mod compare;
mod cql_name;
mod cql_type;
pub mod decimal;
pub mod duration;
mod error;
pub mod float_text;
pub mod hex;
pub mod identifier;
pub mod json;
mod literal;
mod marshal_class;
pub mod murmur3;
mod scan;
pub mod similarity;
pub mod steps;
pub mod text;
pub mod timeuuid;
mod token;
mod token_ranges;
mod user_type;
pub mod utf8;
mod validate;
pub mod vint;

pub use cql_type::{CqlType, LEGACY_TIMEUUID, LEXICAL_UUID};
pub use decimal::Decimal;
pub use duration::Duration;
pub use error::MarshalError;
pub use marshal_class::MarshalClass;
pub use similarity::Similarity;
pub use token::Token;
pub use token_ranges::TokenRanges;
pub use user_type::{Shape, TYPE_DEPTH_MAX, TYPE_PARTS_MAX, UserType};
