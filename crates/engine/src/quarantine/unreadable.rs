//! Tables whose stored definitions cannot be read: they have a name, mostly an id, and no store.
//!
//! Their directories are left as they are, and their log records are set aside as those of other quarantined tables
//! are. Once the rows of the schema can be read again, the next start quarantines them for their side files, or serves
//! them if they have none; repair takes them back without a start. DROP TABLE deletes what there is.

use std::sync::Arc;

use model::{Keyspace, Schema, TableId};
use uuid::Uuid;

use super::QuarantinedTable;
use super::side_file::SideFileHead;
use crate::engine::Engine;
use crate::error::EngineError;

impl Engine {
    /// What a request is answered to a table whose definition cannot be read; `None` if there is no such table.
    pub fn unreadable_table(schema: &Schema, keyspace: &str, name: &str) -> Option<EngineError> {
        let unreadable = schema.unreadable(keyspace, name)?;
        let (keyspace, table) = (keyspace.to_owned(), name.to_owned());
        Some(EngineError::Quarantined { keyspace, table, reason: unreadable.reason.to_string() })
    }

    pub(super) fn unreadable_tables(&self) -> Vec<QuarantinedTable> {
        let schema = self.schema();
        let listed = schema.all_unreadable().map(|(keyspace, name, table)| QuarantinedTable {
            keyspace: keyspace.to_string(),
            table: name.to_string(),
            reason: table.reason.to_string(),
            side_files: table.id.and_then(|id| self.side_files().of_table(id).ok()).unwrap_or_default(),
        });
        listed.collect()
    }

    /// Whose log records are set aside for want of a definition.
    pub(super) fn heads_of_unreadable(&self) -> Vec<(TableId, SideFileHead)> {
        let schema = self.schema();
        let heads = schema.all_unreadable().filter_map(|(keyspace, name, table)| {
            let (id, keyspace, name) = (table.id?, keyspace.to_string(), name.to_string());
            Some((id, SideFileHead { id, keyspace, table: name, reason: table.reason.to_string() }))
        });
        heads.collect()
    }

    /// Gives unreadable tables whose rows have no id that of their directory, if they have one of their name.
    pub(crate) fn find_ids(&self, keyspace: &mut Keyspace) -> Result<(), EngineError> {
        let directory = self.options().directory.join("data").join(&*keyspace.name);
        let disk = &*self.options().disk;
        let lacks_id = keyspace.unreadable.values().any(|table| table.id.is_none());
        if !lacks_id || !disk.exists(&directory)? {
            return Ok(());
        }
        let entries = disk.list(&directory)?;
        let known: Vec<TableId> = keyspace.tables.values().map(|table| table.id).collect();
        for (name, table) in keyspace.unreadable.iter_mut().filter(|(_, table)| table.id.is_none()) {
            let id_of = |entry: &blockio::DirectoryEntry| {
                let id = entry.name.strip_prefix(&**name)?.strip_prefix('-')?;
                Uuid::try_parse(id).ok().map(TableId).filter(|id| !known.contains(id))
            };
            let mut ids = entries.iter().filter_map(id_of);
            // Of two, one was dropped: nobody can say which.
            table.id = ids.next().filter(|_| ids.next().is_none());
        }
        Ok(())
    }

    /// Reads the definition once more, and takes the table back with what was set aside. Called with the schema's lock
    /// held.
    pub(super) fn repair_unreadable(&self, keyspace: &str, name: &str) -> Result<u64, EngineError> {
        let stored = self.load_keyspaces()?;
        let stored = stored.keyspaces.iter().find(|stored| &*stored.name == keyspace);
        let Some(table) = stored.and_then(|stored| stored.tables.get(name)).cloned() else {
            let now = stored.and_then(|stored| stored.unreadable.get(name));
            let reason = now.map_or("no row of it is stored", |table| &table.reason).to_owned();
            let (keyspace, table) = (keyspace.to_owned(), name.to_owned());
            return Err(EngineError::Quarantined { keyspace, table, reason });
        };
        let (fresh, applied) = self.open_repaired(&table)?;
        let schema = self.schema();
        let mut keyspaces = schema.keyspaces.clone();
        if let Some(edited) = keyspaces.get_mut(keyspace).map(Arc::make_mut) {
            edited.unreadable.remove(name);
            edited.tables.insert(table.name.clone(), table.clone());
        }
        let mut stores = self.stores_for(&schema)?;
        stores.insert(table.id, fresh.clone());
        self.publish(&Arc::new(Schema::new(Uuid::new_v4(), keyspaces)), stores);
        self.settle(&fresh);
        self.request_compaction(&fresh);
        Ok(applied)
    }

    /// Has the files of unreadable tables that `new` does not have any more be deleted with those of other dropped ones.
    pub(crate) fn note_dropped_unreadable(&self, old: &Schema, new: &Schema) -> bool {
        let is_gone = |(keyspace, name, _): (&Arc<str>, &Arc<str>, _)| new.unreadable(keyspace, name).is_none();
        let any = old.all_unreadable().any(is_gone);
        if any {
            self.drops_unfinished().store(true, std::sync::atomic::Ordering::Relaxed);
        }
        any
    }
}
