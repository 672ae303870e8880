//! The prepared changes that a modification makes to columns.

use std::sync::Arc;

use cql::ast::{self, Deletion, Identifier, Operation};
use model::{Column, ColumnKind, Table};
use types::similarity::read_floats;
use types::{CqlType, Similarity, UserType};

use crate::execution::Execution;
use crate::names::column_spec;
use crate::preparing::Preparing;
use crate::terms::{Term, prepare as prepare_term};
use crate::{ColumnSpec, ErrorKind, QueryError, Value, vector_index};

/// A change of a column, or of elements of it.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The column gets this value; null deletes it.
    Set(Term),
    /// The content of the column is deleted.
    Delete,
    /// This is added to a counter.
    Increment(Term),
    /// This is subtracted from a counter.
    Decrement(Term),
    /// Elements are added to a set, or entries to a map.
    Add(Term),
    /// Elements are appended to a list.
    Append(Term),
    /// Elements are prepended to a list.
    Prepend(Term),
    /// These elements of a set, or the entries of a map with these keys, are removed.
    Remove(Term),
    /// All elements of a list that equal one of these are removed.
    Discard(Term),
    /// The entry of a map gets this value; null deletes it.
    SetKey { key: Term, value: Term },
    /// The element of a set, or the entry of a map, is removed.
    DeleteKey(Term),
    /// The element of a list gets this value; null deletes it.
    SetIndex { index: Term, value: Term },
    /// The element of a list is removed.
    DeleteIndex(Term),
    /// The field of a user type gets this value; null deletes it.
    SetField { place: u16, value: Term },
    /// The field of a user type loses its value.
    DeleteField { place: u16 },
}

impl Change {
    /// Whether the change depends on the current content of the column.
    pub fn requires_read(&self) -> bool {
        matches!(self, Change::Discard(_) | Change::SetIndex { .. } | Change::DeleteIndex(_))
    }
}

/// The changes of one static or regular column.
#[derive(Clone, Debug)]
pub(super) struct ColumnChanges {
    /// Index in the table's column set.
    pub index: usize,
    pub column: Arc<Column>,
    /// The place of the column's first change in the statement.
    pub place: usize,
    /// The changes in the order of the statement.
    pub changes: Vec<Change>,
    /// The marker that gives the column its value, if there is one, and if most of its values need no more than a quick
    /// check.
    pub marker: Option<PlainMarker>,
}

impl ColumnChanges {
    fn new(index: usize, place: usize, column: &Arc<Column>, change: Change) -> ColumnChanges {
        let marker = if column.is_complex() { None } else { PlainMarker::of(&change) };
        ColumnChanges { index, column: column.clone(), place, changes: vec![change], marker }
    }

    /// Adds later changes of the same column. For a simple column that is no counter only the last change counts.
    fn join(&mut self, later: ColumnChanges) {
        if self.column.is_complex() || self.column.ty == CqlType::Counter {
            self.changes.extend(later.changes);
        } else {
            *self = later;
        }
    }
}

/// A bind marker for a simple column.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainMarker {
    number: u32,
    /// Whether only ASCII values can be written unchecked; otherwise all values can.
    is_text: bool,
}

impl PlainMarker {
    fn of(change: &Change) -> Option<PlainMarker> {
        let Change::Set(Term::Marker { index, receiver }) = change else { return None };
        let is_text = match receiver.ty {
            CqlType::Text | CqlType::Ascii => true,
            CqlType::Blob => false,
            _ => return None,
        };
        Some(PlainMarker { number: u32::try_from(*index).ok()?, is_text })
    }

    /// Whether this marker directly follows `other`, and both are for texts.
    fn follows(self, other: PlainMarker) -> bool {
        self.is_text && other.is_text && self.number.checked_sub(1) == Some(other.number)
    }

    /// The sent values of `count` markers for texts, of which this is the first (see [`Execution::sent_texts`]).
    pub fn sent_texts<'v>(self, count: usize, execution: &Execution<'v>) -> Option<&'v [u8]> {
        if self.is_text { execution.sent_texts(self.number as usize, count) } else { None }
    }

    /// The value, if a quick check shows that it is valid. `None` means that the full check is needed.
    #[inline]
    pub fn value<'v>(&self, execution: &Execution<'v>) -> Option<&'v [u8]> {
        match execution.values.get(self.number as usize) {
            Some(Value::Bytes(bytes)) if !self.is_text || bytes.is_ascii() => Some(*bytes),
            _ => None,
        }
    }
}

