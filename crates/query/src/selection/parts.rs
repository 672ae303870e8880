//! Elements and fields of the columns of one row, found without decoding a column's value for each selector.
//!
//! A statement may select as many parts of a column as the column has bytes. The first few are searched in the
//! serialized value. If more are selected, the column is decoded once, and its parts are found by their order.

use std::cell::{OnceCell, RefCell};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use model::{Cell, ComplexCells};
use types::{CqlType, collection};

use crate::row_view::Source;

/// The number of parts of a column up to which each is searched for in the column's value.
const PLAIN_MAX: u32 = 4;

/// The decoded columns of one row.
#[derive(Default)]
pub(crate) struct RowParts {
    known: RefCell<Option<Box<Known>>>,
}

#[derive(Default)]
struct Known {
    asked: HashMap<Source, u32>,
    values: HashMap<Source, Option<Rc<Parts>>>,
    cells: HashMap<Source, Rc<LiveCells>>,
}

impl RowParts {
    /// Whether enough parts of this column were requested for decoding the column once.
    fn is_asked_often(&self, source: Source) -> bool {
        let mut known = self.known.borrow_mut();
        let asked = known.get_or_insert_default().asked.entry(source).or_default();
        *asked = asked.saturating_add(1);
        *asked > PLAIN_MAX
    }

    /// The parts of a column's value, if it should be decoded once and can be. `read` returns the value.
    pub fn of_value<E>(
        &self,
        source: Source,
        ty: &CqlType,
        read: impl FnOnce() -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Rc<Parts>>, E> {
        if !self.is_asked_often(source) {
            return Ok(None);
        }
        if let Some(parts) = self.known.borrow().as_ref().and_then(|known| known.values.get(&source)) {
            return Ok(parts.clone());
        }
        let parts = match read()? {
            Some(value) => Parts::new(ty, value).map(Rc::new),
            None => Some(Rc::new(Parts::null())),
        };
        self.known.borrow_mut().get_or_insert_default().values.insert(source, parts.clone());
        Ok(parts)
    }

    /// The live cells of a complex column, if it should be decoded once.
    pub fn of_cells(
        &self,
        source: Source,
        ty: &CqlType,
        cells: ComplexCells<'_>,
        now_seconds: u32,
    ) -> Option<Rc<LiveCells>> {
        if !self.is_asked_often(source) {
            return None;
        }
        let mut known = self.known.borrow_mut();
        let read = || Rc::new(LiveCells::new(ty, cells, now_seconds));
        Some(known.get_or_insert_default().cells.entry(source).or_insert_with(read).clone())
    }
}

/// The parts of a serialized collection or user type.
pub(crate) struct Parts {
    is_null: bool,
    value: Vec<u8>,
    /// The places of key and value for each entry of a map. For sets, lists and user types, the place of the element or
    /// field occurs twice.
    places: Vec<(Range<usize>, Range<usize>)>,
    /// The type of the keys of a map, or of the elements of a set.
    key_type: Option<CqlType>,
    is_map: bool,
    /// The places in the order of the keys.
    sorted: Vec<usize>,
    /// Whether the places are in that order already.
    is_sorted: bool,
    /// The places in the order of the values, after the first search for a value.
    by_value: OnceCell<Vec<usize>>,
}

impl Parts {
    fn null() -> Parts {
        Parts {
            is_null: true,
            value: Vec::new(),
            places: Vec::new(),
            key_type: None,
            is_map: false,
            sorted: Vec::new(),
            is_sorted: true,
            by_value: OnceCell::new(),
        }
    }

    /// Whether the column has no value.
    pub fn is_null(&self) -> bool {
        self.is_null
    }

    /// Decodes a value. Returns `None` if it is not a value of this type, or has null elements.
    fn new(ty: &CqlType, value: Vec<u8>) -> Option<Parts> {
        let (key_type, is_map) = match ty {
            CqlType::Map { key, .. } => (Some((**key).clone()), true),
            CqlType::Set { element, .. } => (Some((**element).clone()), false),
            _ => (None, false),
        };
        let is_list = matches!(ty, CqlType::List { .. });
        let mut at = if key_type.is_some() || is_list { size_of::<i32>() } else { 0 };
        let mut next = |part: Option<&[u8]>| {
            let start = at + size_of::<i32>();
            at = start + part.map_or(0, <[u8]>::len);
            start..at
        };
        let mut places = Vec::new();
        match ty {
            CqlType::Map { .. } => {
                for entry in collection::entries(&value).ok()?.entries() {
                    let (key, entry) = entry.ok()?;
                    places.push((next(Some(key)), next(Some(entry))));
                }
            }
            CqlType::Set { .. } | CqlType::List { .. } => {
                for element in collection::elements(&value).ok()? {
                    let place = next(Some(element.ok()??));
                    places.push((place.clone(), place));
                }
            }
            // The fields of a user type are found by their places only.
            _ => {
                for field in collection::fields(&value) {
                    let place = match field.ok()? {
                        Some(field) => next(Some(field)),
                        None => next(None).end..0,
                    };
                    places.push((place.clone(), place));
                }
            }
        }
        let mut sorted: Vec<usize> = (0..places.len()).collect();
        if let Some(ty) = &key_type {
            let key = |place: usize| &value[places[place].0.clone()];
            sorted.sort_by(|one, other| ty.compare(key(*one), key(*other)));
        }
        let is_sorted = sorted.is_sorted();
        let by_value = OnceCell::new();
        Some(Parts { is_null: false, value, places, key_type, is_map, sorted, is_sorted, by_value })
    }

