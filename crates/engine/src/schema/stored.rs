//! The stored schema: the user keyspaces as stored in the system tables.

use std::collections::BTreeSet;

use model::Keyspace;

use crate::error::EngineError;
use crate::quarantine::Quarantine;
use crate::read;
use crate::schema_rows::{self, SchemaDamage, SchemaRows};
use crate::shared::Shared;

/// The user keyspaces as they are stored.
#[derive(Default)]
pub(crate) struct StoredSchema {
    pub keyspaces: Vec<Keyspace>,
    /// The unreadable parts. A salvage leaves them out, otherwise their tables are quarantined.
    pub damage: Vec<SchemaDamage>,
    /// Keyspaces whose own row is lost, although rows of their tables, columns or types exist.
    pub lost_keyspaces: BTreeSet<String>,
}

impl StoredSchema {
    /// Reads the user keyspaces from the system tables. A table whose rows cannot be read is quarantined by name. A
    /// start that must not open damaged data fails because of it, and a salvage leaves it out.
    pub fn load(shared: &Shared, quarantine: &Quarantine) -> Result<StoredSchema, EngineError> {
        let rows = |keyspace: &str, table: &str| read::system_rows(shared, keyspace, table);
        let rows = SchemaRows {
            keyspaces: rows("system_schema", schema_rows::KEYSPACES)?,
            tables: rows("system_schema", schema_rows::TABLES)?,
            columns: rows("system_schema", schema_rows::COLUMNS)?,
            dropped_columns: rows("system_schema", schema_rows::DROPPED_COLUMNS)?,
            column_masks: rows("system_schema", schema_rows::COLUMN_MASKS)?,
            types: rows("system_schema", schema_rows::TYPES)?,
            indexes: rows("system_schema", schema_rows::INDEXES)?,
            layouts: rows("system", schema_rows::LAYOUTS)?,
            is_foreign: false,
        };
        let (mut keyspaces, mut damage) = schema_rows::load_whole(&rows);
        if !shared.options().commitlog.salvage {
            schema_rows::add_rowless(&rows, &mut keyspaces, &mut damage);
            if let Some(damage) = damage.first().filter(|_| !shared.options().opens_damaged) {
                return Err(EngineError::Startup(damage.to_string()));
            }
            quarantine.find_unreadable(schema_rows::unclaimed_ids(&rows), &mut keyspaces)?;
            return Ok(StoredSchema { keyspaces, damage, ..StoredSchema::default() });
        }
        keyspaces.iter_mut().for_each(|keyspace| keyspace.unreadable.clear());
        let lost_keyspaces = schema_rows::without_keyspace(&rows);
        damage.extend(lost_keyspaces.iter().map(|name| SchemaDamage(format!("keyspace {name}: only parts of it"))));
        Ok(StoredSchema { keyspaces, damage, lost_keyspaces })
    }
}
