//! Changing the schema: durable before it is answered, visible after it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Keyspace, Mutation, PartitionUpdate, Schema, Table};
use uuid::Uuid;

use super::{Tables, check};
use crate::error::EngineError;
use crate::read;
use crate::schema_rows;
use crate::shared::Stores;
use crate::system::SystemWrite;

/// The keyspaces of a schema under change.
pub type Keyspaces = BTreeMap<Arc<str>, Arc<Keyspace>>;

impl Tables {
    /// See [`crate::Engine::change_schema`].
    pub fn change<T, E: From<EngineError>>(
        &self,
        change: impl FnOnce(&Schema, &mut Keyspaces) -> Result<T, E>,
    ) -> Result<(T, Arc<Schema>), E> {
        self.shared.check_writable()?;
        let _one_at_a_time = self.lock_schema();
        let finished = self.finish_drops();
        let old = self.shared.schema();
        let mut keyspaces = old.keyspaces.clone();
        let result = change(&old, &mut keyspaces)?;
        if keyspaces == old.keyspaces {
            return Ok((result, old));
        }
        self.set_incarnations(&old, &mut keyspaces);
        let new = Arc::new(Schema::new(Uuid::new_v4(), keyspaces));
        changed_tables(&old, &new).try_for_each(|table| check::check_options(table))?;
        self.residents.check_space(&old, &new)?;
        if finished.is_err() && self.takes_dropped_id(&new)? {
            finished?;
        }
        let updates = schema_rows::changes(&old, &new, self.shared.next_timestamp_micros());
        check::check(&old, &new, &updates)?;
        // Everything that can fail comes first: clients see the stored schema, so it must equal the schema.
        let stores = self.stores_for(&new)?;
        self.store_schema(updates, &new)?;
        let drops_unreadable = self.note_dropped_unreadable(&old, &new);
        self.publish_schema(&new, stores, drops_unreadable)?;
        Ok((result, new))
    }

    /// A table keeps the incarnation of its id. A new table gets an incarnation that no dropped table had, so that an
    /// earlier resolved statement does not reach the data of a table with the same id.
    fn set_incarnations(&self, old: &Schema, keyspaces: &mut Keyspaces) {
        let next = self.tables_dropped.load(Ordering::Relaxed);
        let wanted = |table: &Table| old.table_by_id(table.id).map_or(next, |known| known.incarnation());
        let is_wrong = |table: &Arc<Table>| table.incarnation() != wanted(table);
        for keyspace in keyspaces.values_mut().filter(|keyspace| keyspace.tables.values().any(is_wrong)) {
            for table in Arc::make_mut(keyspace).tables.values_mut().filter(|table| is_wrong(table)) {
                let incarnation = wanted(table);
                Arc::make_mut(table).set_incarnation(incarnation);
            }
        }
    }

    /// Whether a table has the id, and so the directory, of a dropped table whose files still exist.
    fn takes_dropped_id(&self, schema: &Schema) -> Result<bool, EngineError> {
        let layouts = read::system_rows(&self.shared, "system", schema_rows::LAYOUTS)?;
        let mut dropped = schema_rows::dropped_tables(&layouts).into_iter();
        Ok(dropped.any(|(id, ..)| schema.table_by_id(id).is_some()))
    }

    fn store_schema(&self, mut updates: Vec<PartitionUpdate>, new: &Schema) -> Result<(), EngineError> {
        let timestamp = self.shared.next_timestamp_micros();
        let local = new.table("system", "local").expect("system tables are part of every schema");
        let mut version = SystemWrite::new(local, b"local", timestamp);
        version.row(&[], &[("schema_version", Some(new.version.as_bytes().to_vec()))]);
        updates.push(version.build());
        self.writes.durably(Mutation::new(updates))
    }

    fn publish_schema(&self, new: &Arc<Schema>, stores: Stores, drops_unreadable: bool) -> Result<(), EngineError> {
        let removed = self.publish(new, stores);
        self.tables_dropped.fetch_add(removed.len() as u64, Ordering::Relaxed);
        self.residents.settle_all();
        // If the data of one table cannot be deleted, that of the others still is.
        let results: Vec<_> = removed.iter().map(|store| self.drop_store(store)).collect();
        results.into_iter().collect::<Result<(), _>>()?;
        if removed.is_empty() && !drops_unreadable { Ok(()) } else { self.finish_drops() }
    }
}

/// The tables that are new or different in `new`.
fn changed_tables<'n>(old: &Schema, new: &'n Schema) -> impl Iterator<Item = &'n Arc<Table>> {
    let tables = new.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| old.table_by_id(table.id) != Some(*table))
}
