//! Changes of collections and user types that are stored cell by cell.

use std::borrow::Cow;
use std::cmp::Ordering;

use model::{DeletionTime, RowBuilder, compare_paths, reconcile_cells};
use types::{CqlType, collection};

use super::change::{Change, ColumnChanges};
use super::existing::ListCell;
use super::times::Times;
use crate::QueryError;
use crate::execution::Execution;
use crate::terms::{Bound, Term};

/// Which element a cell is.
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

/// The cells that the changes of one column come to.
struct Elements<'v, 'e> {
    ty: &'v CqlType,
    execution: &'e Execution<'e>,
    deletion: DeletionTime,
    /// A cell without value is deleted.
    cells: Vec<(Path<'v>, Option<&'v [u8]>)>,
    /// What a list holds, for the changes that ask.
    existing: &'v [ListCell],
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
        | Change::Count(term)
        | Change::Add(term)
        | Change::Append(term)
        | Change::Prepend(term)
        | Change::Remove(term)
        | Change::Discard(term)
        | Change::SetField { value: term, .. } => one(term),
    }
}

/// Adds the changes of a column to the row being built. `existing` are the live cells of a list, where a change asks.
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
    let ty = &column.column.ty;
    let mut elements = Elements { ty, execution, deletion: DeletionTime::LIVE, cells: Vec::new(), existing };
    for (change, (element, value)) in column.changes.iter().zip(&bound) {
        elements.apply(change, element, value, times)?;
    }
    elements.finish(column.index, times, builder);
    Ok(())
}

impl<'v> Elements<'v, '_> {
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
            Change::Prepend(_) => self.prepend(value),
            Change::Remove(_) => self.remove(value),
            Change::Discard(_) => self.discard(value),
            Change::SetField { place, .. } => {
                self.cells.push((Path::Field(place.to_be_bytes()), value.as_bytes()));
                Ok(())
            }
            Change::Count(_) => Err(QueryError::server("a counter among elements")),
        }
    }

    /// Adds what a whole value consists of.
    fn add(&mut self, value: &'v Bound<'_>) -> Result<(), QueryError> {
        let Some(bytes) = value.as_bytes() else { return Ok(()) };
        match self.ty {
            CqlType::List { .. } => {
                let processor = self.execution.processor;
                for element in collection::elements(bytes)? {
                    self.cells.push((Path::Place(processor.next_timeuuid()), Some(element?.unwrap_or_default())));
                }
            }
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

    fn prepend(&mut self, value: &'v Bound<'_>) -> Result<(), QueryError> {
        let Some(bytes) = value.as_bytes() else { return Ok(()) };
        let count = collection::count(bytes).unwrap_or_default();
        let places = self.execution.processor.prepended_paths().next(self.execution.now_micros, count);
        for (place, element) in places.zip(collection::elements(bytes)?) {
            self.cells.push((Path::Place(place), Some(element?.unwrap_or_default())));
        }
        Ok(())
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
        let mut gone: Vec<&[u8]> = Vec::new();
        for element in collection::elements(bytes)? {
            gone.extend(element?);
        }
        for (place, _) in self.list().iter().filter(|(_, value)| gone.contains(&value.as_ref())) {
            self.cells.push((Path::Place(*place), None));
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

    /// `what` names the change where there is no list.
    fn set_index(&mut self, index: &Bound<'_>, value: &'v Bound<'_>, what: &str) -> Result<(), QueryError> {
        let index = match index {
            Bound::Null => return Err(QueryError::invalid("Invalid null value for list index")),
            Bound::Unset => return Err(QueryError::invalid("Invalid unset value for list index")),
            Bound::Bytes(bytes) => <[u8; 4]>::try_from(&**bytes).map(i32::from_be_bytes),
        };
        let index = index.map_err(|_| QueryError::invalid("Invalid null value for list index"))?;
        let list = self.list();
        if list.is_empty() {
            return Err(QueryError::invalid(format!("Attempted to {what} a list which is null")));
        }
        let Some((place, _)) = usize::try_from(index).ok().and_then(|index| list.get(index)) else {
            let message = format!("List index {index} out of bound, list has size {}", list.len());
            return Err(QueryError::invalid(message));
        };
        let place = Path::Place(*place);
        if *value != Bound::Unset {
            self.cells.push((place, value.as_bytes()));
        }
        Ok(())
    }

    /// The list as earlier changes of the statement leave it.
    fn list(&self) -> Vec<(ListPlace, Cow<'v, [u8]>)> {
        let mut list: Vec<(ListPlace, Cow<'v, [u8]>)> =
            self.existing.iter().map(|cell| (cell.place, Cow::Borrowed(&*cell.value))).collect();
        for (path, value) in &self.cells {
            let Path::Place(place) = path else { continue };
            list.retain(|(known, _)| known != place);
            list.extend(value.map(|value| (*place, Cow::Borrowed(value))));
        }
        if !self.cells.is_empty() {
            list.sort_by(|(left, _), (right, _)| compare_paths(self.ty, left, right));
        }
        list
    }

    /// Writes the cells in the order of their paths, of equal ones the one that reconciliation keeps.
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

type ListPlace = [u8; 16];
