//! The cache of prepared statements: ids, bounds, and what a change of the schema does to it.

use crate::Shared;
use crate::handler::QueryHandler;
use query::{ColumnSpec, QueryError, ResultColumns, result_id, statement_id};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::sync::Arc;

/// An MD5, as Cassandra uses it for ids.
pub(crate) type Md5Id = [u8; 16];

/// A statement under its id.
pub(crate) struct Prepared<H: QueryHandler> {
    pub(crate) id: Md5Id,
    pub(crate) statement: Arc<H::Statement>,
    /// Unqualified names of the statement are of this keyspace; none if it has no such names.
    pub(crate) keyspace: Option<Arc<str>>,
    pub(crate) result_id: Md5Id,
    /// The markers and columns that PREPARE answers.
    pub(crate) markers: Vec<ColumnSpec>,
    pub(crate) partition_key: Vec<u16>,
    pub(crate) result: Option<Arc<ResultColumns>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) is_modification: bool,
    pub(crate) text: Arc<str>,
    /// What it takes in memory.
    size_bytes: usize,
}

/// Statements by id, the least used ones leaving when the cache is full.
pub(crate) struct PreparedCache<H: QueryHandler> {
    statements: Cache<Md5Id, Arc<Prepared<H>>, BySize>,
    statement_size_bytes_max: u64,
}

/// What a statement takes in memory.
#[derive(Clone)]
struct BySize;

impl<H: QueryHandler> Weighter<Md5Id, Arc<Prepared<H>>> for BySize {
    fn weight(&self, _: &Md5Id, prepared: &Arc<Prepared<H>>) -> u64 {
        prepared.size_bytes as u64
    }
}

/// Shards keep threads from waiting for each other, and no statement may be larger than one: they have at least this
/// size.
const SHARD_SIZE_BYTES_MIN: u64 = 2 << 20;

impl<H: QueryHandler> PreparedCache<H> {
    /// A cache of so many bytes.
    pub(crate) fn new(size_bytes: u64) -> PreparedCache<H> {
        const STATEMENTS_ESTIMATED: usize = 1000;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let largest = usize::try_from(size_bytes / SHARD_SIZE_BYTES_MIN).unwrap_or(usize::MAX).max(1);
        // A power of two, as the cache would make it.
        let shards = 1 << largest.min(4 * cores).ilog2();
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(STATEMENTS_ESTIMATED)
            .weight_capacity(size_bytes)
            .build()
            .expect("both capacities are set");
        let statements =
            Cache::with_options(options, BySize, DefaultHashBuilder::default(), DefaultLifecycle::default());
        PreparedCache { statements, statement_size_bytes_max: size_bytes / shards as u64 }
    }

    /// Prepares a statement, or finds it prepared.
    pub(crate) fn prepare(
        &self,
        handler: &H,
        text: &str,
        keyspace: Option<&Arc<str>>,
    ) -> Result<Arc<Prepared<H>>, QueryError> {
        // A statement that names its keyspaces is the same one whatever keyspace the client uses.
        let known = |keyspace: Option<&str>| {
            let prepared = self.statements.get(&statement_id(text, keyspace))?;
            handler.is_current(&prepared.statement).then_some(prepared)
        };
        if let Some(prepared) = known(None).or_else(|| known(Some(keyspace?))) {
            return Ok(prepared);
        }
        let prepared = match Prepared::new(handler, text.into(), None) {
            Err(_) if keyspace.is_some() => Prepared::new(handler, text.into(), keyspace.cloned())?,
            outcome => outcome?,
        };
        self.check_size(&prepared)?;
        let prepared = Arc::new(prepared);
        self.statements.insert(prepared.id, prepared.clone());
        Ok(prepared)
    }

