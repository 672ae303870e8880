//! The context in which a statement is executed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::{BorrowedSchema, Turn, Unsettled};
use protocol::QueryOptions;

use crate::budget::Budget;
use crate::list_paths::AppendedPaths;
use crate::{ClientState, Processor, QueryError, TraceLog, Value};

/// The conditions under which a request is executed.
#[derive(Clone, Copy)]
pub(crate) struct Control<'c> {
    pub turn: Turn<'c>,
    pub deadline: Option<Instant>,
    pub cancelled: Option<&'c AtomicBool>,
}

/// The parts of a request that an execution needs.
#[derive(Clone, Copy)]
pub(crate) struct RequestParts<'r> {
    pub client: &'r ClientState,
    pub options: &'r QueryOptions<'r>,
    pub trace: Option<&'r TraceLog>,
}

/// The context of one statement's execution.
pub(crate) struct Execution<'a> {
    /// The processor: engine, options, clock.
    pub processor: &'a Processor,
    /// The schema at the start of the execution.
    pub schema: &'a BorrowedSchema,
    /// The client.
    pub client: &'a ClientState,
    /// The request's options. The values are in `values`.
    pub options: &'a QueryOptions<'a>,
    /// The values of the bind markers by number. There is exactly one for each marker.
    pub values: &'a [Value<'a>],
    /// The bytes of these values as they were sent, if they are known.
    value_bytes: &'a [u8],
    /// The keyspace the statement was prepared in.
    pub keyspace: Option<&'a str>,
    /// The time with which TTLs are compared, in seconds since the epoch.
    pub now_seconds: u32,
    /// The time at the start of the execution, in microseconds since the epoch.
    pub now_micros: i64,
    /// Whether the statement may wait for a device on its thread. See [`Turn`].
    pub may_block: bool,
    /// The updates in flight that its reads find. See [`Turn`].
    unsettled: Option<&'a Arc<Unsettled>>,
    /// Set when the statement has done the work of many rows. See [`Turn`].
    pub is_large: Option<&'a AtomicBool>,
    /// The log of events, if the request is traced.
    pub trace: Option<&'a TraceLog>,
    /// The time at which the client gets a timeout; `None` if the caller watches the time itself.
    pub deadline: Option<Instant>,
    /// Set when nobody waits for the answer any more; `None` if that cannot happen during the execution.
    pub cancelled: Option<&'a AtomicBool>,
    warnings: Mutex<Vec<String>>,
    own_budget: Budget,
    /// The budget of the batch that contains this statement.
    shared_budget: Option<&'a Budget>,
    /// The paths of appended list elements, if the modification is conditional.
    list_paths: Option<&'a AppendedPaths>,
}

impl<'a> Execution<'a> {
    pub fn new(
        processor: &'a Processor,
        schema: &'a BorrowedSchema,
        request: RequestParts<'a>,
        values: &'a [Value<'a>],
        keyspace: Option<&'a str>,
        control: Control<'a>,
    ) -> Self {
        let options = request.options;
        let now_micros = processor.now_micros();
        let clock_seconds = u32::try_from(now_micros / 1_000_000).unwrap_or(u32::MAX);
        Execution {
            processor,
            schema,
            client: request.client,
            options,
            values,
            value_bytes: options.values.positional_bytes(),
            keyspace,
            now_seconds: options.now_in_seconds.map_or(clock_seconds, |seconds| seconds as u32),
            now_micros,
            may_block: control.turn.may_block,
            is_large: control.turn.is_large,
            unsettled: control.turn.unsettled,
            trace: request.trace,
            deadline: control.deadline,
            cancelled: control.cancelled,
            warnings: Mutex::new(Vec::new()),
            own_budget: Budget::new(),
            shared_budget: None,
            list_paths: None,
        }
    }

    /// The permissions of the statement's reads on this thread.
    pub fn turn(&self) -> Turn<'_> {
        let row_memory = if self.may_block { self.large_rows() } else { None };
        Turn { may_block: self.may_block, is_large: None, row_memory, unsettled: self.unsettled }
    }

    /// Adds an event to the trace, if the request is traced.
    pub fn note(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.note(activity());
        }
    }

    /// Whether nobody waits for the answer any more. A long read then ends.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
    }

    /// Whether the request's time is over.
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether guardrails apply to the client. This is checked only where one is violated.
    #[cold]
    pub fn is_guarded(&self) -> bool {
        self.processor.is_guarded(self.client)
    }

    /// Adds a warning to the answer.
    pub fn warn(&self, message: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(message.into());
    }

    /// The budget of the statement.
    pub fn budget(&self) -> &Budget {
        self.shared_budget.unwrap_or(&self.own_budget)
    }

    /// Removes the warnings of an execution that has ended, and returns them.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(self.warnings.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The value of a bind marker.
    pub fn value(&self, marker: usize) -> Result<Value<'a>, QueryError> {
        self.values.get(marker).copied().ok_or_else(|| QueryError::invalid("Invalid amount of bind variables"))
    }

    /// The values of `count` markers from `first` on as they were sent, each preceded by an i32 length, if all of these
    /// bytes are ASCII. In that case none of them is null or unset, since their lengths would be negative, and each one
    /// is a valid text. `None` says nothing about the values.
    pub fn sent_texts(&self, first: usize, count: usize) -> Option<&'a [u8]> {
        let markers = self.values.get(first..first.checked_add(count)?)?;
        let (Value::Bytes(first), Value::Bytes(last)) = (markers.first()?, markers.last()?) else { return None };
        let place = |value: &[u8]| value.as_ptr().addr().checked_sub(self.value_bytes.as_ptr().addr());
        let start = place(first)?.checked_sub(size_of::<i32>())?;
        let sent = self.value_bytes.get(start..place(last)?.checked_add(last.len())?)?;
        sent.is_ascii().then_some(sent)
    }

    /// The timestamp of writes that specify none, in microseconds.
    pub fn timestamp_micros(&self) -> i64 {
        self.options.timestamp.unwrap_or_else(|| self.processor.engine().next_timestamp_from(self.now_micros))
    }

    /// The path of an element that is appended to a list.
    pub fn next_list_path(&self) -> [u8; 16] {
        self.list_paths.map_or_else(|| self.processor.next_timeuuid(), AppendedPaths::next)
    }

    /// The same context with these paths of appended list elements.
    pub fn with_list_paths<'b>(&'b self, paths: &'b AppendedPaths) -> Execution<'b> {
        let value_bytes = self.value_bytes;
        Execution { list_paths: Some(paths), value_bytes, ..self.with_values(self.values) }
    }

    /// The context of another statement in the same request. It has its own values and shares the budget.
    pub fn with_values<'b>(&'b self, values: &'b [Value<'b>]) -> Execution<'b> {
        let (warnings, own_budget) = (Mutex::new(Vec::new()), Budget::new());
        let shared_budget = Some(self.budget());
        Execution { values, value_bytes: &[], warnings, own_budget, shared_budget, ..*self }
    }
}
