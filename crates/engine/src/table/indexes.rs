//! The secondary indexes of one table's data: those of memtables in memory, those of SSTables in files.
//!
//! A new SSTable has no index files yet. Until they are built, the indexes of its sources stand in for them: those of
//! the flushed memtable, or of the merged SSTables. These have an entry for each of its rows. They may have more, which
//! costs time but gives no wrong rows.

mod parts;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};
use index::Indexer;
use model::{Index, IndexKey, PartitionUpdate, Table};
use sstable::{SSTableId, SSTableReader};

pub(crate) use parts::{IndexSource, PartMemory, WatchedFile, is_unreadable};

use super::generation::Generation;
use crate::lock::lock;

/// Makes the entries of the table's indexes. Indexes with the same key share theirs.
pub(crate) fn indexers_of(table: &Table) -> Vec<Indexer> {
    let mut indexers: Vec<Indexer> = Vec::new();
    for indexer in table.indexes().iter().filter_map(|index| Indexer::of_index(table, index)) {
        if !indexers.iter().any(|other| other.key() == indexer.key()) {
            indexers.push(indexer);
        }
    }
    indexers
}

/// The indexers of a table, which are made once for its newest version. Thread-safe.
#[derive(Default)]
pub(crate) struct KnownIndexers(ArcSwapOption<IndexersOfVersion>);

struct IndexersOfVersion {
    table: Arc<Table>,
    /// In the order of the table's indexes.
    indexers: Vec<Option<Arc<Indexer>>>,
}

impl KnownIndexers {
    /// The indexer of one of the table's indexes; `None` if the table does not have its column.
    pub fn of(&self, table: &Arc<Table>, index: &Index) -> Option<Arc<Indexer>> {
        let place = table.indexes().iter().position(|own| own.name == index.name)?;
        debug_assert_eq!(table.indexes()[place], *index, "an index of this version of the table");
        let known = self.0.load();
        if let Some(known) = known.as_ref().filter(|known| Arc::ptr_eq(&known.table, table)) {
            return known.indexers[place].clone();
        }
        let indexers = table.indexes().iter().map(|index| Indexer::of_index(table, index).map(Arc::new)).collect();
        let made = Arc::new(IndexersOfVersion { table: table.clone(), indexers });
        let indexer = made.indexers[place].clone();
        self.0.store(Some(made));
        indexer
    }
}

/// The indexes of a memtable. Thread-safe.
pub(crate) struct MemtableIndexes {
    parts: Vec<MemtableIndex>,
}

struct MemtableIndex {
    key: IndexKey,
    /// Knows the types of the newest version of the table.
    indexer: ArcSwap<Indexer>,
    memory: PartMemory,
}

impl MemtableIndexes {
    /// Empty indexes for a memtable of the table; `None` if the table has no index.
    pub fn of(table: &Table, shards: usize) -> Option<Box<MemtableIndexes>> {
        if table.indexes().is_empty() {
            return None;
        }
        let part = |indexer: Indexer| MemtableIndex {
            key: indexer.key(),
            memory: PartMemory::new(indexer.key(), shards),
            indexer: ArcSwap::from_pointee(indexer),
        };
        Some(Box::new(MemtableIndexes { parts: indexers_of(table).into_iter().map(part).collect() }))
    }

    /// Adds the entries of an update, which must not be visible yet. Returns the growth of the indexes in bytes.
    #[cold]
    pub fn put(&self, update: &PartitionUpdate) -> i64 {
        let (mut entry, mut growth) = (Vec::new(), 0);
        let token = update.key().token();
        for MemtableIndex { indexer, memory, .. } in &self.parts {
            let mut put = |entry: &[u8], term_length: usize| growth += memory.put(token, entry, term_length);
            indexer.load().of_update(update, &mut entry, &mut put);
        }
        growth
    }

