//! GRANT, REVOKE and LIST for permissions.

use cql::ast::{ListPermissions, Permission, PermissionsChange};
use types::{CqlType, collection};

use super::permissions::{self, Permissions};
use super::resource::Resource;
use super::role_statements::{logged_in, rows, validate_list};
use super::store::Change;
use crate::execution::Execution;
use crate::{Processor, QueryError, ResponseBody};

/// The permissions on the node's own keyspaces that may be granted.
const OF_SYSTEM: [Permission; 2] = [Permission::Select, Permission::Alter];

pub(super) fn grant(change: &PermissionsChange, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let resource = authorize(change, execution)?;
    validate_given(change, &resource, execution)?;
    supported("GRANT", execution)?;
    let granted = Permissions::of(&change.permissions);
    execution.processor.put_permissions(&change.role, &resource, |known| known.with(granted))?;
    Ok(ResponseBody::Void)
}

pub(super) fn revoke(change: &PermissionsChange, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let resource = authorize(change, execution)?;
    validate(change, &resource, execution)?;
    supported("REVOKE", execution)?;
    let revoked = Permissions::of(&change.permissions);
    execution.processor.put_permissions(&change.role, &resource, |known| known.without(revoked))?;
    Ok(ResponseBody::Void)
}

/// A role that grants or revokes permissions must have them itself, and AUTHORIZE on the same object.
fn authorize(change: &PermissionsChange, execution: &Execution<'_>) -> Result<Resource, QueryError> {
    let resource = Resource::named(&change.resource, execution.keyspace)?;
    if let Some(user) = &execution.client.user {
        for permission in [Permission::Authorize].iter().chain(&change.permissions) {
            execution.processor.ensure(user, *permission, &resource)?;
        }
    }
    Ok(resource)
}

/// Checks a GRANT that is prepared.
pub(super) fn validate_grant(change: &PermissionsChange, execution: &Execution<'_>) -> Result<(), QueryError> {
    validate_given(change, &Resource::named(&change.resource, execution.keyspace)?, execution)
}

/// Checks a REVOKE that is prepared.
pub(super) fn validate_revoke(change: &PermissionsChange, execution: &Execution<'_>) -> Result<(), QueryError> {
    validate(change, &Resource::named(&change.resource, execution.keyspace)?, execution)
}

fn validate_given(
    change: &PermissionsChange,
    resource: &Resource,
    execution: &Execution<'_>,
) -> Result<(), QueryError> {
    validate(change, resource, execution)?;
    let is_system = resource.data_keyspace().is_some_and(engine::system::is_system_keyspace);
    if is_system && !change.permissions.iter().all(|permission| OF_SYSTEM.contains(permission)) {
        return Err(QueryError::unauthorized(
            "Granting permissions on system keyspaces is strictly limited, this operation is not permitted",
        ));
    }
    Ok(())
}

fn validate(change: &PermissionsChange, resource: &Resource, execution: &Execution<'_>) -> Result<(), QueryError> {
    logged_in(execution)?;
    if !execution.processor.has_role(&change.role)? {
        return Err(QueryError::invalid(format!("Role {} doesn't exist", change.role)));
    }
    if matches!(resource, Resource::Function(keyspace, ..) | Resource::FunctionsIn(keyspace) if keyspace == "system") {
        return Err(QueryError::invalid("Altering permissions on builtin functions is not supported"));
    }
    match exists(resource, execution)? {
        true => Ok(()),
        false => Err(QueryError::invalid(format!("Resource {resource} doesn't exist"))),
    }
}

fn supported(statement: &str, execution: &Execution<'_>) -> Result<(), QueryError> {
    match execution.processor.auth().checks() {
        true => Ok(()),
        false => Err(QueryError::invalid(format!("{statement} operation is not supported by AllowAllAuthorizer"))),
    }
}

