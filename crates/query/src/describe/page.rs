//! One page of the answer to a DESCRIBE, and the paging state that says where the next one begins.
//!
//! ```text
//! state := u8 1 (version), u64 hash of the statement and the current keyspace, 16 bytes schema version,
//!          u64 number of elements before the next page
//! ```
//!
//! Integers are big-endian. As in Cassandra, a state is refused after a change of the schema: elements have other
//! places in it. A page ends like one of a SELECT: with the rows that the client asks for, or with the row that
//! makes it reach `page_size_limit`.

use std::fmt::Write;

use cql::ast::Describe;
use types::steps;

use super::{Element, result_metadata};
use crate::budget::steps_of_bytes;
use crate::execution::Execution;
use crate::fnv::Fnv;
use crate::{MetadataForm, QueryError, ResponseBody, Rows};

const VERSION: u8 = 1;

/// The work of writing one byte of a description, as a multiple of the work of copying one byte of a row.
const BYTES_FACTOR: usize = 16;

/// The elements before the page that cost as much as a step.
const PASSED_PER_STEP: u64 = 64;

/// Whether a page takes further elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    /// The page is full, and there is an element after it.
    Full,
}

/// A page that is being filled.
pub(super) struct Page<'p> {
    statement: &'p Describe,
    execution: &'p Execution<'p>,
    with_statements: bool,
    /// The elements before the page, in all.
    start: u64,
    /// The elements that are still to be passed before the page begins.
    to_pass: u64,
    rows_max: usize,
    bytes_max: usize,
    row_count: usize,
    cells: Vec<u8>,
    has_more: bool,
}

impl<'p> Page<'p> {
    /// The page that the client asks for.
    pub fn begin(statement: &'p Describe, execution: &'p Execution<'p>) -> Result<Page<'p>, QueryError> {
        let start = execution.options.paging_state.map_or(Ok(0), |state| start_of(state, statement, execution))?;
        let page_size = execution.options.page_size.filter(|size| *size > 0);
        Ok(Page {
            statement,
            execution,
            with_statements: result_metadata(statement).specs().len() == 4,
            start,
            to_pass: start,
            rows_max: page_size.map_or(usize::MAX, |size| size as usize),
            bytes_max: page_size.map_or(usize::MAX, |_| execution.processor.options().page_max_bytes),
            row_count: 0,
            cells: Vec::new(),
            has_more: false,
        })
    }

    /// Passes over that many elements if all of them are before the page. Returns whether they are.
    pub fn pass(&mut self, count: usize) -> bool {
        let is_before = self.to_pass >= count as u64;
        if is_before {
            self.to_pass -= count as u64;
        }
        is_before
    }

    /// Adds the next element if it belongs to the page; otherwise `make` is not called.
    pub fn add(&mut self, make: impl FnOnce() -> Result<Element, QueryError>) -> Result<Flow, QueryError> {
        if self.pass(1) {
            return Ok(Flow::Continue);
        }
        if self.row_count >= self.rows_max || self.cells.len() >= self.bytes_max {
            self.has_more = true;
            return Ok(Flow::Full);
        }
        let element = make()?;
        let statement = element.statement.as_deref().filter(|_| self.with_statements);
        let bytes = element.name.len() + statement.map_or(0, str::len);
        steps::count(1 + bytes / BYTES_FACTOR);
        self.execution.work(1 + steps_of_bytes(BYTES_FACTOR * bytes))?;
        self.execution.check_room(self.cells.len() + bytes)?;
        for text in [&element.keyspace, element.kind, &element.name] {
            write_cell(text.as_bytes(), &mut self.cells);
        }
        if self.with_statements {
            write_cell(statement.unwrap_or_default().as_bytes(), &mut self.cells);
        }
        self.row_count += 1;
        Ok(Flow::Continue)
    }

    /// Adds the elements that `make` returns for these things, until the page is full.
    pub fn add_each<T>(
        &mut self,
        mut things: impl ExactSizeIterator<Item = T>,
        make: impl Fn(T) -> Result<Element, QueryError>,
    ) -> Result<Flow, QueryError> {
        let passed = self.to_pass.min(things.len() as u64);
        self.execution.work(passed / PASSED_PER_STEP)?;
        self.to_pass -= passed;
        things.by_ref().take(passed as usize).for_each(drop);
        for thing in things {
            if self.add(|| make(thing))? == Flow::Full {
                return Ok(Flow::Full);
            }
        }
        Ok(Flow::Continue)
    }

    /// The answer.
    pub fn end(self) -> ResponseBody {
        debug_assert!(self.row_count <= self.rows_max, "a page has at most the rows that it may have");
        let end = self.start.saturating_add(self.row_count as u64);
        let paging_state = self.has_more.then(|| state(end, self.statement, self.execution));
        let (metadata, form) = (result_metadata(self.statement), MetadataForm::default());
        ResponseBody::Rows(Rows { metadata, form, paging_state, row_count: self.row_count, cells: self.cells })
    }
}

/// Appends a text to a row.
pub(super) fn write_cell(bytes: &[u8], cells: &mut Vec<u8>) {
    types::collection::write_part(Some(bytes), cells);
}

/// A number for what a DESCRIBE lists.
fn shape(statement: &Describe, execution: &Execution<'_>) -> u64 {
    let mut hash = Fnv::new();
    let current = execution.client.keyspace.as_deref().or(execution.keyspace);
    // A hash takes everything.
    let _ = write!(hash, "{:?} {current:?}", statement.target);
    hash.value()
}

fn state(start: u64, statement: &Describe, execution: &Execution<'_>) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&shape(statement, execution).to_be_bytes());
    out.extend_from_slice(execution.schema.version.as_bytes());
    out.extend_from_slice(&start.to_be_bytes());
    out
}

/// The number of elements before the page with this state.
fn start_of(state: &[u8], statement: &Describe, execution: &Execution<'_>) -> Result<u64, QueryError> {
    let (schema_version, start) =
        parse(state, shape(statement, execution)).ok_or_else(|| QueryError::protocol(INVALID_STATE))?;
    if schema_version != execution.schema.version.as_bytes() {
        return Err(QueryError::invalid(SCHEMA_CHANGED));
    }
    Ok(start)
}

fn parse(state: &[u8], shape: u64) -> Option<(&[u8; 16], u64)> {
    let ([version], rest) = state.split_first_chunk()?;
    let (of_statement, rest) = rest.split_first_chunk()?;
    let (schema_version, rest) = rest.split_first_chunk()?;
    let start = u64::from_be_bytes(rest.try_into().ok()?);
    (*version == VERSION && u64::from_be_bytes(*of_statement) == shape).then_some((schema_version, start))
}

const INVALID_STATE: &str = "Invalid value for the paging state";

const SCHEMA_CHANGED: &str = "The schema has changed since the previous page of the DESCRIBE statement result. \
                              Please retry the DESCRIBE statement.";
