//! Changes of collections and user types that are stored cell by cell.

use std::cmp::Ordering;

use model::{DeletionTime, RowBuilder, compare_paths, reconcile_cells};
use types::{CqlType, collection};

use super::change::{Change, ColumnChanges};
use super::existing::ListCell;
use super::list::{List, ListPlace};
use super::times::Times;
use crate::QueryError;
use crate::execution::Execution;
use crate::terms::{Bound, Term};

/// The path of a cell.
#[derive(Clone, Copy)]
enum Path<'v> {
    /// An element of a set or a key of a map.
    Bytes(&'v [u8]),
    /// A place in a list.
    Place([u8; 16]),
    /// A field of a user type.
    Field([u8; 2]),
}

impl Path<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Path::Bytes(bytes) => bytes,
            Path::Place(place) => place,
            Path::Field(field) => field,
        }
    }
}

/// The cells that result from the changes of one column.
struct Elements<'v> {
    ty: &'v CqlType,
    deletion: DeletionTime,
    /// Paths and values. A cell without value is deleted.
    cells: Vec<(Path<'v>, Option<&'v [u8]>)>,
    /// The places of the elements that changes add to a list, in the order of the changes.
    new_places: std::vec::IntoIter<ListPlace>,
    /// The content of a list, if a change depends on it.
    list: Option<List<'v>>,
}

/// The values of a change in one execution: element and value, or one of them.
type BoundChange<'v> = (Bound<'v>, Bound<'v>);

fn bind<'v>(change: &'v Change, execution: &'v Execution<'_>) -> Result<BoundChange<'v>, QueryError> {
    let one = |term: &'v Term| Ok((Bound::Unset, term.bind(execution)?));
    match change {
        Change::Delete | Change::DeleteField { .. } => Ok((Bound::Unset, Bound::Unset)),
        Change::SetKey { key: element, value } | Change::SetIndex { index: element, value } => {
            Ok((element.bind(execution)?, value.bind(execution)?))
        }
        Change::DeleteKey(term) | Change::DeleteIndex(term) => Ok((term.bind(execution)?, Bound::Null)),
        Change::Set(term)
        | Change::Increment(term)
        | Change::Decrement(term)
        | Change::Add(term)
        | Change::Append(term)
        | Change::Prepend(term)
        | Change::Remove(term)
        | Change::Discard(term)
        | Change::SetField { value: term, .. } => one(term),
    }
}

/// The elements of a written collection that cost as much as a step.
const ELEMENTS_PER_STEP: u64 = 4;

/// Adds the changes of a column to the row that is being built. `existing` has the live cells of a list, if a change
/// depends on them.
pub(super) fn write(
    column: &ColumnChanges,
    existing: &[ListCell],
    times: &Times,
    execution: &Execution<'_>,
    builder: &mut RowBuilder,
) -> Result<(), QueryError> {
    let mut bound = Vec::with_capacity(column.changes.len());
    for change in &column.changes {
        bound.push(bind(change, execution)?);
    }
    // A value that is no collection says nothing about elements, but has no more of them than bytes.
    let elements = |bytes: &[u8]| collection::count(bytes).map_or(0, |count| count.min(bytes.len()) as u64);
    let values = bound.iter().filter_map(|(_, value)| value.as_bytes());
    execution.work(values.map(|value| elements(value) / ELEMENTS_PER_STEP).sum())?;
    let ty = &column.column.ty;
    let new_places = match ty {
        CqlType::List { .. } => new_places(&column.changes, &bound, execution),
        _ => Vec::new(),
    };
    let list = column.changes.iter().any(Change::requires_read).then(|| List::new(existing, &new_places));
    let new_places = new_places.into_iter();
    let mut elements = Elements { ty, deletion: DeletionTime::LIVE, cells: Vec::new(), new_places, list };
    for (change, (element, value)) in column.changes.iter().zip(&bound) {
        elements.apply(change, element, value, times)?;
    }
    elements.finish(column.index, times, builder);
    Ok(())
}

