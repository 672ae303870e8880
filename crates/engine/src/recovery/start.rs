//! The order of a start; see the parent module.

use std::sync::Arc;
use std::time::{Duration, Instant};

use commitlog::{LogError, Replay, ReplayReport};
use model::{Keyspace, Mutation, Schema};
use uuid::Uuid;

use super::covered::Covered;
use super::record_batch::RecordBatch;
use super::{Recovery, ReplaySummary};
use crate::error::EngineError;
use crate::read;
use crate::schema::StoredSchema;
use crate::schema::change::Keyspaces;
use crate::schema_rows::{self, SchemaDamage};
use crate::system::{is_local_system_keyspace, is_system_keyspace, newest_timestamp, system_keyspaces};

/// The result of a start.
pub(crate) struct Start {
    pub replayed: ReplaySummary,
    pub log_report: ReplayReport,
    pub schema_damage: Vec<SchemaDamage>,
    pub recovery_time: Duration,
}

impl Recovery {
    /// Opens the existing tables, and replays the log. Called once, before anything else runs.
    pub fn run(&self, mut replay: Replay) -> Result<Start, EngineError> {
        let started = Instant::now();
        let startup = |error: LogError| EngineError::Startup(error.to_string());
        let mut covered = Covered::default();
        self.quarantine.side_files().remove_unfinished()?;
        self.tables.open_stores(&self.shared.schema())?;
        self.cover(&mut covered)?;
        replay.note_durable(covered.durable());
        let mut preview = replay.preview();
        let mut batch = RecordBatch::default();
        while let Some(record) = preview.next_record().map_err(startup)? {
            self.replayer.apply_records([(record.data, record.position)].into_iter(), &covered, &mut batch)?;
        }
        let loaded = StoredSchema::load(&self.shared, &self.quarantine);
        if !loaded.as_ref().is_ok_and(|stored| stored.damage.is_empty()) {
            // The log may have the missing rows, although its bookkeeping says that it has no records of the schema.
            replay.check_promises().map_err(startup)?;
        }
        let stored = loaded?;
        self.open_schema(&stored.keyspaces)?;
        let is_salvage = self.shared.options().commitlog.salvage;
        if is_salvage && !stored.damage.is_empty() {
            // Records of objects that are left out are skipped.
            replay.keep_copies();
        }
        self.tables.truncations().remove_truncated()?;
        self.cover(&mut covered)?;
        replay.note_durable(covered.durable());
        // This comes before anything is appended.
        self.shared.log().raise_segment_ids(covered.last_segment()).map_err(startup)?;
        self.residents.settle_all();
        let second_reading = replay.again();
        let replayed = self.replayer.replay_all(&mut replay, &covered)?;
        self.shared.end_replay();
        self.quarantine.forget_unreadable();
        let unknown = covered.unknown();
        let is_covered = |id, position| covered.contains(id, position);
        self.quarantine.set_replayed_aside(second_reading, unknown, is_covered)?;
        let (log_report, recovery_time) = (replay.report().clone(), started.elapsed());
        self.replayer.flush_replayed()?;
        self.note_stored_timestamps()?;
        self.store_system_schema(&stored.keyspaces)?;
        if is_salvage && !(log_report.gaps.is_empty() && stored.damage.is_empty()) {
            self.store_salvaged_schema(&stored)?;
        }
        // Failed deletions of dropped tables are retried at the next change of the schema, or start.
        self.tables.finish_drops().unwrap_or_else(|error| self.shared.report_failure(&error));
        let schema_damage = match is_salvage {
            true => stored.damage,
            false => {
                self.quarantine.report_damage(&stored.damage);
                Vec::new()
            }
        };
        self.tables.truncations().finish_all()?;
        // While the log holds records from before this start, starts need their truncations.
        if self.shared.log().replayed_tables().is_empty() {
            self.tables.truncations().forget_gone()?;
        }
        Ok(Start { replayed, log_report, schema_damage, recovery_time })
    }