    fn compare(&self, place: usize, wanted: &[u8]) -> Ordering {
        let key = &self.value[self.places[place].0.clone()];
        self.key_type.as_ref().map_or(Ordering::Equal, |ty| ty.compare(key, wanted))
    }

    /// The value of a map's key, or the element of a set, that is equal to `wanted`.
    pub fn element(&self, wanted: &[u8]) -> Option<&[u8]> {
        let before = self.sorted.partition_point(|place| self.compare(*place, wanted).is_lt());
        let found = self.sorted.get(before).filter(|place| self.compare(**place, wanted).is_eq())?;
        Some(&self.value[self.places[*found].1.clone()])
    }

    /// Whether one of the values of a map, or of the elements of a set or list, all of type `ty`, is equal to `wanted`.
    pub fn has_value(&self, ty: &CqlType, wanted: &[u8]) -> bool {
        let value = |place: &usize| &self.value[self.places[*place].1.clone()];
        let by_value = self.by_value.get_or_init(|| {
            let mut places: Vec<usize> = (0..self.places.len()).collect();
            places.sort_by(|one, other| ty.compare(value(one), value(other)));
            places
        });
        by_value.binary_search_by(|place| ty.compare(value(place), wanted)).is_ok()
    }

    /// The field of a user type, or the element of a list, at this place.
    pub fn at(&self, index: usize) -> Option<&[u8]> {
        let (_, place) = self.places.get(index)?;
        self.value.get(place.clone())
    }

    /// Whether a key is in the range, with both ends included.
    pub fn has_between(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
        let start = from.map_or(0, |from| self.sorted.partition_point(|place| self.compare(*place, from).is_lt()));
        let next = self.sorted.get(start);
        next.is_some_and(|place| to.is_none_or(|to| self.compare(*place, to).is_le()))
    }

    /// The map or set of the entries in the range of keys, with both ends included; `None` if the keys are not in
    /// order.
    pub fn slice(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Option<Vec<u8>> {
        if !self.is_sorted {
            return None;
        }
        let start = from.map_or(0, |from| self.sorted.partition_point(|place| self.compare(*place, from).is_lt()));
        let end =
            to.map_or(self.sorted.len(), |to| self.sorted.partition_point(|place| self.compare(*place, to).is_le()));
        let within = self.places.get(start..end.max(start)).unwrap_or_default();
        let bytes = |place: &Range<usize>| &self.value[place.clone()];
        Some(match self.is_map {
            true => collection::map(within.iter().map(|(key, value)| (bytes(key), bytes(value)))),
            false => collection::list(within.iter().map(|(element, _)| bytes(element))),
        })
    }
}

/// The live cells of a complex column, in the order of their paths.
pub(crate) struct LiveCells {
    paths: Vec<u8>,
    /// For each cell the place of its path, and the cell without path and value.
    cells: Vec<(Range<usize>, Cell<'static>)>,
    /// The type of the paths.
    ty: CqlType,
}

impl LiveCells {
    fn new(ty: &CqlType, cells: ComplexCells<'_>, now_seconds: u32) -> LiveCells {
        let mut paths = Vec::new();
        let place = |cell: Cell<'_>| {
            let start = paths.len();
            paths.extend_from_slice(cell.path);
            (start..paths.len(), Cell { path: &[], value: &[], ..cell })
        };
        let cells = cells.filter(|cell| cell.is_live(now_seconds)).map(place).collect();
        LiveCells { paths, cells, ty: ty.clone() }
    }

    /// The cells whose paths are in the range, with both ends included.
    pub fn between(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> impl Iterator<Item = Cell<'static>> {
        let compare =
            |path: &Range<usize>, bound: &[u8]| model::compare_paths(&self.ty, &self.paths[path.clone()], bound);
        let start = from.map_or(0, |from| self.cells.partition_point(|(path, _)| compare(path, from).is_lt()));
        let end = to.map_or(self.cells.len(), |to| self.cells.partition_point(|(path, _)| compare(path, to).is_le()));
        self.cells.get(start..end.max(start)).unwrap_or_default().iter().map(|(_, cell)| *cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_their_order_even_if_they_are_stored_in_another_one() {
        let ty = CqlType::map(CqlType::Int, CqlType::Text);
        let keys = [7_i32, 1, 3].map(i32::to_be_bytes);
        let value = collection::map(keys.iter().map(|key| (&key[..], &key[3..])));
        let parts = Parts::new(&ty, value).unwrap();
        for wanted in -1..9_i32 {
            let expected = [1, 3, 7].contains(&wanted).then(|| vec![wanted as u8]);
            assert_eq!(parts.element(&wanted.to_be_bytes()).map(<[u8]>::to_vec), expected, "{wanted}");
        }
        assert_eq!(parts.slice(None, None), None, "the order of the value would be lost");
    }

    #[test]
    fn fields_that_are_null_or_missing_have_no_value() {
        let ty = CqlType::Tuple(vec![CqlType::Int; 4].into());
        let value = collection::tuple([Some(&[1][..]), None, Some(&[][..])].into_iter());
        let parts = Parts::new(&ty, value).unwrap();
        assert_eq!([0, 1, 2, 3].map(|index| parts.at(index)), [Some(&[1][..]), None, Some(&[][..]), None]);
    }
}
