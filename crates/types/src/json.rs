//! Values as JSON, and from JSON.

mod read;
mod write;

pub use read::name_from_json;
pub use write::{write_json_name, write_json_string};
