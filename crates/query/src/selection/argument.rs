//! Selected expressions as arguments of functions.

use std::collections::HashMap;
use std::fmt;

use cql::ast::{Selectable, WritetimeOrTtl};
use model::Table;
use types::{CqlType, UserType};

use super::prepare::{call_of, check_names};
use super::shown::Shown;
use crate::names::find_column;
use crate::preparing::Preparing;
use crate::terms::{
    Assignable, Assignment, Expression, Unnamed, assign_hinted, assign_type, common_type, resolve_type,
};
use crate::{QueryError, functions};

/// A selected expression of a table.
pub(super) struct Argument<'a> {
    pub selectable: &'a Selectable,
    pub table: &'a Table,
}

impl fmt::Display for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(self.selectable).fmt(f)
    }
}

impl<'a> Argument<'a> {
    fn inner(&self, selectable: &'a Selectable) -> Argument<'a> {
        Argument { selectable, table: self.table }
    }

    fn part(&self) -> Expression {
        Expression::Selectable(self.selectable)
    }

    /// The type, if the expression alone determines it.
    pub fn exact_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        let known = preparing.findings().borrow().exact_type(self.part());
        known.unwrap_or_else(|| {
            let found = self.find_exact_type(preparing);
            preparing.findings().borrow_mut().keep_exact_type(self.part(), &found);
            found
        })
    }

    fn find_exact_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        preparing.findings().borrow_mut().count_step();
        match self.selectable {
            Selectable::Column(name) => find_column(self.table, name).ok().map(|column| column.ty.clone()),
            Selectable::Term(_) => None,
            // One element may be in parentheses, or be a tuple of one.
            Selectable::BetweenParenthesesOrTuple(elements) if elements.len() == 1 => None,
            Selectable::BetweenParenthesesOrTuple(elements) => {
                let types: Option<Vec<CqlType>> =
                    elements.iter().map(|element| self.inner(element).exact_type(preparing)).collect();
                Some(CqlType::tuple(types?))
            }
            Selectable::List(elements) => {
                let element = elements.iter().find_map(|element| self.inner(element).exact_type(preparing))?;
                Some(CqlType::list(element.freeze()).freeze())
            }
            Selectable::Set(elements) => {
                let element = elements.iter().find_map(|element| self.inner(element).exact_type(preparing))?;
                Some(CqlType::set(element.freeze()).freeze())
            }
            // It may be a map or a user type.
            Selectable::MapOrUdt(_) => None,
            Selectable::TypeHint { type_name, .. } => {
                resolve_type(type_name, &preparing.schema, &self.table.keyspace).ok().map(|ty| ty.freeze())
            }
            Selectable::Cast { type_name, .. } => Some(crate::terms::cast_type(*type_name)),
            Selectable::WritetimeOrTtl { kind, column, selected } => {
                let one = if *kind == WritetimeOrTtl::Ttl { CqlType::Int } else { CqlType::Bigint };
                let is_part = matches!(**selected, Selectable::Element { .. } | Selectable::Field { .. });
                let has_many = self.table.column(column.as_str()).is_some_and(|column| column.is_complex());
                let is_list = has_many && !is_part && *kind != WritetimeOrTtl::MaxWritetime;
                Some(if is_list { CqlType::list(one) } else { one })
            }
            Selectable::CountRows => Some(CqlType::Bigint),
            Selectable::Field { receiver, field } => match self.inner(receiver).exact_type(preparing)? {
                CqlType::Udt { definition, .. } => {
                    let place = definition.field_index(field.as_str())?;
                    definition.fields().get(place).map(|(_, ty)| ty.clone())
                }
                _ => None,
            },
            Selectable::Element { receiver, .. } => match self.inner(receiver).exact_type(preparing)? {
                CqlType::Map { value, .. } => Some((*value).clone()),
                CqlType::Set { element, .. } => Some((*element).clone()),
                _ => None,
            },
            Selectable::Slice { receiver, .. } => self.inner(receiver).exact_type(preparing).map(|ty| ty.freeze()),
            Selectable::Function { .. } | Selectable::Operation { .. } | Selectable::Negation(_) => {
                let (name, arguments) = call_of(self.selectable)?;
                let arguments: Vec<Argument<'_>> = arguments.into_iter().map(|argument| self.inner(argument)).collect();
                let arguments: Vec<Unnamed<'_>> = arguments.iter().map(|argument| Unnamed(argument)).collect();
                let arguments: Vec<&dyn Assignable> =
                    arguments.iter().map(|argument| argument as &dyn Assignable).collect();
                let function = functions::resolve(&name, &arguments, None, preparing).ok()??;
                Some(function.returns.clone())
            }
        }
    }
}

impl Assignable for Argument<'_> {
    fn assignment(&self, preparing: &Preparing<'_>, ty: &CqlType) -> Result<Assignment, QueryError> {
        let known = preparing.findings().borrow().assignment(self.part(), ty);
        known.unwrap_or_else(|| {
            let found = self.find_assignment(preparing, ty);
            preparing.findings().borrow_mut().keep_assignment(self.part(), ty, &found);
            found
        })
    }

    fn compatible_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        let known = preparing.findings().borrow().compatible_type(self.part());
        known.unwrap_or_else(|| {
            let found = self.find_compatible_type(preparing);
            preparing.findings().borrow_mut().keep_compatible_type(self.part(), &found);
            found
        })
    }
    fn contains_marker(&self) -> bool {
        match self.selectable {
            Selectable::Term(term) => term.contains_marker(),
            Selectable::BetweenParenthesesOrTuple(elements)
            | Selectable::List(elements)
            | Selectable::Set(elements) => elements.iter().any(|element| self.inner(element).contains_marker()),
            Selectable::Operation { left, right, .. } => {
                self.inner(left).contains_marker() || self.inner(right).contains_marker()
            }
            Selectable::Negation(argument) => self.inner(argument).contains_marker(),
            _ => false,
        }
    }

    fn literal_length(&self) -> Option<usize> {
        match self.selectable {
            Selectable::List(elements) => Some(elements.len()),
            Selectable::Term(term) => term.literal_length(),
            _ => None,
        }
    }
}

