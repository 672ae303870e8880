//! A selected expression that is ready for evaluation on rows.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use types::{CqlType, collection};

use super::Mask;
use super::parts::{Parts, RowParts};
use super::writetime::{Part, WritetimeSelector};
use crate::QueryError;
use crate::budget::steps_of_bytes;
use crate::execution::Execution;
use crate::functions::{Accumulator, Function, RESULT_BYTES_MAX};
use crate::row_view::{RowView, Source};
use crate::terms::{Bound, Term};

/// A selected expression.
#[derive(Clone, Debug)]
pub(crate) enum Selector {
    /// An unchanged column. Leaves are numbered, so that a group can keep the values of its first row.
    Column { source: Source, ty: CqlType, leaf: usize },
    /// The mask of a column, which its reader sees instead of the value.
    Masked { column: Box<Selector>, mask: Arc<Mask> },
    /// `writetime(...)`, `maxwritetime(...)` or `ttl(...)`.
    Writetime { selector: WritetimeSelector, leaf: usize },
    /// A constant or marker.
    Term { term: Term, ty: CqlType },
    /// A scalar function.
    Function { function: Arc<Function>, arguments: Vec<Selector> },
    /// An aggregate function, by its number in the selection.
    Aggregate { index: usize, ty: CqlType },
    /// A field of a user type.
    Field { receiver: Box<Selector>, index: usize, ty: CqlType },
    /// An element of a set or map.
    Element { receiver: Box<Selector>, element: Term, name: String },
    /// The elements of a set or map in a range, with both ends included.
    Slice { receiver: Box<Selector>, from: Option<Term>, to: Option<Term>, name: String },
    /// A list, set, tuple, user type or vector of expressions.
    Elements { ty: CqlType, elements: Vec<Selector> },
    /// A map of expressions.
    Map { ty: CqlType, entries: Vec<(Selector, Selector)> },
}

/// The input of selectors.
pub(crate) enum Input<'i, 'r> {
    /// One row.
    Row { row: &'i RowView<'r>, parts: &'i RowParts, execution: &'i Execution<'i> },
    /// A group of rows: the values of the leaves in its first row, and its aggregates.
    Group {
        leaves: &'i [Option<Vec<u8>>],
        parts: &'i RowParts,
        aggregates: &'i [Accumulator],
        execution: &'i Execution<'i>,
    },
}

impl<'i> Input<'i, '_> {
    /// The execution of the statement.
    pub fn execution(&self) -> &'i Execution<'i> {
        match self {
            Input::Row { execution, .. } | Input::Group { execution, .. } => execution,
        }
    }

    fn leaf(
        &self,
        leaf: usize,
        of_row: impl FnOnce(&'i RowView<'_>, &'i RowParts) -> Option<Cow<'i, [u8]>>,
    ) -> Option<Cow<'i, [u8]>> {
        match self {
            Input::Row { row, parts, .. } => of_row(row, parts),
            Input::Group { leaves, .. } => leaves.get(leaf)?.as_deref().map(Cow::Borrowed),
        }
    }

    /// The decoded parts of the receiver's column, if many of them are selected.
    fn parts(&self, receiver: &Selector) -> Result<Option<Rc<Parts>>, QueryError> {
        let (Input::Row { parts, .. } | Input::Group { parts, .. }) = self;
        let Selector::Column { source, ty, .. } = receiver else { return Ok(None) };
        parts.of_value(*source, ty, || Ok(receiver.evaluate(self)?.map(Cow::into_owned)))
    }
}

/// A value or null.
type Nullable<'v> = Option<Cow<'v, [u8]>>;

type Evaluated<'v> = Result<Nullable<'v>, QueryError>;

impl Selector {
    /// The type of the selector's values.
    pub fn ty(&self) -> CqlType {
        match self {
            Selector::Column { ty, .. }
            | Selector::Term { ty, .. }
            | Selector::Aggregate { ty, .. }
            | Selector::Field { ty, .. }
            | Selector::Elements { ty, .. }
            | Selector::Map { ty, .. } => ty.clone(),
            Selector::Masked { column, .. } => column.ty(),
            Selector::Writetime { selector, .. } => selector.ty(),
            Selector::Function { function, .. } => function.returns.clone(),
            Selector::Element { receiver, .. } => match receiver.ty() {
                CqlType::Map { value, .. } => (*value).clone(),
                CqlType::Set { element, .. } => (*element).clone(),
                other => other,
            },
            Selector::Slice { receiver, .. } => receiver.ty(),
        }
    }

