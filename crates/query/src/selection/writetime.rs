//! `writetime`, `maxwritetime` and `ttl` of columns and of parts of them.

use cql::ast::WritetimeOrTtl;
use model::{Cell, ColumnData};
use types::{CqlType, collection};

use crate::execution::Execution;
use crate::row_view::{RowView, Source};
use crate::terms::{Bound, Term};

/// Which cells of a column are asked.
#[derive(Debug)]
pub(crate) enum Part {
    /// All of them.
    Whole,
    /// The field of a user type at this place.
    Field(usize),
    /// The element of a set or map.
    Element(Term),
    /// The elements between two, both included.
    Slice(Option<Term>, Option<Term>),
}

/// Asks cells for their times.
#[derive(Debug)]
pub(crate) struct WritetimeSelector {
    pub kind: WritetimeOrTtl,
    pub source: Source,
    /// The column's type.
    pub column_type: CqlType,
    pub part: Part,
}

impl WritetimeSelector {
    /// The type of the answer: a list for many cells, unless the greatest is asked for.
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

    /// The serialized answer; `None` is null.
    pub fn evaluate(&self, row: &RowView<'_>, execution: &Execution<'_>) -> Option<Vec<u8>> {
        let now = row.now_seconds;
        match row.data(self.source)? {
            ColumnData::Simple(cell) => {
                self.time_of(&cell, now).filter(|_| cell.is_live(now) && self.is_in(cell.value, execution))
            }
            ColumnData::Complex(cells) => {
                let live: Vec<Cell<'_>> =
                    cells.filter(|cell| cell.is_live(now) && self.covers(cell.path, execution)).collect();
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
            collection::write_count(definition.fields().len(), &mut out);
            for place in 0..definition.fields().len() {
                let cell = cells.iter().find(|cell| field_place(cell.path) == Some(place));
                collection::write_part(cell.and_then(|cell| self.time_of(cell, now)).as_deref(), &mut out);
            }
            return out;
        }
        collection::write_count(cells.len(), &mut out);
        for cell in cells {
            collection::write_part(self.time_of(cell, now).as_deref(), &mut out);
        }
        out
    }

    /// Whether a frozen collection has an element of the part asked for.
    fn is_in(&self, value: &[u8], execution: &Execution<'_>) -> bool {
        match (&self.column_type, &self.part) {
            (_, Part::Whole) => true,
            (_, Part::Field(place)) => matches!(collection::fields(value).nth(*place), Some(Ok(Some(_)))),
            (CqlType::Map { .. }, _) => collection::entries(value)
                .is_ok_and(|entries| entries.entries().flatten().any(|(key, _)| self.covers(key, execution))),
            (_, _) => collection::elements(value)
                .is_ok_and(|elements| elements.flatten().flatten().any(|element| self.covers(element, execution))),
        }
    }

    /// Whether the cell of this path, or a frozen collection's element of this key, is asked.
    fn covers(&self, path: &[u8], execution: &Execution<'_>) -> bool {
        let key_type = match &self.column_type {
            CqlType::Map { key, .. } => key,
            CqlType::Set { element, .. } => element,
            _ => &CqlType::Blob,
        };
        // A bound that cannot be had covers nothing; null and unset bounds are open.
        let bytes = |term: &Term| {
            term.bind(execution).ok().and_then(|value| match value {
                Bound::Bytes(bytes) => Some(bytes.into_owned()),
                _ => None,
            })
        };
        match &self.part {
            Part::Whole => true,
            Part::Field(place) => field_place(path) == Some(*place),
            Part::Element(term) => bytes(term).is_some_and(|wanted| key_type.compare(path, &wanted).is_eq()),
            Part::Slice(from, to) => {
                let above = from.as_ref().and_then(bytes).is_none_or(|from| key_type.compare(path, &from).is_ge());
                let below = to.as_ref().and_then(bytes).is_none_or(|to| key_type.compare(path, &to).is_le());
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
