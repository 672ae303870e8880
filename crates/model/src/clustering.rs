//! Serialized clusterings, their order, and slices of them.
//!
//! A clustering is the concatenation of its components, each `[i32 length, big-endian][bytes]` as in the native
//! protocol, so that a row's clustering goes to a client by copying. Length -1 stands for null. A prefix has fewer
//! components; no component means the start or the end of the partition.

use std::borrow::Cow;
use std::cmp::Ordering;

use types::CqlType;

/// Appends one component (`None` = null) to a serialized clustering.
pub fn push_component(component: Option<&[u8]>, out: &mut Vec<u8>) {
    match component {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(bytes) => {
            out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// The components of a serialized clustering or prefix.
#[derive(Clone, Copy, Debug)]
pub struct Clusterings<'a>(pub &'a [u8]);

impl<'a> Iterator for Clusterings<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(*head);
        if length < 0 {
            self.0 = rest;
            return Some(None);
        }
        // A clustering was built here or checked on entry; one that is cut short ends the iteration rather than
        // panicking.
        let (value, rest) = rest.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(Some(value))
    }
}

/// The side, of everything that starts with a prefix, on which a bound lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Before everything with the prefix: `>= x` starts and `< x` ends here.
    Before,
    /// After everything with the prefix: `> x` starts and `<= x` ends here.
    After,
}

impl Side {
    /// The bound's position relative to the rows that begin with its prefix: -1 before them, 1 after them.
    pub fn weight(self) -> i8 {
        match self {
            Side::Before => -1,
            Side::After => 1,
        }
    }
}

/// A position between rows of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct ClusteringBound {
    /// Serialized prefix: none to all of the clustering columns.
    pub prefix: Vec<u8>,
    /// The side of the prefix.
    pub side: Side,
}

impl ClusteringBound {
    /// A bound on one side of `prefix`.
    pub fn new(prefix: Vec<u8>, side: Side) -> Self {
        ClusteringBound { prefix, side }
    }

    /// The start of the partition.
    pub fn bottom() -> Self {
        ClusteringBound { prefix: Vec::new(), side: Side::Before }
    }

    /// The end of the partition.
    pub fn top() -> Self {
        ClusteringBound { prefix: Vec::new(), side: Side::After }
    }
}

/// The rows between two bounds.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Slice {
    /// The lower bound in clustering order.
    pub start: ClusteringBound,
    /// The upper bound in clustering order.
    pub end: ClusteringBound,
}

impl Slice {
    /// The whole partition.
    pub fn all() -> Self {
        Slice { start: ClusteringBound::bottom(), end: ClusteringBound::top() }
    }

    /// Everything that starts with `prefix`; one row if it is a whole clustering.
    pub fn prefix(prefix: &[u8]) -> Self {
        Slice {
            start: ClusteringBound::new(prefix.to_vec(), Side::Before),
            end: ClusteringBound::new(prefix.to_vec(), Side::After),
        }
    }

    /// Whether nothing can lie between the bounds.
    pub fn is_empty(&self, comparator: &ClusteringComparator) -> bool {
        comparator.compare_bounds(&self.start, &self.end) != Ordering::Less
    }
}

/// Slices in clustering order that do not overlap or touch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slices(Cow<'static, [Slice]>);

static WHOLE_PARTITION: [Slice; 1] = [Slice {
    start: ClusteringBound { prefix: Vec::new(), side: Side::Before },
    end: ClusteringBound { prefix: Vec::new(), side: Side::After },
}];

impl Slices {
    /// The whole partition.
    pub fn all() -> Self {
        Slices(Cow::Borrowed(&WHOLE_PARTITION))
    }

    /// No row (static row only).
    pub fn none() -> Self {
        Slices(Cow::Borrowed(&[]))
    }

    /// Sorts the slices, drops empty ones and joins those that overlap.
    pub fn new(mut slices: Vec<Slice>, comparator: &ClusteringComparator) -> Self {
        slices.retain(|slice| !slice.is_empty(comparator));
        slices.sort_by(|a, b| comparator.compare_bounds(&a.start, &b.start));
        let mut joined: Vec<Slice> = Vec::with_capacity(slices.len());
        for slice in slices {
            match joined.last_mut() {
                Some(last) if comparator.compare_bounds(&slice.start, &last.end) != Ordering::Greater => {
                    if comparator.compare_bounds(&slice.end, &last.end) == Ordering::Greater {
                        last.end = slice.end;
                    }
                }
                _ => joined.push(slice),
            }
        }
        Slices(Cow::Owned(joined))
    }

    /// The slices in clustering order.
    pub fn as_slice(&self) -> &[Slice] {
        &self.0
    }

    /// Whether the whole partition is selected.
    pub fn is_all(&self) -> bool {
        matches!(self.as_slice(), [only] if only.start.prefix.is_empty() && only.end.prefix.is_empty())
    }

    /// Whether a row with this clustering is selected.
    pub fn contains(&self, clustering: &[u8], comparator: &ClusteringComparator) -> bool {
        let ends_before = |slice: &Slice| comparator.compare_row_to_bound(clustering, &slice.end) == Ordering::Greater;
        let next = self.0.get(self.0.partition_point(ends_before));
        next.is_some_and(|slice| comparator.compare_row_to_bound(clustering, &slice.start) == Ordering::Greater)
    }
}

/// The order of rows in a partition of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusteringComparator {
    columns: Vec<(CqlType, bool)>,
}

impl ClusteringComparator {
    /// Makes a comparator from the types of the clustering columns, each with whether its order is descending.
    pub fn new(columns: Vec<(CqlType, bool)>) -> Self {
        ClusteringComparator { columns }
    }

    /// The types of the clustering columns, each with whether its order is descending.
    pub fn columns(&self) -> &[(CqlType, bool)] {
        &self.columns
    }

    /// Compares two whole clusterings.
    pub fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.compare_positions(left, 0, right, 0)
    }

    /// Compares two bounds.
    pub fn compare_bounds(&self, left: &ClusteringBound, right: &ClusteringBound) -> Ordering {
        self.compare_positions(&left.prefix, left.side.weight(), &right.prefix, right.side.weight())
    }

    /// The position of a row relative to a bound; never `Equal` for a complete clustering.
    pub fn compare_row_to_bound(&self, row: &[u8], bound: &ClusteringBound) -> Ordering {
        self.compare_positions(row, 0, &bound.prefix, bound.side.weight())
    }

    /// Compares positions given as prefix and weight: -1 before all with the prefix, 0 the row itself, 1 after.
    pub fn compare_positions(&self, left: &[u8], left_weight: i8, right: &[u8], right_weight: i8) -> Ordering {
        let (mut left_components, mut right_components) = (Clusterings(left), Clusterings(right));
        for (ty, reversed) in &self.columns {
            match (left_components.next(), right_components.next()) {
                (Some(l), Some(r)) => match compare_component(ty, *reversed, l, r) {
                    Ordering::Equal => {}
                    unequal => return unequal,
                },
                (None, Some(_)) => return left_weight.cmp(&0),
                (Some(_), None) => return 0.cmp(&right_weight),
                (None, None) => break,
            }
        }
        left_weight.cmp(&right_weight)
    }
}

/// Null always sorts first. An empty value sorts first, and in a descending column last.
fn compare_component(ty: &CqlType, reversed: bool, left: Option<&[u8]>, right: Option<&[u8]>) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(l), Some(r)) => {
            let order = if l == r { Ordering::Equal } else { ty.compare(l, r) };
            if reversed { order.reverse() } else { order }
        }
    }
}