    /// Refuses a statement that there will never be room for.
    fn check_size(&self, prepared: &Prepared<H>) -> Result<(), QueryError> {
        const SHOWN_CHARACTERS: usize = 200;
        let (size, limit) = (prepared.size_bytes as u64, self.statement_size_bytes_max);
        if size <= limit {
            return Ok(());
        }
        let text: String = prepared.text.chars().take(SHOWN_CHARACTERS).collect();
        Err(QueryError::invalid(format!(
            "Prepared statement of size {size} bytes is larger than allowed maximum of {limit} bytes: {text}..."
        )))
    }

    /// The statement of this id. One that was prepared against an older schema is checked against today's first; when
    /// it does not mean the same any more it is forgotten, and the client has to prepare it again.
    pub(crate) fn get(&self, handler: &H, id: &[u8]) -> Option<Arc<Prepared<H>>> {
        let id = Md5Id::try_from(id).ok()?;
        let prepared = self.statements.get(&id)?;
        if handler.is_current(&prepared.statement) {
            return Some(prepared);
        }
        match Prepared::new(handler, prepared.text.clone(), prepared.keyspace.clone()) {
            Ok(again) if again.looks_like(&prepared) => {
                let again = Arc::new(again);
                self.statements.insert(id, again.clone());
                Some(again)
            }
            _ => {
                self.statements.remove(&id);
                None
            }
        }
    }
}

/// Statements that a connection has used: to find one again touches nothing that connections share.
pub(crate) struct RecentStatements<H: QueryHandler> {
    statements: Vec<Arc<Prepared<H>>>,
}

/// As many as are sooner looked through than hashed; most clients use no more at a time.
const RECENT_STATEMENTS_MAX: usize = 32;

impl<H: QueryHandler> RecentStatements<H> {
    pub(crate) fn new() -> Self {
        RecentStatements { statements: Vec::new() }
    }

    /// The statement of this id if it was used, whatever became of its schema since.
    pub(crate) fn known(&self, id: &[u8]) -> Option<&Prepared<H>> {
        let id = Md5Id::try_from(id).ok()?;
        self.statements.iter().find(|known| known.id == id).map(|known| &**known)
    }

    /// As [`PreparedCache::get`] of the server's statements.
    pub(crate) fn get(&mut self, shared: &Shared<H>, id: &[u8]) -> Option<Arc<Prepared<H>>> {
        let key = Md5Id::try_from(id).ok()?;
        let place = self.statements.iter().position(|known| known.id == key);
        if let Some(place) = place {
            if shared.handler.is_current(&self.statements[place].statement) {
                return Some(self.statements[place].clone());
            }
            self.statements.swap_remove(place);
        }
        let found = shared.prepared.get(&shared.handler, id)?;
        if self.statements.len() >= RECENT_STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.push(found.clone());
        Some(found)
    }
}

impl<H: QueryHandler> Prepared<H> {
    fn new(handler: &H, text: Arc<str>, keyspace: Option<Arc<str>>) -> Result<Prepared<H>, QueryError> {
        let statement = handler.prepare(&text, keyspace.as_deref())?;
        let info = handler.describe(&statement);
        check_marker_count(info.markers.len())?;
        // The text is kept here, the markers here and with the statement.
        let markers_bytes = size_of_val(info.markers);
        let size_bytes = size_of::<Prepared<H>>() + text.len() + info.size_bytes + markers_bytes;
        Ok(Prepared {
            size_bytes,
            id: statement_id(&text, keyspace.as_deref()),
            result_id: result_id(info.result.map_or(&[][..], |columns| columns.specs())),
            markers: info.markers.to_vec(),
            partition_key: info.partition_key.to_vec(),
            result: info.result.cloned(),
            warnings: info.warnings.to_vec(),
            is_modification: info.is_modification,
            keyspace,
            text,
            statement,
        })
    }

    fn looks_like(&self, other: &Prepared<H>) -> bool {
        self.result_id == other.result_id && self.markers == other.markers && self.id == other.id
    }
}

fn check_marker_count(count: usize) -> Result<(), QueryError> {
    let limit = usize::from(u16::MAX);
    if count <= limit {
        return Ok(());
    }
    Err(QueryError::invalid(format!("Too many markers(?). {count} markers exceed the allowed maximum of {limit}")))
}
