//! The memtable of a table of Cassandra, with the versions of that table. Its rows are in our trie, or in a table of
//! the engine.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};
use memtable::{AddressSpace, Memtable, MemtableFull, PutCounts, TrieMemtable, TrieOptions};
use model::{BoxCursor, KeyRange, Mutation, ReadRange, RowObserver, Slices, Table, TableId, UnfilteredCursor};
use sstable::{MessageEncoder, UpdateReader};
use types::Token;

use crate::changes::Changes;
use crate::pages::Pages;
use crate::request::Request;
use crate::store::{Choice, Store};
use crate::table::{id_and_name, table_of};

/// The error for a discarded memtable.
const DISCARDED: &str = "the memtable was discarded";

/// The most shards: each costs memory and is visited by range reads.
const SHARDS_MAX: usize = 1024;

/// The addresses of the process, which all its memtables share.
static ADDRESS_SPACE: LazyLock<Arc<AddressSpace>> = LazyLock::new(Arc::default);

/// A memtable of the plugin. Any number of threads may use it, also while it is discarded.
pub struct PluginMemtable {
    content: Content,
    /// The versions of the table, oldest first. Java knows them by their indexes.
    tables: ArcSwap<Vec<Arc<Version>>>,
    altering: Mutex<()>,
}

/// A version of the table, and what is made once for it.
struct Version {
    table: Arc<Table>,
    updates: UpdateReader,
    /// Each read clones it.
    encoder: MessageEncoder,
}

impl Version {
    /// `id` is Cassandra's.
    fn new(table: Arc<Table>, id: TableId) -> Version {
        Version { updates: UpdateReader::new(&table, id), encoder: MessageEncoder::new(&table), table }
    }
}

/// The storage of the rows.
enum Content {
    /// In memory; `None` once the memtable was discarded. Reads that are still running keep their own reference.
    Trie(ArcSwapOption<TrieMemtable>),
    /// In the engine.
    Stored(Stored),
}

/// A table of the engine.
struct Stored {
    store: Arc<Store>,
    /// The name of the keyspace in which the engine keeps it.
    name: String,
    is_discarded: AtomicBool,
}

/// What a memtable holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// The number of partitions; for a table of the engine an upper bound of it, 0 only if there is none, and
    /// `u64::MAX` if its rows cannot be read.
    pub partition_count: u64,
    /// Bytes in use, on disk too.
    pub used_bytes: u64,
    /// Bytes that can be used again.
    pub reusable_bytes: u64,
    /// Bytes taken from the system.
    pub committed_bytes: u64,
    /// The updates by whether they found another writer; none for a table of the engine.
    pub puts: PutCounts,
    /// Bytes in use of each shard; none for a table of the engine.
    pub shard_bytes: Vec<u64>,
}

/// How an update changed the memory of a memtable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// By how many bytes the memory in use grew.
    pub bytes: i64,
    /// Whether the partition's shard is more than half full, so that the memtable should be flushed: the other half is
    /// for the writes that belong to it until another one takes writes.
    pub is_half_full: bool,
}

/// Why an update was not applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The partition's shard has no room, or the system has no memory for it.
    Full,
    /// The text of an error.
    Failed(String),
}

impl From<String> for Refusal {
    fn from(error: String) -> Refusal {
        Refusal::Failed(error)
    }
}

impl From<&str> for Refusal {
    fn from(error: &str) -> Refusal {
        Refusal::Failed(error.to_owned())
    }
}

impl From<MemtableFull> for Refusal {
    fn from(MemtableFull: MemtableFull) -> Refusal {
        Refusal::Full
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Full => MemtableFull.fmt(f),
            Refusal::Failed(error) => f.write_str(error),
        }
    }
}

/// The limits of a shard with `bytes_max` bytes for its structure and as many for its contents; 0: the largest.
fn options(bytes_max: u64) -> TrieOptions {
    let largest = TrieOptions::default();
    let limit = usize::try_from(bytes_max).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX);
    TrieOptions {
        blocks_bytes_max: limit.min(largest.blocks_bytes_max),
        blobs_bytes_max: limit.min(largest.blobs_bytes_max),
        ..largest
    }
}

