//! The only entry for statements.
//!
//! A request (QUERY, EXECUTE or BATCH) enters through [`QueryHandler::begin`] and has one of three outcomes. It is
//! *done*. Or it is *pending*: it waits for the log or for memory, and its connection polls it. Or it *must block*: it
//! owns all that it needs, and its connection runs it on the blocking pool. On a thread of that pool `begin` is always
//! done.
//!
//! The order of steps is the same for all statements, and only this module decides it. First the prepared form is
//! brought up to date. Then the values are bound. Then permissions are checked ([`crate::auth`]). The class of the plan
//! decides the time limit, and whether the statement goes to the blocking pool. Last, the statement is executed. A
//! statement whose reads would have to wait for a device is retried on the blocking pool. This has no side effects,
//! because a statement reads everything before it writes.
//!
//! Fast paths are private to this crate. Rows that are found without a cursor ([`crate::select`]) and writes of one row
//! take the same steps.

mod batch;
mod derived;
mod handler;
mod log_queue;
mod outcome;
mod prefetch;
mod request;
mod time_limit;
mod values;

use std::sync::Arc;

use engine::{BorrowedSchema, EngineError, PendingWrite, Turn};
use model::{Mutation, TableId};
use protocol::response::write_void;
use protocol::{BatchKind, ErrorResponse, MetadataForm, ResultMetadata, RowsWriter};
use types::Token;

use crate::auth::{self, without_passwords};
use crate::execution::{Control, Execution};
use crate::modify::Traced;
use crate::prepared::{Class, Prepared, Work, result_id};
use crate::processor::{noted, with_warnings};
use crate::response::set_form;
use crate::select::SelectPlan;
use crate::{Need, Processor, QueryError, Response, ResponseBody, Value, ddl, describe, modify};

pub use handler::{Authentication, KeptForms, LoginStart, QueryHandler};
pub use log_queue::LogQueue;
pub use outcome::{Answer, MustBlock, Outcome, Pending};
pub use request::{BatchEntry, Request, Statement};
pub use time_limit::TimeLimit;

pub(crate) use batch::{Parts, modification};
use derived::{Modification, needs_blocking_pool};
use outcome::PendingWork;
use request::OwnedRequest;
use values::BoundValues;

/// The form in which the answer describes its columns.
#[derive(Clone, Copy)]
enum Columns<'r> {
    /// The form that the options ask for.
    Asked,
    /// The client has prepared the statement and may know its columns. In v5 it sends their id.
    Prepared(Option<&'r [u8]>),
}

/// A request for one statement, with its prepared form.
struct Call<'c> {
    statement: &'c Arc<Prepared>,
    request: &'c Request<'c>,
    columns: Columns<'c>,
    control: Control<'c>,
}

impl Processor {
    /// Begins the execution of a statement. The outcome is written to the request logs that are on.
    #[inline]
    fn logged(&self, statement: &Prepared, request: &Request<'_>, begin: impl FnOnce() -> Outcome) -> Outcome {
        match self.request_logs().of(request.client) {
            None => begin(),
            Some(logs) => {
                let watch = logs.of_statement(statement, request);
                watch.over(begin())
            }
        }
    }

    fn prepare_once(&self, text: &str, request: &Request<'_>) -> Result<Prepared, QueryError> {
        self.check_keyspace(request.options.keyspace)?;
        let keyspace = request.options.keyspace.or(request.client.keyspace.as_deref());
        request.note(|| format!("Parsing {}", without_passwords(text)));
        let parsed = cql::parse(text)?;
        request.note(|| "Preparing statement".to_owned());
        self.prepare_parsed(text, parsed, keyspace)
    }

    /// Begins a statement, in a new form if the schema of its tables has changed.
    #[inline]
    fn begin_current(self: &Arc<Self>, call: &Call<'_>, out: Option<&mut Vec<u8>>) -> Outcome {
        let schema = self.engine().borrow_schema();
        if call.statement.plan.is_current(&schema) {
            return self.begin_bound(call, &schema, out);
        }
        drop(schema);
        let newer = match call.columns {
            Columns::Asked => Processor::prepare(self, &call.statement.text, call.statement.keyspace.as_deref()),
            Columns::Prepared(_) => self.renew(call.statement),
        };
        match newer {
            Ok(newer) => self.begin_bound(&Call { statement: &newer, ..*call }, &self.engine().borrow_schema(), out),
            Err(error) => Outcome::failed(error),
        }
    }

