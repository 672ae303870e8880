//! CREATE, ALTER and DROP KEYSPACE.

use std::sync::Arc;

use cql::ast::{AlterKeyspace, CreateKeyspace, DropKeyspace, Properties};
use model::Keyspace;

use super::{
    Access, Changed, changed, check_modifiable, drop_table, edit_keyspace, is_valid_name, no_keyspace, unless_unchanged,
};
use super::{properties, replication};
use crate::execution::Execution;
use crate::guardrail::KEYSPACES;
use crate::{ChangeKind, ErrorKind, QueryError, SchemaTarget};

const NAME_LENGTH_MAX: usize = 48;

fn check_properties(properties: &Properties) -> Result<(), QueryError> {
    properties::check_known(properties, &["replication", "durable_writes"])
}

pub(super) fn create(create: &CreateKeyspace, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let name = create.keyspace.as_str();
    check_properties(&create.properties)?;
    let durable_writes = properties::boolean(&create.properties, "durable_writes")?.unwrap_or(true);
    let options = properties::map(&create.properties, "replication")?;
    check_name(name)?;
    let processor = execution.processor;
    if engine::system::is_local_system_keyspace(name) {
        return Err(QueryError::invalid(format!("System keyspace '{name}' is not user-modifiable")));
    }
    if processor.virtual_tables().has_keyspace(name) {
        return Err(QueryError::invalid(format!("Virtual keyspace '{name}' is not user-modifiable")));
    }
    let options = options.filter(|options| !options.is_empty());
    let options = options.ok_or_else(|| QueryError::invalid("Missing mandatory option 'replication'"))?;
    let (created, _) = processor.engine().change_schema(|_, keyspaces| {
        if keyspaces.contains_key(name) {
            if create.if_not_exists {
                return Ok(None);
            }
            let kind = ErrorKind::AlreadyExists { keyspace: name.to_string(), table: String::new() };
            return Err(QueryError::new(kind, format!("Cannot add existing keyspace \"{name}\"")));
        }
        let guardrails = &processor.options().guardrails;
        options.get("class").map_or(Ok(()), |class| guardrails.flags.check_strategy(class, execution))?;
        let others = keyspaces.keys().filter(|other| !is_system_keyspace(other)).count();
        guardrails.keyspaces.check(&KEYSPACES, name, others + 1, execution)?;
        let replication = replication::prepare(options, name, execution)?;
        keyspaces.insert(name.into(), Arc::new(Keyspace::new(name, replication, durable_writes)));
        Ok(Some(changed(ChangeKind::Created, name, SchemaTarget::Keyspace)))
    })?;
    Ok(created)
}

/// Whether guardrails ignore the keyspace, because Cassandra has it too.
pub(super) fn is_system_keyspace(name: &str) -> bool {
    name == "system" || name.starts_with("system_")
}

fn check_name(name: &str) -> Result<(), QueryError> {
    if !is_valid_name(name) {
        return Err(QueryError::invalid(format!(
            "Keyspace name must not be empty and must contain alphanumeric or underscore characters only (got \"{name}\")"
        )));
    }
    if name.len() > NAME_LENGTH_MAX {
        return Err(QueryError::invalid(format!(
            "Keyspace name must not be more than {NAME_LENGTH_MAX} characters long (got {} characters for \"{name}\")",
            name.len()
        )));
    }
    Ok(())
}

pub(super) fn alter(alter: &AlterKeyspace, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let name = alter.keyspace.as_str();
    check_modifiable(execution, name, None, Access::Alter)?;
    check_properties(&alter.properties)?;
    let durable_writes = properties::boolean(&alter.properties, "durable_writes")?;
    let options = properties::map(&alter.properties, "replication")?.filter(|options| !options.is_empty());
    let altered = execution.processor.engine().change_schema(|_, keyspaces| {
        let Some(keyspace) = edit_keyspace(keyspaces, name) else {
            return if alter.if_exists { Ok(None) } else { Err(no_keyspace(name)) };
        };
        if let Some(mut options) = options {
            if !options.contains_key("class") {
                let class = keyspace.replication.get("class").cloned().unwrap_or_default();
                options.insert("class".into(), class);
            }
            let flags = &execution.processor.options().guardrails.flags;
            options.get("class").map_or(Ok(()), |class| flags.check_strategy(class, execution))?;
            keyspace.replication = replication::prepare(options, name, execution)?;
        }
        keyspace.durable_writes = durable_writes.unwrap_or(keyspace.durable_writes);
        Ok::<_, QueryError>(Some(changed(ChangeKind::Updated, name, SchemaTarget::Keyspace)))
    })?;
    Ok(unless_unchanged(altered, execution))
}

pub(super) fn drop(drop: &DropKeyspace, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let name = drop.keyspace.as_str();
    check_modifiable(execution, name, None, Access::Drop)?;
    if let Some(keyspace) = execution.schema.keyspace(name) {
        keyspace.tables.values().try_for_each(|table| drop_table::snapshot(table, "dropped", execution))?;
    }
    let (dropped, _) = execution.processor.engine().change_schema(|_, keyspaces| match keyspaces.remove(name) {
        Some(keyspace) => {
            let tables = keyspace.tables.keys().map(|table| SchemaTarget::Table((&**table).into()));
            let types = keyspace.types.keys().map(|ty| SchemaTarget::Type((&**ty).into()));
            let contained = tables.chain(types).map(|target| changed(ChangeKind::Dropped, name, target).change);
            let contained = contained.collect();
            Ok(Some(Changed { contained, ..changed(ChangeKind::Dropped, name, SchemaTarget::Keyspace) }))
        }
        None if drop.if_exists => Ok(None),
        None => Err(no_keyspace(name)),
    })?;
    Ok(dropped)
}