fn exists(resource: &Resource, execution: &Execution<'_>) -> Result<bool, QueryError> {
    let (schema, processor) = (execution.schema, execution.processor);
    let has_keyspace = |name: &str| schema.keyspace(name).is_some() || processor.virtual_tables().has_keyspace(name);
    Ok(match resource {
        Resource::AllKeyspaces | Resource::AllRoles | Resource::AllFunctions => true,
        Resource::AllMBeans | Resource::MBean(_) => true,
        Resource::Keyspace(name) | Resource::AllTables(name) | Resource::FunctionsIn(name) => has_keyspace(name),
        Resource::Table(keyspace, table) => {
            schema.table(keyspace, table).is_some() || processor.virtual_tables().table(keyspace, table).is_some()
        }
        Resource::Role(name) => processor.has_role(name)?,
        // There are no functions of users yet.
        Resource::Function(..) => false,
    })
}

/// Checks a LIST, also where it is only prepared. The object that it names, if any.
pub(super) fn validate_list_permissions(
    list: &ListPermissions,
    execution: &Execution<'_>,
) -> Result<Option<Resource>, QueryError> {
    logged_in(execution)?;
    let resource = list.resource.as_ref().map(|named| Resource::named(named, execution.keyspace)).transpose()?;
    if let Some(resource) = &resource
        && !exists(resource, execution)?
    {
        return Err(QueryError::invalid(format!("{resource} doesn't exist")));
    }
    validate_list(list.grantee.as_deref(), execution)?;
    Ok(resource)
}

pub(super) fn list(list: &ListPermissions, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let user = logged_in(execution)?;
    let resource = validate_list_permissions(list, execution)?;
    let book = execution.processor.auth().book();
    supported("LIST PERMISSIONS", execution)?;
    let is_own = list.grantee.as_ref().is_some_and(|of| book.all_of(user).contains(of.as_str()));
    if !is_own
        && !execution.processor.auth().authority_of(user, &book).allows(Permission::Describe, &Resource::AllRoles)
    {
        let of = list.grantee.as_deref().unwrap_or("everyone");
        return Err(QueryError::unauthorized(format!("You are not authorized to view {of}'s permissions")));
    }
    let shown: Option<Vec<String>> = resource.map(|resource| match list.recursive {
        true => resource.chain().map(|resource| resource.name()).collect(),
        false => vec![resource.name()],
    });
    let holders = list.grantee.as_deref().map(|of| book.all_of(of));
    let asked = Permissions::of(&list.permissions);
    let (mut cells, mut count) = (Vec::new(), 0);
    for (role, granted) in &book.permissions {
        if holders.as_ref().is_some_and(|holders| !holders.contains(role.as_str())) {
            continue;
        }
        for (name, granted) in granted {
            if shown.as_ref().is_some_and(|shown| !shown.contains(name)) {
                continue;
            }
            let Some(resource) = Resource::from_name(name) else { continue };
            for permission in granted.iter().filter(|permission| asked.contains(*permission)) {
                for value in [role, role, &resource.to_string(), permissions::name(permission)] {
                    collection::write_part(Some(value.as_bytes()), &mut cells);
                }
                count += 1;
            }
        }
    }
    let columns = ["role", "username", "resource", "permission"].map(|name| (name, CqlType::Text));
    Ok(rows("permissions", &columns, count, cells))
}

impl Processor {
    /// Changes the permissions of a role on an object.
    pub(super) fn put_permissions(
        &self,
        role: &str,
        resource: &Resource,
        change: impl FnOnce(Permissions) -> Permissions,
    ) -> Result<(), QueryError> {
        let name = resource.name();
        let known = self.auth().book().permissions.get(role).and_then(|granted| granted.get(&name).copied());
        let known = known.unwrap_or_default();
        let granted = change(known);
        if granted == known {
            return Ok(());
        }
        if granted.is_empty() {
            self.apply_role_change(&Change::DeletePermissions(&[(role.to_owned(), name.clone())]))?;
        } else {
            self.apply_role_change(&Change::PutPermissions(role, &name, granted))?;
        }
        let granted = self.read_permissions(role, &name)?;
        self.auth().edit(|book| {
            let of_role = book.permissions.entry(role.to_owned()).or_default();
            if granted.is_empty() {
                of_role.remove(&name);
            } else {
                of_role.insert(name, granted);
            }
        });
        Ok(())
    }
}