impl PluginMemtable {
    /// An empty memtable for the table of a description. Its shards divide the tokens at `firsts`: 8 bytes, big-endian,
    /// for the first token of each shard but the first one. It has one shard if the process has many already.
    /// A shard has `shard_bytes_max` bytes for its structure and as many for its contents. 0 means 2 and 16 GiB, or
    /// less if the process has many shards.
    ///
    /// Fails if the description is damaged or has a type that CQL does not have, or if the tokens do not rise or are
    /// more than there can be shards.
    pub fn open(description: &[u8], firsts: &[u8], shard_bytes_max: u64) -> Result<PluginMemtable, String> {
        let table = table_of(description, None).map_err(|error| error.to_string())?;
        let (firsts, rest) = firsts.as_chunks::<8>();
        let firsts: Box<[Token]> = firsts.iter().map(|first| Token(i64::from_be_bytes(*first))).collect();
        if !rest.is_empty() || firsts.len() >= SHARDS_MAX || !firsts.is_sorted_by(|one, next| one < next) {
            return Err(format!("invalid division of the tokens among {} shards", firsts.len() + 1));
        }
        let id = table.id;
        let memtable = TrieMemtable::divided(&table, firsts, options(shard_bytes_max), &ADDRESS_SPACE);
        Ok(PluginMemtable::of(Content::Trie(ArcSwapOption::from_pointee(memtable)), table, id))
    }

    /// The table of a description in the engine; `None` if the choice is one that may find none.
    ///
    /// Fails if the description is damaged, has a type that CQL does not have, or the table cannot be stored.
    pub fn open_stored(
        store: &Arc<Store>,
        description: &[u8],
        choice: Choice,
    ) -> Result<Option<PluginMemtable>, String> {
        let (id, ..) = id_and_name(description).map_err(|error| error.to_string())?;
        let Some((name, table)) = store.table(description, choice)? else { return Ok(None) };
        let stored = Stored { store: store.clone(), name, is_discarded: AtomicBool::new(false) };
        Ok(Some(PluginMemtable::of(Content::Stored(stored), table, id)))
    }

    fn of(content: Content, table: Arc<Table>, id: TableId) -> PluginMemtable {
        let version = Version::new(table, id);
        PluginMemtable { content, tables: ArcSwap::from_pointee(vec![Arc::new(version)]), altering: Mutex::new(()) }
    }

    fn version(&self, version: usize) -> Result<Arc<Version>, String> {
        self.tables.load().get(version).cloned().ok_or_else(|| format!("there is no version {version} of the table"))
    }

    /// The newest version of the table.
    fn newest(&self) -> Result<Arc<Table>, String> {
        self.tables
            .load()
            .last()
            .map(|version| version.table.clone())
            .ok_or_else(|| "a memtable has a table".to_owned())
    }

    /// Notes that the table was altered. Returns the index of its new version.
    ///
    /// Fails if the description is damaged or has a type that CQL does not have.
    pub fn alter(&self, description: &[u8]) -> Result<usize, String> {
        let _one_at_a_time = self.altering.lock().map_err(|_| "an alteration failed".to_owned())?;
        let mut tables = self.tables.load().as_ref().clone();
        let newest = tables.last().ok_or("a memtable has a table")?;
        let table = match &self.content {
            Content::Stored(stored) => stored.usable()?.alter(&stored.name, description)?,
            Content::Trie(trie) => {
                let table = table_of(description, Some(&newest.table)).map_err(|error| error.to_string())?;
                if let Some(memtable) = trie.load_full() {
                    memtable.table_altered(&table);
                }
                table
            }
        };
        tables.push(Arc::new(Version::new(table, newest.updates.id())));
        let version = tables.len() - 1;
        self.tables.store(Arc::new(tables));
        Ok(version)
    }

