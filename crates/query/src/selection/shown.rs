//! The text of a selected expression in messages.

use std::fmt;

use cql::ast::Selectable;

use super::prepare::call_of;

/// Prints an expression as Cassandra does after it has looked up the names: columns without quotes, functions with
/// their keyspace.
pub(super) struct Shown<'a>(pub &'a Selectable);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Selectable::Column(name) => f.write_str(name.as_str()),
            Selectable::Term(term) => write!(f, "{term}"),
            Selectable::WritetimeOrTtl { kind, selected, .. } => write!(f, "{kind}({})", Shown(selected)),
            Selectable::Cast { argument, type_name } => write!(f, "cast({} as {type_name})", Shown(argument)),
            Selectable::CountRows | Selectable::Function { .. } => call(self.0, f),
            Selectable::Operation { operator, left, right } => {
                write!(f, "{} {operator} {}", Shown(left), Shown(right))
            }
            Selectable::Negation(argument) => write!(f, "-{}", Shown(argument)),
            Selectable::Field { receiver, field } => write!(f, "{}.{field}", Shown(receiver)),
            Selectable::Element { receiver, element } => write!(f, "{}[{element}]", Shown(receiver)),
            Selectable::Slice { receiver, from, to } => {
                write!(f, "{}[", Shown(receiver))?;
                from.iter().try_for_each(|from| write!(f, "{from}"))?;
                f.write_str("..")?;
                to.iter().try_for_each(|to| write!(f, "{to}"))?;
                f.write_str("]")
            }
            Selectable::TypeHint { type_name, selectable } => write!(f, "({type_name}){}", Shown(selectable)),
            Selectable::BetweenParenthesesOrTuple(elements) => list(f, "(", elements, ")"),
            Selectable::List(elements) => list(f, "[", elements, "]"),
            Selectable::Set(elements) => list(f, "{", elements, "}"),
            Selectable::MapOrUdt(entries) => {
                let entries: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{}: {}", Shown(key), Shown(value))).collect();
                write!(f, "{{{}}}", entries.join(", "))
            }
        }
    }
}

fn call(selectable: &Selectable, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((name, arguments)) = call_of(selectable) else { return Ok(()) };
    if name.keyspace.is_none() && name.name.as_str() == "countRows" {
        return f.write_str("count");
    }
    let arguments: Vec<String> = arguments.into_iter().map(|argument| Shown(argument).to_string()).collect();
    let keyspace = if name.keyspace.is_none() { "system." } else { "" };
    write!(f, "{keyspace}{name}({})", arguments.join(", "))
}

fn list(f: &mut fmt::Formatter<'_>, open: &str, elements: &[Selectable], close: &str) -> fmt::Result {
    let elements: Vec<String> = elements.iter().map(|element| Shown(element).to_string()).collect();
    write!(f, "{open}{}{close}", elements.join(", "))
}
