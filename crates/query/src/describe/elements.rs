//! The elements that a DESCRIBE statement names, in their order: of each keyspace itself, its types and its tables.
//!
//! They are added to a page one by one. Those before the page are counted and not written.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cql::ast::{Describe, DescribeTarget, Identifier, QualifiedName, UserTypeName};
use engine::system::is_system_keyspace;
use model::{Index, Keyspace, Table};
use types::identifier::Quoted;
use types::{UserType, steps};

use super::page::{Flow, Page};
use super::{Element, statements};
use crate::QueryError;
use crate::budget::steps_of_expressions;
use crate::ddl::table_of_index;
use crate::execution::Execution;

/// The memory for a name in a list of names that is sorted, bytes.
const SORTED_NAME_BYTES: usize = 16;

/// Adds the elements to the page, until it is full.
pub(super) fn add(statement: &Describe, page: &mut Page<'_>, execution: &Execution<'_>) -> Result<(), QueryError> {
    let describer = Describer { execution, internals: statement.with_internals };
    match &statement.target {
        DescribeTarget::Cluster => Ok(()),
        DescribeTarget::Schema { full } => describer.schema(*full, page),
        DescribeTarget::Keyspaces => {
            let names = describer.keyspace_names()?;
            page.add_each(names.into_iter(), |name| Ok(named(name, "keyspace", name))).map(|_| ())
        }
        DescribeTarget::Keyspace { keyspace, only } => {
            let name = describer.keyspace_or_current(keyspace.as_ref())?;
            let keyspace = describer.find(name).ok_or_else(|| unknown_keyspace(name))?;
            describer.keyspace(&keyspace, *only, page).map(|_| ())
        }
        DescribeTarget::Tables => describer.list(|keyspace| {
            if page.pass(keyspace.table_count()) {
                return Ok(Flow::Continue);
            }
            let tables = describer.sorted_tables(keyspace)?;
            page.add_each(tables.into_iter(), |table| Ok(named(keyspace.name(), "table", &table.name)))
        }),
        DescribeTarget::Types => describer.list(|keyspace| {
            let Some(types) = keyspace.stored().map(|stored| &stored.types) else { return Ok(Flow::Continue) };
            if page.pass(types.len()) {
                return Ok(Flow::Continue);
            }
            let names = describer.sorted(types.keys().map(|name| &**name), |name| name)?;
            page.add_each(names.into_iter(), |name| Ok(named(keyspace.name(), "type", name)))
        }),
        DescribeTarget::Functions | DescribeTarget::Aggregates => describer.list(|_| Ok(Flow::Continue)),
        DescribeTarget::Table(name) => describer.add_table(describer.table(name)?, page).map(|_| ()),
        DescribeTarget::Type(name) => page.add(|| describer.user_type(name)).map(|_| ()),
        DescribeTarget::Index(name) => page.add(|| describer.index(name)).map(|_| ()),
        DescribeTarget::View(name) => Err(describer.missing("Materialized view", name)?),
        DescribeTarget::Function(name) => {
            let name = QualifiedName { keyspace: name.keyspace.clone(), name: name.name.clone() };
            Err(describer.missing("User defined function", &name)?)
        }
        DescribeTarget::Aggregate(name) => {
            let name = QualifiedName { keyspace: name.keyspace.clone(), name: name.name.clone() };
            Err(describer.missing("User defined aggregate", &name)?)
        }
        DescribeTarget::Generic(name) => describer.generic(name, page),
    }
}

fn named(keyspace: &str, kind: &'static str, name: &str) -> Element {
    Element { keyspace: Quoted(keyspace).to_string(), kind, name: Quoted(name).to_string(), statement: None }
}

fn created(keyspace: &str, kind: &'static str, name: &str, statement: String) -> Element {
    Element { statement: Some(statement), ..named(keyspace, kind, name) }
}

/// The order in which Cassandra lists names: without regard to case first.
fn by_name(left: &str, right: &str) -> Ordering {
    steps::count(1);
    let (left_lower, right_lower) =
        (left.chars().flat_map(char::to_lowercase), right.chars().flat_map(char::to_lowercase));
    left_lower.cmp(right_lower).then_with(|| left.cmp(right))
}

/// A keyspace, stored or virtual.
enum Described<'a> {
    Stored(&'a Arc<Keyspace>),
    Virtual { name: &'a str, tables: Vec<&'a Arc<Table>> },
}

impl<'a> Described<'a> {
    fn name(&self) -> &str {
        match self {
            Described::Stored(keyspace) => &keyspace.name,
            Described::Virtual { name, .. } => name,
        }
    }

