//! The results of preparing the parts of an expression.
//!
//! The choice among several functions of a name needs to know how well each argument fits each of them, and an argument
//! that is a call needs the same of its own arguments. Each result is computed once for each part and type, so that the
//! cost is linear in the size of the expression. Otherwise it would be exponential in the depth.

use std::collections::HashMap;

use cql::ast::{Selectable, Term};
use types::CqlType;

use super::Assignment;
use crate::QueryError;

/// A part of an expression, identified by its address: parts do not move while the expression around them is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Expression {
    Term(*const Term),
    Selectable(*const Selectable),
}

/// The known results about one part.
#[derive(Debug, Default)]
struct OfPart {
    /// How well the part fits types. There are few: the types of functions' parameters.
    assignments: Vec<(CqlType, Result<Assignment, Box<QueryError>>)>,
    compatible_type: Option<Option<CqlType>>,
    exact_type: Option<Option<CqlType>>,
    has_known_names: bool,
    has_shown_names: bool,
}

/// The results about the parts of the expression that is being prepared.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The number of nested expressions that are being prepared. Outside of any, nothing is kept.
    depth: usize,
    parts: HashMap<Expression, OfPart>,
    steps: u64,
}

impl Findings {
    /// Begins an expression, whose parts do not move until [`Self::leave`].
    pub fn enter(&mut self) {
        debug_assert!(self.depth > 0 || self.parts.is_empty());
        self.depth += 1;
    }

    /// Ends an expression. After the outermost one, other expressions may use the addresses of its parts.
    pub fn leave(&mut self) {
        debug_assert!(self.depth > 0, "an expression ends that did not begin");
        self.depth -= 1;
        if self.depth == 0 {
            self.parts.clear();
        }
    }

    /// Counts a result that had to be computed.
    pub fn count_step(&mut self) {
        self.steps += 1;
    }

    /// The number of results that were computed so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn assignment(&self, part: Expression, ty: &CqlType) -> Option<Result<Assignment, QueryError>> {
        let known = self.parts.get(&part)?;
        let (_, assignment) = known.assignments.iter().find(|(known, _)| known == ty)?;
        Some(assignment.as_ref().copied().map_err(|error| (**error).clone()))
    }

    pub fn keep_assignment(&mut self, part: Expression, ty: &CqlType, assignment: &Result<Assignment, QueryError>) {
        let kept = assignment.as_ref().copied().map_err(|error| Box::new(error.clone()));
        if let Some(known) = self.of(part) {
            known.assignments.push((ty.clone(), kept));
        }
    }

    pub fn compatible_type(&self, part: Expression) -> Option<Option<CqlType>> {
        self.parts.get(&part)?.compatible_type.clone()
    }

    pub fn keep_compatible_type(&mut self, part: Expression, ty: &Option<CqlType>) {
        if let Some(known) = self.of(part) {
            known.compatible_type = Some(ty.clone());
        }
    }

    pub fn exact_type(&self, part: Expression) -> Option<Option<CqlType>> {
        self.parts.get(&part)?.exact_type.clone()
    }

    pub fn keep_exact_type(&mut self, part: Expression, ty: &Option<CqlType>) {
        if let Some(known) = self.of(part) {
            known.exact_type = Some(ty.clone());
        }
    }

    /// Whether the names in this part were resolved.
    pub fn has_known_names(&self, part: Expression) -> bool {
        self.parts.get(&part).is_some_and(|known| known.has_known_names)
    }

    pub fn keep_known_names(&mut self, part: Expression) {
        if let Some(known) = self.of(part) {
            known.has_known_names = true;
        }
    }

    /// Whether the names in this part, including those within maps and user types, were resolved.
    pub fn has_shown_names(&self, part: Expression) -> bool {
        self.parts.get(&part).is_some_and(|known| known.has_shown_names)
    }

    pub fn keep_shown_names(&mut self, part: Expression) {
        if let Some(known) = self.of(part) {
            known.has_shown_names = true;
        }
    }

    fn of(&mut self, part: Expression) -> Option<&mut OfPart> {
        (self.depth > 0).then(|| self.parts.entry(part).or_default())
    }
}
