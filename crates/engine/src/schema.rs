//! Changes of the schema and of what tables hold as a whole: DDL, the stored schema, drops and truncations.
//!
//! A change is checked against the rows that will be stored, is durable before it is answered, and then takes effect in
//! one step. What a crash leaves of a drop or a truncation is finished by the next start.

pub(crate) mod change;
mod check;
mod drops;
pub(crate) mod schema_rows;
mod truncation;