    fn is_current(&self, statement: &Prepared) -> bool {
        statement.plan.is_current(&self.engine().borrow_schema())
    }

    /// The form of a statement under the current schema. The error tells the client to prepare it again.
    fn renew(&self, statement: &Prepared) -> Result<Arc<Prepared>, QueryError> {
        let is_current = |known: &Prepared| self.is_current(known);
        let prepare = || Processor::prepare(self, &statement.text, statement.keyspace.as_deref()).ok();
        statement.renewed(is_current, prepare).ok_or_else(|| unprepared(&statement.id()))
    }

    fn begin_bound(self: &Arc<Self>, call: &Call<'_>, schema: &BorrowedSchema, out: Option<&mut Vec<u8>>) -> Outcome {
        let Call { statement, request, control, .. } = call;
        let bound = BoundValues::of(&request.options.values, &statement.variables);
        let values = bound.as_slice();
        if values.len() != statement.variables.len() {
            return Outcome::failed(call.wrong_count(values.len()));
        }
        if self.auth().has_logins()
            && let Err(error) = self.check_permissions(statement, request.client)
        {
            return Outcome::failed(error);
        }
        let class = statement.plan.class;
        if !control.turn.may_block
            && let Some(need) = call.need()
        {
            return self.must_block(need, call, class, values);
        }
        let execution =
            &mut Execution::new(self, schema, request.parts(), values, statement.keyspace.as_deref(), *control);
        let outcome = match &statement.plan.work {
            Work::Select(select) => self.begin_read(select, call, execution, out),
            Work::Modification(modification) => {
                let written = |execution: &Execution<'_>| modification.mutation(execution);
                let outcome = self.begin_write(written, None, class, execution, out);
                outcome.unwrap_or_else(|HasToBlock(need)| self.must_block(need, call, class, values))
            }
            Work::Derived(modification) => {
                let partitions = modification.partitions(false, execution);
                self.begin_derived_statement(call, partitions, execution)
            }
            Work::Batch(batch) if batch.derives() => {
                let partitions = batch.partitions(execution);
                self.begin_derived_statement(call, partitions, execution)
            }
            Work::Batch(batch) => {
                let written = |execution: &Execution<'_>| batch.mutation(execution);
                let outcome = self.begin_write(written, Some(batch.kind()), class, execution, out);
                outcome.unwrap_or_else(|HasToBlock(need)| self.must_block(need, call, class, values))
            }
            work => {
                let body = self.execute_without_rows(work, call, execution);
                Outcome::done(with_warnings(body, execution.take_warnings(), self.engine()))
            }
        };
        if control.turn.may_block {
            statement.plan.note_work(execution.exceeds_turn());
        }
        outcome
    }

    /// Begins a statement that reads these partitions before it writes.
    fn begin_derived_statement(
        self: &Arc<Self>,
        call: &Call<'_>,
        partitions: Result<Vec<(TableId, Token)>, QueryError>,
        execution: &mut Execution<'_>,
    ) -> Outcome {
        let Call { statement, request, columns, control } = *call;
        match partitions {
            Ok(partitions) if !control.turn.may_block && needs_blocking_pool(&partitions) => {
                self.must_block(Need::Processor, call, statement.plan.class, execution.values)
            }
            Ok(partitions) => {
                let (modification, class) = (Modification::Statement(Arc::clone(statement)), statement.plan.class);
                let values = execution.values;
                self.begin_derived(modification, partitions, (request, values), columns, class, control)
            }
            Err(error) if let Some(need) = error.need() => {
                self.must_block(need, call, statement.plan.class, execution.values)
            }
            Err(error) => Outcome::done(with_warnings(Err(error), execution.take_warnings(), self.engine())),
        }
    }

    /// Executes a statement that neither reads nor writes rows of tables.
    fn execute_without_rows(
        &self,
        work: &Work,
        call: &Call<'_>,
        execution: &Execution<'_>,
    ) -> Result<ResponseBody, QueryError> {
        match work {
            Work::Use(keyspace) => {
                self.check_keyspace(Some(keyspace))?;
                Ok(ResponseBody::SetKeyspace(keyspace.clone()))
            }
            Work::Truncate(table) => modify::truncate(table, execution),
            Work::Describe(statement) => {
                let mut body = describe::execute(statement, execution)?;
                call.set_form(&mut body);
                Ok(body)
            }
            Work::Schema(statement) if auth::is_about_roles(statement) => auth::execute(statement, execution),
            Work::Schema(statement) => {
                let body = ddl::execute(statement, execution)?;
                if let ResponseBody::SchemaChange { change, contained } = &body {
                    self.follow_schema_change(change, contained, execution.client)?;
                }
                Ok(body)
            }
            Work::Select(_) | Work::Modification(_) | Work::Derived(_) | Work::Batch(_) => {
                unreachable!("`begin_bound` passes on only what has no rows")
            }
        }
    }

