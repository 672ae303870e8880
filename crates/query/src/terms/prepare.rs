//! Preparing the terms of a statement for their receivers.

use cql::ast::{self, FunctionName, Identifier};
use types::CqlType;

use super::literal::{self, CollectionKind};
use super::type_name::{native_type, qualified};
use super::{Assignable, Assignment, Term, common_type, constant, is_value_compatible, resolve_type};
use crate::ddl::type_check;
use crate::functions::{self, FunctionCall};
use crate::preparing::Preparing;
use crate::{ColumnSpec, QueryError};

/// Prepares a term for what receives its value.
pub(crate) fn prepare(
    term: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    match term {
        ast::Term::Constant(constant) => constant::to_bytes(constant, receiver).map(Term::value),
        ast::Term::Null => prepare_null(receiver),
        ast::Term::Marker(marker) => {
            preparing.bind(marker, receiver);
            Ok(Term::Marker { index: marker.index, receiver: receiver.clone() })
        }
        ast::Term::List(elements) => match &receiver.ty {
            CqlType::Vector { .. } => literal::prepare_vector(elements, receiver, preparing),
            CqlType::List { .. } => literal::prepare_elements(CollectionKind::List, elements, receiver, preparing),
            other => Err(literal::neither_list_nor_vector(other)),
        },
        ast::Term::Set(elements) => match &receiver.ty {
            CqlType::Map { .. } if elements.is_empty() => literal::prepare_map(&[], receiver, preparing),
            _ => literal::prepare_elements(CollectionKind::Set, elements, receiver, preparing),
        },
        ast::Term::Map(entries) => literal::prepare_map(entries, receiver, preparing),
        ast::Term::UserType(fields) => literal::prepare_user_type(fields, receiver, preparing),
        ast::Term::Tuple(elements) => match (elements.as_slice(), &receiver.ty) {
            ([only], ty) if !matches!(ty, CqlType::Tuple(_) | CqlType::Udt { .. }) => {
                prepare(only, receiver, preparing)
            }
            _ => literal::prepare_tuple(elements, receiver, preparing),
        },
        ast::Term::Function { .. } | ast::Term::Operation { .. } | ast::Term::Negation(_) | ast::Term::Cast { .. } => {
            let (name, arguments) = as_call(term);
            prepare_call(&name, &arguments, receiver, preparing)
        }
        ast::Term::TypeHint { type_name, term: inner } => {
            type_check::check(type_name)?;
            let ty = resolve_type(type_name, &preparing.schema, keyspace_of(receiver, preparing))?;
            let type_name = qualified(type_name, keyspace_of(receiver, preparing));
            let hinted = receiver.sibling(term.to_string(), ty);
            if !inner.assignment(preparing, &hinted)?.is_assignable() {
                return Err(QueryError::invalid(format!("Cannot cast value {inner} to type {type_name}")));
            }
            if !term.assignment(preparing, receiver)?.is_assignable() {
                let (name, ty) = (&receiver.name, &receiver.ty);
                let message = format!("Cannot assign value ({type_name}){inner} to {name} of type {ty}");
                return Err(QueryError::invalid(message));
            }
            // A marker goes by the receiver that the hint stands before.
            prepare(inner, receiver, preparing)
        }
    }
}

fn prepare_null(receiver: &ColumnSpec) -> Result<Term, QueryError> {
    if receiver.ty == CqlType::Counter {
        return Err(QueryError::invalid("Invalid null value for counter increment/decrement"));
    }
    Ok(Term::NULL)
}

fn keyspace_of<'k>(receiver: &'k ColumnSpec, preparing: &'k Preparing<'_>) -> &'k str {
    preparing.keyspace.unwrap_or(&receiver.keyspace)
}

/// Operators and casts are functions with names of their own.
fn as_call(term: &ast::Term) -> (FunctionName, Vec<&ast::Term>) {
    match term {
        ast::Term::Function { name, arguments } => (name.clone(), arguments.iter().collect()),
        ast::Term::Operation { operator, left, right } => (functions::operator_name(*operator), vec![left, right]),
        ast::Term::Negation(argument) => (functions::negation_name(), vec![argument]),
        ast::Term::Cast { term, type_name } => (functions::cast_name(*type_name), vec![term]),
        other => (FunctionName::unqualified(""), vec![other]),
    }
}

fn prepare_call(
    name: &FunctionName,
    arguments: &[&ast::Term],
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    let assignables: Vec<&dyn Assignable> = arguments.iter().map(|term| *term as &dyn Assignable).collect();
    let function = functions::resolve(name, &assignables, Some(receiver), preparing)?
        .ok_or_else(|| QueryError::invalid(format!("Unknown function {name} called")))?;
    if function.is_aggregate() {
        return Err(QueryError::invalid("Aggregation function are not supported in the where clause"));
    }
    if !returns_for(&function.returns, receiver).is_assignable() {
        let (what, name) = match functions::operator_symbol(&function.name) {
            Some(symbol) => ("operation", symbol.to_string()),
            None => ("function", function.qualified_name()),
        };
        return Err(QueryError::invalid(format!(
            "Type error: cannot assign result of {what} {name} (type {}) to {} (type {})",
            function.returns, receiver.name, receiver.ty
        )));
    }
    let mut prepared = Vec::with_capacity(arguments.len());
    for (place, argument) in arguments.iter().enumerate() {
        prepared.push(prepare(argument, &function.argument_spec(place, receiver), preparing)?);
    }
    Ok(Term::Function(Box::new(FunctionCall { function, arguments: prepared })))
}

