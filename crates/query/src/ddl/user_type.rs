//! CREATE, ALTER and DROP TYPE.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use cql::ast::{AlterType, AlterTypeAction, CreateType, DropType, Identifier, NativeType, TypeName, UserTypeName};
use model::{Keyspace, Schema};
use types::{CqlType, UserType};

use super::{Access, Changed, changed, check_modifiable, edit_keyspace, no_keyspace, unless_unchanged};
use crate::execution::Execution;
use crate::guardrail::{FIELDS_PER_UDT, check_vectors};
use crate::names::keyspace_of;
use crate::terms::{resolve_type, type_check, with_definitions};
use crate::{ChangeKind, QueryError, SchemaTarget};

fn keyspace_name<'n>(name: &'n UserTypeName, execution: &'n Execution<'_>) -> Result<&'n str, QueryError> {
    keyspace_of(name.keyspace.as_ref(), execution.keyspace)
}

fn type_change(kind: ChangeKind, keyspace: &str, name: &str) -> Option<Changed> {
    Some(changed(kind, keyspace, SchemaTarget::Type(name.into())))
}

fn check_field(name: &TypeName) -> Result<(), QueryError> {
    let invalid = |message: &str| Err(QueryError::invalid(message));
    match name {
        TypeName::Native(NativeType::Counter) => invalid("A user type cannot contain counters"),
        TypeName::UserType { frozen: false, .. } => invalid("A user type cannot contain non-frozen UDTs"),
        other => type_check::check(other),
    }
}

pub(super) fn create(create: &CreateType, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = (keyspace_name(&create.name, execution)?, create.name.name.as_str());
    check_modifiable(execution, keyspace, None, Access::Create)?;
    let (created, _) = execution.processor.engine().change_schema(|schema, keyspaces| {
        let Some(edited) = edit_keyspace(keyspaces, keyspace) else { return Err(no_keyspace(keyspace)) };
        if edited.types.contains_key(name) {
            let message = format!("A user type with name '{name}' already exists");
            return if create.if_not_exists { Ok(None) } else { Err(QueryError::invalid(message)) };
        }
        let guardrail = execution.processor.options().guardrails.fields_per_udt;
        guardrail.check(&FIELDS_PER_UDT, name, create.fields.len(), execution)?;
        let mut seen = BTreeSet::new();
        for (field, _) in &create.fields {
            if !seen.insert(field.as_str()) {
                let message = format!("Duplicate field name '{}' in type '{name}'", field.as_str());
                return Err(QueryError::invalid(message));
            }
        }
        create.fields.iter().try_for_each(|(_, ty)| check_field(ty))?;
        let resolve = |(field, ty): &(Identifier, TypeName)| {
            let ty = resolve_type(ty, schema, keyspace)?;
            type_check::check_elements(&ty)?;
            check_vectors("Field", field.as_str(), &ty, execution)?;
            Ok::<_, QueryError>((field.as_str().into(), ty))
        };
        let fields = create.fields.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let definition = UserType::new(keyspace.into(), name.into(), fields);
        edited.types.insert(name.into(), Arc::new(definition));
        Ok(type_change(ChangeKind::Created, keyspace, name))
    })?;
    Ok(created)
}

pub(super) fn alter(alter: &AlterType, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = (keyspace_name(&alter.name, execution)?, alter.name.name.as_str());
    check_modifiable(execution, keyspace, None, Access::Alter)?;
    let altered = execution.processor.engine().change_schema(|schema, keyspaces| {
        let known = schema.keyspace(keyspace).and_then(|keyspace| keyspace.types.get(name));
        let Some(definition) = known else {
            let message = format!("Type {keyspace}.{name} doesn't exist");
            return if alter.if_exists { Ok(None) } else { Err(QueryError::invalid(message)) };
        };
        let Some(altered) = alter_definition(definition, &alter.action, schema, execution)? else { return Ok(None) };
        if matches!(alter.action, AlterTypeAction::Add { .. }) {
            let guardrail = execution.processor.options().guardrails.fields_per_udt;
            guardrail.check(&FIELDS_PER_UDT, name, altered.fields().len(), execution)?;
        }
        if let Some(edited) = edit_keyspace(keyspaces, keyspace) {
            replace_type(edited, Arc::new(altered));
        }
        Ok(type_change(ChangeKind::Updated, keyspace, name))
    })?;
    Ok(unless_unchanged(altered, execution))
}

