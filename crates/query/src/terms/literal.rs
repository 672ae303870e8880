//! Literals of collections, tuples, user types and vectors.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use cql::ast::{self, Identifier};
use types::{CqlType, MarshalError, collection};

use super::prepare::prepare_part;
use super::{Assignable, Assignment, Term};
use crate::names::hash_slot;
use crate::preparing::Preparing;
use crate::{ColumnSpec, QueryError};

/// Sorts a set's elements and drops duplicates.
pub(super) fn sort_set<T: AsRef<[u8]>>(element: &CqlType, elements: &mut Vec<T>) {
    elements.sort_by(|a, b| element.compare(a.as_ref(), b.as_ref()));
    elements.dedup_by(|a, b| element.compare(a.as_ref(), b.as_ref()) == Ordering::Equal);
}

/// Sorts a map's entries by key; of equal keys the last one stays.
pub(super) fn sort_map<T: AsRef<[u8]>>(key: &CqlType, entries: &mut Vec<(T, T)>) {
    entries.reverse();
    entries.sort_by(|(a, _), (b, _)| key.compare(a.as_ref(), b.as_ref()));
    entries.dedup_by(|(a, _), (b, _)| key.compare(a.as_ref(), b.as_ref()) == Ordering::Equal);
}

/// A bound value as it is stored: sets and maps sorted and without duplicates, also those within sets, maps and lists.
/// As in Cassandra those within tuples, user types and vectors stay as they were sent.
pub(super) fn normalized<'v>(ty: &CqlType, bytes: &'v [u8]) -> Result<Cow<'v, [u8]>, MarshalError> {
    match ty {
        CqlType::List { element, .. } if may_change(element) => {
            let (elements, is_changed) = normalized_elements(element, bytes)?;
            Ok(if is_changed { Cow::Owned(list_of(&elements)) } else { Cow::Borrowed(bytes) })
        }
        CqlType::Set { element, .. } => {
            let (mut elements, is_changed) = normalized_elements(element, bytes)?;
            if !is_changed && elements.windows(2).all(|pair| element.compare(&pair[0], &pair[1]) == Ordering::Less) {
                return Ok(Cow::Borrowed(bytes));
            }
            sort_set(element, &mut elements);
            Ok(Cow::Owned(list_of(&elements)))
        }
        CqlType::Map { key, value, .. } => {
            let mut entries = Vec::new();
            let mut is_changed = false;
            for entry in collection::entries(bytes)?.entries() {
                let (one, other) = entry?;
                let (one, other) = (normalized(key, one)?, normalized(value, other)?);
                is_changed |= matches!((&one, &other), (Cow::Owned(_), _) | (_, Cow::Owned(_)));
                entries.push((one, other));
            }
            if !is_changed && entries.windows(2).all(|pair| key.compare(&pair[0].0, &pair[1].0) == Ordering::Less) {
                return Ok(Cow::Borrowed(bytes));
            }
            sort_map(key, &mut entries);
            let entries = entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref()));
            Ok(Cow::Owned(collection::map(entries)))
        }
        _ => Ok(Cow::Borrowed(bytes)),
    }
}

/// Whether values of the type may be stored as others than they were sent.
fn may_change(ty: &CqlType) -> bool {
    match ty {
        CqlType::List { element, .. } => may_change(element),
        CqlType::Set { .. } | CqlType::Map { .. } => true,
        _ => false,
    }
}

type Elements<'v> = Vec<Cow<'v, [u8]>>;

/// The elements of a list or set, and whether one of them is another than was sent.
fn normalized_elements<'v>(element: &CqlType, bytes: &'v [u8]) -> Result<(Elements<'v>, bool), MarshalError> {
    let (mut elements, mut is_changed) = (Vec::new(), false);
    let mut parts = collection::elements(bytes)?;
    while let Some(part) = parts.next_non_null() {
        let part = normalized(element, part?)?;
        is_changed |= matches!(part, Cow::Owned(_));
        elements.push(part);
    }
    Ok((elements, is_changed))
}

fn list_of(elements: &[Cow<'_, [u8]>]) -> Vec<u8> {
    collection::list(elements.iter().map(AsRef::as_ref))
}

/// The kind of a literal of elements, because those of lists and sets differ little.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CollectionKind {
    List,
    Set,
}

