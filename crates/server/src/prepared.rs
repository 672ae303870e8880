//! The cache of prepared statements. Clients refer to a statement by its id.

use std::sync::Arc;

use query::{ClientState, KeptForms, Prepared, QueryError, QueryHandler, statement_id};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// An MD5 digest. Cassandra uses them as ids.
pub(crate) type Md5Id = [u8; 16];

/// Statements by id. When the cache is full, it evicts the statements that are used least.
pub(crate) struct PreparedCache<P> {
    statements: Cache<Md5Id, Arc<Prepared<P>>, BySize>,
    statement_size_bytes_max: u64,
}

/// The weight of a statement: the memory that it takes.
#[derive(Clone)]
struct BySize;

impl<P> Weighter<Md5Id, Arc<Prepared<P>>> for BySize {
    fn weight(&self, _: &Md5Id, statement: &Arc<Prepared<P>>) -> u64 {
        statement.size_bytes() as u64
    }
}

/// The least size of a shard. Shards keep threads from waiting for each other, and no statement may be larger than one.
const SHARD_SIZE_BYTES_MIN: u64 = 10 << 20;

impl<P: Send + Sync + 'static> PreparedCache<P> {
    /// A cache of this many bytes.
    pub(crate) fn new(size_bytes: u64) -> PreparedCache<P> {
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

    /// Prepares a statement, or finds it in the cache. Unqualified names belong to the keyspace that the request
    /// `named`, or else to that of the client.
    pub(crate) fn prepare<H: QueryHandler<Plan = P>>(
        &self,
        handler: &H,
        client: &ClientState,
        text: &str,
        named: Option<&str>,
    ) -> Result<(Md5Id, Arc<Prepared<P>>), QueryError> {
        let keyspace = named.or(client.keyspace.as_deref());
        let form = |keyspace: Option<&str>| self.statements.get(&statement_id(text, keyspace));
        let qualified = form(None);
        let in_keyspace = keyspace.filter(|_| qualified.is_none()).and_then(|keyspace| form(Some(keyspace)));
        let size_bytes_max = self.statement_size_bytes_max;
        let kept = KeptForms { qualified: qualified.as_ref(), in_keyspace: in_keyspace.as_ref(), size_bytes_max };
        let prepared = handler.prepare(client, text, named, kept)?;
        let id = prepared.id();
        if !qualified.or(in_keyspace).is_some_and(|known| Arc::ptr_eq(&known, &prepared)) {
            self.statements.insert(id, prepared.clone());
        }
        Ok((id, prepared))
    }

    /// The statement with this id.
    fn get(&self, id: &Md5Id) -> Option<Arc<Prepared<P>>> {
        self.statements.get(id)
    }

    /// Removes a statement, unless it was prepared again in the meantime.
    fn forget(&self, id: &Md5Id, statement: &Arc<Prepared<P>>) {
        if self.statements.get(id).is_some_and(|known| Arc::ptr_eq(&known, statement)) {
            self.statements.remove(id);
        }
    }
}

/// The statements that a connection has used. A look-up here touches no memory that connections share.
pub(crate) struct RecentStatements<P> {
    statements: Vec<(Md5Id, Arc<Prepared<P>>)>,
}

/// Up to this number a linear search is faster than a hash table. Most clients use fewer statements.
const RECENT_STATEMENTS_MAX: usize = 32;

impl<P: Send + Sync + 'static> RecentStatements<P> {
    pub(crate) fn new() -> Self {
        RecentStatements { statements: Vec::new() }
    }

    /// The statement with this id, if the connection has used it.
    pub(crate) fn known(&self, id: &[u8]) -> Option<&Arc<Prepared<P>>> {
        let id = Md5Id::try_from(id).ok()?;
        self.statements.iter().find(|(known, _)| *known == id).map(|(_, statement)| statement)
    }

    /// The statement with this id.
    pub(crate) fn find(&mut self, cache: &PreparedCache<P>, id: &[u8]) -> Option<&Arc<Prepared<P>>> {
        let id = Md5Id::try_from(id).ok()?;
        let place = match self.statements.iter().position(|(known, _)| *known == id) {
            Some(place) => place,
            None => {
                let found = cache.get(&id)?;
                if self.statements.len() >= RECENT_STATEMENTS_MAX {
                    self.statements.clear();
                }
                self.statements.push((id, found));
                self.statements.len() - 1
            }
        };
        self.statements.get(place).map(|(_, statement)| statement)
    }

    /// Removes a statement whose meaning has changed since it was prepared. Returns whether it was prepared again in
    /// the meantime.
    pub(crate) fn forget(&mut self, cache: &PreparedCache<P>, id: &[u8]) -> bool {
        let Ok(id) = Md5Id::try_from(id) else { return false };
        if let Some(place) = self.statements.iter().position(|(known, _)| *known == id) {
            let (_, statement) = self.statements.swap_remove(place);
            cache.forget(&id, &statement);
        }
        cache.get(&id).is_some()
    }

    /// Removes a statement because the client prepares it again.
    pub(crate) fn replaced(&mut self, id: &Md5Id) {
        self.statements.retain(|(known, _)| known != id);
    }
}