    #[inline]
    fn begin_read(
        self: &Arc<Self>,
        select: &SelectPlan,
        call: &Call<'_>,
        execution: &mut Execution<'_>,
        out: Option<&mut Vec<u8>>,
    ) -> Outcome {
        if let Some(out) = out
            && self.look_up(select, call, execution, out)
        {
            return Outcome::Done(Answer::Written);
        }
        let mut body = select.execute(execution);
        if let Some(need) = body.as_ref().err().and_then(QueryError::need) {
            return self.must_block(need, call, call.statement.plan.class, execution.values);
        }
        body.iter_mut().for_each(|body| call.set_form(body));
        Outcome::done(with_warnings(body, execution.take_warnings(), self.engine()))
    }

    /// Appends the RESULT of a SELECT of a few rows of one partition, if they are found without a cursor. Otherwise it
    /// returns false and appends nothing.
    #[inline]
    fn look_up(&self, select: &SelectPlan, call: &Call<'_>, execution: &Execution<'_>, out: &mut Vec<u8>) -> bool {
        if !select.may_be_looked_up() || self.watches_reads() {
            return false;
        }
        let Some(columns) = &call.statement.result_metadata else { return false };
        let form = call.form_of_known();
        let metadata = ResultMetadata {
            columns,
            paging_state: None,
            skip: form.skip,
            changed_id: form.changed_id.as_ref().map(|id| &id[..]),
        };
        let before = out.len();
        let mut rows = RowsWriter::new(out, call.request.version, &metadata);
        let is_found = rows.encoded_rows_with(|cells| select.find_rows(execution, cells));
        rows.finish();
        if !is_found {
            out.truncate(before);
        }
        is_found
    }

    /// Begins the write of the mutation that `written` returns, if it returns one.
    fn begin_write(
        self: &Arc<Self>,
        written: impl Fn(&Execution<'_>) -> Result<Option<Mutation>, QueryError>,
        batch: Option<BatchKind>,
        class: Class,
        execution: &mut Execution<'_>,
        out: Option<&mut Vec<u8>>,
    ) -> Result<Outcome, HasToBlock> {
        let make_again = |execution: &Execution<'_>| {
            execution.budget().restart();
            written(execution)
        };
        let mutation = match self.check_write_levels(execution).and_then(|()| written(execution)) {
            Ok(Some(mutation)) => mutation,
            Ok(None) => return Ok(void(execution.take_warnings(), out)),
            Err(error) => {
                if let Some(need) = error.need() {
                    return Err(HasToBlock(need));
                }
                return Ok(Outcome::done(with_warnings(Err(error), execution.take_warnings(), self.engine())));
            }
        };
        let traced = execution.trace.map(|trace| Traced::begin(&mutation, trace, execution.schema));
        let is_single = mutation.updates().len() == 1;
        let begun = self.engine().begin_write(execution.schema, mutation);
        // A completed write is checked where it is, without a move.
        if begun.as_ref().is_ok_and(|begun| begun.as_ref().is_some_and(PendingWrite::is_done)) {
            traced.iter().for_each(Traced::end);
            return Ok(void(execution.take_warnings(), out));
        }
        let work = match begun {
            Ok(Some(write)) => PendingWork::Write(write),
            Err(EngineError::MutationTooLarge { .. }) if !is_single => self.write_later(make_again(execution), batch),
            Ok(None) => self.write_later(make_again(execution), batch),
            Err(error) => {
                let refused = with_warnings(Err(error.into()), execution.take_warnings(), self.engine());
                return Ok(Outcome::done(refused));
            }
        };
        let limit = self.time_limit(class, execution.options);
        let may_block = execution.may_block;
        let pending = Pending::new(work, execution.take_warnings(), limit);
        if !may_block {
            return Ok(Outcome::Pending(Box::new(pending)));
        }
        let response = pending.wait_until(execution.deadline);
        traced.iter().filter(|_| response.is_ok()).for_each(Traced::end);
        Ok(Outcome::done(response))
    }