    /// Applies an update in messaging form. Returns how the memory grew; not at all for a table of the engine, where
    /// the update is as durable as the engine's log makes it when this returns.
    ///
    /// Fails without any effect if the update cannot be read or the memtable is full or was discarded. If the engine's
    /// log fails, the update may have been written.
    pub fn put(&self, update: &[u8]) -> Result<Growth, Refusal> {
        self.apply(update, None)
    }

    /// Like `put`, and returns the rows that changed, in the form of `changes.rs` and under a version of the table.
    ///
    /// Fails as `put` does, or if a changed row cannot be written in that form; the update was applied then.
    pub fn put_observed(&self, version: usize, update: &[u8]) -> Result<(Growth, Vec<u8>), Refusal> {
        let mut changes = Changes::new(self.version(version)?.encoder.clone());
        let grown = self.apply(update, Some(&mut changes))?;
        Ok((grown, changes.into_bytes()?))
    }

    fn apply(&self, update: &[u8], observer: Option<&mut dyn RowObserver>) -> Result<Growth, Refusal> {
        let tables = self.tables.load();
        let version = tables.last().ok_or("a memtable has a table")?;
        match &self.content {
            Content::Trie(trie) => {
                let update = version.updates.read(update).map_err(|error| error.to_string())?;
                let memtable = trie.load();
                let memtable = memtable.as_ref().ok_or(DISCARDED)?;
                let bytes = memtable.apply(&update, observer)?;
                Ok(Growth { bytes, is_half_full: memtable.is_half_full(update.key().token()) })
            }
            Content::Stored(_) if observer.is_some() => Err("mode 'storage' has no secondary indexes".into()),
            Content::Stored(stored) => Ok(stored.write(&version.updates, update).map(|()| Growth::default())?),
        }
    }

    /// Starts to read what a request selects, under a version of the table. `None` if the request is for one partition
    /// that the memtable lacks. A range of a table of the engine may lack partitions that have nothing in the slices.
    ///
    /// Fails if the request is damaged or the memtable was discarded.
    pub fn read(&self, version: usize, request: &[u8]) -> Result<Option<Pages>, String> {
        let version = self.version(version)?;
        let range = Request::new(request).read_range(&version.table).map_err(|error| error.to_string())?;
        let cursor = self.cursor(&version.table, &range)?;
        let encoder = version.encoder.clone();
        match range.keys {
            KeyRange::Single(_) => Pages::of_partition(cursor, encoder),
            KeyRange::Range { .. } => Ok(Some(Pages::of_range(cursor, encoder))),
        }
    }

