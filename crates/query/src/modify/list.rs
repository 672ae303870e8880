//! The content of a list during a statement, which each change reads and modifies.

use std::collections::HashMap;

use types::CqlType;

use super::existing::ListCell;

/// The timeuuid that determines the place of an element in a list.
pub(super) type ListPlace = [u8; 16];

/// A list with access by index and by value in logarithmic time, because a statement may have as many changes as the
/// list has elements.
pub(super) struct List<'v> {
    /// All places that the list has or will get in this statement, in order.
    places: Vec<ListPlace>,
    /// The value at each place, if there is one now.
    values: Vec<Option<&'v [u8]>>,
    /// A Fenwick tree of the number of elements at each place. The node at 0 is not used.
    counts: Vec<usize>,
    len: usize,
    /// The places of each value, which may include places that no longer have it. Built when the first change needs it.
    by_value: Option<HashMap<&'v [u8], Vec<usize>>>,
}

impl<'v> List<'v> {
    /// A list of these cells, which will get elements at `more` places.
    pub fn new(existing: &'v [ListCell], more: &[ListPlace]) -> List<'v> {
        let mut places: Vec<ListPlace> = existing.iter().map(|cell| cell.place).chain(more.iter().copied()).collect();
        places.sort_by(|left, right| CqlType::Timeuuid.compare(left, right));
        places.dedup();
        let count = places.len();
        let mut list = List { places, values: vec![None; count], counts: vec![0; count + 1], len: 0, by_value: None };
        existing.iter().for_each(|cell| list.set(&cell.place, Some(&cell.value)));
        list
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Puts an element at a place, or removes it.
    pub fn set(&mut self, place: &ListPlace, value: Option<&'v [u8]>) {
        let found = self.places.binary_search_by(|known| CqlType::Timeuuid.compare(known, place));
        debug_assert!(found.is_ok(), "a place that the list was not made for");
        let Ok(index) = found else { return };
        match (std::mem::replace(&mut self.values[index], value), value) {
            (None, Some(_)) => {
                self.len += 1;
                self.count(index, |count| count + 1);
            }
            (Some(_), None) => {
                self.len -= 1;
                self.count(index, |count| count - 1);
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        if let (Some(by_value), Some(value)) = (&mut self.by_value, value) {
            by_value.entry(value).or_default().push(index);
        }
    }

    fn count(&mut self, index: usize, change: impl Fn(usize) -> usize) {
        let mut node = index + 1;
        while let Some(count) = self.counts.get_mut(node) {
            *count = change(*count);
            node += node & node.wrapping_neg();
        }
    }

    /// The place of the element with this index.
    pub fn at(&self, index: usize) -> Option<ListPlace> {
        if index >= self.len {
            return None;
        }
        // The last node before which there are no more than `index` elements.
        let (mut node, mut left) = (0, index);
        let mut step = self.places.len().next_power_of_two();
        while step > 0 {
            if let Some(count) = self.counts.get(node + step).filter(|count| **count <= left) {
                (node, left) = (node + step, left - count);
            }
            step /= 2;
        }
        self.places.get(node).copied()
    }

    /// Removes all elements with this value, and returns their places.
    pub fn take(&mut self, value: &[u8]) -> Vec<ListPlace> {
        let by_value = self.by_value.get_or_insert_with(|| {
            let mut by_value: HashMap<&[u8], Vec<usize>> = HashMap::new();
            for (index, value) in self.values.iter().enumerate() {
                if let Some(value) = value {
                    by_value.entry(value).or_default().push(index);
                }
            }
            by_value
        });
        let mut taken = Vec::new();
        for index in by_value.remove(value).unwrap_or_default() {
            if self.values[index] == Some(value) {
                let place = self.places[index];
                self.set(&place, None);
                taken.push(place);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    fn place(number: usize) -> ListPlace {
        let mut place = [0; 16];
        place[..4].copy_from_slice(&(number as u32).to_be_bytes());
        place[6] = 0x10;
        place
    }

    #[test]
    fn a_list_equals_a_vector() {
        for seed in testkit::seeds(0..40) {
            let mut random = Random(seed);
            let count = random.below(40);
            let values: Vec<Vec<u8>> = (0..6).map(|value| vec![value]).collect();
            let existing: Vec<ListCell> = (0..count)
                .map(|number| ListCell { place: place(3 * number), value: values[random.below(6)].clone() })
                .collect();
            let more: Vec<ListPlace> = (0..20).map(|number| place(5 * number + 1)).collect();
            let mut list = List::new(&existing, &more);
            let mut model: Vec<(ListPlace, &[u8])> =
                existing.iter().map(|cell| (cell.place, cell.value.as_slice())).collect();
            for _ in 0..200 {
                match random.below(4) {
                    0 => {
                        let (at, value) = (more[random.below(more.len())], &values[random.below(6)]);
                        list.set(&at, Some(value));
                        model.retain(|(known, _)| *known != at);
                        model.push((at, value));
                        model.sort_by(|(left, _), (right, _)| CqlType::Timeuuid.compare(left, right));
                    }
                    1 if !model.is_empty() => {
                        let (at, _) = model.remove(random.below(model.len()));
                        list.set(&at, None);
                    }
                    2 => {
                        let value = &values[random.below(6)];
                        let mut taken = list.take(value);
                        taken.sort_by(|left, right| CqlType::Timeuuid.compare(left, right));
                        let expected: Vec<ListPlace> =
                            model.iter().filter(|(_, known)| *known == value.as_slice()).map(|(at, _)| *at).collect();
                        assert_eq!(taken, expected, "seed {seed}");
                        model.retain(|(_, known)| *known != value.as_slice());
                    }
                    _ => {
                        assert_eq!(list.len(), model.len(), "seed {seed}");
                        for index in 0..=model.len() {
                            assert_eq!(list.at(index), model.get(index).map(|(at, _)| *at), "seed {seed}");
                        }
                    }
                }
            }
        }
    }
}