/// The changes of a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// The changes of regular columns, by index.
    pub regulars: Vec<ColumnChanges>,
    /// The changes of static columns, by index.
    pub statics: Vec<ColumnChanges>,
    /// The values of columns with an index of vectors.
    vectors: Vec<(Similarity, Term)>,
}

impl Changes {
    /// Refuses vectors that their index cannot compare.
    #[inline]
    pub fn check_vectors(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        if self.vectors.is_empty() { Ok(()) } else { self.check_indexed(execution) }
    }

    #[cold]
    fn check_indexed(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        let mut vector = Vec::new();
        self.vectors.iter().try_for_each(|(similarity, term)| {
            vector.clear();
            term.bind(execution)?.as_bytes().iter().for_each(|bytes| read_floats(bytes, &mut vector));
            if vector.is_empty() { Ok(()) } else { vector_index::check(*similarity, &vector) }
        })
    }

    /// Adds a change of a column of this table. [`in_order`](Self::in_order) must be called after the last one.
    pub fn push(&mut self, table: &Table, column: &Arc<Column>, change: Change) -> Result<(), QueryError> {
        if let Change::Set(term) = &change
            && let Some(similarity) = vector_index::find(table, &column.name).and_then(|index| index.part.similarity())
        {
            self.vectors.push((similarity, term.clone()));
        }
        let is_static = column.kind == ColumnKind::Static;
        let index = table.columns(is_static).index_of(&column.name);
        let index = index.ok_or_else(|| QueryError::server("a column that is not in its table's set"))?;
        let place = self.regulars.len() + self.statics.len();
        let columns = if is_static { &mut self.statics } else { &mut self.regulars };
        match columns.last_mut() {
            Some(last) if last.index == index => last.join(ColumnChanges::new(index, place, column, change)),
            _ => columns.push(ColumnChanges::new(index, place, column, change)),
        }
        Ok(())
    }

    /// Returns the changes with each column once, ordered by index.
    pub fn in_order(mut self) -> Changes {
        for columns in [&mut self.regulars, &mut self.statics] {
            if columns.is_sorted_by(|one, next| one.index < next.index) {
                continue;
            }
            columns.sort_by_key(|column| column.index);
            let mut joined: Vec<ColumnChanges> = Vec::with_capacity(columns.len());
            for column in columns.drain(..) {
                match joined.last_mut() {
                    Some(last) if last.index == column.index => last.join(column),
                    _ => joined.push(column),
                }
            }
            *columns = joined;
        }
        self
    }

    /// The regular columns, starting with the table's first, whose values are those of markers. They are divided into
    /// runs whose markers directly follow each other. Returns the number of columns in each run.
    pub fn leading_runs(&self) -> Vec<usize> {
        let leading =
            self.regulars.iter().zip(0..).map_while(|(column, place)| column.marker.filter(|_| column.index == place));
        let markers: Vec<PlainMarker> = leading.collect();
        markers.chunk_by(|one, next| next.follows(*one)).map(<[_]>::len).collect()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.regulars.is_empty() && self.statics.is_empty()
    }

    /// Whether static columns are changed, and no others.
    pub fn only_statics(&self) -> bool {
        self.regulars.is_empty() && !self.statics.is_empty()
    }

    /// Whether a change depends on the current content of a column.
    pub fn requires_read(&self) -> bool {
        let all = self.regulars.iter().chain(&self.statics).flat_map(|column| &column.changes);
        all.into_iter().any(Change::requires_read)
    }
}

fn refuse<T>(message: String) -> Result<T, QueryError> {
    Err(QueryError::invalid(message))
}