    /// The value; `None` is null.
    pub fn evaluate<'v>(&'v self, input: &Input<'v, '_>) -> Evaluated<'v> {
        match self {
            Selector::Column { source, ty, leaf } => Ok(input.leaf(*leaf, |row, _| row.value(*source, ty))),
            Selector::Masked { column, mask } => {
                let value = column.evaluate(input)?;
                Ok(mask.apply(value.as_deref(), input.execution())?.map(Cow::Owned))
            }
            Selector::Writetime { selector, leaf } => {
                let execution = input.execution();
                Ok(input.leaf(*leaf, |row, parts| selector.evaluate(row, parts, execution).map(Cow::Owned)))
            }
            Selector::Term { term, .. } => Ok(match term.bind(input.execution())? {
                Bound::Bytes(bytes) => Some(bytes),
                Bound::Null | Bound::Unset => None,
            }),
            Selector::Function { function, arguments } => call(function, arguments, input),
            Selector::Aggregate { index, .. } => match input {
                Input::Group { aggregates, .. } => match aggregates.get(*index) {
                    Some(accumulator) => Ok(accumulator.result()?.map(Cow::Owned)),
                    None => Ok(None),
                },
                Input::Row { .. } => Ok(None),
            },
            Selector::Field { receiver, index, .. } => {
                if let Some(parts) = input.parts(receiver)? {
                    return Ok(parts.at(*index).map(|field| Cow::Owned(field.to_vec())));
                }
                let Some(value) = receiver.evaluate(input)? else { return Ok(None) };
                let field = collection::fields(&value).nth(*index).transpose()?.flatten();
                Ok(field.map(|field| Cow::Owned(field.to_vec())))
            }
            Selector::Element { receiver, element, name } => {
                let null = || QueryError::invalid(format!("Invalid null value for element selection on {name}"));
                let unset = || format!("Invalid unset value for element selection on {name}");
                let wanted = element.bind(input.execution())?.or_refuse_unset(unset)?.ok_or_else(null)?;
                if let Some(parts) = input.parts(receiver)? {
                    return Ok(parts.element(&wanted).map(|element| Cow::Owned(element.to_vec())));
                }
                match receiver.evaluate(input)? {
                    Some(value) => select_element(&receiver.ty(), &value, &wanted),
                    None => Ok(None),
                }
            }
            Selector::Slice { receiver, from, to, name } => {
                let (from, to) = (slice_bound(from, name, input)?, slice_bound(to, name, input)?);
                evaluate_slice(receiver, from.as_deref(), to.as_deref(), input)
            }
            Selector::Elements { ty, elements } => {
                let values = elements.iter().map(|element| element.evaluate(input)).collect::<Result<Vec<_>, _>>()?;
                make_elements(ty, values)
            }
            Selector::Map { ty, entries } => {
                let mut values = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    values.push((key.evaluate(input)?, value.evaluate(input)?));
                }
                make_map(ty, values)
            }
        }
    }

    /// The direct parts of the selector.
    pub fn inner(&self) -> Vec<&Selector> {
        match self {
            Selector::Function { arguments, .. } => arguments.iter().collect(),
            Selector::Field { receiver, .. }
            | Selector::Element { receiver, .. }
            | Selector::Slice { receiver, .. } => vec![receiver],
            Selector::Elements { elements, .. } => elements.iter().collect(),
            Selector::Map { entries, .. } => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            Selector::Masked { column, .. } => vec![column],
            Selector::Column { .. }
            | Selector::Writetime { .. }
            | Selector::Term { .. }
            | Selector::Aggregate { .. } => Vec::new(),
        }
    }

    /// The direct parts of the selector, to be changed.
    pub fn inner_mut(&mut self) -> Vec<&mut Selector> {
        match self {
            Selector::Function { arguments, .. } => arguments.iter_mut().collect(),
            Selector::Field { receiver, .. }
            | Selector::Element { receiver, .. }
            | Selector::Slice { receiver, .. } => vec![receiver],
            Selector::Elements { elements, .. } => elements.iter_mut().collect(),
            Selector::Map { entries, .. } => entries.iter_mut().flat_map(|(key, value)| [key, value]).collect(),
            Selector::Masked { column, .. } => vec![column],
            Selector::Column { .. }
            | Selector::Writetime { .. }
            | Selector::Term { .. }
            | Selector::Aggregate { .. } => Vec::new(),
        }
    }

    /// The number of expressions in the selector, itself included.
    pub fn count(&self) -> usize {
        1 + self.inner().into_iter().map(Selector::count).sum::<usize>()
    }

    /// Whether the value does not depend on rows: it is a term, or a function of such selectors.
    fn is_constant(&self) -> bool {
        match self {
            Selector::Term { .. } => true,
            Selector::Function { arguments, .. } => arguments.iter().all(Selector::is_constant),
            _ => false,
        }
    }

    /// The terms that select elements of a collection.
    fn parts(&self) -> Vec<&Term> {
        match self {
            Selector::Element { element, .. } => vec![element],
            Selector::Slice { from, to, .. } => from.iter().chain(to).collect(),
            Selector::Writetime { selector, .. } => match &selector.part {
                Part::Element(element) => vec![element],
                Part::Slice(from, to) => from.iter().chain(to).collect(),
                Part::Whole | Part::Field(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Whether [`check_constants`](Self::check_constants) has anything to check.
    pub fn has_constants(&self) -> bool {
        let is_call = |part: &&Term| matches!(part, Term::Function(_));
        matches!(self, Selector::Function { .. })
            || self.parts().iter().any(is_call)
            || self.inner().into_iter().any(Selector::has_constants)
    }

    /// Calls the functions whose arguments are all known before any row is read, and checks single arguments that are
    /// known.
    pub fn check_constants(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        let parts = RowParts::default();
        let nothing = Input::Group { leaves: &[], parts: &parts, aggregates: &[], execution };
        if let Selector::Function { .. } = self
            && self.is_constant()
        {
            return self.evaluate(&nothing).map(|_| ());
        }
        self.parts().into_iter().try_for_each(|part| part.bind(execution).map(drop))?;
        self.inner().into_iter().try_for_each(|inner| inner.check_constants(execution))?;
        if let Selector::Function { function, arguments } = self
            && let Some(argument) = function.checked_argument().and_then(|place| arguments.get(place))
            && argument.is_constant()
            && let Some(value) = argument.evaluate(&nothing)?
        {
            function.check_argument(&value)?;
        }
        Ok(())
    }

    /// Checks, for GROUP BY, that the values grow with those of the selector's only column.
    pub fn check_monotonic(&self) -> Result<(), QueryError> {
        match self {
            Selector::Column { .. } => Ok(()),
            Selector::Function { function, arguments } => {
                let is_constant: Vec<bool> = arguments.iter().map(Selector::is_constant).collect();
                let grows_with_first =
                    is_constant.split_first().is_some_and(|(first, rest)| !first && rest.iter().all(|c| *c));
                if !function.is_monotonic || !grows_with_first {
                    return Err(QueryError::invalid(format!(
                        "Only monotonic functions are supported in the GROUP BY clause. Got: {} ",
                        function.signature_applied_to(&is_constant)
                    )));
                }
                arguments.iter().filter(|argument| !argument.is_constant()).try_for_each(Selector::check_monotonic)
            }
            _ => Err(QueryError::invalid(
                "Only column names and monotonic scalar functions are supported in the GROUP BY clause.",
            )),
        }
    }

    /// An unset marker as argument of a function is an error.
    fn refuse_unset(&self, function: &Function, execution: &Execution<'_>) -> Result<(), QueryError> {
        if let Selector::Term { term: Term::Marker { index, .. }, .. } = self
            && execution.value(*index)? == crate::Value::Unset
        {
            let name = &function.name;
            return Err(QueryError::invalid(format!("Invalid unset value for argument in call to function {name}")));
        }
        Ok(())
    }
}

/// The result of a scalar function.
fn call<'v>(function: &'v Function, arguments: &'v [Selector], input: &Input<'v, '_>) -> Evaluated<'v> {
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        argument.refuse_unset(function, input.execution())?;
        values.push(argument.evaluate(input)?);
    }
    let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
    let size_bytes = values.iter().flatten().map(|value| value.len()).sum();
    input.execution().work(steps_of_bytes(size_bytes) + function.steps_of_digits(size_bytes))?;
    Ok(function.call(input.execution(), &values)?.map(Cow::Owned))
}

/// The elements of a collection between two bounds. `None` is no bound.
fn evaluate_slice<'v>(
    receiver: &'v Selector,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
    input: &Input<'v, '_>,
) -> Evaluated<'v> {
    let ty = receiver.ty();
    let parts = input.parts(receiver)?;
    if parts.as_ref().is_some_and(|parts| parts.is_null()) {
        return Ok(None);
    }
    let slice = match parts.and_then(|parts| parts.slice(from, to)) {
        Some(slice) => Some(Cow::Owned(slice)),
        None => {
            let Some(value) = receiver.evaluate(input)? else { return Ok(None) };
            select_slice(&ty, &value, from, to)?
        }
    };
    // An unfrozen collection without elements is null.
    Ok(slice.filter(|slice| !ty.is_multi_cell() || collection::count(slice) != Some(0)))
}

