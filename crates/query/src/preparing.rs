//! The context in which a statement is prepared, and the bind markers that are collected meanwhile.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cql::ast::{BindMarker, Identifier, QualifiedName};
use model::{Column, Schema, Table};

use crate::functions::Function;
use crate::names::{column_spec, find_table};
use crate::system::VirtualTables;
use crate::terms::Findings;
use crate::{ColumnSpec, QueryError};

/// The state of preparing one statement.
pub(crate) struct Preparing<'a> {
    /// The schema in which names are looked up.
    pub schema: Arc<Schema>,
    /// The keyspace of unqualified names.
    pub keyspace: Option<&'a str>,
    /// The virtual tables.
    pub virtual_tables: &'a VirtualTables,
    /// Whether storage-attached indexes go before plain ones.
    pub prefers_attached: bool,
    names: &'a [Option<Identifier>],
    receivers: Vec<Option<ColumnSpec>>,
    /// The tables that the statement uses. The table that was looked up last is at the end.
    tables: Vec<Arc<Table>>,
    findings: RefCell<Findings>,
    /// The functions of the names that were called, if they do not depend on the arguments.
    functions: RefCell<HashMap<String, Arc<[Arc<Function>]>>>,
}

impl<'a> Preparing<'a> {
    pub fn new(
        schema: Arc<Schema>,
        keyspace: Option<&'a str>,
        virtual_tables: &'a VirtualTables,
        names: &'a [Option<Identifier>],
    ) -> Self {
        Preparing {
            schema,
            keyspace,
            virtual_tables,
            prefers_attached: false,
            names,
            receivers: vec![None; names.len()],
            tables: Vec::new(),
            findings: RefCell::default(),
            functions: RefCell::default(),
        }
    }

    /// Looks up a table that the statement reads or writes.
    pub fn table(&mut self, name: &QualifiedName) -> Result<Arc<Table>, QueryError> {
        let table = find_table(&self.schema, self.virtual_tables, name, self.keyspace)?;
        // The table that was looked up last becomes the current one.
        self.tables.retain(|known| !Arc::ptr_eq(known, &table));
        self.tables.push(table.clone());
        Ok(table)
    }

    /// Prepares an expression, and keeps the results about its parts meanwhile. The parts must not move.
    pub fn expression<T>(&mut self, prepare: impl FnOnce(&mut Self) -> T) -> T {
        self.findings.get_mut().enter();
        let prepared = prepare(self);
        self.findings.get_mut().leave();
        prepared
    }

    /// The known results about the parts of the current expression.
    pub fn findings(&self) -> &RefCell<Findings> {
        &self.findings
    }

    /// The functions of this name, created by `make` if they are not known yet.
    pub fn functions(&self, name: &str, make: impl FnOnce() -> Vec<Function>) -> Arc<[Arc<Function>]> {
        if let Some(known) = self.functions.borrow().get(name) {
            return known.clone();
        }
        let made: Arc<[Arc<Function>]> = make().into_iter().map(Arc::new).collect();
        self.functions.borrow_mut().insert(name.to_owned(), made.clone());
        made
    }

    /// The keyspace of unqualified types.
    pub fn keyspace_of_types(&self) -> &str {
        self.keyspace.or_else(|| self.tables.last().map(|table| &*table.keyspace)).unwrap_or_default()
    }

    /// Records the receiver of a bind marker.
    pub fn bind(&mut self, marker: &BindMarker, receiver: &ColumnSpec) {
        if let Some(slot) = self.receivers.get_mut(marker.index) {
            *slot = Some(receiver.clone());
        }
    }

    /// The tables looked up so far.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// The receivers of the markers. Named markers have their own names.
    pub fn variables(&self) -> Vec<ColumnSpec> {
        let variable = |(receiver, name): (&Option<ColumnSpec>, &Option<Identifier>)| {
            let receiver = receiver.clone().unwrap_or_else(|| ColumnSpec {
                keyspace: "".into(),
                table: "".into(),
                name: "".into(),
                ty: types::CqlType::Blob,
            });
            match name {
                Some(name) => ColumnSpec { name: name.as_str().into(), ..receiver },
                None => receiver,
            }
        };
        self.receivers.iter().zip(self.names).map(variable).collect()
    }

    /// The markers that give the partition key of the only table, in key order; empty unless markers give all of it.
    pub fn partition_key_bind_indexes(&self) -> Vec<u16> {
        let [table] = self.tables.as_slice() else { return Vec::new() };
        let marker_of = |column: &Arc<Column>| {
            let spec = column_spec(table, column);
            self.receivers.iter().rposition(|receiver| receiver.as_ref() == Some(&spec)).map(|index| index as u16)
        };
        table.partition_key().iter().map(marker_of).collect::<Option<Vec<u16>>>().unwrap_or_default()
    }
}