    /// A write that waits for memory or for room in the log before it is logged, or is larger than a record of the log.
    fn write_later(
        self: &Arc<Self>,
        mutation: Result<Option<Mutation>, QueryError>,
        batch: Option<BatchKind>,
    ) -> PendingWork {
        let engine = Arc::clone(self.engine());
        PendingWork::Future(Box::pin(async move {
            if let Some(mutation) = mutation? {
                let written = match batch {
                    Some(BatchKind::Logged) => engine.write_batch(&mutation).await,
                    _ => engine.write_parts(&mutation).await,
                };
                written.map_err(|error| noted(error.into(), &engine))?;
            }
            Ok(Response::void(Vec::new()))
        }))
    }

    /// The statement as a request for the blocking pool.
    fn must_block(self: &Arc<Self>, need: Need, call: &Call<'_>, class: Class, values: &[Value<'_>]) -> Outcome {
        let processor = Arc::clone(self);
        let statement = Arc::clone(call.statement);
        let owned = OwnedRequest::new(call.request, values);
        let limit = self.time_limit(class, call.request.options);
        let columns = match call.columns {
            Columns::Asked => None,
            Columns::Prepared(id) => Some(id.map(<[u8]>::to_vec)),
        };
        Outcome::MustBlock(Box::new(MustBlock::new(limit, need, move |deadline, cancelled| {
            let control = Control { turn: Turn::BLOCKING, deadline, cancelled: Some(cancelled) };
            let columns = match &columns {
                None => Columns::Asked,
                Some(id) => Columns::Prepared(id.as_deref()),
            };
            owned.with(Statement::Text(&statement.text), |request, _| {
                let call = Call { statement: &statement, request, columns, control };
                processor.begin_current(&call, None).into_response()
            })
        })))
    }
}

/// The error that tells a client to prepare the statement with this id again.
fn unprepared(id: &[u8]) -> QueryError {
    let ErrorResponse { kind, message } = ErrorResponse::unprepared(id);
    QueryError::new(kind, message)
}

/// The statement needs more than its thread may give. It has had no effect.
struct HasToBlock(Need);

/// The outcome of a statement that is done, with an empty result.
fn void(warnings: Vec<String>, out: Option<&mut Vec<u8>>) -> Outcome {
    match out.filter(|_| warnings.is_empty()) {
        Some(out) => {
            write_void(out);
            Outcome::Done(Answer::Written)
        }
        None => Outcome::done(Ok(Response::void(warnings))),
    }
}

impl Call<'_> {
    /// The reason why the statement is not even begun on a thread that may not block, if there is one.
    #[inline]
    fn need(&self) -> Option<Need> {
        let plan = &self.statement.plan;
        let of_class = || plan.class.need().filter(|_| !plan.is_short_search());
        let needs_processor = self.request.trace.is_some() || plan.exceeds_turn();
        of_class().or(needs_processor.then_some(Need::Processor))
    }

    /// The form of columns that PREPARE has described already.
    fn form_of_known(&self) -> MetadataForm {
        self.form(|| *self.statement.result_id())
    }

    fn set_form(&self, body: &mut ResponseBody) {
        set_form(body, |rows| match self.statement.result_metadata {
            Some(_) => self.form_of_known(),
            None => self.form(|| result_id(rows.metadata.specs())),
        });
    }

    /// A v5 client sends the id of the columns that it knows. An older client does not, so it may skip the columns only
    /// if the statement always has the same ones.
    fn form(&self, id: impl FnOnce() -> [u8; 16]) -> MetadataForm {
        let as_asked = MetadataForm { skip: self.request.options.skip_metadata, changed_id: None };
        match self.columns {
            Columns::Asked => as_asked,
            Columns::Prepared(None) if self.statement.result_metadata.is_none() => MetadataForm::default(),
            Columns::Prepared(None) => as_asked,
            Columns::Prepared(Some(client_id)) => {
                let id = id();
                match client_id == id {
                    true => as_asked,
                    false => MetadataForm { skip: false, changed_id: Some(id) },
                }
            }
        }
    }

    fn wrong_count(&self, got: usize) -> QueryError {
        let expected = self.statement.variables.len();
        match self.columns {
            Columns::Asked => QueryError::invalid("Invalid amount of bind variables"),
            Columns::Prepared(_) => {
                QueryError::invalid(format!("there were {expected} markers(?) in CQL but {got} bound variables"))
            }
        }
    }
}