impl CollectionKind {
    fn name(self) -> &'static str {
        match self {
            CollectionKind::List => "list",
            CollectionKind::Set => "set",
        }
    }

    fn element(self, ty: &CqlType) -> Option<&CqlType> {
        match (self, ty) {
            (CollectionKind::List, CqlType::List { element, .. })
            | (CollectionKind::Set, CqlType::Set { element, .. }) => Some(element),
            _ => None,
        }
    }
}

fn value_spec(receiver: &ColumnSpec, ty: &CqlType) -> ColumnSpec {
    receiver.sibling(format!("value({})", receiver.name), ty.clone())
}

fn key_spec(receiver: &ColumnSpec, ty: &CqlType) -> ColumnSpec {
    receiver.sibling(format!("key({})", receiver.name), ty.clone())
}

fn refuse_type<T>(what: &str, receiver: &ColumnSpec) -> Result<T, QueryError> {
    let message = format!("Invalid {what} literal for {} of type {}", receiver.name, receiver.ty);
    Err(QueryError::invalid(message))
}

fn refuse_marker<T>(what: &str, receiver: &ColumnSpec) -> Result<T, QueryError> {
    let name = &receiver.name;
    let message =
        format!("Invalid {what} literal for {name}: bind variables are not supported inside collection literals");
    Err(QueryError::invalid(message))
}

/// Evaluates a literal of known terms at once. `make` builds the others at execution.
fn fold(terms: &[Term]) -> Result<Option<Vec<&[u8]>>, QueryError> {
    let mut values = Vec::with_capacity(terms.len());
    for term in terms {
        match term {
            Term::Value(Some(bytes)) => values.push(&**bytes),
            Term::Value(None) => return Err(QueryError::invalid("null is not supported inside collections")),
            _ => return Ok(None),
        }
    }
    Ok(Some(values))
}

pub(super) fn prepare_elements(
    kind: CollectionKind,
    elements: &[ast::Term],
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    let name = kind.name();
    let Some(element) = kind.element(&receiver.ty) else { return refuse_type(name, receiver) };
    let spec = value_spec(receiver, element);
    let mut terms = Vec::with_capacity(elements.len());
    for raw in elements {
        if !raw.assignment(preparing, element)?.is_assignable() {
            let receiver = &receiver.name;
            let message = format!("Invalid {name} literal for {receiver}: value {raw} is not of type {element}");
            return Err(QueryError::invalid(message));
        }
    }
    for raw in elements {
        let term = prepare_part(raw, &spec, preparing)?;
        if term.contains_marker() {
            return refuse_marker(name, receiver);
        }
        terms.push(term);
    }
    if let Some(mut values) = fold(&terms)? {
        if kind == CollectionKind::Set {
            sort_set(element, &mut values);
        }
        return Ok(Term::value(collection::list(values.into_iter())));
    }
    Ok(match kind {
        CollectionKind::List => Term::List(terms),
        CollectionKind::Set => Term::Set { element: element.clone(), elements: terms },
    })
}

pub(super) fn prepare_map(
    entries: &[(ast::Term, ast::Term)],
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    let CqlType::Map { key, value, .. } = &receiver.ty else { return refuse_type("map", receiver) };
    let (keys, values) = (key_spec(receiver, key), value_spec(receiver, value));
    for (k, v) in entries {
        for (what, raw, spec) in [("key", k, &keys), ("value", v, &values)] {
            if !raw.assignment(preparing, &spec.ty)?.is_assignable() {
                let (name, ty) = (&receiver.name, &spec.ty);
                let message = format!("Invalid map literal for {name}: {what} {raw} is not of type {ty}");
                return Err(QueryError::invalid(message));
            }
        }
    }
    let mut terms = Vec::with_capacity(entries.len());
    for (k, v) in entries {
        let (k, v) = (prepare_part(k, &keys, preparing)?, prepare_part(v, &values, preparing)?);
        if k.contains_marker() || v.contains_marker() {
            return refuse_marker("map", receiver);
        }
        terms.push((k, v));
    }
    let (ks, vs): (Vec<Term>, Vec<Term>) = terms.iter().cloned().unzip();
    if let (Some(ks), Some(vs)) = (fold(&ks)?, fold(&vs)?) {
        let mut entries: Vec<_> = ks.into_iter().zip(vs).collect();
        sort_map(key, &mut entries);
        return Ok(Term::value(collection::map(entries.into_iter())));
    }
    Ok(Term::Map { key: (**key).clone(), entries: terms })
}

