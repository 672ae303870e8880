//! Tables whose stored definitions cannot be read: they have a name, mostly an id, and no store.
//!
//! Their directories do not change, and their log records are set aside like those of other quarantined tables. Once
//! the rows of the schema can be read again, the next start quarantines them because of their side files, or serves
//! them if they have none; repair takes them back without a start. DROP TABLE deletes all that is left of them.

use std::collections::BTreeSet;

use blockio::DirectoryEntry;
use model::{Keyspace, Schema, TableId, UnreadableTable};
use uuid::Uuid;

use super::side_file::SideFileHead;
use super::{Quarantine, QuarantinedTable};
use crate::error::EngineError;
use crate::read;
use crate::schema_rows::{self, SchemaDamage};
use crate::system::is_system_keyspace;

/// The reason why log records of unknown tables are kept.
const UNKNOWN: &str = "log records of a table that the schema does not have, and that was not dropped, are kept";

/// The directory of a table: its id, keyspace and name.
type FoundDirectory = (TableId, String, String);

impl Quarantine {
    /// The error of a request to a table whose definition cannot be read; `None` if there is no such table.
    pub fn unreadable_table(schema: &Schema, keyspace: &str, name: &str) -> Option<EngineError> {
        let unreadable = schema.unreadable(keyspace, name)?;
        let (keyspace, table) = (keyspace.to_owned(), name.to_owned());
        Some(EngineError::Quarantined { keyspace, table, reason: unreadable.reason.to_string() })
    }

    pub(super) fn unreadable_tables(&self) -> Vec<QuarantinedTable> {
        let schema = self.shared.schema();
        let listed = schema.all_unreadable().map(|(keyspace, name, table)| QuarantinedTable {
            keyspace: keyspace.to_string(),
            table: name.to_string(),
            reason: table.reason.to_string(),
            side_files: table.id.and_then(|id| self.side_files.of_table(id).ok()).unwrap_or_default(),
        });
        listed.collect()
    }

    /// The heads of side files for tables without a readable definition.
    pub(super) fn heads_of_unreadable(&self) -> Vec<(TableId, SideFileHead)> {
        let schema = self.shared.schema();
        let heads = schema.all_unreadable().filter_map(|(keyspace, name, table)| {
            let (id, keyspace, name) = (table.id?, keyspace.to_string(), name.to_string());
            Some((id, SideFileHead { id, keyspace, table: name, reason: table.reason.to_string() }))
        });
        heads.collect()
    }

    /// Finds the names of tables that have only a layout (`unclaimed` are their ids), and the ids of those that have
    /// only a name, by their directories. Where that leaves one id and one name, they belong together.
    pub fn find_unreadable(
        &self,
        mut unclaimed: BTreeSet<TableId>,
        keyspaces: &mut Vec<Keyspace>,
    ) -> Result<(), EngineError> {
        let tables = keyspaces.iter().flat_map(|keyspace| keyspace.unreadable.values());
        if unclaimed.is_empty() && tables.clone().all(|table| table.id.is_some()) {
            return Ok(());
        }
        let mut directories = self.table_directories_found()?;
        let known = keyspaces.iter().flat_map(|keyspace| keyspace.tables.values().map(|table| table.id));
        let known: BTreeSet<TableId> = known.chain(tables.filter_map(|table| table.id)).collect();
        directories.retain(|(id, ..)| !known.contains(id));
        for (id, keyspace, name) in directories.iter().filter(|(id, ..)| unclaimed.remove(id)) {
            let reason = "the schema has no row of it but its layout in system.table_layouts".into();
            let keyspace = keyspace_named(keyspaces, keyspace);
            let table = keyspace.unreadable.entry(name.as_str().into());
            table.or_insert(UnreadableTable { id: None, reason }).id.get_or_insert(*id);
        }
        for keyspace in keyspaces.iter_mut() {
            for (name, table) in keyspace.unreadable.iter_mut().filter(|(_, table)| table.id.is_none()) {
                let is_its = |found: &&FoundDirectory| *found.1 == *keyspace.name && *found.2 == **name;
                let mut ids = directories.iter().filter(is_its).map(|(id, ..)| *id);
                // If there are two, one was dropped, and which one is unknown.
                table.id = ids.next().filter(|_| ids.next().is_none());
            }
        }
        let nameless = unclaimed.pop_first().filter(|_| unclaimed.is_empty());
        let mut idless = keyspaces.iter_mut().flat_map(|keyspace| keyspace.unreadable.values_mut());
        let mut idless = idless.by_ref().filter(|table| table.id.is_none());
        if let (Some(id), Some(table), None) = (nameless, idless.next(), idless.next()) {
            table.id = Some(id);
        }
        Ok(())
    }

    /// The directories of tables of users.
    fn table_directories_found(&self) -> Result<Vec<FoundDirectory>, EngineError> {
        let (disk, data) = (&*self.shared.options().disk, self.shared.options().directory.join("data"));
        let mut found = Vec::new();
        let is_users = |entry: &DirectoryEntry| entry.is_dir && !is_system_keyspace(&entry.name);
        for keyspace in disk.list(&data)?.into_iter().filter(is_users) {
            for entry in disk.list(&data.join(&keyspace.name))?.iter().filter(|entry| entry.is_dir) {
                if let Some((name, id)) = entry.name.rsplit_once('-')
                    && let Ok(id) = Uuid::try_parse(id)
                {
                    found.push((TableId(id), keyspace.name.clone(), name.to_owned()));
                }
            }
        }
        Ok(found)
    }

    /// The heads of side files for tables that the schema does not have, although they were not dropped.
    pub(super) fn heads_of_unknown(&self, mut unknown: BTreeSet<TableId>) -> Result<Vec<SideFileHead>, EngineError> {
        // A salvage keeps copies of the log.
        if unknown.is_empty() || self.shared.options().commitlog.salvage {
            return Ok(Vec::new());
        }
        let layouts = read::system_rows(&self.shared, "system", schema_rows::LAYOUTS)?;
        schema_rows::dropped_tables(&layouts).iter().for_each(|(id, ..)| _ = unknown.remove(id));
        let head = |id| SideFileHead { id, keyspace: String::new(), table: String::new(), reason: UNKNOWN.to_owned() };
        Ok(unknown.into_iter().map(head).collect())
    }

    /// Reports the unreadable parts of the schema other than tables, which are listed separately, and the side files of
    /// tables that the schema does not have.
    pub fn report_damage(&self, damage: &[SchemaDamage]) {
        let schema = self.shared.schema();
        let is_tables = |damage: &SchemaDamage| schema.all_unreadable().any(|(.., table)| *table.reason == *damage.0);
        damage.iter().filter(|damage| !is_tables(damage)).for_each(|damage| self.shared.note_fault(damage.to_string()));
        let is_known =
            |id| schema.table_by_id(id).is_some() || schema.all_unreadable().any(|(.., table)| table.id == Some(id));
        for path in self.side_files.of_others(is_known).unwrap_or_default() {
            self.shared.note_fault(format!("{UNKNOWN}: {}", path.display()));
        }
    }
}

/// The keyspace of that name, which is created if there is none.
fn keyspace_named<'k>(keyspaces: &'k mut Vec<Keyspace>, name: &str) -> &'k mut Keyspace {
    let index = keyspaces.iter().position(|keyspace| *keyspace.name == *name);
    let index = index.unwrap_or_else(|| {
        keyspaces.push(schema_rows::rowless_keyspace(name));
        keyspaces.len() - 1
    });
    &mut keyspaces[index]
}
