//! Changing the schema: durable before it is answered, visible after it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Keyspace, Mutation, PartitionUpdate, Schema, Table};
use uuid::Uuid;

use crate::adopt::check_options;
use crate::engine::{Engine, Stores};
use crate::error::EngineError;
use crate::store::lock;
use crate::system::{SystemWrite, is_local_system_keyspace};
use crate::{schema_check, schema_rows};

/// The keyspaces of a schema under change.
pub type Keyspaces = BTreeMap<Arc<str>, Arc<Keyspace>>;

impl Engine {
    /// Changes the schema by `change`, which edits the keyspaces or fails; one change at a time. Returns what `change`
    /// returned and the schema as it is then.
    ///
    /// Blocks on the log and on directories. Data of tables that are gone afterwards is deleted.
    pub fn change_schema<T, E: From<EngineError>>(
        &self,
        change: impl FnOnce(&Schema, &mut Keyspaces) -> Result<T, E>,
    ) -> Result<(T, Arc<Schema>), E> {
        self.check_writable()?;
        let _one_at_a_time = lock(self.schema_lock());
        let finished = self.finish_drops();
        let old = self.schema();
        let mut keyspaces = old.keyspaces.clone();
        let result = change(&old, &mut keyspaces)?;
        if keyspaces == old.keyspaces {
            return Ok((result, old));
        }
        self.set_incarnations(&old, &mut keyspaces);
        let new = Arc::new(Schema::new(Uuid::new_v4(), keyspaces));
        changed_tables(&old, &new).try_for_each(|table| check_options(table))?;
        self.check_in_memory_space(&old, &new)?;
        if finished.is_err() && self.takes_dropped_id(&new)? {
            finished?;
        }
        let updates = schema_rows::changes(&old, &new, self.next_timestamp_micros());
        schema_check::check(&old, &new, &updates)?;
        // What may fail goes first: what is stored is what clients are shown, and what they are shown is the schema.
        let stores = self.stores_for(&new)?;
        self.store_schema(updates, &new)?;
        let drops_unreadable = self.note_dropped_unreadable(&old, &new);
        self.publish_schema(&new, stores, drops_unreadable)?;
        Ok((result, new))
    }

    /// A table keeps the incarnation that its id has; a new one has that of no table that was dropped. So a statement
    /// that was resolved before does not reach the data of a table that took the id.
    fn set_incarnations(&self, old: &Schema, keyspaces: &mut Keyspaces) {
        let next = self.tables_dropped().load(Ordering::Relaxed);
        let wanted = |table: &Table| old.table_by_id(table.id).map_or(next, |known| known.incarnation());
        let is_wrong = |table: &Arc<Table>| table.incarnation() != wanted(table);
        for keyspace in keyspaces.values_mut().filter(|keyspace| keyspace.tables.values().any(is_wrong)) {
            for table in Arc::make_mut(keyspace).tables.values_mut().filter(|table| is_wrong(table)) {
                let incarnation = wanted(table);
                Arc::make_mut(table).set_incarnation(incarnation);
            }
        }
    }

    /// Whether a table has the id, and so the directory, of one that was dropped and whose files are still there.
    fn takes_dropped_id(&self, schema: &Schema) -> Result<bool, EngineError> {
        let layouts = self.system_rows("system", schema_rows::LAYOUTS)?;
        let mut dropped = schema_rows::dropped_tables(&layouts).into_iter();
        Ok(dropped.any(|(id, ..)| schema.table_by_id(id).is_some()))
    }

    fn store_schema(&self, mut updates: Vec<PartitionUpdate>, new: &Schema) -> Result<(), EngineError> {
        let timestamp = self.next_timestamp_micros();
        let local = new.table("system", "local").expect("system tables are part of every schema");
        let mut version = SystemWrite::new(local, b"local", timestamp);
        version.row(&[], &[("schema_version", Some(new.version.as_bytes().to_vec()))]);
        updates.push(version.build());
        self.write_durably(Mutation::new(updates))
    }

    /// Writes to system tables; waits, whatever mode the log is in, until the device holds it, and only then makes it
    /// visible.
    pub(crate) fn write_durably(&self, mutation: Mutation) -> Result<(), EngineError> {
        self.until_room(|| self.try_write_durably(&mutation))
    }

    fn publish_schema(&self, new: &Arc<Schema>, stores: Stores, drops_unreadable: bool) -> Result<(), EngineError> {
        let removed = self.publish(new, stores);
        self.tables_dropped().fetch_add(removed.len() as u64, Ordering::Relaxed);
        self.settle_in_memory();
        // What cannot be deleted for one table keeps none of the others.
        let results: Vec<_> = removed.iter().map(|store| self.drop_store(store)).collect();
        results.into_iter().collect::<Result<(), _>>()?;
        if removed.is_empty() && !drops_unreadable { Ok(()) } else { self.finish_drops() }
    }

    /// Whether writes to the keyspace go to the log.
    pub(crate) fn is_durable(schema: &Schema, keyspace: &str) -> bool {
        is_local_system_keyspace(keyspace) || schema.keyspace(keyspace).is_none_or(|keyspace| keyspace.durable_writes)
    }
}

/// The tables that `new` has, and `old` has not or has otherwise.
fn changed_tables<'n>(old: &Schema, new: &'n Schema) -> impl Iterator<Item = &'n Arc<Table>> {
    let tables = new.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| old.table_by_id(table.id) != Some(*table))
}
