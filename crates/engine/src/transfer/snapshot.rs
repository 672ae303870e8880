//! Snapshots: hard links to a table's SSTables in a directory of their own.

use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Duration;

use model::Table;

use super::Transfers;
use crate::error::EngineError;
use crate::files::{snapshot_directory, unfinished_snapshot_directory};
use crate::lock::lock;
use crate::table::TableStore;

impl Transfers {
    /// See [`crate::Engine::snapshot`].
    pub fn snapshot(&self, table: &Table, name: &str, schema_cql: &str) -> Result<PathBuf, EngineError> {
        self.snapshot_as_first_of(table, [name.to_owned()], schema_cql, None)
    }

    /// See [`crate::Engine::snapshot_as_first_of`].
    pub fn snapshot_as_first_of(
        &self,
        table: &Table,
        names: impl IntoIterator<Item = String>,
        schema_cql: &str,
        lifetime: Option<Duration>,
    ) -> Result<PathBuf, EngineError> {
        self.shared.check_writable()?;
        let store = self.shared.store(table)?;
        self.flush.flush_and_compact(&store)?;
        let now = self.shared.now_millis();
        let expires =
            lifetime.map(|lifetime| now.saturating_add_unsigned(lifetime.as_millis().min(LIFETIME_MAX_MILLIS) as u64));
        let times = [Some(now), expires].map(|millis| millis.map(timestamp_text));
        let _no_deletion = keep_files(&store)?;
        let mut taken = String::new();
        for name in names {
            let directory = snapshot_directory(&store, &name);
            if !self.shared.options().disk.exists(&directory)? {
                let unfinished = unfinished_snapshot_directory(&store, &name);
                let sstables = &store.view().sstables;
                self.shared.files().snapshot(sstables, [&unfinished, &directory], schema_cql, times)?;
                return Ok(directory);
            }
            taken = name;
        }
        Err(EngineError::Unsupported(format!("Snapshot {taken} already exists.")))
    }

    /// Flushes the memtables and links the table's SSTables into a new directory, which the next start removes if the
    /// caller does not.
    pub(super) fn link_for_export(&self, table: &Table) -> Result<PathBuf, EngineError> {
        let store = self.shared.store(table)?;
        self.flush.flush_store(&store)?;
        let directory =
            unfinished_snapshot_directory(&store, &format!("export-{}", self.shared.files().new_timeuuid()));
        let _no_deletion = keep_files(&store)?;
        self.shared.files().link(&store.view().sstables, &directory)?;
        Ok(directory)
    }
}

/// Keeps the files of the view from being deleted during the lifetime of the returned guard.
fn keep_files(store: &TableStore) -> Result<MutexGuard<'_, ()>, EngineError> {
    let no_deletion = lock(&store.files);
    store.check_files()?;
    Ok(no_deletion)
}

/// A hundred years. A snapshot with a longer lifetime expires then, because the year has four digits.
const LIFETIME_MAX_MILLIS: u128 = 100 * 366 * 24 * 3600 * 1000;

/// ISO 8601 in UTC with milliseconds, as Cassandra's manifests have it.
pub(super) fn timestamp_text(millis: i64) -> String {
    types::CqlType::Timestamp.to_json(&millis.to_be_bytes()).trim_matches('"').replacen(' ', "T", 1)
}