    /// Makes later entries use the types of a newer version of the table: a user type may have a new field.
    pub fn table_altered(&self, table: &Table) {
        let columns = table.columns_in_select_order();
        for part in &self.parts {
            if let Some(column) = columns.iter().find(|column| column.id == part.key.column) {
                let indexer = Indexer::with_analysis(table, column, part.key.part, part.key.analysis);
                part.indexer.store(Arc::new(indexer));
            }
        }
    }

    /// The index with this key, if the memtable has it.
    pub fn get(&self, key: IndexKey) -> Option<&PartMemory> {
        self.parts.iter().find(|part| part.key == key).map(|part| &part.memory)
    }

    fn keys(&self) -> impl Iterator<Item = IndexKey> {
        self.parts.iter().map(|part| part.key)
    }

    /// The bytes of the indexes.
    pub fn used_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.memory.used_bytes()).sum()
    }
}

/// One index of an SSTable.
#[derive(Clone)]
pub(crate) struct SSTableIndex {
    key: IndexKey,
    sources: Vec<IndexSource>,
    /// Whether the source is the file of the SSTable itself.
    is_own: bool,
}

impl SSTableIndex {
    /// The file of the SSTable itself.
    pub fn own(key: IndexKey, file: Arc<WatchedFile>) -> SSTableIndex {
        SSTableIndex { key, sources: vec![IndexSource::File(file)], is_own: true }
    }

    fn is_damaged(&self) -> bool {
        self.sources.iter().any(IndexSource::is_damaged)
    }
}

/// The indexes of an SSTable.
pub(crate) type SSTableIndexes = Vec<SSTableIndex>;

/// Whether no two of the indexes have the same key.
fn has_each_once(indexes: &[SSTableIndex]) -> bool {
    indexes.iter().enumerate().all(|(at, index)| indexes[..at].iter().all(|other| other.key != index.key))
}

/// The indexes of a table's SSTables. A reader takes the view first and then these.
#[derive(Default)]
pub(crate) struct StoreIndexes {
    by_sstable: ArcSwap<HashMap<SSTableId, Arc<SSTableIndexes>>>,
    /// The SSTables whose index files are being built.
    under_way: Mutex<HashSet<SSTableId>>,
}

/// The right to build the index files of an SSTable, which one thread has at a time.
pub(crate) struct BuildPermit<'s> {
    indexes: &'s StoreIndexes,
    sstable: SSTableId,
}

impl Drop for BuildPermit<'_> {
    fn drop(&mut self) {
        let was_under_way = lock(&self.indexes.under_way).remove(&self.sstable);
        debug_assert!(was_under_way, "one thread has the permit");
    }
}

