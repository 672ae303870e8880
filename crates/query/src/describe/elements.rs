//! The elements that a DESCRIBE statement names.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cql::ast::{Describe, DescribeTarget, Identifier, QualifiedName, UserTypeName};
use engine::system::is_system_keyspace;
use model::{Keyspace, Table};
use types::UserType;
use types::identifier::Quoted;

use super::{Element, statements};
use crate::QueryError;
use crate::budget::steps_of_bytes;
use crate::execution::Execution;

/// The work of writing one byte of a description, as a multiple of the work of copying one byte of a row.
const BYTES_FACTOR: usize = 16;

/// The rows of the answer.
pub(super) fn of(statement: &Describe, execution: &Execution<'_>) -> Result<Vec<Element>, QueryError> {
    let describer = Describer { execution, internals: statement.with_internals };
    match &statement.target {
        DescribeTarget::Cluster => Ok(Vec::new()),
        DescribeTarget::Schema { full } => describer.schema(*full),
        DescribeTarget::Keyspaces => {
            Ok(describer.keyspace_names().into_iter().map(|n| named(&n, "keyspace", &n)).collect())
        }
        DescribeTarget::Keyspace { keyspace, only } => {
            let name = describer.keyspace_or_current(keyspace.as_ref())?;
            describer.keyspace(name, *only)
        }
        DescribeTarget::Tables => describer.list(|keyspace| {
            sorted(keyspace.tables().iter().map(|table| table.name.to_string()).collect())
                .iter()
                .map(|name| named(keyspace.name(), "table", name))
                .collect()
        }),
        DescribeTarget::Types => describer.list(|keyspace| {
            let names = keyspace.stored().map(|stored| stored.types.keys().map(|name| name.to_string()).collect());
            sorted(names.unwrap_or_default()).iter().map(|name| named(keyspace.name(), "type", name)).collect()
        }),
        DescribeTarget::Functions | DescribeTarget::Aggregates => describer.list(|_| Vec::new()),
        DescribeTarget::Table(name) => describer.table(name),
        DescribeTarget::Type(name) => describer.user_type(name),
        DescribeTarget::Index(name) => Err(describer.missing("Table for existing index", name)?),
        DescribeTarget::View(name) => Err(describer.missing("Materialized view", name)?),
        DescribeTarget::Function(name) => {
            let name = QualifiedName { keyspace: name.keyspace.clone(), name: name.name.clone() };
            Err(describer.missing("User defined function", &name)?)
        }
        DescribeTarget::Aggregate(name) => {
            let name = QualifiedName { keyspace: name.keyspace.clone(), name: name.name.clone() };
            Err(describer.missing("User defined aggregate", &name)?)
        }
        DescribeTarget::Generic(name) => describer.generic(name),
    }
}

fn named(keyspace: &str, kind: &'static str, name: &str) -> Element {
    Element { keyspace: Quoted(keyspace).to_string(), kind, name: Quoted(name).to_string(), statement: None }
}

fn created(keyspace: &str, kind: &'static str, name: &str, statement: String) -> Element {
    Element { statement: Some(statement), ..named(keyspace, kind, name) }
}

/// Sorts without regard to case first, as Cassandra lists names.
fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| (name.to_lowercase(), name.clone()));
    names
}

/// A keyspace, stored or virtual.
enum Described<'a> {
    Stored(&'a Arc<Keyspace>),
    Virtual { name: &'a str, tables: Vec<Arc<Table>> },
}

impl Described<'_> {
    fn name(&self) -> &str {
        match self {
            Described::Stored(keyspace) => &keyspace.name,
            Described::Virtual { name, .. } => name,
        }
    }

    fn tables(&self) -> Vec<Arc<Table>> {
        match self {
            Described::Stored(keyspace) => keyspace.tables.values().cloned().collect(),
            Described::Virtual { tables, .. } => tables.clone(),
        }
    }

    fn stored(&self) -> Option<&Arc<Keyspace>> {
        match self {
            Described::Stored(keyspace) => Some(keyspace),
            Described::Virtual { .. } => None,
        }
    }
}