    fn table_count(&self) -> usize {
        match self {
            Described::Stored(keyspace) => keyspace.tables.len(),
            Described::Virtual { tables, .. } => tables.len(),
        }
    }

    /// The number of its tables and their indexes.
    fn element_count(&self) -> usize {
        self.tables().map(|table| 1 + table.indexes().len()).sum()
    }

    /// The index of that name.
    fn index(&self, name: &str) -> Option<Element> {
        let table = table_of_index(self.stored()?, name)?;
        let index = table.indexes().iter().find(|index| *index.name == *name)?;
        Some(index_element(table, index))
    }

    fn tables(&self) -> Box<dyn Iterator<Item = &'a Arc<Table>> + '_> {
        match self {
            Described::Stored(keyspace) => Box::new(keyspace.tables.values()),
            Described::Virtual { tables, .. } => Box::new(tables.iter().copied()),
        }
    }

    fn table(&self, name: &str) -> Option<&'a Arc<Table>> {
        match self {
            Described::Stored(keyspace) => keyspace.tables.get(name),
            Described::Virtual { tables, .. } => tables.iter().copied().find(|table| &*table.name == name),
        }
    }

    fn stored(&self) -> Option<&'a Arc<Keyspace>> {
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
    fn keyspace_names(&self) -> Result<Vec<&'a str>, QueryError> {
        let stored = self.execution.schema.keyspaces.keys().map(|name| &**name);
        let names =
            stored.chain(self.execution.processor.virtual_tables().keyspace_names().map(|name| -> &'a str { name }));
        self.sorted(names, |name| name)
    }

    /// Sorts things by their names. Their number counts as work and as memory.
    fn sorted<T>(&self, things: impl Iterator<Item = T>, name: impl Fn(&T) -> &str) -> Result<Vec<T>, QueryError> {
        let mut things: Vec<T> = things.collect();
        self.execution.work(steps_of_expressions(things.len()))?;
        self.execution.charge(SORTED_NAME_BYTES * things.len())?;
        things.sort_by(|left, right| by_name(name(left), name(right)));
        Ok(things)
    }

    fn sorted_tables(&self, keyspace: &Described<'a>) -> Result<Vec<&'a Arc<Table>>, QueryError> {
        self.sorted(keyspace.tables(), |table| &table.name)
    }

    fn find(&self, name: &'a str) -> Option<Described<'a>> {
        if let Some(keyspace) = self.execution.schema.keyspaces.get(name) {
            return Some(Described::Stored(keyspace));
        }
        let virtual_tables = self.execution.processor.virtual_tables();
        let tables = || virtual_tables.tables(name).collect();
        virtual_tables.has_keyspace(name).then(|| Described::Virtual { name, tables: tables() })
    }

    fn current(&self) -> Option<&'a str> {
        self.execution.client.keyspace.as_deref().or(self.execution.keyspace)
    }

    fn keyspace_or_current(&self, written: Option<&'a Identifier>) -> Result<&'a str, QueryError> {
        let name = written.map(Identifier::as_str).or(self.current());
        name.ok_or_else(|| QueryError::invalid("No keyspace specified and no current keyspace"))
    }

    /// Calls `add` with the current keyspace, or with all keyspaces if there is none, until the page is full.
    fn list(&self, mut add: impl FnMut(&Described<'a>) -> Result<Flow, QueryError>) -> Result<(), QueryError> {
        if let Some(current) = self.current() {
            let keyspace = self.find(current).ok_or_else(|| unknown_keyspace(current))?;
            return add(&keyspace).map(|_| ());
        }
        for keyspace in self.keyspace_names()?.into_iter().filter_map(|name| self.find(name)) {
            if add(&keyspace)? == Flow::Full {
                break;
            }
        }
        Ok(())
    }

    fn schema(&self, full: bool, page: &mut Page<'_>) -> Result<(), QueryError> {
        for name in self.keyspace_names()? {
            let is_shown = full || !is_system_keyspace(name);
            if is_shown
                && let Some(keyspace) = self.execution.schema.keyspaces.get(name)
                && self.keyspace(&Described::Stored(keyspace), false, page)? == Flow::Full
            {
                break;
            }
        }
        Ok(())
    }

    fn keyspace(&self, keyspace: &Described<'a>, only: bool, page: &mut Page<'_>) -> Result<Flow, QueryError> {
        let flow = page.add(|| {
            let statement = match keyspace.stored() {
                Some(stored) => statements::keyspace(stored),
                None => statements::virtual_keyspace(keyspace.name()),
            };
            Ok(created(keyspace.name(), "keyspace", keyspace.name(), statement))
        })?;
        if only || flow == Flow::Full {
            return Ok(flow);
        }
        if let Some(stored) = keyspace.stored()
            && !page.pass(stored.types.len())
        {
            let fields = stored.types.values().map(|definition| definition.fields().len()).sum();
            self.execution.work(steps_of_expressions(fields))?;
            let types = in_dependency_order(stored);
            if page.add_each(types.into_iter(), |definition| self.type_element(definition))? == Flow::Full {
                return Ok(Flow::Full);
            }
        }
        if page.pass(keyspace.element_count()) {
            return Ok(Flow::Continue);
        }
        let tables = self.sorted_tables(keyspace)?;
        if keyspace.element_count() == tables.len() {
            return page.add_each(tables.into_iter(), |table| self.table_element(table));
        }
        for table in tables {
            if self.add_table(table, page)? == Flow::Full {
                return Ok(Flow::Full);
            }
        }
        Ok(Flow::Continue)
    }

    /// Adds a table and its indexes.
    fn add_table(&self, table: &Table, page: &mut Page<'_>) -> Result<Flow, QueryError> {
        match page.add(|| self.table_element(table))? {
            Flow::Full => Ok(Flow::Full),
            Flow::Continue => {
                let indexes = self.sorted(table.indexes().iter(), |index| &index.name)?;
                page.add_each(indexes.into_iter(), |index| Ok(index_element(table, index)))
            }
        }
    }

    fn table_element(&self, table: &Table) -> Result<Element, QueryError> {
        let columns = table.columns_in_select_order().len() + table.dropped().len();
        self.execution.work(steps_of_expressions(columns))?;
        self.execution.check_room(statements::text_bytes(table))?;
        let is_virtual = self.execution.processor.virtual_tables().contains(table);
        let statement = match is_virtual {
            true => statements::virtual_table(table),
            false => statements::table(table, self.internals),
        };
        Ok(created(&table.keyspace, "table", &table.name, statement))
    }

    fn type_element(&self, definition: &UserType) -> Result<Element, QueryError> {
        self.execution.work(steps_of_expressions(definition.fields().len()))?;
        Ok(created(&definition.keyspace, "type", &definition.name, statements::user_type(definition)))
    }

    fn index(&self, name: &'a QualifiedName) -> Result<Element, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        match found.index(name.name.as_str()) {
            Some(element) => Ok(element),
            None => Err(self.missing("Table for existing index", name)?),
        }
    }

    fn table(&self, name: &'a QualifiedName) -> Result<&'a Arc<Table>, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        let name = name.name.as_str();
        let missing = || QueryError::invalid(format!("Table '{name}' not found in keyspace '{keyspace}'"));
        found.table(name).ok_or_else(missing)
    }

    fn user_type(&self, name: &'a UserTypeName) -> Result<Element, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        let name = name.name.as_str();
        let definition = found.stored().and_then(|stored| stored.types.get(name));
        let missing = || QueryError::invalid(format!("User defined type '{name}' not found in '{keyspace}'"));
        self.type_element(definition.ok_or_else(missing)?)
    }

    fn missing(&self, what: &str, name: &'a QualifiedName) -> Result<QueryError, QueryError> {
        let keyspace = self.keyspace_or_current(name.keyspace.as_ref())?;
        self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        Ok(QueryError::invalid(format!("{what} '{}' not found in '{keyspace}'", name.name.as_str())))
    }

    /// A keyspace of that name, or else a table, or else an index.
    fn generic(&self, name: &'a QualifiedName, page: &mut Page<'_>) -> Result<(), QueryError> {
        let own = name.name.as_str();
        if name.keyspace.is_none()
            && let Some(keyspace) = self.find(own)
        {
            return self.keyspace(&keyspace, false, page).map(|_| ());
        }
        let Some(keyspace) = name.keyspace.as_ref().map(Identifier::as_str).or(self.current()) else {
            return Err(unknown_keyspace(own));
        };
        let found = self.find(keyspace).ok_or_else(|| unknown_keyspace(keyspace))?;
        let missing = || QueryError::invalid(format!("'{own}' not found in keyspace '{keyspace}'"));
        match found.table(own) {
            Some(table) => self.add_table(table, page).map(|_| ()),
            None => page.add(|| found.index(own).ok_or_else(missing)).map(|_| ()),
        }
    }
}

fn index_element(table: &Table, index: &Index) -> Element {
    created(&table.keyspace, "index", &index.name, statements::index(table, index))
}

fn unknown_keyspace(name: &str) -> QueryError {
    QueryError::invalid(format!("'{name}' not found in keyspaces"))
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