/// The altered definition; `None` where an IF clause makes it a no-op.
fn alter_definition(
    definition: &UserType,
    action: &AlterTypeAction,
    schema: &Schema,
    execution: &Execution<'_>,
) -> Result<Option<UserType>, QueryError> {
    let full_name = format!("{}.{}", definition.keyspace, definition.name);
    let mut fields = definition.fields().to_vec();
    match action {
        AlterTypeAction::AlterField { .. } => {
            return Err(QueryError::invalid("Altering field types is no longer supported"));
        }
        AlterTypeAction::Add { field, type_name, if_field_not_exists } => {
            let field = field.as_str();
            if definition.field_index(field).is_some() {
                let message =
                    format!("Cannot add field {field} to type {full_name}: a field with name {field} already exists");
                return if *if_field_not_exists { Ok(None) } else { Err(QueryError::invalid(message)) };
            }
            check_field(type_name)?;
            let ty = resolve_type(type_name, schema, &definition.keyspace)?;
            type_check::check_elements(&ty)?;
            check_vectors("Field", field, &ty, execution)?;
            let is_itself = |ty: &CqlType| match ty {
                CqlType::Udt { definition: inner, .. } => {
                    inner.name == definition.name && inner.keyspace == definition.keyspace
                }
                _ => false,
            };
            if ty.any(&is_itself) {
                return Err(QueryError::invalid(format!(
                    "Cannot add new field {field} of type {type_name} to user type {full_name} as it would create a circular reference"
                )));
            }
            let in_partition_key = tables_keyed_by(definition, schema);
            if !in_partition_key.is_empty() {
                return Err(QueryError::invalid(format!(
                    "Cannot add new field {field} of type {type_name} to user type {full_name} as the type is being used in partition key by the following tables: {}",
                    in_partition_key.join(", ")
                )));
            }
            fields.push((field.into(), ty));
        }
        AlterTypeAction::Rename { renames, if_field_exists } => {
            rename_fields(&mut fields, renames, *if_field_exists, definition)?;
        }
    }
    Ok(Some(definition.with_fields(fields)))
}

/// Renames fields, the first of several with the same name first.
fn rename_fields(
    fields: &mut [(Arc<str>, CqlType)],
    renames: &[(Identifier, Identifier)],
    if_field_exists: bool,
    definition: &UserType,
) -> Result<(), QueryError> {
    let full_name = format!("{}.{}", definition.keyspace, definition.name);
    let mut places: BTreeMap<Arc<str>, BTreeSet<usize>> = BTreeMap::new();
    for (place, (field, _)) in fields.iter().enumerate() {
        places.entry(field.clone()).or_default().insert(place);
    }
    for (from, to) in renames {
        match places.get_mut(from.as_str()).and_then(BTreeSet::pop_first) {
            Some(place) => {
                fields[place].0 = to.as_str().into();
                places.entry(fields[place].0.clone()).or_default().insert(place);
            }
            None if if_field_exists => {}
            None => {
                let message = format!("Unkown field {} in user type {full_name}", from.as_str());
                return Err(QueryError::invalid(message));
            }
        }
    }
    let mut seen = BTreeSet::new();
    if let Some((twice, _)) = fields.iter().find(|(field, _)| !seen.insert(field.clone())) {
        // Cassandra prints the keyspace here, and not the type.
        let message = format!("Duplicate field name {twice} in type {}", definition.keyspace);
        return Err(QueryError::invalid(message));
    }
    Ok(())
}

/// Tables whose partition key contains the type. The bytes of their keys, and so their tokens, must not change.
fn tables_keyed_by(definition: &UserType, schema: &Schema) -> Vec<String> {
    let tables = schema.keyspace(&definition.keyspace).into_iter().flat_map(|keyspace| keyspace.tables.values());
    let keyed = tables.filter(|table| table.partition_key().iter().any(|column| uses(&column.ty, &definition.name)));
    keyed.map(|table| format!("{}.{}", table.keyspace, table.name)).collect()
}

