//! CQL: lexer, parser and statement tree.
//!
//! [`parse`] turns a text into a [`ast::ParsedStatement`]. Nothing here knows a schema: names are not looked up
//! and constants are not converted.
#![forbid(unsafe_code)]

pub mod ast;
mod error;
mod lexer;
mod message;
mod parser;
mod sets;
mod token;

pub use error::SyntaxError;
pub use lexer::{token_count, without_comments};
pub use parser::{parse, parse_counting};
