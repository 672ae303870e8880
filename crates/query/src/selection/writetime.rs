//! `writetime`, `maxwritetime` and `ttl` of columns and of parts of them.

use std::collections::HashMap;
use std::convert::Infallible;

use cql::ast::WritetimeOrTtl;
use model::{Cell, ColumnData};
use types::{CqlType, collection};

use super::RowParts;
use crate::execution::Execution;
use crate::row_view::{RowView, Source};
use crate::terms::{Bound, Term};

/// The cells of a column whose times are selected.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// All cells.
    Whole,
    /// The field of a user type at this place.
    Field(usize),
    /// The cell of an element of a set or map.
    Element(Term),
    /// The cells of the elements in a range, with both ends included.
    Slice(Option<Term>, Option<Term>),
}

/// The selected part, with the values of one execution.
enum BoundPart {
    Whole,
    Nothing,
    /// The path of a field's cell.
    Field([u8; 2]),
    Element(Vec<u8>),
    Slice(Option<Vec<u8>>, Option<Vec<u8>>),
}

impl BoundPart {
    /// The first and the last selected path, if not all paths are selected.
    fn bounds(&self) -> Option<[Option<&[u8]>; 2]> {
        match self {
            BoundPart::Whole | BoundPart::Nothing => None,
            BoundPart::Field(place) => Some([Some(place), Some(place)]),
            BoundPart::Element(wanted) => Some([Some(wanted), Some(wanted)]),
            BoundPart::Slice(from, to) => Some([from.as_deref(), to.as_deref()]),
        }
    }
}

/// Reads the times of cells.
#[derive(Clone, Debug)]
pub(crate) struct WritetimeSelector {
    pub kind: WritetimeOrTtl,
    pub source: Source,
    /// The column's type.
    pub column_type: CqlType,
    pub part: Part,
}

impl WritetimeSelector {
    /// The type of the result: a list for many cells, except for the greatest time.
    pub fn ty(&self) -> CqlType {
        let one = match self.kind {
            WritetimeOrTtl::Ttl => CqlType::Int,
            WritetimeOrTtl::Writetime | WritetimeOrTtl::MaxWritetime => CqlType::Bigint,
        };
        if self.is_list() { CqlType::list(one) } else { one }
    }

    fn is_list(&self) -> bool {
        let many = matches!(self.part, Part::Whole | Part::Slice(..));
        many && self.column_type.is_multi_cell() && self.kind != WritetimeOrTtl::MaxWritetime
    }

