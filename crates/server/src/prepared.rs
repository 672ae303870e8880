//! The cache of prepared statements: ids, bounds, and what a change of the schema does to it.

use crate::Shared;
use crate::handler::QueryHandler;
use query::{ColumnSpec, QueryError, ResultColumns, result_id, statement_id};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
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
}

/// Statements by id, the least used ones leaving when the cache is full.
pub(crate) struct PreparedCache<H: QueryHandler> {
    statements: Cache<Md5Id, Arc<Prepared<H>>, ByText>,
}

/// What a statement costs: its text, and a guess at its tree.
#[derive(Clone)]
struct ByText;

impl<H: QueryHandler> Weighter<Md5Id, Arc<Prepared<H>>> for ByText {
    fn weight(&self, _: &Md5Id, prepared: &Arc<Prepared<H>>) -> u64 {
        const TREE_SIZE_BYTES: usize = 2048;
        (TREE_SIZE_BYTES + 2 * prepared.text.len()) as u64
    }
}

impl<H: QueryHandler> PreparedCache<H> {
    /// A cache of about this many bytes.
    pub(crate) fn new(size_bytes: u64) -> PreparedCache<H> {
        const STATEMENTS_ESTIMATED: usize = 1000;
        PreparedCache { statements: Cache::with_weighter(STATEMENTS_ESTIMATED, size_bytes, ByText) }
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
        let prepared = Arc::new(prepared);
        self.statements.insert(prepared.id, prepared.clone());
        Ok(prepared)
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
        Ok(Prepared {
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