impl StoreIndexes {
    /// The right to build the index files of an SSTable; `None` if another thread builds them now.
    pub fn permit_build(&self, sstable: &SSTableReader) -> Option<BuildPermit<'_>> {
        let sstable = sstable.descriptor().id.clone();
        lock(&self.under_way).insert(sstable.clone()).then(|| BuildPermit { indexes: self, sstable })
    }

    /// The sources of an SSTable's index; `None` if it has none that can be read.
    pub fn sources(&self, sstable: &SSTableReader, key: IndexKey) -> Option<Vec<IndexSource>> {
        let by_sstable = self.by_sstable.load();
        let index = by_sstable.get(&sstable.descriptor().id)?.iter().find(|index| index.key == key)?;
        (!index.is_damaged()).then(|| index.sources.clone())
    }

    /// Whether the SSTable has a sound file of its own for the index.
    pub fn has_own(&self, sstable: &SSTableReader, key: IndexKey) -> bool {
        self.own_file(sstable, key).is_some()
    }

    /// The SSTable's own file of the index, if it is sound.
    pub fn own_file(&self, sstable: &SSTableReader, key: IndexKey) -> Option<Arc<WatchedFile>> {
        let by_sstable = self.by_sstable.load();
        let index = by_sstable.get(&sstable.descriptor().id)?.iter().find(|index| index.key == key)?;
        match index.sources.as_slice() {
            [IndexSource::File(file)] if index.is_own && !index.is_damaged() => Some(file.clone()),
            _ => None,
        }
    }

    /// The stand-ins for the indexes of SSTables that were made from these SSTables and this generation.
    pub fn stand_ins(&self, inputs: &[Arc<SSTableReader>], flushed: Option<&Generation>) -> SSTableIndexes {
        let memory = flushed.and_then(|flushed| flushed.indexes.as_deref());
        if flushed.is_some() && memory.is_none() {
            return SSTableIndexes::new();
        }
        let by_sstable = self.by_sstable.load();
        let first = inputs.first().and_then(|input| by_sstable.get(&input.descriptor().id));
        let keys: Vec<IndexKey> = match memory {
            Some(memory) => memory.keys().collect(),
            None => first.iter().flat_map(|indexes| indexes.iter()).map(|index| index.key).collect(),
        };
        let stand_in = |key: IndexKey| {
            let mut sources = Vec::new();
            if let Some(memory) = memory {
                sources.push(IndexSource::Memory(memory.get(key)?.clone()));
            }
            for input in inputs {
                sources.extend(self.sources(input, key)?);
            }
            Some(SSTableIndex { key, sources, is_own: false })
        };
        keys.into_iter().filter_map(stand_in).collect()
    }

    /// The bytes of flushed memtables' vector indexes that stand in for files. No memtable's account has them.
    pub fn vector_stand_in_bytes(&self) -> u64 {
        let by_sstable = self.by_sstable.load();
        let sources = by_sstable.values().flat_map(|indexes| indexes.iter()).flat_map(|index| &index.sources);
        let mut counted = HashSet::new();
        let vectors = sources.filter_map(|source| match source {
            IndexSource::Memory(PartMemory::Vectors(vectors)) => Some(vectors),
            _ => None,
        });
        // The SSTables of one merge share their stand-ins.
        vectors.filter(|vectors| counted.insert(Arc::as_ptr(vectors))).map(|vectors| vectors.used_bytes()).sum()
    }

    /// Sets the indexes of SSTables that enter the view next.
    pub fn set(&self, sstables: &[Arc<SSTableReader>], indexes: SSTableIndexes) {
        debug_assert!(has_each_once(&indexes), "an SSTable has an index once");
        let indexes = Arc::new(indexes);
        if !indexes.is_empty() {
            self.change(|all| {
                all.extend(sstables.iter().map(|sstable| (sstable.descriptor().id.clone(), indexes.clone())));
            });
        }
    }

    /// Adds indexes of an SSTable, and replaces those with the same keys.
    pub fn add(&self, sstable: &SSTableReader, added: &[SSTableIndex]) {
        self.change(|all| {
            let indexes = all.entry(sstable.descriptor().id.clone()).or_default();
            let is_replaced = |index: &&SSTableIndex| added.iter().any(|added| added.key == index.key);
            let kept: SSTableIndexes =
                indexes.iter().filter(|index| !is_replaced(index)).chain(added).cloned().collect();
            debug_assert!(has_each_once(&kept), "an index that is added replaces the one before it");
            *indexes = Arc::new(kept);
        });
    }

    /// Forgets SSTables that have left the view.
    pub fn forget<'s>(&self, sstables: impl IntoIterator<Item = &'s SSTableId> + Clone) {
        if !self.by_sstable.load().is_empty() {
            self.change(|all| sstables.clone().into_iter().for_each(|id| drop(all.remove(id))));
        }
    }

    /// Forgets all indexes except those with these keys.
    pub fn keep_only(&self, keys: &[IndexKey]) {
        let is_kept = |index: &SSTableIndex| keys.contains(&index.key);
        if !self.by_sstable.load().values().all(|indexes| indexes.iter().all(is_kept)) {
            self.change(|all| {
                for indexes in all.values_mut() {
                    *indexes = Arc::new(indexes.iter().filter(|index| is_kept(index)).cloned().collect());
                }
            });
        }
    }

    fn change(&self, change: impl Fn(&mut HashMap<SSTableId, Arc<SSTableIndexes>>)) {
        self.by_sstable.rcu(|all| {
            let mut changed = HashMap::clone(all);
            change(&mut changed);
            changed
        });
    }
}
