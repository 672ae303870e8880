//! System tables without which the node cannot work: those of the schema, and `system.local`.
//!
//! They cannot be quarantined. If one is damaged, a start fails with the place of the damage and the possible remedies;
//! a read-only start serves what is left of them.

use model::Table;

use crate::error::EngineError;
use crate::hooks::DiskFailureKind;
use crate::schema_rows::LAYOUTS;

/// Whether a start needs the rows of the table.
pub(crate) fn is_indispensable(table: &Table) -> bool {
    match &*table.keyspace {
        "system_schema" => true,
        "system" => [LAYOUTS, "local"].contains(&&*table.name),
        _ => false,
    }
}

/// The error of a start that cannot read what it needs.
pub(crate) fn refusal(error: EngineError) -> EngineError {
    if DiskFailureKind::of(&error).is_none() {
        return error;
    }
    EngineError::Startup(format!(
        "{error}; the node does not start without it. `espalier serve --read-only` serves what can be read. \
         To go on, put the file back as it was, or replace its SSTable by what \
         `espalier sstable salvage --to DIRECTORY FILE` saves of it: tables whose rows of the schema are lost are \
         quarantined then"
    ))
}