    /// The serialized result; `None` is null.
    pub fn evaluate(&self, row: &RowView<'_>, parts: &RowParts, execution: &Execution<'_>) -> Option<Vec<u8>> {
        let now = row.now_seconds;
        match row.data(self.source)? {
            ColumnData::Simple(cell) => {
                let is_asked = || self.is_in(cell.value, &self.bind_part(execution), parts);
                self.time_of(&cell, now).filter(|_| cell.is_live(now) && is_asked())
            }
            ColumnData::Complex(cells) => {
                let selected = self.bind_part(execution);
                let read_once = match selected.bounds() {
                    Some(_) => parts.of_cells(self.source, &self.column_type, cells, now),
                    None => None,
                };
                let live: Vec<Cell<'_>> = match (read_once, selected.bounds()) {
                    (Some(read), Some([from, to])) => read.between(from, to).collect(),
                    _ => cells.filter(|cell| cell.is_live(now) && self.covers(cell.path, &selected)).collect(),
                };
                if live.is_empty() {
                    return None;
                }
                if self.is_list() {
                    return Some(self.list(&live, now));
                }
                let latest = live.iter().max_by_key(|cell| cell.timestamp)?;
                self.time_of(latest, now)
            }
        }
    }

    fn list(&self, cells: &[Cell<'_>], now: u32) -> Vec<u8> {
        let mut out = Vec::new();
        if let CqlType::Udt { definition, .. } = &self.column_type {
            let times: HashMap<usize, &Cell<'_>> =
                cells.iter().rev().filter_map(|cell| Some((field_place(cell.path)?, cell))).collect();
            collection::write_count(definition.fields().len(), &mut out);
            for place in 0..definition.fields().len() {
                let time = times.get(&place).and_then(|cell| self.time_of(cell, now));
                collection::write_part(time.as_deref(), &mut out);
            }
            return out;
        }
        collection::write_count(cells.len(), &mut out);
        for cell in cells {
            collection::write_part(self.time_of(cell, now).as_deref(), &mut out);
        }
        out
    }

    /// The selected elements in this execution. A bound that no element can have selects nothing. Null and unset bounds
    /// of a slice are open.
    fn bind_part(&self, execution: &Execution<'_>) -> BoundPart {
        let bytes = |term: &Term| {
            term.bind(execution).ok().and_then(|value| match value {
                Bound::Bytes(bytes) => Some(bytes.into_owned()),
                _ => None,
            })
        };
        match &self.part {
            Part::Whole => BoundPart::Whole,
            Part::Field(place) => BoundPart::Field((*place as u16).to_be_bytes()),
            Part::Element(term) => bytes(term).map_or(BoundPart::Nothing, BoundPart::Element),
            Part::Slice(from, to) => BoundPart::Slice(from.as_ref().and_then(bytes), to.as_ref().and_then(bytes)),
        }
    }

    /// Whether a frozen collection has an element in the selected part.
    fn is_in(&self, value: &[u8], selected: &BoundPart, parts: &RowParts) -> bool {
        if let Part::Whole = self.part {
            return true;
        }
        let known = parts.of_value(self.source, &self.column_type, || Ok::<_, Infallible>(Some(value.to_vec())));
        if let Ok(Some(known)) = known {
            return match selected {
                BoundPart::Whole => true,
                BoundPart::Nothing => false,
                BoundPart::Field(place) => known.at(u16::from_be_bytes(*place).into()).is_some(),
                BoundPart::Element(wanted) => known.element(wanted).is_some(),
                BoundPart::Slice(from, to) => known.has_between(from.as_deref(), to.as_deref()),
            };
        }
        match (&self.column_type, &self.part) {
            (_, Part::Field(place)) => matches!(collection::fields(value).nth(*place), Some(Ok(Some(_)))),
            (CqlType::Map { .. }, _) => collection::entries(value)
                .is_ok_and(|entries| entries.entries().flatten().any(|(key, _)| self.covers(key, selected))),
            (_, _) => collection::elements(value)
                .is_ok_and(|elements| elements.flatten().flatten().any(|element| self.covers(element, selected))),
        }
    }

    /// Whether the cell of this path, or the element of a frozen collection with this key, is selected.
    fn covers(&self, path: &[u8], selected: &BoundPart) -> bool {
        let key_type = match &self.column_type {
            CqlType::Map { key, .. } => key,
            CqlType::Set { element, .. } => element,
            _ => &CqlType::Blob,
        };
        match selected {
            BoundPart::Whole => true,
            BoundPart::Nothing => false,
            BoundPart::Field(place) => path == place,
            BoundPart::Element(wanted) => key_type.compare(path, wanted).is_eq(),
            BoundPart::Slice(from, to) => {
                let above = from.as_ref().is_none_or(|from| key_type.compare(path, from).is_ge());
                let below = to.as_ref().is_none_or(|to| key_type.compare(path, to).is_le());
                above && below
            }
        }
    }

    fn time_of(&self, cell: &Cell<'_>, now: u32) -> Option<Vec<u8>> {
        match self.kind {
            WritetimeOrTtl::Writetime | WritetimeOrTtl::MaxWritetime => Some(cell.timestamp.to_be_bytes().to_vec()),
            WritetimeOrTtl::Ttl if cell.is_expiring() => {
                let left = i64::from(cell.local_deletion_time) - i64::from(now);
                Some(i32::try_from(left).unwrap_or(i32::MAX).to_be_bytes().to_vec())
            }
            WritetimeOrTtl::Ttl => None,
        }
    }
}

fn field_place(path: &[u8]) -> Option<usize> {
    path.first_chunk::<2>().map(|place| usize::from(u16::from_be_bytes(*place)))
}