pub(super) fn prepare_vector(
    elements: &[ast::Term],
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    let CqlType::Vector { element, dimension } = &receiver.ty else { return refuse_type("vector", receiver) };
    if elements.len() != *dimension as usize {
        let (name, ty, got) = (&receiver.name, &receiver.ty, elements.len());
        let message =
            format!("Invalid vector literal for {name} of type {ty}; expected {dimension} elements, but given {got}");
        return Err(QueryError::invalid(message));
    }
    let spec = value_spec(receiver, element);
    let mut terms = Vec::with_capacity(elements.len());
    for raw in elements {
        if !raw.assignment(preparing, element)?.is_assignable() {
            let name = &receiver.name;
            let message = format!("Invalid vector literal for {name}: value {raw} is not of type {element}");
            return Err(QueryError::invalid(message));
        }
        terms.push(prepare_part(raw, &spec, preparing)?);
    }
    if terms.iter().any(|term| matches!(term, Term::Value(None))) {
        return Err(QueryError::invalid("null is not supported inside vectors"));
    }
    if let Some(values) = fold(&terms)? {
        return Ok(Term::value(collection::vector(element, values.into_iter())));
    }
    Ok(Term::Vector { element: (**element).clone(), elements: terms })
}

/// The types of a tuple's or user type's fields.
fn field_types(ty: &CqlType) -> Option<Vec<&CqlType>> {
    match ty {
        CqlType::Tuple(elements) => Some(elements.iter().collect()),
        CqlType::Udt { definition, .. } => Some(definition.fields().iter().map(|(_, ty)| ty).collect()),
        _ => None,
    }
}

fn component_spec(receiver: &ColumnSpec, place: usize, ty: &CqlType) -> ColumnSpec {
    receiver.sibling(format!("{}[{place}]", receiver.name), ty.clone())
}

pub(super) fn prepare_tuple(
    elements: &[ast::Term],
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    let Some(types) = field_types(&receiver.ty) else {
        let message = format!("Invalid tuple type literal for {} of type {}", receiver.name, receiver.ty);
        return Err(QueryError::invalid(message));
    };
    for (place, raw) in elements.iter().enumerate() {
        let Some(ty) = types.get(place) else {
            let (name, ty, expected, got) = (&receiver.name, &receiver.ty, types.len(), elements.len());
            return Err(QueryError::invalid(format!(
                "Invalid tuple literal for {name}: too many elements. Type {ty} expects {expected} but got {got}"
            )));
        };
        if !raw.assignment(preparing, ty)?.is_assignable() {
            let name = &receiver.name;
            let message = format!("Invalid tuple literal for {name}: component {place} is not of type {ty}");
            return Err(QueryError::invalid(message));
        }
    }
    let mut terms = Vec::with_capacity(elements.len());
    for (place, (raw, ty)) in elements.iter().zip(types).enumerate() {
        terms.push(prepare_part(raw, &component_spec(receiver, place, ty), preparing)?);
    }
    Ok(fold_fields(&terms).unwrap_or(Term::Tuple(terms)))
}

fn fold_fields(terms: &[Term]) -> Option<Term> {
    let mut out = Vec::new();
    for term in terms {
        let Term::Value(bytes) = term else { return None };
        collection::write_part(bytes.as_deref(), &mut out);
    }
    Some(Term::value(out))
}

fn field_spec(receiver: &ColumnSpec, field: &str, ty: &CqlType) -> ColumnSpec {
    receiver.sibling(format!("{}.{field}", receiver.name), ty.clone())
}

/// The terms of fields by name; of a field written twice, the last one.
fn field_terms(fields: &[(Identifier, ast::Term)]) -> HashMap<&str, &ast::Term> {
    fields.iter().map(|(field, term)| (field.as_str(), term)).collect()
}

