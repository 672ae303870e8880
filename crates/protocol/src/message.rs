//! The vocabulary of the native protocol: the contents of requests and responses, independent of their bytes.
//!
//! The query layer uses these types too. [`crate::wire`] encodes and decodes them.

mod batch;
mod columns;
mod consistency;
mod error;
mod event;
mod options;
mod result;
mod value;

pub use batch::{BatchEntry, BatchKind, BatchStatement};
pub use columns::ColumnSpec;
pub use consistency::Consistency;
pub use error::{ErrorKind, ErrorResponse, FailureReason, WriteType};
pub use event::{ChangeKind, Event, SchemaChange, SchemaTarget};
pub use options::QueryOptions;
pub use result::{MetadataForm, ResponseBody, Rows};
pub use value::{Value, ValueIterator, Values};