/// A place for each element that the changes add to a list.
fn new_places(changes: &[Change], bound: &[BoundChange<'_>], execution: &Execution<'_>) -> Vec<ListPlace> {
    let mut places = Vec::new();
    for (change, (_, value)) in changes.iter().zip(bound) {
        let elements = |bytes: &[u8]| collection::count(bytes).map_or(0, |count| count.min(bytes.len()));
        let count = value.as_bytes().map_or(0, elements);
        match change {
            Change::Set(_) | Change::Append(_) | Change::Add(_) => {
                places.extend((0..count).map(|_| execution.next_list_path()));
            }
            Change::Prepend(_) => {
                places.extend(execution.processor.prepended_paths().next(execution.now_micros, count));
            }
            _ => {}
        }
    }
    places
}

impl<'v> Elements<'v> {
    fn apply(
        &mut self,
        change: &Change,
        element: &'v Bound<'_>,
        value: &'v Bound<'_>,
        times: &Times,
    ) -> Result<(), QueryError> {
        match change {
            Change::Delete => {
                self.deletion = times.deletion();
                Ok(())
            }
            Change::DeleteField { place } => {
                self.cells.push((Path::Field(place.to_be_bytes()), None));
                Ok(())
            }
            Change::SetKey { .. } | Change::DeleteKey(_) => self.set_key(element, value),
            Change::SetIndex { .. } => self.set_index(element, value, "set an element on"),
            Change::DeleteIndex(_) if *element == Bound::Unset => Ok(()),
            Change::DeleteIndex(_) => self.set_index(element, value, "delete an element from"),
            _ if *value == Bound::Unset => Ok(()),
            Change::Set(_) => {
                self.deletion = times.overwrite();
                self.add(value)
            }
            Change::Add(_) | Change::Append(_) => self.add(value),
            Change::Prepend(_) => value.as_bytes().map_or(Ok(()), |bytes| self.add_to_list(bytes)),
            Change::Remove(_) => self.remove(value),
            Change::Discard(_) => self.discard(value),
            Change::SetField { place, .. } => {
                self.cells.push((Path::Field(place.to_be_bytes()), value.as_bytes()));
                Ok(())
            }
            Change::Increment(_) | Change::Decrement(_) => Err(QueryError::server("a counter among elements")),
        }
    }

    /// Adds all elements of a whole value.
    fn add(&mut self, value: &'v Bound<'_>) -> Result<(), QueryError> {
        let Some(bytes) = value.as_bytes() else { return Ok(()) };
        match self.ty {
            CqlType::List { .. } => self.add_to_list(bytes)?,
            CqlType::Set { .. } => {
                for element in collection::elements(bytes)? {
                    self.cells.push((Path::Bytes(element?.unwrap_or_default()), Some(&[])));
                }
            }
            CqlType::Map { .. } => {
                for entry in collection::entries(bytes)?.entries() {
                    let (key, value) = entry?;
                    self.cells.push((Path::Bytes(key), Some(value)));
                }
            }
            _ => {
                for (place, field) in (0u16..).zip(collection::fields(bytes)) {
                    if let Some(field) = field? {
                        self.cells.push((Path::Field(place.to_be_bytes()), Some(field)));
                    }
                }
            }
        }
        Ok(())
    }

    fn add_to_list(&mut self, bytes: &'v [u8]) -> Result<(), QueryError> {
        for element in collection::elements(bytes)? {
            let element = element?.unwrap_or_default();
            let place = self.new_places.next().ok_or_else(|| QueryError::server("an element without a place"))?;
            self.set_place(place, Some(element));
        }
        Ok(())
    }

    /// Sets or deletes the element at a place in a list.
    fn set_place(&mut self, place: ListPlace, value: Option<&'v [u8]>) {
        if let Some(list) = &mut self.list {
            list.set(&place, value);
        }
        self.cells.push((Path::Place(place), value));
    }

    fn remove(&mut self, value: &'v Bound<'_>) -> Result<(), QueryError> {
        let Some(bytes) = value.as_bytes() else { return Ok(()) };
        for element in collection::elements(bytes)? {
            self.cells.push((Path::Bytes(element?.unwrap_or_default()), None));
        }
        Ok(())
    }

    fn discard(&mut self, value: &Bound<'_>) -> Result<(), QueryError> {
        let Some(bytes) = value.as_bytes() else { return Ok(()) };
        let Some(list) = &mut self.list else { return Err(not_read()) };
        for element in collection::elements(bytes)? {
            let places = element?.map_or_else(Vec::new, |element| list.take(element));
            self.cells.extend(places.into_iter().map(|place| (Path::Place(place), None)));
        }
        Ok(())
    }

    fn set_key(&mut self, key: &'v Bound<'_>, value: &'v Bound<'_>) -> Result<(), QueryError> {
        let is_set = matches!(self.ty, CqlType::Set { .. });
        let what = if is_set { "set element" } else { "map key" };
        let path = match key {
            Bound::Null => return Err(QueryError::invalid(format!("Invalid null {what}"))),
            Bound::Unset => return Err(QueryError::invalid(format!("Invalid unset {what}"))),
            Bound::Bytes(bytes) => Path::Bytes(bytes),
        };
        if *value != Bound::Unset {
            self.cells.push((path, value.as_bytes()));
        }
        Ok(())
    }

    /// Sets the element of an index. `what` describes the change in the error for a missing list.
    fn set_index(&mut self, index: &Bound<'_>, value: &'v Bound<'_>, what: &str) -> Result<(), QueryError> {
        let index = match index {
            Bound::Null => return Err(QueryError::invalid("Invalid null value for list index")),
            Bound::Unset => return Err(QueryError::invalid("Invalid unset value for list index")),
            Bound::Bytes(bytes) => <[u8; 4]>::try_from(&**bytes).map(i32::from_be_bytes),
        };
        let index = index.map_err(|_| QueryError::invalid("Invalid null value for list index"))?;
        let Some(list) = &self.list else { return Err(not_read()) };
        if list.len() == 0 {
            return Err(QueryError::invalid(format!("Attempted to {what} a list which is null")));
        }
        let Some(place) = usize::try_from(index).ok().and_then(|index| list.at(index)) else {
            let message = format!("List index {index} out of bound, list has size {}", list.len());
            return Err(QueryError::invalid(message));
        };
        if *value != Bound::Unset {
            self.set_place(place, value.as_bytes());
        }
        Ok(())
    }

    /// Writes the cells in the order of their paths. Of cells with the same path, it writes the one that reconciliation
    /// keeps.
    fn finish(mut self, index: usize, times: &Times, builder: &mut RowBuilder) {
        let ty = self.ty;
        let compare = |left: &Path<'_>, right: &Path<'_>| compare_paths(ty, left.as_slice(), right.as_slice());
        if !self.cells.is_sorted_by(|(left, _), (right, _)| compare(left, right) == Ordering::Less) {
            self.cells.sort_by(|(left, _), (right, _)| compare(left, right));
        }
        builder.complex(index, self.deletion);
        let cell = |value: &Option<&'v [u8]>| value.map_or_else(|| times.tombstone(), |value| times.cell(value));
        for same in self.cells.chunk_by(|(left, _), (right, _)| compare(left, right) == Ordering::Equal) {
            let [(path, first), rest @ ..] = same else { continue };
            let kept = rest.iter().fold(cell(first), |kept, (_, value)| reconcile_cells(kept, cell(value)));
            builder.complex_cell(&kept.with_path(path.as_slice()));
        }
    }
}

fn not_read() -> QueryError {
    QueryError::server("a list that was not read")
}