    /// Writes the system keyspaces into `system_schema`, where drivers expect them, unless they are there.
    fn store_system_schema(&self, stored: &[Keyspace]) -> Result<(), EngineError> {
        let missing = |keyspace: &&Arc<Keyspace>| {
            is_system_keyspace(&keyspace.name) && !stored.iter().any(|stored| *stored == ***keyspace)
        };
        let schema = self.shared.schema();
        let missing: Keyspaces = schema
            .keyspaces
            .values()
            .filter(missing)
            .map(|keyspace| (keyspace.name.clone(), keyspace.clone()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut updates = Vec::new();
        for keyspace in missing.values() {
            schema_rows::store_keyspace(&schema, keyspace, self.shared.next_timestamp_micros(), &mut updates);
        }
        self.writes.durably(Mutation::new(updates))
    }

    /// Opens the tables of the stored schema.
    fn open_schema(&self, stored: &[Keyspace]) -> Result<(), EngineError> {
        let mut keyspaces = system_keyspaces();
        for stored in stored {
            match keyspaces.get_mut(&stored.name).map(Arc::make_mut) {
                None => {
                    keyspaces.insert(stored.name.clone(), Arc::new(stored.clone()));
                }
                // The tables of system keyspaces are those of this version; their replication is set by the user.
                Some(defined) if !is_local_system_keyspace(&defined.name) => {
                    defined.replication = stored.replication.clone();
                    defined.durable_writes = stored.durable_writes;
                }
                Some(_) => {}
            }
        }
        let schema = Arc::new(Schema::new(self.stored_schema_version()?, keyspaces));
        self.tables.open_stores(&schema).map(|_| ())
    }

    /// Notes the parts of the log that SSTables cover, and the truncations.
    fn cover(&self, covered: &mut Covered) -> Result<(), EngineError> {
        for (id, store) in self.shared.catalog().stores() {
            for sstable in &store.view().sstables {
                covered.add(*id, &self.shared.files().intervals(sstable));
                self.tables.truncations().written_up_to(sstable).into_iter().for_each(|end| covered.note(end));
            }
        }
        for (id, position) in self.tables.truncations().positions()? {
            covered.add_truncation(id, position);
        }
        Ok(())
    }

    /// Makes later timestamps greater than all stored ones: even if the clock was set back, changes of the schema and
    /// truncations must be newer than the rows that they change.
    fn note_stored_timestamps(&self) -> Result<(), EngineError> {
        // Replayed rows may be in memory only. Each such change also writes the node's row.
        let newest = newest_timestamp(read::local_rows(&self.shared)?)?;
        self.shared.note_timestamp(newest);
        for store in self.shared.stores() {
            if is_local_system_keyspace(&store.table.load().keyspace) {
                let view = store.view();
                let newest = view.sstables.iter().map(|sstable| sstable.statistics().stats.max_timestamp);
                // An SSTable without timestamps has the greatest possible value here.
                let newest = newest.filter(|newest| *newest < i64::MAX).max().unwrap_or(0);
                self.shared.note_timestamp(newest);
            }
        }
        Ok(())
    }

    fn stored_schema_version(&self) -> Result<Uuid, EngineError> {
        Ok(read::local_row(&self.shared)?.and_then(|row| row.uuid("schema_version")).unwrap_or_else(Uuid::new_v4))
    }

    /// After a salvage: stores the schema as it was salvaged, so that the next start finds no more damage, and clients
    /// see the existing tables. The files of tables that were left out stay.
    fn store_salvaged_schema(&self, stored: &StoredSchema) -> Result<(), EngineError> {
        let schema = self.shared.schema();
        for keyspace in schema.keyspaces.values().filter(|keyspace| !is_system_keyspace(&keyspace.name)) {
            let mut updates = Vec::new();
            schema_rows::store_keyspace(&schema, keyspace, self.shared.next_timestamp_micros(), &mut updates);
            self.writes.durably(Mutation::new(updates))?;
        }
        for name in &stored.lost_keyspaces {
            let (lost, mut updates) = (Keyspace::new(name, Default::default(), true), Vec::new());
            schema_rows::drop_keyspace(&schema, &lost, self.shared.next_timestamp_micros(), &mut updates);
            self.writes.durably(Mutation::new(updates))?;
        }
        Ok(())
    }
}
