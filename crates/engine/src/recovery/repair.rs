//! Repair: a quarantined table is reopened, gets the records that were set aside, and is served again.
//!
//! The records go to memtables that are not visible yet and are flushed; then the side files are removed, and the table
//! becomes part of the schema. If this fails or is interrupted, the table stays quarantined, and another repair applies
//! the same records again, which changes nothing.

use std::sync::Arc;

use model::{ReadUpdates, Schema, Table};
use uuid::Uuid;

use super::Recovery;
use crate::error::EngineError;
use crate::lock::lock;
use crate::schema::StoredSchema;
use crate::table::TableStore;

impl Recovery {
    /// See [`crate::Engine::repair_table`].
    pub fn repair_table(&self, keyspace: &str, name: &str) -> Result<u64, EngineError> {
        let _one_at_a_time = self.tables.lock_schema();
        self.shared.check_running()?;
        self.shared.check_writable()?;
        let schema = self.shared.schema();
        let unknown = || EngineError::UnknownTable(format!("{keyspace}.{name}"));
        let _no_part_aside = lock(self.quarantine.moving());
        if schema.unreadable(keyspace, name).is_some() {
            return self.repair_unreadable(keyspace, name);
        }
        let table = schema.table(keyspace, name).cloned().ok_or_else(unknown)?;
        let old = self.shared.catalog().any_store(table.id).cloned().ok_or_else(unknown)?;
        if old.quarantine_reason().is_none() {
            return Err(EngineError::Unsupported(format!("table {keyspace}.{name} is not quarantined")));
        }
        let (_no_flush, _no_merge) = (lock(&old.flushing), old.merges.stop());
        let (fresh, applied) = self.open_repaired(&table)?;
        let mut stores = self.tables.stores_for(&schema)?;
        stores.insert(table.id, fresh.clone());
        self.tables.publish(&schema, stores);
        self.residents.settle(&fresh);
        self.compaction.request(&fresh);
        Ok(applied)
    }

    /// Reads the definition again, and restores the table with the records that were set aside. Called with the
    /// schema's lock held.
    fn repair_unreadable(&self, keyspace: &str, name: &str) -> Result<u64, EngineError> {
        let stored = StoredSchema::load(&self.shared, &self.quarantine)?;
        let stored = stored.keyspaces.iter().find(|stored| &*stored.name == keyspace);
        let Some(table) = stored.and_then(|stored| stored.tables.get(name)).cloned() else {
            let now = stored.and_then(|stored| stored.unreadable.get(name));
            let reason = now.map_or("no row of it is stored", |table| &table.reason).to_owned();
            let (keyspace, table) = (keyspace.to_owned(), name.to_owned());
            return Err(EngineError::Quarantined { keyspace, table, reason });
        };
        let (fresh, applied) = self.open_repaired(&table)?;
        let schema = self.shared.schema();
        let mut keyspaces = schema.keyspaces.clone();
        if let Some(edited) = keyspaces.get_mut(keyspace).map(Arc::make_mut) {
            edited.unreadable.remove(name);
            edited.tables.insert(table.name.clone(), table.clone());
        }
        let mut stores = self.tables.stores_for(&schema)?;
        stores.insert(table.id, fresh.clone());
        self.tables.publish(&Arc::new(Schema::new(Uuid::new_v4(), keyspaces)), stores);
        self.residents.settle(&fresh);
        self.compaction.request(&fresh);
        Ok(applied)
    }

    /// Reopens a table, applies the updates that were set aside, and removes their files. Returns the store and the
    /// number of updates.
    fn open_repaired(&self, table: &Arc<Table>) -> Result<(Arc<TableStore>, u64), EngineError> {
        let fresh = self.tables.open_files(table)?;
        self.tables.truncations().finish_of(&fresh)?;
        let applied = self.apply_set_aside(&fresh).inspect_err(|_| {
            fresh.view().generations().for_each(|generation| generation.release(self.shared.pool()));
        })?;
        self.quarantine.side_files().remove(table.id)?;
        Ok((fresh, applied))
    }

    fn apply_set_aside(&self, fresh: &Arc<TableStore>) -> Result<u64, EngineError> {
        let table = fresh.table.load_full();
        let (mut read, mut applied) = (ReadUpdates::default(), 0);
        for path in self.quarantine.side_files().of_table(table.id)? {
            let (_, mut file) = self.quarantine.side_files().open(&path)?;
            while let Some(bytes) = file.next_update()? {
                read.clear();
                read.read_record(&bytes, |id| (id == table.id).then_some(&table)).map_err(|error| {
                    let (path, offset) = (path.clone(), file.offset());
                    EngineError::SideFile {
                        path,
                        offset,
                        expected: "an update before it".into(),
                        found: error.to_string(),
                    }
                })?;
                // This comes before the next update, so that the last flush has something to write.
                if self.shared.pool().wants_flush() {
                    self.flush.try_flush_store(fresh)?;
                }
                for update in read.updates() {
                    self.replayer.apply_update(fresh, update);
                    applied += 1;
                }
            }
        }
        // The SSTables then cover all of the table's records in the log: a later start must not replay them over
        // deletions that were purged meanwhile.
        self.replayer.ends_replay(fresh);
        self.flush.try_flush_store(fresh)?;
        Ok(applied)
    }
}