struct Describer<'a> {
    execution: &'a Execution<'a>,
    internals: bool,
}

impl<'a> Describer<'a> {
    fn keyspace_names(&self) -> Vec<String> {
        let stored = self.execution.schema.keyspaces.keys().map(|name| name.to_string());
        let names = stored.chain(self.execution.processor.virtual_tables().keyspace_names().map(str::to_string));
        sorted(names.collect())
    }

    fn find(&self, name: &'a str) -> Option<Described<'a>> {
        if let Some(keyspace) = self.execution.schema.keyspaces.get(name) {
            return Some(Described::Stored(keyspace));
        }
        let virtual_tables = self.execution.processor.virtual_tables();
        let tables = || virtual_tables.tables(name).cloned().collect();
        virtual_tables.has_keyspace(name).then(|| Described::Virtual { name, tables: tables() })
    }

    fn current(&self) -> Option<&'a str> {
        self.execution.client.keyspace.as_deref().or(self.execution.keyspace)
    }

    fn keyspace_or_current(&self, written: Option<&'a Identifier>) -> Result<&'a str, QueryError> {
        let name = written.map(Identifier::as_str).or(self.current());
        name.ok_or_else(|| QueryError::invalid("No keyspace specified and no current keyspace"))
    }

    /// Lists the current keyspace, or all keyspaces if there is none.
    fn list(&self, elements: impl Fn(&Described<'_>) -> Vec<Element>) -> Result<Vec<Element>, QueryError> {
        if let Some(current) = self.current() {
            let keyspace = self.find(current).ok_or_else(|| unknown_keyspace(current))?;
            return Ok(elements(&keyspace));
        }
        let mut all = Vec::new();
        for name in self.keyspace_names() {
            if let Some(keyspace) = self.execution.schema.keyspaces.get(name.as_str()) {
                all.extend(elements(&Described::Stored(keyspace)));
            } else {
                let tables = self.execution.processor.virtual_tables().tables(&name).cloned().collect();
                all.extend(elements(&Described::Virtual { name: &name, tables }));
            }
        }
        Ok(all)
    }

    fn schema(&self, full: bool) -> Result<Vec<Element>, QueryError> {
        let mut all = Vec::new();
        for name in self.keyspace_names() {
            let is_shown = full || !is_system_keyspace(&name);
            if is_shown && let Some(keyspace) = self.execution.schema.keyspaces.get(name.as_str()) {
                all.extend(self.keyspace_elements(&Described::Stored(keyspace), false)?);
            }
        }
        Ok(all)
    }

    fn keyspace(&self, name: &'a str, only: bool) -> Result<Vec<Element>, QueryError> {
        let keyspace = self.find(name).ok_or_else(|| unknown_keyspace(name))?;
        self.keyspace_elements(&keyspace, only)
    }

    fn keyspace_elements(&self, keyspace: &Described<'_>, only: bool) -> Result<Vec<Element>, QueryError> {
        let statement = match keyspace.stored() {
            Some(stored) => statements::keyspace(stored),
            None => statements::virtual_keyspace(keyspace.name()),
        };
        let mut elements = vec![created(keyspace.name(), "keyspace", keyspace.name(), statement)];
        if only {
            return Ok(elements);
        }
        for definition in keyspace.stored().map(|stored| in_dependency_order(stored)).unwrap_or_default() {
            elements.push(self.counted(type_element(definition))?);
        }
        let mut tables = keyspace.tables();
        tables.sort_by_key(|table| (table.name.to_lowercase(), table.name.clone()));
        for table in &tables {
            elements.push(self.counted(self.table_element(table))?);
        }
        Ok(elements)
    }

    /// Counts the memory and the work of an element among many.
    fn counted(&self, element: Element) -> Result<Element, QueryError> {
        let size_bytes = size_of::<Element>() + element.statement.as_ref().map_or(0, String::len);
        self.execution.work(1 + steps_of_bytes(BYTES_FACTOR * size_bytes))?;
        self.execution.charge(size_bytes)?;
        Ok(element)
    }

    fn table_element(&self, table: &Table) -> Element {
        let is_virtual = self.execution.processor.virtual_tables().contains(table);
        let statement = match is_virtual {
            true => statements::virtual_table(table),
            false => statements::table(table, self.internals),
        };
        created(&table.keyspace, "table", &table.name, statement)
    }

    fn table(&self, name: &'a QualifiedName) -> Result<Vec<Element>, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        let name = name.name.as_str();
        let tables = found.tables();
        let table = tables.iter().find(|table| &*table.name == name);
        let missing = || QueryError::invalid(format!("Table '{name}' not found in keyspace '{keyspace}'"));
        Ok(vec![self.table_element(table.ok_or_else(missing)?)])
    }

    fn user_type(&self, name: &'a UserTypeName) -> Result<Vec<Element>, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        let name = name.name.as_str();
        let definition = found.stored().and_then(|stored| stored.types.get(name));
        let missing = || QueryError::invalid(format!("User defined type '{name}' not found in '{keyspace}'"));
        Ok(vec![type_element(definition.ok_or_else(missing)?)])
    }

    fn missing(&self, what: &str, name: &'a QualifiedName) -> Result<QueryError, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        Ok(QueryError::invalid(format!("{what} '{}' not found in '{keyspace}'", name.name.as_str())))
    }

    /// A keyspace of that name, or else a table.
    fn generic(&self, name: &'a QualifiedName) -> Result<Vec<Element>, QueryError> {
        let own = name.name.as_str();
        if name.keyspace.is_none() && self.find(own).is_some() {
            return self.keyspace(own, false);
        }
        let Some(keyspace) = name.keyspace.as_ref().map(Identifier::as_str).or(self.current()) else {
            return Err(unknown_keyspace(own));
        };
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        let tables = found.tables();
        let table = tables.iter().find(|table| &*table.name == own);
        let missing = || QueryError::invalid(format!("'{own}' not found in keyspace '{keyspace}'"));
        Ok(vec![self.table_element(table.ok_or_else(missing)?)])
    }
}

fn unknown_keyspace(name: &str) -> QueryError {
    QueryError::invalid(format!("'{name}' not found in keyspaces"))
}

fn type_element(definition: &Arc<UserType>) -> Element {
    created(&definition.keyspace, "type", &definition.name, statements::user_type(definition))
}

/// Types before the types that use them, and otherwise by name.
pub(super) fn in_dependency_order(keyspace: &Keyspace) -> Vec<&Arc<UserType>> {
    let mut levels = HashMap::new();
    let mut ordered: Vec<&Arc<UserType>> = keyspace.types.values().collect();
    ordered.sort_by_cached_key(|definition| level(&definition.name, keyspace, &mut levels));
    ordered
}

/// The depth of the types that a type uses. Types cannot form cycles; if stored ones do, the search ends at its start.
fn level<'k>(name: &str, keyspace: &'k Keyspace, levels: &mut HashMap<&'k str, usize>) -> usize {
    if let Some(known) = levels.get(name) {
        return *known;
    }
    let Some((name, definition)) = keyspace.types.get_key_value(name) else { return 0 };
    levels.insert(name, 0);
    let used: RefCell<BTreeSet<Arc<str>>> = RefCell::default();
    let note = |inner: &types::CqlType| {
        if let types::CqlType::Udt { definition, .. } = inner {
            used.borrow_mut().insert(definition.name.clone());
        }
        false
    };
    for (_, ty) in definition.fields() {
        ty.any(&note);
    }
    let below = used.take().iter().map(|used| 1 + level(used, keyspace, levels)).max().unwrap_or(0);
    levels.insert(name, below);
    below
}
