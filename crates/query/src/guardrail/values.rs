//! Guardrails over the values of a small set: consistency levels, and properties of tables.

use std::fmt;

use crate::QueryError;
use crate::execution::Execution;

/// A set of values, each by its place among all values that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueSet(u32);

/// The values that cause a warning, those that are ignored with a warning, and those that are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueGuardrail {
    /// These cause a warning.
    pub warned: ValueSet,
    /// These cause a warning, and the statement is executed without them.
    pub ignored: ValueSet,
    /// A statement with one of these is refused.
    pub disallowed: ValueSet,
}

/// The kind of the values of a guardrail.
pub(crate) struct ValueKind {
    name: &'static str,
    /// The word for the values in messages.
    what: &'static str,
    /// All values that exist, at most 32.
    all: &'static [&'static str],
}

/// The consistency levels, in the order of their numbers.
pub const CONSISTENCY_LEVELS: &[&str] = &[
    "ANY",
    "ONE",
    "TWO",
    "THREE",
    "QUORUM",
    "ALL",
    "LOCAL_QUORUM",
    "EACH_QUORUM",
    "SERIAL",
    "LOCAL_SERIAL",
    "LOCAL_ONE",
    "NODE_LOCAL",
];

pub(crate) const READ_LEVELS: ValueKind =
    ValueKind { name: "read_consistency_levels", what: "read consistency levels", all: CONSISTENCY_LEVELS };

pub(crate) const WRITE_LEVELS: ValueKind =
    ValueKind { name: "write_consistency_levels", what: "write consistency levels", all: CONSISTENCY_LEVELS };

pub(crate) const TABLE_PROPERTIES_KIND: ValueKind =
    ValueKind { name: "table_properties", what: "Table Properties", all: crate::TABLE_PROPERTIES };

impl ValueSet {
    /// The set of these values out of `all`; the error is the first name that is none of them.
    pub fn of<'n>(all: &[&str], names: impl IntoIterator<Item = &'n str>) -> Result<ValueSet, &'n str> {
        names.into_iter().try_fold(ValueSet::default(), |set, name| {
            let place = all.iter().position(|known| *known == name).ok_or(name)?;
            Ok(set.with(place))
        })
    }

    /// The set of these consistency levels.
    pub(crate) fn of_levels(levels: impl IntoIterator<Item = crate::Consistency>) -> ValueSet {
        levels.into_iter().fold(ValueSet::default(), |set, level| set.with(level as usize))
    }

    fn with(self, place: usize) -> ValueSet {
        debug_assert!(place < u32::BITS as usize, "there are at most 32 values");
        ValueSet(self.0 | 1 << place)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn and(self, other: ValueSet) -> ValueSet {
        ValueSet(self.0 & other.0)
    }

    /// Whether the set has the value of this name.
    pub(crate) fn contains(self, all: &[&str], name: &str) -> bool {
        all.iter().position(|known| *known == name).is_some_and(|place| self.0 >> place & 1 == 1)
    }
}

/// Prints a set as Java prints a list.
struct Printed(&'static [&'static str], ValueSet);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Printed(all, set) = self;
        let values = all.iter().enumerate().filter(|(place, _)| set.0 >> place & 1 == 1);
        write!(f, "[{}]", values.map(|(_, name)| *name).collect::<Vec<_>>().join(", "))
    }
}

impl ValueGuardrail {
    /// Whether any value is watched.
    pub(crate) fn is_set(&self) -> bool {
        !(self.warned.is_empty() && self.ignored.is_empty() && self.disallowed.is_empty())
    }

    /// Refuses the values of a statement, or warns about them. Returns those that are to be ignored.
    pub(crate) fn check(
        &self,
        kind: &ValueKind,
        provided: ValueSet,
        execution: &Execution<'_>,
    ) -> Result<ValueSet, QueryError> {
        if !execution.is_guarded() {
            return Ok(ValueSet::default());
        }
        let text = |verdict: &str, group: &str, found: ValueSet, set: ValueSet| {
            let ValueKind { name, what, all } = kind;
            let (found, set) = (Printed(all, found), Printed(all, set));
            let verdict = verdict.replace("{}", &found.to_string());
            format!("Guardrail {name} violated: {verdict} for {what} ({group} values are: {set})")
        };
        let refused = provided.and(self.disallowed);
        if !refused.is_empty() {
            let text = text("Provided values {} are not allowed", "disallowed", refused, self.disallowed);
            return Err(QueryError::invalid(text));
        }
        let ignored = provided.and(self.ignored);
        if !ignored.is_empty() {
            let verdict = "Ignoring provided values {} as they are not supported";
            execution.warn(text(verdict, "ignored", ignored, self.ignored));
        }
        let warned = provided.and(self.warned);
        if !warned.is_empty() {
            execution.warn(text("Provided values {} are not recommended", "warned", warned, self.warned));
        }
        Ok(ignored)
    }
}
