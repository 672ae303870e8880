//! The statement tree: the contents of a CQL text, before any name is looked up in a schema.
//!
//! Nodes that Cassandra prints in error texts print the same way (`Display`). Identifiers without quotes are already in
//! lower case.

pub mod modification;
pub mod names;
pub mod properties;
pub mod relations;
pub mod roles;
pub mod schema;
pub mod select;
pub mod selectors;
pub mod statements;
pub mod terms;
pub mod types;

pub use modification::*;
pub use names::*;
pub use properties::*;
pub use relations::*;
pub use roles::*;
pub use schema::*;
pub use select::*;
pub use selectors::*;
pub use statements::*;
pub use terms::*;
pub use types::*;