impl<'a> Argument<'a> {
    fn find_assignment(&self, preparing: &Preparing<'_>, ty: &CqlType) -> Result<Assignment, QueryError> {
        preparing.findings().borrow_mut().count_step();
        let all = |elements: &mut dyn Iterator<Item = (&'a Selectable, &CqlType)>| {
            Assignment::all(elements.map(|(element, ty)| self.inner(element).assignment(preparing, ty)))
        };
        match (self.selectable, ty) {
            (Selectable::Term(term), _) => term.assignment(preparing, ty),
            (Selectable::Column(name), _) => {
                let column = find_column(self.table, name)?;
                Ok(assign_type(&column.ty, ty))
            }
            (Selectable::BetweenParenthesesOrTuple(elements), ty) => match (elements.as_slice(), ty) {
                ([only], ty) if !matches!(ty, CqlType::Tuple(_)) => self.inner(only).assignment(preparing, ty),
                (_, CqlType::Tuple(types)) if types.len() >= elements.len() => {
                    all(&mut elements.iter().zip(types.iter()))
                }
                _ => Ok(Assignment::No),
            },
            (Selectable::List(elements), CqlType::List { element, .. })
            | (Selectable::Set(elements), CqlType::Set { element, .. }) => {
                all(&mut elements.iter().map(|e| (e, &**element)))
            }
            (Selectable::List(elements), CqlType::Vector { element, dimension }) => {
                if elements.len() != *dimension as usize {
                    return Ok(Assignment::No);
                }
                all(&mut elements.iter().map(|e| (e, &**element)))
            }
            (Selectable::Set(elements), CqlType::Map { .. }) if elements.is_empty() => Ok(Assignment::Weak),
            (Selectable::MapOrUdt(entries), CqlType::Map { key, value, .. }) => {
                for (key, value) in entries {
                    check_names(key, self.table, preparing)?;
                    check_names(value, self.table, preparing)?;
                }
                all(&mut entries.iter().flat_map(|(k, v)| [(k, &**key), (v, &**value)]))
            }
            (Selectable::MapOrUdt(entries), CqlType::Udt { definition, .. }) => {
                let fields = self.fields(entries, definition, preparing)?;
                let typed =
                    |(place, value): (usize, &'a Selectable)| definition.fields().get(place).map(|(_, ty)| (value, ty));
                all(&mut fields.into_iter().filter_map(typed))
            }
            (Selectable::List(_) | Selectable::Set(_) | Selectable::MapOrUdt(_), _) => Ok(Assignment::No),
            (Selectable::TypeHint { .. }, to) => {
                let hinted = self.exact_type(preparing);
                Ok(hinted.map_or(Assignment::Weak, |from| assign_hinted(&from, to)))
            }
            _ => Ok(match self.exact_type(preparing) {
                Some(from) => assign_type(&from, ty),
                // An error inside is reported when the inner expression is prepared.
                None => Assignment::Weak,
            }),
        }
    }

    fn find_compatible_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        preparing.findings().borrow_mut().count_step();
        match self.selectable {
            Selectable::Term(term) => term.compatible_type(preparing),
            // One element may be in parentheses, or be a tuple of one.
            Selectable::BetweenParenthesesOrTuple(elements) if elements.len() == 1 => None,
            Selectable::BetweenParenthesesOrTuple(elements) => {
                let types = elements.iter().map(|element| self.inner(element).compatible_type(preparing));
                Some(CqlType::tuple(types.collect::<Option<Vec<CqlType>>>()?))
            }
            Selectable::List(elements) => {
                let types = elements.iter().map(|element| self.inner(element).compatible_type(preparing));
                Some(CqlType::list(common_type(types)?.freeze()).freeze())
            }
            Selectable::Set(elements) => {
                let types = elements.iter().map(|element| self.inner(element).compatible_type(preparing));
                Some(CqlType::set(common_type(types)?.freeze()).freeze())
            }
            _ => self.exact_type(preparing),
        }
    }

    /// The values of a user type and the places of their fields. Names are looked up field by field.
    fn fields(
        &self,
        entries: &'a [(Selectable, Selectable)],
        definition: &UserType,
        preparing: &Preparing<'_>,
    ) -> Result<Vec<(usize, &'a Selectable)>, QueryError> {
        let places: HashMap<&str, usize> =
            definition.fields().iter().enumerate().map(|(place, (name, _))| (&**name, place)).collect();
        let mut fields = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let Selectable::Column(name) = name else {
                let message = format!("{} is not a valid field identifier of type {} ", Shown(name), definition.name);
                return Err(QueryError::invalid(message));
            };
            let place = places.get(name.as_str()).copied().ok_or_else(|| {
                let (name, ty) = (name.as_str(), &definition.name);
                QueryError::invalid(format!("Unknown field '{name}' in value of user defined type {ty}"))
            })?;
            check_names(value, self.table, preparing)?;
            fields.push((place, value));
        }
        Ok(fields)
    }
}
