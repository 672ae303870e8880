//! Preparation of a selected expression: from the syntax tree to a selector.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cql::ast::{FunctionName, Identifier, Selectable, Term as RawTerm, WritetimeOrTtl};
use model::{Column, ColumnKind, Table};
use types::CqlType;

use super::argument::Argument;
use super::shown::Shown;
use super::writetime::{Part, WritetimeSelector};
use super::{AggregateCall, Selector};
use crate::functions::{self, Function};
use crate::names::find_column;
use crate::preparing::Preparing;
use crate::row_view::Source;
use crate::terms::{
    Assignable, Expression, Term, assign_hinted, prepare as prepare_term, qualified, resolve_type, type_check,
};
use crate::{ColumnSpec, QueryError};

/// A selector and the name of its column in the result.
pub(super) struct Named {
    pub selector: Selector,
    pub name: String,
}

/// Prepares the expressions of one selection.
pub(super) struct Builder {
    table: Arc<Table>,
    pub aggregates: Vec<AggregateCall>,
    pub leaf_count: usize,
    pub used: Vec<Arc<Column>>,
    noted: HashSet<Source>,
    /// The leaf of each selected column.
    leaves: HashMap<Source, usize>,
    inside_aggregate: bool,
}

/// The function and the arguments of an expression that is a call. Operators and casts are calls too.
pub(super) fn call_of(selectable: &Selectable) -> Option<(FunctionName, Vec<&Selectable>)> {
    Some(match selectable {
        Selectable::CountRows => (FunctionName::unqualified("countRows"), Vec::new()),
        Selectable::Function { name, arguments } => {
            let is_count = name.name.as_str() == "count";
            match arguments.as_slice() {
                [Selectable::Term(RawTerm::Constant(_))] if is_count => {
                    (FunctionName::unqualified("countRows"), Vec::new())
                }
                _ => (name.clone(), arguments.iter().collect()),
            }
        }
        Selectable::Operation { operator, left, right } => {
            (functions::operator_name(*operator), vec![left.as_ref(), right.as_ref()])
        }
        Selectable::Negation(argument) => (functions::negation_name(), vec![argument.as_ref()]),
        Selectable::Cast { argument, type_name } => (functions::cast_name(*type_name), vec![argument.as_ref()]),
        _ => return None,
    })
}

