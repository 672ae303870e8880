//! Connections and prepared statements.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::ColumnIterator;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::serialize::SerializationError;
use scylla::serialize::row::SerializeRow;
use scylla::serialize::value::SerializeValue;
use scylla::serialize::writers::{CellWriter, WrittenCellProof};
use scylla::statement::{self, prepared::PreparedStatement};

use crate::spec::{Consistency, Spec};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A session on one node. It retries nothing and counts every failure.
pub struct Client {
    session: Session,
    consistency: statement::Consistency,
    /// Conditional writes that timed out.
    timeouts: AtomicU64,
    /// The nearest vectors that searches should have found, and that they found.
    due: AtomicU64,
    found: AtomicU64,
}

/// The answer to a conditional write.
pub enum Conditional {
    Applied,
    /// The last column of the row that is there.
    Refused(Vec<u8>),
    /// The server does not know whether it is written.
    TimedOut,
}

impl Client {
    /// Connects. The driver assigns timestamps, as drivers do by default, so that the order of writes is the client's
    /// on every server.
    pub async fn connect(spec: &Spec) -> Result<Self, String> {
        let connections = NonZeroUsize::new(spec.connections).ok_or("connections must not be 0")?;
        let builder = match &spec.login {
            Some((name, password)) => SessionBuilder::new().user(name, password),
            None => SessionBuilder::new(),
        };
        let session = builder
            .known_node(&spec.node)
            .pool_size(PoolSize::PerHost(connections))
            .disallow_shard_aware_port(true)
            .timestamp_generator(Arc::new(MonotonicTimestampGenerator::new().without_warnings()))
            .fetch_schema_metadata(false)
            .use_keyspace(&spec.keyspace, false)
            .build()
            .await
            .map_err(|error| format!("connecting to {}: {error}", spec.node))?;
        let consistency = match spec.consistency {
            Consistency::One => statement::Consistency::One,
            Consistency::LocalQuorum => statement::Consistency::LocalQuorum,
        };
        let (timeouts, due, found) = Default::default();
        Ok(Self { session, consistency, timeouts, due, found })
    }

    pub async fn prepare(&self, text: &str) -> Result<PreparedStatement, String> {
        let node = self.session.get_cluster_state().get_nodes_info().first().map(|node| node.host_id);
        let node = node.ok_or("the driver knows no node")?;
        let profile = ExecutionProfile::builder()
            .consistency(self.consistency)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .load_balancing_policy(SingleTargetLoadBalancingPolicy::new(NodeIdentifier::HostId(node), None))
            .build();
        let mut statement = self.session.prepare(text).await.map_err(|error| format!("preparing {text}: {error}"))?;
        statement.set_execution_profile_handle(Some(profile.into_handle()));
        statement.set_is_idempotent(false);
        Ok(statement)
    }

    pub async fn write(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<(), String> {
        self.session.execute_unpaged(statement, values).await.map(drop).map_err(|error| error.to_string())
    }

    /// Executes a conditional write. A timeout is no failure but an answer, and is counted.
    pub async fn write_if(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Conditional, String> {
        let result = match self.session.execute_unpaged(statement, values).await {
            Ok(result) => result.into_rows_result().map_err(|error| error.to_string())?,
            Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::WriteTimeout { .. }, _))) => {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                return Ok(Conditional::TimedOut);
            }
            Err(error) => return Err(error.to_string()),
        };
        let mut cells = Vec::with_capacity(4);
        let row = result.single_row::<ColumnIterator>().map_err(|error| error.to_string())?;
        for column in row {
            cells.push(column.map_err(|error| error.to_string())?.slice.map(|slice| slice.as_slice()));
        }
        match cells[..] {
            [Some([1]), ..] => Ok(Conditional::Applied),
            [Some([0]), .., Some(held)] => Ok(Conditional::Refused(held.to_vec())),
            _ => Err(format!("wrong answer: {} columns and no [applied]", cells.len())),
        }
    }

    /// How many conditional writes timed out.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Notes how many of the nearest vectors a search found.
    pub fn note_found(&self, found: u64, due: u64) {
        self.found.fetch_add(found, Ordering::Relaxed);
        self.due.fetch_add(due, Ordering::Relaxed);
    }

    /// The part of the nearest vectors that all searches found; `None` if there were none.
    pub fn recall(&self) -> Option<f64> {
        let (due, found) = (self.due.load(Ordering::Relaxed), self.found.load(Ordering::Relaxed));
        (due > 0).then(|| found as f64 / due as f64)
    }

    /// Calls `row` with the cells of every row, and returns the number of rows.
    pub async fn read(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut row: impl FnMut(&[Option<&[u8]>]) -> Result<(), String>,
    ) -> Result<usize, String> {
        let result = self.session.execute_unpaged(statement, values).await.map_err(|error| error.to_string())?;
        let rows = result.into_rows_result().map_err(|error| error.to_string())?;
        let mut count = 0;
        let mut cells = Vec::with_capacity(rows.column_specs().len());
        for columns in rows.rows::<ColumnIterator>().map_err(|error| error.to_string())? {
            cells.clear();
            for column in columns.map_err(|error| error.to_string())? {
                let column = column.map_err(|error| error.to_string())?;
                cells.push(column.slice.map(|slice| slice.as_slice()));
            }
            row(&cells)?;
            count += 1;
        }
        Ok(count)
    }
}

/// A value that is already serialized.
pub struct Raw<'a>(pub &'a [u8]);

impl SerializeValue for Raw<'_> {
    fn serialize<'b>(
        &self,
        _: &scylla::cluster::metadata::ColumnType,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        writer.set_value(self.0).map_err(SerializationError::new)
    }
}