fn returns_for(returns: &CqlType, receiver: &ColumnSpec) -> Assignment {
    let receiver = receiver.ty.freeze();
    let returns = returns.freeze();
    if receiver == returns {
        Assignment::Exact
    } else if is_value_compatible(&receiver, &returns) {
        Assignment::Weak
    } else {
        Assignment::No
    }
}

impl Assignable for ast::Term {
    fn assignment(&self, preparing: &Preparing<'_>, receiver: &ColumnSpec) -> Result<Assignment, QueryError> {
        match self {
            ast::Term::Constant(constant) => Ok(constant::assignment(constant, &receiver.ty)),
            ast::Term::Null | ast::Term::Marker(_) => Ok(Assignment::Weak),
            ast::Term::List(elements) => literal::list_assignment(elements, receiver, preparing),
            ast::Term::Set(elements) => literal::set_assignment(elements, receiver, preparing),
            ast::Term::Map(entries) => literal::map_assignment(entries, receiver, preparing),
            ast::Term::UserType(fields) => literal::user_type_assignment(fields, receiver, preparing),
            ast::Term::Tuple(elements) => literal::tuple_assignment(elements, receiver, preparing),
            ast::Term::TypeHint { type_name, .. } => {
                let ty = resolve_type(type_name, &preparing.schema, keyspace_of(receiver, preparing))?;
                Ok(super::assign_hinted(&ty, &receiver.ty))
            }
            _ => {
                let (name, arguments) = as_call(self);
                let assignables: Vec<&dyn Assignable> = arguments.iter().map(|term| *term as &dyn Assignable).collect();
                // What is wrong inside the call is told when the call itself is prepared.
                Ok(match functions::resolve(&name, &assignables, Some(receiver), preparing) {
                    Ok(Some(function)) if !functions::is_made_for_arguments(&function.name) => {
                        returns_for(&function.returns, receiver)
                    }
                    Ok(_) | Err(_) => Assignment::Weak,
                })
            }
        }
    }

    fn compatible_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        match self {
            ast::Term::Constant(constant) => Some(constant::preferred_type(constant)),
            ast::Term::Null | ast::Term::Marker(_) | ast::Term::UserType(_) => None,
            ast::Term::TypeHint { type_name, .. } => {
                resolve_type(type_name, &preparing.schema, preparing.keyspace.unwrap_or_default()).ok()
            }
            ast::Term::List(elements) => {
                let element = common_type(elements.iter().map(|element| element.compatible_type(preparing)))?;
                Some(CqlType::list(element.freeze()).freeze())
            }
            ast::Term::Set(elements) => {
                let element = common_type(elements.iter().map(|element| element.compatible_type(preparing)))?;
                Some(CqlType::set(element.freeze()).freeze())
            }
            ast::Term::Map(entries) => {
                let key = common_type(entries.iter().map(|(key, _)| key.compatible_type(preparing)))?;
                let value = common_type(entries.iter().map(|(_, value)| value.compatible_type(preparing)))?;
                Some(CqlType::map(key.freeze(), value.freeze()).freeze())
            }
            ast::Term::Tuple(elements) => {
                let types: Option<Vec<CqlType>> =
                    elements.iter().map(|element| element.compatible_type(preparing)).collect();
                let types = types?;
                match types.as_slice() {
                    [only] => Some(only.clone()),
                    _ => Some(CqlType::tuple(types)),
                }
            }
            _ => {
                let (name, arguments) = as_call(self);
                let assignables: Vec<&dyn Assignable> = arguments.iter().map(|term| *term as &dyn Assignable).collect();
                functions::resolve(&name, &assignables, None, preparing).ok().flatten().map(|f| f.returns.clone())
            }
        }
    }

    fn literal_length(&self) -> Option<usize> {
        match self {
            ast::Term::List(elements) => Some(elements.len()),
            _ => None,
        }
    }

    fn contains_marker(&self) -> bool {
        match self {
            ast::Term::Constant(_) | ast::Term::Null => false,
            ast::Term::Marker(_) => true,
            ast::Term::List(terms) | ast::Term::Set(terms) | ast::Term::Tuple(terms) => {
                terms.iter().any(|term| term.contains_marker())
            }
            ast::Term::Map(entries) => entries.iter().any(|(k, v)| k.contains_marker() || v.contains_marker()),
            ast::Term::UserType(fields) => {
                fields.iter().any(|(_, term): &(Identifier, ast::Term)| term.contains_marker())
            }
            ast::Term::Function { arguments, .. } => arguments.iter().any(|term| term.contains_marker()),
            ast::Term::Operation { left, right, .. } => left.contains_marker() || right.contains_marker(),
            ast::Term::Negation(term) => term.contains_marker(),
            // A hint says the type that a marker lacks.
            ast::Term::TypeHint { .. } => false,
            ast::Term::Cast { term, .. } => term.contains_marker(),
        }
    }
}

/// The type that CAST names.
pub(crate) fn cast_type(name: ast::NativeType) -> CqlType {
    native_type(name)
}