/// Prepares `column = value`, also for INSERT.
pub(super) fn prepare_value(
    value: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Change, QueryError> {
    let term = prepare_term(value, receiver, preparing)?;
    if receiver.ty == CqlType::Counter {
        return refuse(format!(
            "Cannot set the value of counter column {} (counters can only be incremented/decremented, not set)",
            receiver.name
        ));
    }
    Ok(Change::Set(term))
}

/// Prepares an assignment of UPDATE.
pub(super) fn prepare_operation(
    operation: &Operation,
    column: &Column,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<Change, QueryError> {
    let receiver = column_spec(table, column);
    match operation {
        Operation::SetValue(value) => prepare_value(value, &receiver, preparing),
        Operation::SetElement { element, value } => set_element(element, value, &receiver, preparing),
        Operation::SetField { field, value } => set_field(field, value, &receiver, preparing),
        Operation::Addition(value) => addition(value, &receiver, preparing),
        Operation::Subtraction(value) => subtraction(value, &receiver, preparing),
        Operation::Prepend(value) => prepend(value, &receiver, preparing),
    }
}

fn key_spec(receiver: &ColumnSpec, ty: &CqlType) -> ColumnSpec {
    receiver.sibling(format!("key({})", receiver.name), ty.clone())
}

fn value_spec(receiver: &ColumnSpec, ty: &CqlType) -> ColumnSpec {
    receiver.sibling(format!("value({})", receiver.name), ty.clone())
}

fn index_spec(receiver: &ColumnSpec) -> ColumnSpec {
    receiver.sibling(format!("idx({})", receiver.name), CqlType::Int)
}

fn set_element(
    element: &ast::Term,
    value: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Change, QueryError> {
    let name = &receiver.name;
    let invalid = |what: &str| refuse(format!("Invalid operation ({name}[{element}] = {value}) for {what} {name}"));
    if !receiver.ty.is_collection() {
        return invalid("non collection column");
    }
    if !receiver.ty.is_multi_cell() {
        return invalid("frozen collection column");
    }
    match &receiver.ty {
        CqlType::List { element: ty, .. } => {
            let index = prepare_term(element, &index_spec(receiver), preparing)?;
            Ok(Change::SetIndex { index, value: prepare_term(value, &value_spec(receiver, ty), preparing)? })
        }
        CqlType::Map { key: key_type, value: ty, .. } => {
            let key = prepare_term(element, &key_spec(receiver, key_type), preparing)?;
            Ok(Change::SetKey { key, value: prepare_term(value, &value_spec(receiver, ty), preparing)? })
        }
        _ => invalid("set column"),
    }
}

fn set_field(
    field: &Identifier,
    value: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Change, QueryError> {
    let name = &receiver.name;
    let invalid =
        |what: &str| refuse(format!("Invalid operation ({name}.{} = {value}) for {what} {name}", field.as_str()));
    let CqlType::Udt { definition, frozen } = &receiver.ty else { return invalid("non-UDT column") };
    if *frozen {
        return invalid("frozen UDT column");
    }
    let place = field_place(definition, field, name)?;
    let (field, ty) = &definition.fields()[usize::from(place)];
    let spec = receiver.sibling(format!("{name}.{field}"), ty.clone());
    Ok(Change::SetField { place, value: prepare_term(value, &spec, preparing)? })
}

fn field_place(definition: &UserType, field: &Identifier, column: &str) -> Result<u16, QueryError> {
    let place = definition.field_index(field.as_str()).and_then(|place| u16::try_from(place).ok());
    let unknown = || format!("UDT column {column} does not have a field named {}", field.as_str());
    place.ok_or_else(|| QueryError::invalid(unknown()))
}

fn addition(value: &ast::Term, receiver: &ColumnSpec, preparing: &mut Preparing<'_>) -> Result<Change, QueryError> {
    let name = &receiver.name;
    let invalid = |what: &str| refuse(format!("Invalid operation ({name} = {name} + {value}) for {what} {name}"));
    match &receiver.ty {
        CqlType::Counter => Ok(Change::Increment(prepare_term(value, receiver, preparing)?)),
        CqlType::Tuple(_) | CqlType::Udt { .. } => invalid("tuple column"),
        ty if !ty.is_collection() => invalid("non counter column"),
        ty if !ty.is_multi_cell() => invalid("frozen collection column"),
        CqlType::List { .. } => Ok(Change::Append(prepare_term(value, receiver, preparing)?)),
        CqlType::Map { .. } => {
            let what = || format!("Value for a map addition has to be a map, but was: '{value}'");
            Ok(Change::Add(prepare_term(value, receiver, preparing).map_err(|error| say_instead(error, what))?))
        }
        _ => Ok(Change::Add(prepare_term(value, receiver, preparing)?)),
    }
}

/// Replaces the text of an invalid request's error.
fn say_instead(error: QueryError, message: impl FnOnce() -> String) -> QueryError {
    match error.kind {
        ErrorKind::Invalid => QueryError::invalid(message()),
        _ => error,
    }
}

fn subtraction(value: &ast::Term, receiver: &ColumnSpec, preparing: &mut Preparing<'_>) -> Result<Change, QueryError> {
    let name = &receiver.name;
    let invalid = |what: &str| refuse(format!("Invalid operation ({name} = {name} - {value}) for {what} {name}"));
    match &receiver.ty {
        CqlType::Counter => Ok(Change::Decrement(prepare_term(value, receiver, preparing)?)),
        ty if !ty.is_collection() => invalid("non counter column"),
        ty if !ty.is_multi_cell() => invalid("frozen collection column"),
        CqlType::List { .. } => Ok(Change::Discard(prepare_term(value, receiver, preparing)?)),
        CqlType::Map { key, .. } => {
            let keys = receiver.sibling(receiver.name.clone(), CqlType::set((**key).clone()));
            let what = || format!("Value for a map substraction has to be a set, but was: '{value}'");
            Ok(Change::Remove(prepare_term(value, &keys, preparing).map_err(|error| say_instead(error, what))?))
        }
        _ => Ok(Change::Remove(prepare_term(value, receiver, preparing)?)),
    }
}

fn prepend(value: &ast::Term, receiver: &ColumnSpec, preparing: &mut Preparing<'_>) -> Result<Change, QueryError> {
    let name = &receiver.name;
    let term = prepare_term(value, receiver, preparing)?;
    let invalid = |what: &str| refuse(format!("Invalid operation ({name} = {value} - {name}) for {what} {name}"));
    match &receiver.ty {
        CqlType::List { frozen: false, .. } => Ok(Change::Prepend(term)),
        CqlType::List { .. } => invalid("frozen list column"),
        _ => invalid("non list column"),
    }
}

/// Prepares what a DELETE removes.
pub(super) fn prepare_deletion(
    deletion: &Deletion,
    column: &Column,
    table: &Table,
    preparing: &mut Preparing<'_>,
) -> Result<Change, QueryError> {
    let receiver = column_spec(table, column);
    match deletion {
        Deletion::Column(_) => Ok(Change::Delete),
        Deletion::Element { element, .. } => delete_element(element, &receiver, preparing),
        Deletion::Field { field, .. } => delete_field(field, &receiver),
    }
}

fn delete_element(
    element: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Change, QueryError> {
    let name = &receiver.name;
    if !receiver.ty.is_collection() {
        return refuse(format!("Invalid deletion operation for non collection column {name}"));
    }
    if !receiver.ty.is_multi_cell() {
        return refuse(format!("Invalid deletion operation for frozen collection column {name}"));
    }
    match &receiver.ty {
        CqlType::Set { element: ty, .. } => {
            Ok(Change::DeleteKey(prepare_term(element, &value_spec(receiver, ty), preparing)?))
        }
        CqlType::Map { key, .. } => Ok(Change::DeleteKey(prepare_term(element, &key_spec(receiver, key), preparing)?)),
        _ => Ok(Change::DeleteIndex(prepare_term(element, &index_spec(receiver), preparing)?)),
    }
}

fn delete_field(field: &Identifier, receiver: &ColumnSpec) -> Result<Change, QueryError> {
    let name = &receiver.name;
    match &receiver.ty {
        CqlType::Udt { frozen: true, .. } => {
            refuse(format!("Frozen UDT column {name} does not support field deletions"))
        }
        CqlType::Udt { definition, .. } => Ok(Change::DeleteField { place: field_place(definition, field, name)? }),
        _ => refuse(format!("Invalid field deletion operation for non-UDT column {name}")),
    }
}
