//! The order of a start; see the parent module.

use std::sync::Arc;
use std::time::{Duration, Instant};

use commitlog::{LogError, Replay, ReplayReport};
use model::{BoxCursor, KeyRange, Keyspace, Mutation, PartitionKey, ReadRange, Schema};
use uuid::Uuid;

use super::{Bunch, Covered, Recovery, ReplaySummary};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::read;
use crate::schema::change::Keyspaces;
use crate::schema_rows::{self, SchemaDamage};
use crate::system::{
    SystemRow, is_local_system_keyspace, is_system_keyspace, newest_timestamp, read_rows, system_keyspaces,
};

/// What a start came to.
#[derive(Default)]
pub(crate) struct Start {
    pub replayed: ReplaySummary,
    pub log_report: ReplayReport,
    pub schema_damage: Vec<SchemaDamage>,
    pub recovery_time: Duration,
}

impl Engine {
    pub(crate) fn recover(&mut self, mut replay: Replay) -> Result<(), EngineError> {
        let started = Instant::now();
        let startup = |error: LogError| EngineError::Startup(error.to_string());
        let mut recovery = Recovery::default();
        self.quarantine.side_files().remove_unfinished()?;
        self.open_stores(&self.shared.schema())?;
        self.cover(&mut recovery.covered)?;
        let mut preview = replay.preview();
        let mut bunch = Bunch::default();
        while let Some(record) = preview.next_record().map_err(startup)? {
            self.replay_records([(record.data, record.position)].into_iter(), &recovery.covered, &mut bunch)?;
        }
        let loaded = self.load_keyspaces();
        if !loaded.as_ref().is_ok_and(|stored| stored.damage.is_empty()) {
            // Perhaps the log has what is missing, and the preview was told that it has not.
            replay.check_promises().map_err(startup)?;
        }
        let stored = loaded?;
        self.open_schema(&stored.keyspaces)?;
        let is_salvage = self.shared.options().commitlog.salvage;
        if is_salvage && !stored.damage.is_empty() {
            // Records of what is left out are passed over.
            replay.keep_copies();
        }
        self.remove_truncated()?;
        self.cover(&mut recovery.covered)?;
        // Before anything is appended.
        self.shared.log().raise_segment_ids(recovery.covered.last_segment()).map_err(startup)?;
        self.residents.settle_all();
        let second_reading = replay.again();
        self.replay_all(&mut replay, &mut recovery)?;
        self.shared.end_replay();
        self.quarantine.forget_unreadable();
        let unknown = recovery.covered.unknown();
        let is_covered = |id, position| recovery.covered.contains(id, position);
        self.quarantine.set_replayed_aside(second_reading, unknown, is_covered)?;
        self.start.replayed = recovery.summary;
        self.start.log_report = replay.report().clone();
        self.start.recovery_time = started.elapsed();
        self.settle_replayed()?;
        self.go_on_from_stored_timestamps()?;
        self.store_system_schema(&stored.keyspaces)?;
        if is_salvage && !(self.start.log_report.gaps.is_empty() && stored.damage.is_empty()) {
            self.store_salvaged_schema(&stored)?;
        }
        // What cannot be deleted of dropped tables is tried again at the next change of the schema, or start.
        self.finish_drops().unwrap_or_else(|error| self.shared.tell_failure(&error));
        match is_salvage {
            true => self.start.schema_damage = stored.damage,
            false => self.quarantine.tell_damage(&stored.damage),
        }
        self.finish_truncations()?;
        // While the log holds records from before, a start has to know what of them was truncated.
        if self.shared.log().replayed_tables().is_empty() { self.forget_truncations() } else { Ok(()) }
    }

    /// Writes the system keyspaces into `system_schema`, where drivers look for them, unless they are there.
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
                // The tables of system keyspaces are those of this version; how they are replicated is the user's.
                Some(defined) if !is_local_system_keyspace(&defined.name) => {
                    defined.replication = stored.replication.clone();
                    defined.durable_writes = stored.durable_writes;
                }
                Some(_) => {}
            }
        }
        let schema = Arc::new(Schema::new(self.stored_schema_version()?, keyspaces));
        self.open_stores(&schema).map(|_| ())
    }

    /// Notes what of the log the SSTables have, and the truncations.
    fn cover(&self, covered: &mut Covered) -> Result<(), EngineError> {
        for (id, store) in self.shared.catalog().stores() {
            for sstable in &store.view().sstables {
                covered.add(*id, &self.shared.files().intervals(sstable));
                self.written_up_to(sstable).into_iter().for_each(|end| covered.note(end));
            }
        }
        for (id, position) in self.truncations()? {
            covered.add_truncation(id, position);
        }
        Ok(())
    }

    /// A clock that was set back must not make changes of the schema, or truncations, older than those they change.
    fn go_on_from_stored_timestamps(&self) -> Result<(), EngineError> {
        // What was replayed may be in memory only. Each of them writes the node's row as well.
        let newest = newest_timestamp(self.read_local()?)?;
        self.shared.note_timestamp(newest);
        for store in self.shared.stores() {
            if is_local_system_keyspace(&store.table.load().keyspace) {
                let view = store.view();
                let newest = view.sstables.iter().map(|sstable| sstable.statistics().stats.max_timestamp);
                // An SSTable that has no timestamps at all says the greatest there is.
                let newest = newest.filter(|newest| *newest < i64::MAX).max().unwrap_or(0);
                self.shared.note_timestamp(newest);
            }
        }
        Ok(())
    }

    fn read_local(&self) -> Result<BoxCursor<'static>, EngineError> {
        let key = KeyRange::Single(PartitionKey::new(b"local"));
        read::read(&self.shared, &self.shared.find_table("system", "local"), &ReadRange::all_rows(key))
    }

    fn stored_schema_version(&self) -> Result<Uuid, EngineError> {
        Ok(self.local_row()?.and_then(|row| row.uuid("schema_version")).unwrap_or_else(Uuid::new_v4))
    }

    /// The node's row of `system.local`.
    pub(crate) fn local_row(&self) -> Result<Option<SystemRow>, EngineError> {
        let rows = read_rows(self.read_local()?, self.shared.now_seconds())?;
        Ok(rows.into_iter().next())
    }
}
