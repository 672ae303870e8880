//! The vocabulary of the native protocol: what requests and responses say, independent of their bytes.
//!
//! The query layer speaks in these types too. [`crate::wire`] turns them into bytes and back.

mod columns;
mod consistency;
mod error;
mod event;
mod value;

pub use columns::ColumnSpec;
pub use consistency::Consistency;
pub use error::{ErrorKind, ErrorResponse, FailureReason, WriteType};
pub use event::{ChangeKind, Event, SchemaChange, SchemaTarget};
pub use value::Value;
