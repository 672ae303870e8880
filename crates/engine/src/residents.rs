//! The resident data of tables in memory: loading it, freeing expired data, and following changes of the tables'
//! options.
//!
//! Durability does not depend on this. A table that cannot be loaded is read from the disk.

mod load;
mod purger;

use std::sync::{Arc, Mutex};

use compaction::MemoryOnlyOptions;
use model::{Schema, Table};

use crate::error::EngineError;
use crate::flush::Flush;
use crate::lock::lock;
use crate::shared::Shared;
use crate::table::TableStore;
use crate::table::in_memory::{Resident, held_bytes, memory_only};
use purger::Purger;

/// Keeps the resident data of tables in accordance with their options.
pub(crate) struct Residents {
    shared: Arc<Shared>,
    flush: Arc<Flush>,
    purger: Purger,
    load_failure: Mutex<Option<EngineError>>,
}

impl Residents {
    pub fn new(shared: &Arc<Shared>, flush: &Arc<Flush>) -> Residents {
        let (shared, flush) = (Arc::clone(shared), Arc::clone(flush));
        Residents { shared, flush, purger: Purger::new(), load_failure: Mutex::default() }
    }

    /// Creates resident data for a table that lives in memory, with initial room for `expected_bytes`.
    pub fn create(&self, table: &Arc<Table>, expected_bytes: u64) -> Option<Arc<Resident>> {
        memory_only(table).map(|_| Resident::new(table, self.shared.options().memtable_shards, expected_bytes))
    }

    /// Adapts resident data to the tables' options: loads the data of tables that live in memory from now on, and frees
    /// the data of others. Blocks on the disk.
    ///
    /// Reads of a table that cannot be loaded use the disk. Loading is retried at the next change of the schema.
    pub fn settle_all(&self) {
        self.shared.stores().iter().for_each(|store| self.settle(store));
    }

    /// Like `settle_all`, for one table.
    pub fn settle(&self, store: &Arc<TableStore>) {
        let _one_at_a_time = lock(&store.settling);
        let table = store.table.load_full();
        match (store.resident(), self.create(&table, held_bytes(&store.view()))) {
            (None, None) => {}
            (Some(resident), Some(_)) if resident.is_complete() => {}
            (Some(resident), Some(_)) if resident.is_loading() => self.load_or_give_up(store, &resident),
            (_, Some(resident)) => {
                store.set_resident(Some(resident.clone()));
                self.shared.retire_active(store);
                self.load_or_give_up(store, &resident);
                // Flushes retired generations only, even if they are empty: later writes stay in memory.
                if self.flush.flush_frozen(store).is_err() {
                    self.flush.request(store);
                }
            }
            (Some(_), None) => {
                store.set_resident(None);
                // Its memory is freed with the last generation that was written beside it.
                self.shared.retire_active(store);
                self.flush.request(store);
            }
        }
    }

    fn load_or_give_up(&self, store: &Arc<TableStore>, resident: &Arc<Resident>) {
        if let Err(error) = self.load_resident(store, resident) {
            self.give_up(resident, error);
        }
    }

    /// Marks the data as failed, and stores the reason.
    fn give_up(&self, resident: &Resident, why: EngineError) {
        resident.set_failed();
        *lock(&self.load_failure) = Some(why);
    }

    /// The last failure to load a table that lives in memory. Reads of that table use the disk.
    pub fn last_load_failure(&self) -> Option<EngineError> {
        lock(&self.load_failure).clone()
    }

    /// Begins a truncation: later writes go to new resident data.
    pub fn renew(&self, store: &TableStore) {
        if store.resident().is_some() {
            store.set_resident(self.create(&store.table.load_full(), 0));
        }
    }

    /// Fails unless the tables of a schema that live in memory fit into the limit for all of them.
    pub fn check_space(&self, old: &Schema, new: &Schema) -> Result<(), EngineError> {
        let limits = |schema: &Schema| -> u64 {
            let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
            tables.filter_map(|table| memory_only(table)).map(|options| options.size_limit_bytes).sum()
        };
        new.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()).try_for_each(|table| {
            let before = old.table_by_id(table.id).and_then(|table| memory_only(table));
            memory_only(table)
                .filter(|now| Some(now) != before.as_ref())
                .map_or(Ok(()), |now| self.check_fits(table, now))
        })?;
        let (before, wanted, most) = (limits(old), limits(new), self.shared.options().max_memory_to_lock_bytes);
        if wanted <= most || wanted <= before {
            return Ok(());
        }
        let megabytes = |bytes: u64| bytes >> 20;
        Err(EngineError::TableOptions(format!(
            "size_limit_in_mb of all tables in memory would be {} MB together, more than max_memory_to_lock of {} MB",
            megabytes(wanted),
            megabytes(most)
        )))
    }

    /// Fails if the table's data exceeds its limit in memory.
    fn check_fits(&self, table: &Table, options: MemoryOnlyOptions) -> Result<(), EngineError> {
        let Ok(store) = self.shared.store(table) else { return Ok(()) };
        let view = store.view();
        let held_bytes = match view.resident() {
            Some(resident) => resident.data.used_bytes(),
            None => held_bytes(&view),
        };
        if held_bytes <= options.size_limit_bytes {
            return Ok(());
        }
        let (keyspace, name, limit) = (&table.keyspace, &table.name, options.size_limit_bytes >> 20);
        Err(EngineError::TableOptions(format!(
            "size_limit_in_mb is {limit}, but table {keyspace}.{name} holds {held_bytes} bytes"
        )))
    }
}