fn slice_bound<'v>(bound: &'v Option<Term>, name: &str, input: &Input<'v, '_>) -> Evaluated<'v> {
    let Some(term) = bound else { return Ok(None) };
    match term.bind(input.execution())? {
        Bound::Bytes(bytes) => Ok(Some(bytes)),
        Bound::Unset => Ok(None),
        Bound::Null => Err(QueryError::invalid(format!("Invalid null value for slice selection on {name}"))),
    }
}

fn select_element<'v>(ty: &CqlType, value: &[u8], wanted: &[u8]) -> Evaluated<'v> {
    match ty {
        CqlType::Map { key, .. } => {
            for entry in collection::entries(value)?.entries() {
                let (k, v) = entry?;
                if key.compare(k, wanted).is_eq() {
                    return Ok(Some(Cow::Owned(v.to_vec())));
                }
            }
            Ok(None)
        }
        CqlType::Set { element, .. } => {
            let found = collection::elements(value)?.flatten().flatten().find(|e| element.compare(e, wanted).is_eq());
            Ok(found.map(|found| Cow::Owned(found.to_vec())))
        }
        _ => Ok(None),
    }
}

fn select_slice<'v>(ty: &CqlType, value: &[u8], from: Option<&[u8]>, to: Option<&[u8]>) -> Evaluated<'v> {
    let within = |ty: &CqlType, element: &[u8]| {
        from.is_none_or(|from| ty.compare(element, from).is_ge()) && to.is_none_or(|to| ty.compare(element, to).is_le())
    };
    match ty {
        CqlType::Map { key, .. } => {
            let entries: Result<Vec<_>, _> = collection::entries(value)?.entries().collect();
            let kept: Vec<_> = entries?.into_iter().filter(|(k, _)| within(key, k)).collect();
            Ok(Some(Cow::Owned(collection::map(kept.into_iter()))))
        }
        CqlType::Set { element, .. } => {
            let elements = collection::elements(value)?.flatten().flatten();
            let kept: Vec<&[u8]> = elements.filter(|e| within(element, e)).collect();
            Ok(Some(Cow::Owned(collection::list(kept.into_iter()))))
        }
        _ => Ok(None),
    }
}

