//! What a connection needs of the query layer.

use query::{Begun, ClientState, ColumnSpec, LogHold, QueryError, QueryOptions, Response, ResultColumns, Value};
use std::future::Future;
use std::sync::Arc;
use std::task::Waker;

/// Carries out statements. The query layer's `Processor` is one; tests bring their own.
pub trait QueryHandler: Send + Sync + 'static {
    /// A prepared statement.
    type Statement: Send + Sync + 'static;

    /// Refuses a keyspace that a request names for itself and that is not there.
    fn check_keyspace(&self, _keyspace: Option<&str>) -> Result<(), QueryError> {
        Ok(())
    }

    /// Prepares a statement; unqualified names are of `keyspace`, and an error without one.
    fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Arc<Self::Statement>, QueryError>;

    /// What clients are told of a prepared statement.
    fn describe<'s>(&self, statement: &'s Self::Statement) -> StatementInfo<'s>;

    /// Whether the statement means the same under today's schema as when it was prepared.
    fn is_current(&self, statement: &Self::Statement) -> bool;

    /// What is begun while this lives is begun together: writes go to the log when this is dropped. What is polled with
    /// `waker` says there which place in the log it waits for. Held for a moment, by one thread.
    fn bunch(&self, _waker: &Waker) -> Option<LogHold> {
        None
    }

    /// Carries out a statement that is not prepared.
    fn query<'a>(
        &'a self,
        text: &'a str,
        client: &'a ClientState,
        options: &'a QueryOptions<'a>,
    ) -> impl Future<Output = Result<Response, QueryError>> + Send + 'a;

    /// Carries out a prepared statement.
    fn execute<'a>(
        &'a self,
        statement: &'a Self::Statement,
        client: &'a ClientState,
        options: &'a QueryOptions<'a>,
    ) -> impl Future<Output = Result<Response, QueryError>> + Send + 'a;

    /// Carries out a prepared statement on the spot, if that neither waits nor blocks; otherwise `None`, without any
    /// effect. An error of the cause [`WouldWait`](query::Cause::WouldWait) says that it must be carried out where
    /// it may wait.
    fn execute_at_once(
        &self,
        _statement: &Self::Statement,
        _client: &ClientState,
        _options: &QueryOptions<'_>,
    ) -> Option<Result<Response, QueryError>> {
        None
    }

    /// Appends the cells of the few rows that a prepared statement asks for, in the protocol's form, if they are found
    /// at once and the statement is current; how many rows that are. Otherwise `None`, without any effect.
    fn find_rows(
        &self,
        _statement: &Self::Statement,
        _client: &ClientState,
        _options: &QueryOptions<'_>,
        _cells: &mut Vec<u8>,
    ) -> Option<usize> {
        None
    }

    /// Whether a prepared statement will look at so much memory that it is worth to bring that near with
    /// [`QueryHandler::look_ahead`].
    fn looks_far(&self, _statement: &Self::Statement) -> bool {
        false
    }

    /// Brings near what prepared statements look at that are carried out right after, by their partitions' serialized
    /// keys.
    fn look_ahead(&self, _coming: &[(&Self::Statement, &[u8])]) {}

    /// Begins a prepared statement that changes rows, if it is current and nothing but the log has to be waited for
    /// then; otherwise `None`, without any effect.
    fn begin(&self, _statement: &Self::Statement, _client: &ClientState, _options: &QueryOptions<'_>) -> Option<Begun> {
        None
    }

    /// Carries out several statements as one batch.
    fn batch<'a>(
        &'a self,
        kind: BatchKind,
        entries: &'a [BatchEntry<'a, Self::Statement>],
        client: &'a ClientState,
        options: &'a QueryOptions<'a>,
    ) -> impl Future<Output = Result<Response, QueryError>> + Send + 'a;
}

pub use protocol::BatchKind;

/// A statement of a batch.
#[derive(Debug)]
pub struct BatchEntry<'a, S> {
    /// The statement.
    pub statement: BatchStatement<'a, S>,
    /// Its values by number of the marker.
    pub values: Vec<Value<'a>>,
}

/// How a batch has a statement.
#[derive(Debug)]
pub enum BatchStatement<'a, S> {
    /// As text.
    Text(&'a str),
    /// Prepared.
    Prepared(Arc<S>),
}

/// The outside of a prepared statement.
#[derive(Clone, Copy, Debug)]
pub struct StatementInfo<'s> {
    /// The bind markers in order.
    pub markers: &'s [ColumnSpec],
    /// For each partition key column the marker bound to it; empty unless all are bound.
    pub partition_key: &'s [u16],
    /// The columns that it returns, where they can be known beforehand.
    pub result: Option<&'s Arc<ResultColumns>>,
    /// Warnings for whoever prepares it.
    pub warnings: &'s [String],
    /// It changes rows.
    pub is_modification: bool,
    /// What it takes in memory besides its text, bytes.
    pub size_bytes: usize,
}
