//! The stores of the schema's tables: opening them, and publishing a schema with them.

use std::path::PathBuf;
use std::sync::Arc;

use model::{IndexKey, Schema, Table};
use sstable::SSTableReader;

use super::Tables;
use crate::error::EngineError;
use crate::files::Opened;
use crate::lock::lock;
use crate::quarantine::is_indispensable;
use crate::shared::Stores;
use crate::system::is_local_system_keyspace;
use crate::table::TableStore;
use crate::table::by_table_id::ByTableId;
use crate::table::in_memory::memory_only;

impl Tables {
    /// Gives every table of `schema` a store and makes it the current schema. Returns the stores of removed tables.
    pub(crate) fn open_stores(&self, schema: &Arc<Schema>) -> Result<Vec<Arc<TableStore>>, EngineError> {
        let stores = self.stores_for(schema)?;
        Ok(self.publish(schema, stores))
    }

    /// A store for every table of `schema`: the existing one, or a new one with the SSTables in its directory. New
    /// stores are not visible yet.
    pub(crate) fn stores_for(&self, schema: &Schema) -> Result<Stores, EngineError> {
        let old = self.shared.catalog();
        let mut stores = Stores::with_capacity_and_hasher(old.stores().len(), ByTableId::default());
        for table in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            let store = match old.stores().get(&table.id) {
                Some(store) => store.clone(),
                None => self.open_store(table)?,
            };
            stores.insert(table.id, store);
        }
        Ok(stores)
    }

    /// Makes `schema` the current one, with the stores of its tables. Returns the stores of removed tables.
    pub(crate) fn publish(&self, schema: &Arc<Schema>, stores: Stores) -> Vec<Arc<TableStore>> {
        for keyspace in schema.keyspaces.values() {
            for table in keyspace.tables.values() {
                let Some(store) = stores.get(&table.id) else { continue };
                let before = store.table.load_full();
                store.alter(table);
                if before.options.compaction != table.options.compaction {
                    self.compaction.request(store);
                }
                if before.options.memtable != table.options.memtable {
                    // Its next memtable is of the new kind.
                    self.flush.request(store);
                }
                if before.indexes() != table.indexes() {
                    self.change_indexes(store, table);
                }
                store.limit.set(memory_only(table).map(|options| options.size_limit_bytes));
                store.set_durable_writes(is_durable(schema, &keyspace.name));
            }
        }
        let old = self.shared.publish(schema, stores.clone());
        let removed = old.stores().iter().filter(|(id, _)| !stores.contains_key(id)).map(|(_, store)| store.clone());
        removed.collect()
    }

    /// Begins a new memtable if the active one lacks an index, and requests the indexes of earlier data.
    fn change_indexes(&self, store: &Arc<TableStore>, table: &Table) {
        let keys: Vec<IndexKey> = table.indexes().iter().filter_map(|index| table.index_key(index)).collect();
        store.indexes.keep_only(&keys);
        let active = store.view().active.clone();
        let has = |key: &IndexKey| active.indexes.as_ref().is_some_and(|indexes| indexes.get(*key).is_some());
        if !keys.iter().all(has) {
            self.shared.retire_active(store);
        }
        if keys.is_empty() {
            // Remaining files do no harm, and are deleted with the table.
            let _ = self.shared.files().remove_all_indexes(table.id);
        }
        self.shared.files().index_requests().request();
    }

    /// The store of a table of the schema. It is quarantined if its SSTables cannot be opened, or log records of it
    /// were set aside.
    fn open_store(&self, table: &Arc<Table>) -> Result<Arc<TableStore>, EngineError> {
        if is_indispensable(table) {
            return self.open_indispensable(table);
        }
        let (store, reason) = match self.open_files(table) {
            Ok(store) => (store, self.quarantine.set_aside_before(table.id)?),
            // The creation of a new table is refused instead.
            Err(failure) if self.shared.options().opens_damaged && self.shared.is_replaying() => {
                (self.new_store(table, Vec::new()), Some(failure))
            }
            Err(failure) => return Err(failure),
        };
        reason.iter().for_each(|reason| store.set_quarantined(reason));
        Ok(store)
    }

    /// A new store of the SSTables in the table's directory, which is not visible yet.
    pub(crate) fn open_files(&self, table: &Arc<Table>) -> Result<Arc<TableStore>, EngineError> {
        let Opened { sstables, failures, leftovers } =
            self.shared.files().open_all(&self.table_directory(table), table)?;
        lock(&self.leftovers).extend(leftovers);
        failures.iter().for_each(|failure| self.shared.report_failure(failure));
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(self.new_store(table, sstables)),
        }
    }

    pub(crate) fn new_store(&self, table: &Arc<Table>, sstables: Vec<Arc<SSTableReader>>) -> Arc<TableStore> {
        let held_bytes = sstables.iter().map(|sstable| sstable.data_length_bytes()).sum();
        let resident = self.residents.create(table, held_bytes);
        resident.iter().filter(|_| sstables.is_empty()).for_each(|resident| resident.set_complete());
        let active = self.shared.new_generation(table, resident);
        active.lower(self.shared.log());
        let store = TableStore::new(table.clone(), self.table_directory(table), active, sstables);
        for sstable in &store.borrow_view().sstables {
            let indexes = self.shared.files().open_indexes(table, sstable);
            store.indexes.set(std::slice::from_ref(sstable), indexes);
        }
        Arc::new(store)
    }

    pub(crate) fn table_directory(&self, table: &Table) -> PathBuf {
        self.shared.directory_of(&table.keyspace, &table.name, table.id)
    }
}

/// Whether writes to the keyspace go to the log.
fn is_durable(schema: &Schema, keyspace: &str) -> bool {
    is_local_system_keyspace(keyspace) || schema.keyspace(keyspace).is_none_or(|keyspace| keyspace.durable_writes)
}