/// Whether an expression uses a column for which `is_wanted` is true. For the values of a map or user type literal,
/// Cassandra has a mistake: it returns whether one of the values does *not* use such a column. `look_up` is called for
/// these values first, because Cassandra may fail on them.
pub(super) fn selects(
    selectable: &Selectable,
    table: &Table,
    is_wanted: &dyn Fn(Source) -> bool,
    look_up: &dyn Fn(&Selectable) -> Result<(), QueryError>,
) -> Result<bool, QueryError> {
    match selectable {
        Selectable::Column(name) | Selectable::WritetimeOrTtl { column: name, .. } => {
            Ok(table.column(name.as_str()).is_some_and(|column| is_wanted(Source::of(table, column))))
        }
        Selectable::MapOrUdt(entries) => {
            for (_, value) in entries {
                look_up(value)?;
                if !selects(value, table, is_wanted, look_up)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => {
            for inner in inner(other) {
                if selects(inner, table, is_wanted, look_up)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Looks up the columns and functions that an expression mentions outside of maps and user types, inner ones first.
pub(super) fn check_names(selectable: &Selectable, table: &Table, preparing: &Preparing<'_>) -> Result<(), QueryError> {
    let part = Expression::Selectable(selectable);
    if preparing.findings().borrow().has_known_names(part) {
        return Ok(());
    }
    preparing.findings().borrow_mut().count_step();
    if let Selectable::Column(name) | Selectable::WritetimeOrTtl { column: name, .. } = selectable {
        find_column(table, name)?;
    }
    inner(selectable).into_iter().try_for_each(|inner| check_names(inner, table, preparing))?;
    // The function of a cast is looked up later.
    if !matches!(selectable, Selectable::Cast { .. })
        && let Some((name, arguments)) = call_of(selectable)
    {
        resolve_call(&name, &arguments, None, table, preparing)?
            .ok_or_else(|| QueryError::invalid(format!("Unknown function '{name}'")))?;
    }
    preparing.findings().borrow_mut().keep_known_names(part);
    Ok(())
}

/// Looks up the names within maps and user types as well. Cassandra does so when it prints an expression, for example
/// for a type hint.
fn check_shown(selectable: &Selectable, table: &Table, preparing: &Preparing<'_>) -> Result<(), QueryError> {
    let part = Expression::Selectable(selectable);
    if preparing.findings().borrow().has_shown_names(part) {
        return Ok(());
    }
    preparing.findings().borrow_mut().count_step();
    if let Selectable::MapOrUdt(entries) = selectable {
        for (key, value) in entries {
            let key = Some(key).filter(|key| !matches!(key, Selectable::Column(_)));
            for shown in key.into_iter().chain([value]) {
                check_names(shown, table, preparing)?;
                check_shown(shown, table, preparing)?;
            }
        }
    } else {
        inner(selectable).into_iter().try_for_each(|inner| check_shown(inner, table, preparing))?;
    }
    preparing.findings().borrow_mut().keep_shown_names(part);
    Ok(())
}

/// The direct parts of an expression.
fn inner(selectable: &Selectable) -> Vec<&Selectable> {
    match selectable {
        Selectable::Column(_) | Selectable::Term(_) | Selectable::CountRows | Selectable::WritetimeOrTtl { .. } => {
            Vec::new()
        }
        Selectable::Cast { argument, .. } | Selectable::Negation(argument) => vec![argument],
        Selectable::Function { arguments, .. } => arguments.iter().collect(),
        Selectable::Operation { left, right, .. } => vec![left, right],
        Selectable::Field { receiver, .. }
        | Selectable::Element { receiver, .. }
        | Selectable::Slice { receiver, .. } => vec![receiver],
        Selectable::TypeHint { selectable, .. } => vec![selectable],
        Selectable::BetweenParenthesesOrTuple(elements) | Selectable::List(elements) | Selectable::Set(elements) => {
            elements.iter().collect()
        }
        // This may be a map or a user type, whose keys are not columns.
        Selectable::MapOrUdt(_) => Vec::new(),
    }
}

fn resolve_call(
    name: &FunctionName,
    arguments: &[&Selectable],
    receiver: Option<&CqlType>,
    table: &Table,
    preparing: &Preparing<'_>,
) -> Result<Option<Arc<Function>>, QueryError> {
    let wrapped: Vec<Argument<'_>> =
        arguments.iter().map(|argument| Argument { selectable: argument, table }).collect();
    let assignables: Vec<&dyn Assignable> = wrapped.iter().map(|argument| argument as &dyn Assignable).collect();
    functions::resolve(name, &assignables, receiver, preparing)
}

impl Builder {
    pub fn new(table: &Arc<Table>) -> Self {
        Builder {
            table: table.clone(),
            aggregates: Vec::new(),
            leaf_count: 0,
            used: Vec::new(),
            noted: HashSet::new(),
            leaves: HashMap::new(),
            inside_aggregate: false,
        }
    }

    fn leaf(&mut self) -> usize {
        self.leaf_count += 1;
        self.leaf_count - 1
    }

    fn note(&mut self, column: &Arc<Column>) {
        if self.noted.insert(Source::of(&self.table, column)) {
            self.used.push(column.clone());
        }
    }

    /// A selector of the unchanged column.
    pub fn column(&mut self, column: &Arc<Column>) -> Selector {
        self.note(column);
        let source = Source::of(&self.table, column);
        let next = self.leaf_count;
        let leaf = *self.leaves.entry(source).or_insert(next);
        self.leaf_count += usize::from(leaf == next);
        Selector::Column { source, ty: column.ty.clone(), leaf }
    }

    /// Prepares an expression whose receiver has the type `expected`, if that is known.
    pub fn prepare(
        &mut self,
        selectable: &Selectable,
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        match selectable {
            Selectable::Column(name) => {
                let column = find_column(&self.table, name)?;
                Ok(Named { selector: self.column(&column), name: column.name.to_string() })
            }
            Selectable::Term(term) => self.term(term, expected, preparing),
            Selectable::WritetimeOrTtl { kind, column, selected } => self.writetime(*kind, column, selected, preparing),
            Selectable::CountRows
            | Selectable::Function { .. }
            | Selectable::Operation { .. }
            | Selectable::Negation(_)
            | Selectable::Cast { .. } => self.call(selectable, expected, preparing),
            Selectable::Field { receiver, field } => self.field(receiver, field, preparing),
            Selectable::Element { receiver, element } => self.element(receiver, element, preparing),
            Selectable::Slice { receiver, from, to } => self.slice(receiver, from.as_deref(), to.as_deref(), preparing),
            Selectable::TypeHint { type_name, selectable: inner } => {
                type_check::check(type_name)?;
                let ty = resolve_type(type_name, &preparing.schema, &self.table.keyspace)?;
                let shown = qualified(type_name, &self.table.keyspace).to_string();
                self.hint(inner, &ty.freeze(), &shown, expected, preparing)
            }
            Selectable::BetweenParenthesesOrTuple(elements) => match elements.as_slice() {
                [only] if !matches!(expected, Some(CqlType::Tuple(_))) => {
                    if expected.is_none() {
                        return Err(cannot_infer(selectable));
                    }
                    let inner = self.prepare(only, expected, preparing)?;
                    Ok(Named { name: format!("({})", inner.name), ..inner })
                }
                _ => self.tuple(selectable, elements, expected, preparing),
            },
            Selectable::List(elements) | Selectable::Set(elements) => {
                self.elements(selectable, elements, expected, preparing)
            }
            Selectable::MapOrUdt(entries) => self.map_or_user_type(selectable, entries, expected, preparing),
        }
    }

    /// The type that an expression has by itself, or else the expected type.
    fn type_of(
        &self,
        selectable: &Selectable,
        expected: Option<&CqlType>,
        preparing: &Preparing<'_>,
    ) -> Result<CqlType, QueryError> {
        let argument = Argument { selectable, table: &self.table };
        expected.cloned().or_else(|| argument.exact_type(preparing)).ok_or_else(|| cannot_infer(selectable))
    }

    fn receiver(&self, name: &str, ty: CqlType) -> ColumnSpec {
        ColumnSpec { keyspace: self.table.keyspace.clone(), table: self.table.name.clone(), name: name.into(), ty }
    }

    fn term(
        &mut self,
        term: &RawTerm,
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let ty = expected.cloned().ok_or_else(|| {
            QueryError::invalid(format!(
                "Cannot infer type for term {term} in selection clause (try using a cast to force a type)"
            ))
        })?;
        let prepared = prepare_term(term, &self.receiver("[selection]", ty.clone()), preparing)?;
        Ok(Named { selector: Selector::Term { term: prepared, ty }, name: term.to_string() })
    }

    fn call(
        &mut self,
        selectable: &Selectable,
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let (name, arguments) = call_of(selectable).ok_or_else(|| cannot_infer(selectable))?;
        if let (Selectable::Cast { type_name, .. }, [argument]) = (selectable, arguments.as_slice()) {
            let inner = Argument { selectable: argument, table: &self.table };
            match inner.exact_type(preparing) {
                Some(ty) if ty == crate::terms::cast_type(*type_name) && !self.is_descending_key(argument) => {
                    return self.prepare(argument, None, preparing);
                }
                Some(_) => {}
                None => return Err(cannot_infer(argument)),
            }
        }
        let resolved = resolve_call(&name, &arguments, expected, &self.table, preparing)?;
        let function = resolved.ok_or_else(|| match (selectable, arguments.as_slice()) {
            (Selectable::Cast { type_name, .. }, [argument]) => {
                QueryError::invalid(format!("{} cannot be cast to {type_name}", Shown(argument)))
            }
            _ => QueryError::invalid(format!("Unknown function '{name}'")),
        })?;
        let was_inside = self.inside_aggregate;
        if function.is_aggregate() {
            if was_inside {
                let message = "aggregate functions cannot be used as arguments of aggregate functions";
                return Err(QueryError::invalid(message));
            }
            self.inside_aggregate = true;
        }
        let (mut selectors, mut names) = (Vec::new(), Vec::new());
        for (argument, ty) in arguments.iter().zip(&function.arguments) {
            let argument = self.prepare(argument, Some(ty), preparing)?;
            selectors.push(argument.selector);
            names.push(argument.name);
        }
        self.inside_aggregate = was_inside;
        let name = function.column_name(&names);
        if !function.is_aggregate() {
            return Ok(Named { selector: Selector::Function { function, arguments: selectors }, name });
        }
        let ty = function.returns.clone();
        self.aggregates.push(AggregateCall { function, arguments: selectors });
        Ok(Named { selector: Selector::Aggregate { index: self.aggregates.len() - 1, ty }, name })
    }

    /// Whether the expression is a clustering column in descending order. Cassandra does not treat its type as equal to
    /// the plain type.
    fn is_descending_key(&self, selectable: &Selectable) -> bool {
        let Selectable::Column(name) = selectable else { return false };
        self.table.column(name.as_str()).is_some_and(|column| column.reversed)
    }

    fn field(
        &mut self,
        receiver: &Selectable,
        field: &Identifier,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let inner = self.prepare(receiver, None, preparing)?;
        let ty = inner.selector.ty();
        let receiver = Shown(receiver);
        let CqlType::Udt { definition, .. } = &ty else {
            let message = format!("Invalid field selection: {receiver} of type {ty} is not a user type");
            return Err(QueryError::invalid(message));
        };
        let no_field = || QueryError::invalid(format!("{receiver} of type {ty} has no field {field}"));
        let index = definition.field_index(field.as_str()).ok_or_else(no_field)?;
        let field_type = definition.fields().get(index).map(|(_, ty)| ty.clone()).ok_or_else(no_field)?;
        let name = format!("{}.{}", inner.name, field.as_str());
        Ok(Named { selector: Selector::Field { receiver: Box::new(inner.selector), index, ty: field_type }, name })
    }

    fn element(
        &mut self,
        receiver: &Selectable,
        element: &RawTerm,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let inner = self.prepare(receiver, None, preparing)?;
        let ty = inner.selector.ty();
        let spec = self.element_spec(receiver, &inner.name, &ty, "Element")?;
        let term = prepare_term(element, &spec, preparing)?;
        let name = format!("{}[{element}]", inner.name);
        let selector = Selector::Element { receiver: Box::new(inner.selector), element: term, name: inner.name };
        Ok(Named { selector, name })
    }

    fn slice(
        &mut self,
        receiver: &Selectable,
        from: Option<&RawTerm>,
        to: Option<&RawTerm>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let inner = self.prepare(receiver, None, preparing)?;
        let ty = inner.selector.ty();
        let spec = self.element_spec(receiver, &inner.name, &ty, "Slice")?;
        let mut bound = |term: Option<&RawTerm>| term.map(|term| prepare_term(term, &spec, preparing)).transpose();
        let (from_term, to_term) = (bound(from)?, bound(to)?);
        let text = |term: Option<&RawTerm>| term.map(ToString::to_string).unwrap_or_default();
        let name = format!("{}[{}..{}]", inner.name, text(from), text(to));
        let receiver = Box::new(inner.selector);
        Ok(Named { selector: Selector::Slice { receiver, from: from_term, to: to_term, name: inner.name }, name })
    }

    /// The receiver of the element in an element or slice selection.
    fn element_spec(
        &self,
        receiver: &Selectable,
        name: &str,
        ty: &CqlType,
        what: &str,
    ) -> Result<ColumnSpec, QueryError> {
        let receiver = Shown(receiver);
        match ty {
            CqlType::Map { key, .. } => Ok(self.receiver(&format!("key({name})"), (**key).clone())),
            CqlType::Set { element, .. } => Ok(self.receiver(&format!("value({name})"), (**element).clone())),
            CqlType::List { .. } => Err(QueryError::invalid(format!(
                "{what} selection is only allowed on sets and maps, but {receiver} is a list"
            ))),
            _ if what == "Element" => Err(QueryError::invalid(format!(
                "Invalid element selection: {receiver} is of type {ty} is not a collection"
            ))),
            _ => Err(QueryError::invalid(format!(
                "Invalid slice selection: {receiver} of type {ty} is not a collection"
            ))),
        }
    }

    fn writetime(
        &mut self,
        kind: WritetimeOrTtl,
        column: &Identifier,
        selected: &Selectable,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let column = find_column(&self.table, column)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            let message = format!("Cannot use selection function {kind} on PRIMARY KEY part {}", column.name);
            return Err(QueryError::invalid(message));
        }
        // Preparing it separately checks the selected part and returns its name.
        let mut aside = Builder::new(&self.table);
        let inner = aside.prepare(selected, None, preparing)?;
        let part = match inner.selector {
            Selector::Field { index, .. } => Part::Field(index),
            Selector::Element { element, .. } => Part::Element(element),
            Selector::Slice { from, to, .. } => Part::Slice(from, to),
            _ => Part::Whole,
        };
        self.note(&column);
        let source = Source::of(&self.table, &column);
        let selector = WritetimeSelector { kind, source, column_type: column.ty.clone(), part };
        let name = format!("{kind}({})", inner.name);
        Ok(Named { selector: Selector::Writetime { selector, leaf: self.leaf() }, name })
    }

    fn hint(
        &mut self,
        inner: &Selectable,
        ty: &CqlType,
        type_name: &str,
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        check_shown(inner, &self.table, preparing)?;
        let whole = || format!("({type_name}){}", Shown(inner));
        if !(Argument { selectable: inner, table: &self.table }).assignment(preparing, ty)?.is_assignable() {
            let whole = whole();
            let message = format!("Cannot assign value {whole} to {whole} of type {ty}");
            return Err(QueryError::invalid(message));
        }
        if let Some(expected) = expected
            && !assign_hinted(ty, expected).is_assignable()
        {
            let message = format!("Cannot assign value {} to [selection] of type {expected}", whole());
            return Err(QueryError::invalid(message));
        }
        let named = self.prepare(inner, Some(ty), preparing)?;
        let name = format!("({type_name}){}", named.name);
        // The hint replaces the type of a column.
        let selector = match named.selector {
            Selector::Column { source, leaf, .. } => Selector::Column { source, leaf, ty: ty.clone() },
            other => other,
        };
        Ok(Named { selector, name })
    }

    fn tuple(
        &mut self,
        whole: &Selectable,
        elements: &[Selectable],
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let ty = self.type_of(whole, expected, preparing)?;
        let types: Vec<CqlType> = match &ty {
            CqlType::Tuple(types) => types.to_vec(),
            CqlType::Udt { definition, .. } => definition.fields().iter().map(|(_, ty)| ty.clone()).collect(),
            _ => return Err(cannot_infer(whole)),
        };
        let (selectors, names) = self.each(elements.iter().zip(types.iter()), preparing)?;
        Ok(Named { selector: Selector::Elements { ty, elements: selectors }, name: format!("({})", names.join(", ")) })
    }

    fn elements(
        &mut self,
        whole: &Selectable,
        elements: &[Selectable],
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let ty = self.type_of(whole, expected, preparing)?;
        let element = match &ty {
            CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => element,
            CqlType::Map { .. } if elements.is_empty() => {
                return Ok(Named { selector: Selector::Map { ty, entries: Vec::new() }, name: "{}".to_owned() });
            }
            _ => return Err(cannot_infer(whole)),
        };
        let (selectors, names) = self.each(elements.iter().map(|e| (e, &**element)), preparing)?;
        let names = names.join(", ");
        let name = if matches!(whole, Selectable::Set(_)) { format!("{{{names}}}") } else { format!("[{names}]") };
        Ok(Named { selector: Selector::Elements { ty: ty.clone(), elements: selectors }, name })
    }

    fn each<'e>(
        &mut self,
        elements: impl Iterator<Item = (&'e Selectable, &'e CqlType)>,
        preparing: &mut Preparing<'_>,
    ) -> Result<(Vec<Selector>, Vec<String>), QueryError> {
        let (mut selectors, mut names) = (Vec::new(), Vec::new());
        for (element, ty) in elements {
            let element = self.prepare(element, Some(ty), preparing)?;
            selectors.push(element.selector);
            names.push(element.name);
        }
        Ok((selectors, names))
    }

    fn map_or_user_type(
        &mut self,
        whole: &Selectable,
        entries: &[(Selectable, Selectable)],
        expected: Option<&CqlType>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Named, QueryError> {
        let ty = self.type_of(whole, expected, preparing)?;
        let mut texts = Vec::new();
        if let CqlType::Udt { definition, .. } = &ty {
            let name_of = |selectable: &Selectable| match selectable {
                Selectable::Column(name) => name.as_str().to_owned(),
                other => other.to_string(),
            };
            let known: HashSet<&str> = definition.fields().iter().map(|(field, _)| &**field).collect();
            let mut given = HashMap::new();
            for (field, value) in entries {
                let field = name_of(field);
                if !known.contains(&*field) {
                    let message = format!("Unknown field '{field}' in value of user defined type {}", definition.name);
                    return Err(QueryError::invalid(message));
                }
                given.insert(field, value);
            }
            let mut elements = Vec::new();
            for (field, field_type) in definition.fields() {
                elements.push(match given.get(&**field) {
                    Some(value) => {
                        let value = self.prepare(value, Some(field_type), preparing)?;
                        texts.push(format!("{field}: {}", value.name));
                        value.selector
                    }
                    None => Selector::Term { term: Term::NULL, ty: field_type.clone() },
                });
            }
            let name = format!("{{{}}}", texts.join(", "));
            return Ok(Named { selector: Selector::Elements { ty: ty.clone(), elements }, name });
        }
        let CqlType::Map { key, value, .. } = &ty else { return Err(cannot_infer(whole)) };
        let mut prepared = Vec::new();
        for (k, v) in entries {
            let (k, v) = (self.prepare(k, Some(key), preparing)?, self.prepare(v, Some(value), preparing)?);
            texts.push(format!("{}: {}", k.name, v.name));
            prepared.push((k.selector, v.selector));
        }
        let name = format!("{{{}}}", texts.join(", "));
        Ok(Named { selector: Selector::Map { ty: ty.clone(), entries: prepared }, name })
    }
}

fn cannot_infer(selectable: &Selectable) -> QueryError {
    let selectable = Shown(selectable);
    QueryError::invalid(format!(
        "Cannot infer type for term {selectable} in selection clause (try using a cast to force a type)"
    ))
}