pub(super) fn prepare_user_type(
    fields: &[(Identifier, ast::Term)],
    receiver: &ColumnSpec,
    preparing: &mut Preparing<'_>,
) -> Result<Term, QueryError> {
    let CqlType::Udt { definition, .. } = &receiver.ty else { return refuse_type("user type", receiver) };
    let given = field_terms(fields);
    for (field, ty) in definition.fields() {
        let Some(raw) = given.get(&**field) else { continue };
        if !raw.assignment(preparing, ty)?.is_assignable() {
            let name = &receiver.name;
            let message = format!("Invalid user type literal for {name}: field {field} is not of type {ty}");
            return Err(QueryError::invalid(message));
        }
    }
    let mut terms = Vec::with_capacity(definition.fields().len());
    for (field, ty) in definition.fields() {
        terms.push(match given.get(&**field) {
            Some(raw) => prepare_part(raw, &field_spec(receiver, field, ty), preparing)?,
            None => Term::NULL,
        });
    }
    // Of several unknown fields, the error names the first in the order of Cassandra's hash map.
    let known: HashSet<&str> = definition.fields().iter().map(|(field, _)| &**field).collect();
    let unknown = fields.iter().filter(|(field, _)| !known.contains(field.as_str()));
    if let Some((field, _)) = unknown.min_by_key(|(field, _)| hash_slot(field.as_str(), fields.len())) {
        let message = format!("Unknown field '{field}' in value of user defined type {}", definition.name);
        return Err(QueryError::invalid(message));
    }
    Ok(fold_fields(&terms).unwrap_or_else(|| Term::UserType { receiver: receiver.clone(), fields: terms }))
}

pub(super) fn list_assignment(
    elements: &[ast::Term],
    ty: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    match ty {
        CqlType::List { element, .. } => all_elements(elements, element, preparing),
        CqlType::Vector { element, dimension } => {
            if elements.len() != *dimension as usize {
                return Ok(Assignment::No);
            }
            all_elements(elements, element, preparing)
        }
        // As in Cassandra, no other function is tried: of several functions of a name, the first that is examined
        // refuses the call.
        other => Err(neither_list_nor_vector(other)),
    }
}

/// The error for `[a, b]` with another type.
pub(super) fn neither_list_nor_vector(ty: &CqlType) -> QueryError {
    QueryError::invalid(format!("Unexpected receiver type '{ty}'; only list and vector are expected"))
}

/// An empty collection fits every type, and none exactly.
fn all_elements(elements: &[ast::Term], ty: &CqlType, preparing: &Preparing<'_>) -> Result<Assignment, QueryError> {
    if elements.is_empty() {
        return Ok(Assignment::Weak);
    }
    Assignment::all(elements.iter().map(|element| element.assignment(preparing, ty)))
}

pub(super) fn set_assignment(
    elements: &[ast::Term],
    ty: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    match ty {
        CqlType::Map { .. } if elements.is_empty() => Ok(Assignment::Weak),
        CqlType::Set { element, .. } => all_elements(elements, element, preparing),
        _ => Ok(Assignment::No),
    }
}

pub(super) fn map_assignment(
    entries: &[(ast::Term, ast::Term)],
    ty: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    let CqlType::Map { key, value, .. } = ty else { return Ok(Assignment::No) };
    if entries.is_empty() {
        return Ok(Assignment::Weak);
    }
    let each = entries.iter().flat_map(|(k, v)| [k.assignment(preparing, key), v.assignment(preparing, value)]);
    Assignment::all(each)
}

pub(super) fn tuple_assignment(
    elements: &[ast::Term],
    ty: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    match (field_types(ty), elements) {
        (None, [only]) => only.assignment(preparing, ty),
        (None, _) => Ok(Assignment::No),
        (Some(types), _) => {
            if elements.len() > types.len() {
                return Ok(Assignment::No);
            }
            let fits =
                Assignment::all(elements.iter().zip(types).map(|(element, ty)| element.assignment(preparing, ty)))?;
            Ok(if fits.is_assignable() { Assignment::Weak } else { Assignment::No })
        }
    }
}

pub(super) fn user_type_assignment(
    fields: &[(Identifier, ast::Term)],
    ty: &CqlType,
    preparing: &Preparing<'_>,
) -> Result<Assignment, QueryError> {
    let CqlType::Udt { definition, .. } = ty else { return Ok(Assignment::No) };
    let given = field_terms(fields);
    for (field, ty) in definition.fields() {
        if let Some(raw) = given.get(&**field)
            && !raw.assignment(preparing, ty)?.is_assignable()
        {
            return Ok(Assignment::No);
        }
    }
    Ok(Assignment::Weak)
}
