//! The guardrails of written values: `column_value_size`, `collection_size`, `items_per_collection`.
//!
//! They are off by default, so the values of a statement are examined a second time only if one of them is set.
//! Collections are judged by what a statement adds, as in Cassandra: nothing is read for it.

use types::{CqlType, collection};

use super::change::{Change, Changes};
use crate::QueryError;
use crate::execution::Execution;
use crate::guardrail::{COLLECTION_SIZE, COLUMN_VALUE_SIZE, ITEMS_PER_COLLECTION, Texts};
use crate::terms::Term;

/// The bytes that Cassandra counts for a cell besides its value and its path: timestamp, TTL and time of deletion.
const CELL_BYTES: usize = 20;

/// The path of a list's element, a timeuuid.
const LIST_PATH_BYTES: usize = 16;

/// The path of a user type's field.
const FIELD_PATH_BYTES: usize = 2;

/// Checks the changes of a statement; does nothing where no guardrail of values is set.
#[inline]
pub(super) fn check(changes: &Changes, execution: &Execution<'_>) -> Result<(), QueryError> {
    if execution.processor.watches_values() { check_values(changes, execution) } else { Ok(()) }
}

#[cold]
fn check_values(changes: &Changes, execution: &Execution<'_>) -> Result<(), QueryError> {
    for column in changes.regulars.iter().chain(&changes.statics) {
        let guarded = Guarded { column: &column.column.name, ty: &column.column.ty, execution };
        column.changes.iter().try_for_each(|change| guarded.change(change))?;
    }
    Ok(())
}

/// A column whose changes are checked.
struct Guarded<'g> {
    column: &'g str,
    ty: &'g CqlType,
    execution: &'g Execution<'g>,
}

impl Guarded<'_> {
    fn change(&self, change: &Change) -> Result<(), QueryError> {
        match change {
            Change::Set(term) if self.ty.is_multi_cell() => self.added(term, true),
            Change::Set(term) => self.whole(term),
            Change::Add(term) | Change::Append(term) => self.added(term, true),
            Change::Prepend(term) => self.added(term, false),
            Change::SetKey { key, value } => {
                self.value(self.length(value)?)?;
                self.value(self.length(key)?)
            }
            Change::SetIndex { value, .. } => {
                self.value(self.length(value)?)?;
                self.value(LIST_PATH_BYTES)
            }
            Change::SetField { value, .. } => self.value(self.length(value)?),
            Change::DeleteKey(key) => self.value(self.length(key)?),
            Change::Remove(term) => self.parts(term, |element, _| self.value(element.len())).map(|_| ()),
            Change::Delete
            | Change::Increment(_)
            | Change::Decrement(_)
            | Change::Discard(_)
            | Change::DeleteIndex(_)
            | Change::DeleteField { .. } => Ok(()),
        }
    }

    /// The value of a column that is one cell.
    fn whole(&self, term: &Term) -> Result<(), QueryError> {
        let bound = term.bind(self.execution)?;
        let Some(value) = bound.as_bytes() else { return Ok(()) };
        if self.ty.is_collection() {
            self.guard(&ITEMS_PER_COLLECTION, collection::count(value).unwrap_or(0))?;
        }
        self.value(value.len())?;
        if self.ty.is_collection() {
            self.guard(&COLLECTION_SIZE, CELL_BYTES + value.len())?;
        }
        Ok(())
    }

    /// Elements, entries or fields that become cells.
    fn added(&self, term: &Term, is_counted: bool) -> Result<(), QueryError> {
        let bound = term.bind(self.execution)?;
        let Some(value) = bound.as_bytes() else { return Ok(()) };
        let is_counted = is_counted && self.ty.is_collection();
        if is_counted {
            self.guard(&ITEMS_PER_COLLECTION, collection::count(value).unwrap_or(0))?;
        }
        let mut size_bytes = 0;
        let count = self.parts(term, |element, entry| {
            let (value_bytes, path_bytes) = match (self.ty, entry) {
                (CqlType::Set { .. }, _) => (0, element.len()),
                (CqlType::Map { .. }, Some(value)) => (value.len(), element.len()),
                (CqlType::List { .. }, _) => (element.len(), LIST_PATH_BYTES),
                _ => (element.len(), FIELD_PATH_BYTES),
            };
            size_bytes += CELL_BYTES + value_bytes + path_bytes;
            self.value(value_bytes)?;
            self.value(path_bytes)
        })?;
        if is_counted && count > 0 { self.guard(&COLLECTION_SIZE, size_bytes) } else { Ok(()) }
    }

    /// Calls `look` with the parts of a value that has some: elements, keys with their values, or fields. Returns their
    /// number.
    fn parts(
        &self,
        term: &Term,
        mut look: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), QueryError>,
    ) -> Result<usize, QueryError> {
        let bound = term.bind(self.execution)?;
        let Some(value) = bound.as_bytes() else { return Ok(0) };
        let mut count = 0;
        let mut counted = |part: &[u8], entry: Option<&[u8]>| {
            count += 1;
            look(part, entry)
        };
        match self.ty {
            CqlType::Map { .. } => {
                for entry in collection::entries(value)?.entries() {
                    let (key, value) = entry?;
                    counted(key, Some(value))?;
                }
            }
            ty if ty.is_collection() => {
                let mut elements = collection::elements(value)?;
                while let Some(element) = elements.next_non_null() {
                    counted(element?, None)?;
                }
            }
            _ => {
                for field in collection::fields(value) {
                    field?.map_or(Ok(()), |field| counted(field, None))?;
                }
            }
        }
        Ok(count)
    }

    fn length(&self, term: &Term) -> Result<usize, QueryError> {
        Ok(term.bind(self.execution)?.as_bytes().map_or(0, <[u8]>::len))
    }

    fn value(&self, size_bytes: usize) -> Result<(), QueryError> {
        self.guard(&COLUMN_VALUE_SIZE, size_bytes)
    }

    fn guard(&self, texts: &'static Texts, value: usize) -> Result<(), QueryError> {
        let guardrails = &self.execution.processor.options().guardrails;
        let guardrail = match texts.name() {
            "collection_size" => guardrails.collection_size,
            "items_per_collection" => guardrails.items_per_collection,
            _ => guardrails.column_value_size,
        };
        guardrail.check(texts, self.column, value, self.execution)
    }
}
