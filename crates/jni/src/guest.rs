//! A memtable of Cassandra's: our trie, with the versions of its table.

use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};
use memtable::{Memtable, MemtableStatistics, MemtableUse, TrieMemtable};
use model::{BoxCursor, ReadRange, RowObserver, Table, UnfilteredCursor};
use sstable::{MessageEncoder, read_update};

use crate::changes::Changes;
use crate::pages::Pages;
use crate::request::Request;
use crate::table::table_of;

/// What is said of a memtable that was discarded.
const DISCARDED: &str = "the memtable was discarded";

/// A memtable. Any number of threads may use it, also while it is discarded.
pub struct Guest {
    /// `None` once the memtable was discarded. Reads that are still running keep their own reference.
    memtable: ArcSwapOption<TrieMemtable>,
    /// The versions of the table, oldest first. Java knows them by their indexes.
    tables: ArcSwap<Vec<Arc<Table>>>,
    altering: Mutex<()>,
}

impl Guest {
    /// An empty memtable of `shards` shards for the table of a description.
    ///
    /// Fails if the description is damaged or has a type that CQL does not have.
    pub fn open(description: &[u8], shards: usize) -> Result<Guest, String> {
        let table = table_of(description, None).map_err(|error| error.to_string())?;
        let memtable = Arc::new(TrieMemtable::new(&table, shards.clamp(1, 1024)));
        Ok(Guest {
            memtable: ArcSwapOption::new(Some(memtable)),
            tables: ArcSwap::from_pointee(vec![table]),
            altering: Mutex::new(()),
        })
    }

    fn memtable(&self) -> Result<Arc<TrieMemtable>, String> {
        self.memtable.load_full().ok_or_else(|| DISCARDED.to_owned())
    }

    fn table(&self, version: usize) -> Result<Arc<Table>, String> {
        self.tables.load().get(version).cloned().ok_or_else(|| format!("there is no version {version} of the table"))
    }

    /// Notes that the table was altered. Returns the index of its new version.
    ///
    /// Fails if the description is damaged or has a type that CQL does not have.
    pub fn alter(&self, description: &[u8]) -> Result<usize, String> {
        let _one_at_a_time = self.altering.lock().map_err(|_| "an alteration failed".to_owned())?;
        let mut tables = self.tables.load().as_ref().clone();
        let table = table_of(description, tables.last().map(Arc::as_ref)).map_err(|error| error.to_string())?;
        if let Some(memtable) = self.memtable.load_full() {
            memtable.table_altered(&table);
        }
        tables.push(table);
        let version = tables.len() - 1;
        self.tables.store(Arc::new(tables));
        Ok(version)
    }

    /// Applies an update in messaging form. Returns by how many bytes the memory in use grew.
    ///
    /// Fails without any effect if the update cannot be read or the memtable is full or was discarded.
    pub fn put(&self, update: &[u8]) -> Result<i64, String> {
        self.apply(update, None)
    }

    /// Like `put`, and returns the rows that changed, in the form of `changes.rs` and under a version of the table.
    ///
    /// Fails as `put` does, or if a changed row cannot be written in that form; the update was applied then.
    pub fn put_observed(&self, version: usize, update: &[u8]) -> Result<(i64, Vec<u8>), String> {
        let mut changes = Changes::new(&self.table(version)?);
        let grown = self.apply(update, Some(&mut changes))?;
        Ok((grown, changes.into_bytes()?))
    }

    fn apply(&self, update: &[u8], observer: Option<&mut dyn RowObserver>) -> Result<i64, String> {
        let tables = self.tables.load();
        let table = tables.last().ok_or("a memtable has a table")?;
        let update = read_update(table, update).map_err(|error| error.to_string())?;
        let memtable = self.memtable.load();
        let memtable = memtable.as_ref().ok_or_else(|| DISCARDED.to_owned())?;
        memtable.apply(&update, observer).map_err(|error| error.to_string())
    }

    /// Starts to read what a request selects, under a version of the table. `None` if the request is for one partition
    /// that the memtable lacks.
    ///
    /// Fails if the request is damaged or the memtable was discarded.
    pub fn read(&self, version: usize, request: &[u8]) -> Result<Option<Pages>, String> {
        let table = self.table(version)?;
        let range = Request::new(request).read_range(&table).map_err(|error| error.to_string())?;
        let is_single = matches!(range.keys, model::KeyRange::Single(_));
        let mut cursor = self.cursor(&table, &range)?;
        if !is_single {
            return Ok(Some(Pages::of_keys(cursor)));
        }
        if !cursor.advance_partition().map_err(|error| error.to_string())? {
            return Ok(None);
        }
        Pages::of_partition(cursor, MessageEncoder::new(&table)).map(Some)
    }

    fn cursor(&self, table: &Arc<Table>, range: &ReadRange) -> Result<BoxCursor<'static>, String> {
        Ok(self.memtable()?.cursor(table, range))
    }

    /// The number of partitions that a request selects, and the bytes of their keys.
    ///
    /// Fails if the request is damaged or the memtable was discarded.
    pub fn count_keys(&self, version: usize, request: &[u8]) -> Result<(u64, u64), String> {
        let table = self.table(version)?;
        let range = Request::new(request).read_range(&table).map_err(|error| error.to_string())?;
        let mut cursor = self.cursor(&table, &range)?;
        let (mut count, mut bytes) = (0, 0);
        while cursor.advance_partition().map_err(|error| error.to_string())? {
            count += 1;
            bytes += cursor.partition().key.bytes().len() as u64;
        }
        Ok((count, bytes))
    }

    /// What the memtable holds; `None` once it was discarded.
    pub fn usage(&self) -> Option<(MemtableStatistics, MemtableUse)> {
        let memtable = self.memtable.load_full()?;
        Some((memtable.statistics(), memtable.memory()))
    }

    /// Frees the content, as soon as the reads that have begun end.
    pub fn discard(&self) {
        self.memtable.store(None);
    }
}