/// Replaces the old definition everywhere: in other types and in the columns of tables.
fn replace_type(keyspace: &mut Keyspace, altered: Arc<UserType>) {
    let name = altered.name.clone();
    let mut replaced = Replaced { before: &keyspace.types, after: BTreeMap::from([(name.clone(), altered)]) };
    for other in keyspace.types.keys() {
        let _made = replaced.definition(other);
    }
    let types = replaced.after;
    for table in keyspace.tables.values_mut() {
        if table.columns_in_select_order().iter().any(|column| uses(&column.ty, &name)) {
            let newest = |ty: &CqlType| with_definitions(ty, &mut |old| Ok::<_, Infallible>(newest(&types, old)));
            *table =
                Arc::new(table.to_builder().map_types(|ty| newest(ty).unwrap_or_else(|never| match never {})).build());
        }
    }
    keyspace.types.extend(types);
}

/// A user type in an old set of columns may not exist any more.
fn newest(types: &BTreeMap<Arc<str>, Arc<UserType>>, old: &Arc<UserType>) -> Arc<UserType> {
    types.get(&old.name).unwrap_or(old).clone()
}

/// The types of a keyspace of which one has a new definition. Each is made once and shared by its users.
struct Replaced<'t> {
    before: &'t BTreeMap<Arc<str>, Arc<UserType>>,
    after: BTreeMap<Arc<str>, Arc<UserType>>,
}

impl Replaced<'_> {
    fn definition(&mut self, name: &Arc<str>) -> Option<Arc<UserType>> {
        if let Some(made) = self.after.get(name) {
            return Some(made.clone());
        }
        let before = self.before.get(name)?.clone();
        let mut is_same = true;
        let mut fields = Vec::with_capacity(before.fields().len());
        for (field, ty) in before.fields() {
            let replaced = with_definitions(ty, &mut |old| {
                Ok::<_, Infallible>(self.definition(&old.name).unwrap_or_else(|| old.clone()))
            });
            let ty_after = replaced.unwrap_or_else(|never| match never {});
            is_same &= ty_after == *ty;
            fields.push((field.clone(), ty_after));
        }
        let definition = if is_same { before } else { Arc::new(before.with_fields(fields)) };
        self.after.insert(name.clone(), definition.clone());
        Some(definition)
    }
}

fn uses(ty: &CqlType, name: &str) -> bool {
    ty.any(&|inner| matches!(inner, CqlType::Udt { definition, .. } if &*definition.name == name))
}

pub(super) fn drop(drop: &DropType, execution: &Execution<'_>) -> Result<Option<Changed>, QueryError> {
    let (keyspace, name) = (keyspace_name(&drop.name, execution)?, drop.name.name.as_str());
    check_modifiable(execution, keyspace, None, Access::Drop)?;
    let (dropped, _) = execution.processor.engine().change_schema(|_, keyspaces| {
        let edited = edit_keyspace(keyspaces, keyspace).filter(|edited| edited.types.contains_key(name));
        let Some(edited) = edited else {
            let message = format!("Type '{keyspace}.{name}' doesn't exist");
            return if drop.if_exists { Ok(None) } else { Err(QueryError::invalid(message)) };
        };
        let used = |what: &str, users: Vec<&str>| match users.is_empty() {
            true => Ok(()),
            false => Err(QueryError::invalid(format!(
                "Cannot drop user type '{keyspace}.{name}' as it is still used by {what} {}",
                users.join(", ")
            ))),
        };
        let users = edited.types.values().filter(|other| &*other.name != name);
        let users = users.filter(|other| other.fields().iter().any(|(_, ty)| uses(ty, name))).map(|other| &*other.name);
        used("user types", users.collect())?;
        let tables = edited.tables.values();
        let users = tables.filter(|table| table.columns_in_select_order().iter().any(|column| uses(&column.ty, name)));
        used("tables", users.map(|table| &*table.name).collect())?;
        edited.types.remove(name);
        Ok(type_change(ChangeKind::Dropped, keyspace, name))
    })?;
    Ok(dropped)
}