    fn cursor(&self, table: &Arc<Table>, range: &ReadRange) -> Result<BoxCursor<'static>, String> {
        match &self.content {
            Content::Trie(trie) => {
                let memtable = trie.load_full().ok_or_else(|| DISCARDED.to_owned())?;
                Ok(memtable.cursor(table, range))
            }
            Content::Stored(stored) => stored.usable()?.engine().read(table, range).map_err(|error| error.to_string()),
        }
    }

    /// The number of partitions that a request selects, and the bytes of their keys. Of a range, partitions without
    /// anything in the slices count too.
    ///
    /// Fails if the request is damaged or the memtable was discarded.
    pub fn count_keys(&self, version: usize, request: &[u8]) -> Result<(u64, u64), String> {
        let table = &self.version(version)?.table;
        let mut range = Request::new(request).read_range(table).map_err(|error| error.to_string())?;
        if let (Content::Stored(_), KeyRange::Range { .. }) = (&self.content, &range.keys) {
            // A read passes over SSTables that have nothing in the slices.
            range.slices = Slices::all();
        }
        let mut cursor = self.cursor(table, &range)?;
        let (mut count, mut bytes) = (0, 0);
        while cursor.advance_partition().map_err(|error| error.to_string())? {
            count += 1;
            bytes += cursor.partition().key.bytes().len() as u64;
        }
        Ok((count, bytes))
    }

    /// What the memtable holds; `None` once it was discarded.
    pub fn usage(&self) -> Option<Usage> {
        match &self.content {
            Content::Trie(trie) => {
                let memtable = trie.load_full()?;
                let memory = memtable.memory();
                Some(Usage {
                    partition_count: memtable.statistics().partition_count,
                    used_bytes: memory.used_bytes,
                    reusable_bytes: memory.reusable_bytes,
                    committed_bytes: memory.committed_bytes,
                    puts: memtable.puts().into_iter().fold(PutCounts::default(), PutCounts::and),
                    shard_bytes: memtable.used_bytes_of_shards(),
                })
            }
            Content::Stored(stored) => {
                let table = self.newest().ok()?;
                let Ok(stats) = stored.usable().ok()?.engine().table_stats(&table) else {
                    return Some(Usage { partition_count: u64::MAX, ..Usage::default() });
                };
                Some(Usage {
                    partition_count: stats.sstable_partition_count + stats.memtable_partition_count,
                    used_bytes: stats.disk_bytes + stats.memtable_bytes,
                    reusable_bytes: 0,
                    committed_bytes: stats.memtable_committed_bytes,
                    puts: PutCounts::default(),
                    shard_bytes: Vec::new(),
                })
            }
        }
    }

    /// Links the files of a table of the engine, memtables flushed first, into a snapshot of that name.
    pub fn snapshot(&self, name: &str, schema_cql: &str) -> Result<std::path::PathBuf, String> {
        let Content::Stored(stored) = &self.content else { return Err("only mode 'storage' has snapshots".into()) };
        let table = self.newest()?;
        stored.usable()?.engine().snapshot(&table, name, schema_cql).map_err(|error| error.to_string())
    }

    /// Removes the partitions outside of the ranges of a request (`request.rs`) from a table of the engine. Returns
    /// whether all of them are gone; if not, a later call may remove the rest. Blocks until it is done.
    ///
    /// Fails if the request is damaged, the memtable was discarded, or SSTables cannot be read or written; no partition
    /// within the ranges is lost then.
    pub fn clean_up(&self, request: &[u8]) -> Result<bool, String> {
        let kept = Request::new(request).token_ranges().map_err(|error| error.to_string())?;
        let Content::Stored(stored) = &self.content else { return Err("only mode 'storage' cleans up".into()) };
        let table = self.newest()?;
        stored.usable()?.engine().clean_up(&table, &kept).map_err(|error| error.to_string())
    }

    /// Notes the least timestamp of the rows that Cassandra has of a table of the engine itself, microseconds;
    /// `i64::MAX` if it has none. Until the first call, no tombstone of the table is purged.
    pub fn set_oldest_of_cassandra(&self, timestamp_micros: i64) -> Result<(), String> {
        let Content::Stored(stored) = &self.content else { return Err("only mode 'storage' purges tombstones".into()) };
        let table = self.newest()?;
        stored.usable()?.set_oldest_of_cassandra(table.id, timestamp_micros);
        Ok(())
    }

    /// Frees the content, as soon as the reads that have begun end. A table of the engine is removed with its files.
    pub fn discard(&self) -> Result<(), String> {
        match &self.content {
            Content::Trie(trie) => {
                trie.store(None);
                Ok(())
            }
            Content::Stored(stored) => {
                stored.is_discarded.store(true, Ordering::Release);
                stored.store.remove(&stored.name)
            }
        }
    }
}

impl Stored {
    fn usable(&self) -> Result<&Store, String> {
        match self.is_discarded.load(Ordering::Acquire) {
            true => Err(DISCARDED.into()),
            false => Ok(&self.store),
        }
    }

    fn write(&self, updates: &UpdateReader, update: &[u8]) -> Result<(), String> {
        let update = updates.read(update).map_err(|error| error.to_string())?;
        let mutation = Mutation::from(update);
        engine::block_on(self.usable()?.engine().write(&mutation)).map_err(|error| error.to_string())
    }
}