fn refuse_nulls<'v>(values: Vec<Option<Cow<'v, [u8]>>>, inside: &str) -> Result<Vec<Cow<'v, [u8]>>, QueryError> {
    let null = || QueryError::invalid(format!("null is not supported inside {inside}"));
    values.into_iter().map(|value| value.ok_or_else(null)).collect()
}

/// Refuses to build a collection that is larger than any that can be stored.
fn refuse_large(ty: &CqlType, lengths: impl Iterator<Item = usize>) -> Result<(), QueryError> {
    let bytes = lengths.fold(0, usize::saturating_add);
    if bytes <= RESULT_BYTES_MAX {
        return Ok(());
    }
    Err(QueryError::invalid(format!("The selected value of type {ty} has more than {RESULT_BYTES_MAX} bytes")))
}

fn make_elements<'v>(ty: &CqlType, values: Vec<Option<Cow<'v, [u8]>>>) -> Evaluated<'v> {
    refuse_large(ty, values.iter().flatten().map(|value| value.len()))?;
    Ok(Some(Cow::Owned(match ty {
        CqlType::List { .. } => {
            let values = refuse_nulls(values, "collections")?;
            collection::list(values.iter().map(AsRef::as_ref))
        }
        CqlType::Set { element, .. } => {
            let mut values = refuse_nulls(values, "collections")?;
            values.sort_by(|a, b| element.compare(a, b));
            values.dedup_by(|a, b| element.compare(a, b).is_eq());
            collection::list(values.iter().map(AsRef::as_ref))
        }
        CqlType::Vector { element, .. } => {
            let values = refuse_nulls(values, "vectors")?;
            collection::vector(element, values.iter().map(AsRef::as_ref))
        }
        _ => collection::tuple(values.iter().map(Option::as_deref)),
    })))
}

fn make_map<'v>(ty: &CqlType, entries: Vec<(Nullable<'v>, Nullable<'v>)>) -> Evaluated<'v> {
    let CqlType::Map { key, .. } = ty else { return Ok(None) };
    refuse_large(ty, entries.iter().flat_map(|(key, value)| [key, value]).flatten().map(|value| value.len()))?;
    let (keys, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
    let (keys, values) = (refuse_nulls(keys, "collections")?, refuse_nulls(values, "collections")?);
    let mut entries: Vec<_> = keys.iter().map(AsRef::as_ref).zip(values.iter().map(AsRef::as_ref)).collect();
    entries.sort_by(|(a, _): &(&[u8], &[u8]), (b, _)| key.compare(a, b));
    Ok(Some(Cow::Owned(collection::map(entries.into_iter()))))
}
