//! Preparing the terms of a statement for their receivers.

use std::sync::Arc;

use cql::ast::{self, FunctionName, Identifier};
use types::CqlType;

use super::literal::{self, CollectionKind};
use super::type_check;
use super::type_name::{native_type, qualified};
use super::{
    Assignable, Assignment, Expression, Term, Unnamed, common_type, constant, is_value_compatible, resolve_type,
};
use crate::functions::{self, Function, FunctionCall};
use crate::preparing::Preparing;
use crate::{ColumnSpec, QueryError};

/// Prepares a term for its receiver.
pub(crate) fn prepare(
    term: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    preparing.expression(|preparing| prepare_part(term, receiver, preparing))
}

/// Prepares a term, or a part of one.
pub(super) fn prepare_part(
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
                prepare_part(only, receiver, preparing)
            }
            _ => literal::prepare_tuple(elements, receiver, preparing),
        },
        ast::Term::Function { .. } | ast::Term::Operation { .. } | ast::Term::Negation(_) | ast::Term::Cast { .. } => {
            let (name, arguments) = as_call(term);
            prepare_call(&name, &arguments, receiver, preparing)
        }
        ast::Term::TypeHint { type_name, term: inner } => prepare_hinted(term, type_name, inner, receiver, preparing),
    }
}

fn prepare_hinted(
    term: &ast::Term,
    type_name: &ast::TypeName,
    inner: &ast::Term,
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    type_check::check(type_name)?;
    let keyspace = preparing.keyspace_of_types();
    let hinted = resolve_type(type_name, &preparing.schema, keyspace)?;
    if !inner.assignment(preparing, &hinted)?.is_assignable() {
        let type_name = qualified(type_name, keyspace);
        return Err(QueryError::invalid(format!("Cannot cast value {inner} to type {type_name}")));
    }
    if !term.assignment(preparing, &receiver.ty)?.is_assignable() {
        let (name, ty, type_name) = (&receiver.name, &receiver.ty, qualified(type_name, keyspace));
        let message = format!("Cannot assign value ({type_name}){inner} to {name} of type {ty}");
        return Err(QueryError::invalid(message));
    }
    // A marker uses the receiver to which the hint applies.
    prepare_part(inner, receiver, preparing)
}

fn prepare_null(receiver: &ColumnSpec) -> Result<Term, QueryError> {
    if receiver.ty == CqlType::Counter {
        return Err(QueryError::invalid("Invalid null value for counter increment/decrement"));
    }
    Ok(Term::NULL)
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
    let function = functions::resolve(name, &assignables, Some(&receiver.ty), preparing)?
        .ok_or_else(|| QueryError::invalid(format!("Unknown function {name} called")))?;
    if function.is_aggregate() {
        return Err(QueryError::invalid("Aggregation function are not supported in the where clause"));
    }
    if !returns_for(&function.returns, &receiver.ty).is_assignable() {
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
        prepared.push(prepare_part(argument, &function.argument_spec(place, receiver), preparing)?);
    }
    Ok(Term::Function(Box::new(FunctionCall { function, arguments: prepared })))
}

fn returns_for(returns: &CqlType, receiver: &CqlType) -> Assignment {
    let receiver = receiver.freeze();
    let returns = returns.freeze();
    if receiver == returns {
        Assignment::Exact
    } else if is_value_compatible(&receiver, &returns) {
        Assignment::Weak
    } else {
        Assignment::No
    }
}

/// The function that a call means. If there is none, no reason is given here: preparing the call itself reports it.
fn called(term: &ast::Term, receiver: Option<&CqlType>, preparing: &Preparing<'_>) -> Option<Arc<Function>> {
    let (name, arguments) = as_call(term);
    let arguments: Vec<Unnamed<'_>> = arguments.into_iter().map(|term| Unnamed(term)).collect();
    let arguments: Vec<&dyn Assignable> = arguments.iter().map(|argument| argument as &dyn Assignable).collect();
    functions::resolve(&name, &arguments, receiver, preparing).ok().flatten()
}

fn find_assignment(term: &ast::Term, ty: &CqlType, preparing: &Preparing<'_>) -> Result<Assignment, QueryError> {
    preparing.findings().borrow_mut().count_step();
    match term {
        ast::Term::Constant(constant) => Ok(constant::assignment(constant, ty)),
        ast::Term::Null | ast::Term::Marker(_) => Ok(Assignment::Weak),
        ast::Term::List(elements) => literal::list_assignment(elements, ty, preparing),
        ast::Term::Set(elements) => literal::set_assignment(elements, ty, preparing),
        ast::Term::Map(entries) => literal::map_assignment(entries, ty, preparing),
        ast::Term::UserType(fields) => literal::user_type_assignment(fields, ty, preparing),
        ast::Term::Tuple(elements) => literal::tuple_assignment(elements, ty, preparing),
        ast::Term::TypeHint { type_name, .. } => {
            let hinted = resolve_type(type_name, &preparing.schema, preparing.keyspace_of_types())?;
            Ok(super::assign_hinted(&hinted, ty))
        }
        _ => Ok(match called(term, Some(ty), preparing) {
            Some(function) if !functions::is_made_for_arguments(&function.name) => returns_for(&function.returns, ty),
            _ => Assignment::Weak,
        }),
    }
}

fn find_compatible_type(term: &ast::Term, preparing: &Preparing<'_>) -> Option<CqlType> {
    preparing.findings().borrow_mut().count_step();
    match term {
        ast::Term::Constant(constant) => Some(constant::preferred_type(constant)),
        ast::Term::Null | ast::Term::Marker(_) | ast::Term::UserType(_) => None,
        ast::Term::TypeHint { type_name, .. } => {
            resolve_type(type_name, &preparing.schema, preparing.keyspace_of_types()).ok()
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
        _ => called(term, None, preparing).map(|function| function.returns.clone()),
    }
}

/// Whether results about a term are worth keeping, because the term contains others.
fn is_compound(term: &ast::Term) -> bool {
    !matches!(term, ast::Term::Constant(_) | ast::Term::Null | ast::Term::Marker(_))
}

impl Assignable for ast::Term {
    fn assignment(&self, preparing: &Preparing<'_>, ty: &CqlType) -> Result<Assignment, QueryError> {
        if !is_compound(self) {
            return find_assignment(self, ty, preparing);
        }
        let known = preparing.findings().borrow().assignment(Expression::Term(self), ty);
        known.unwrap_or_else(|| {
            let found = find_assignment(self, ty, preparing);
            preparing.findings().borrow_mut().keep_assignment(Expression::Term(self), ty, &found);
            found
        })
    }

    fn compatible_type(&self, preparing: &Preparing<'_>) -> Option<CqlType> {
        if !is_compound(self) {
            return find_compatible_type(self, preparing);
        }
        let known = preparing.findings().borrow().compatible_type(Expression::Term(self));
        known.unwrap_or_else(|| {
            let found = find_compatible_type(self, preparing);
            preparing.findings().borrow_mut().keep_compatible_type(Expression::Term(self), &found);
            found
        })
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
            // A hint gives the type that a marker lacks.
            ast::Term::TypeHint { .. } => false,
            ast::Term::Cast { term, .. } => term.contains_marker(),
        }
    }
}

/// The type that CAST names.
pub(crate) fn cast_type(name: ast::NativeType) -> CqlType {
    native_type(name)
}
