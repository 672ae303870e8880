//! CREATE, ALTER, DROP, GRANT, REVOKE and LIST for roles and users.

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;

use cql::ast::{AccessList, AlterRole, CreateRole, DropRole, ListRoles, Permission, RoleChange, RoleOptions};
use types::{CqlType, collection};

use super::access::{AccessBook, CidrChecks};
use super::book::Role;
use super::credentials::{hash, is_valid_hash};
use super::resource::Resource;
use super::store::{CHANGED_TOGETHER, Change};
use crate::execution::Execution;
use crate::{ColumnSpec, MetadataForm, Processor, QueryError, ResponseBody, ResultColumns, Rows};

const NOT_ENOUGH: &str = "does not have sufficient privileges to perform the requested operation";
const ANONYMOUS: &str = "You have to be logged in and not anonymous to perform this request";
const ROLE_MANAGER: &str = "org.apache.cassandra.auth.CassandraRoleManager";

pub(super) fn create(create: &CreateRole, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let CreateRole { role: name, if_not_exists, options } = create;
    let processor = execution.processor;
    check(execution, Permission::Create, &Resource::AllRoles)?;
    if options.superuser == Some(true) && !is_superuser(execution) {
        return Err(QueryError::unauthorized("Only superusers can create a role with superuser status"));
    }
    validate_create(create, execution)?;
    let user = logged_in(execution)?;
    if *if_not_exists && processor.has_role(name)? {
        return Ok(ResponseBody::Void);
    }
    let mut role = Role::default();
    apply_options(&mut role, options)?;
    processor.change_role(name, &Change::PutRole(name, &role, None))?;
    let everywhere = RoleOptions {
        datacenters: Some(options.datacenters.clone().unwrap_or(AccessList::All)),
        cidrs: Some(options.cidrs.clone().unwrap_or(AccessList::All)),
        ..RoleOptions::default()
    };
    processor.put_access(name, &everywhere)?;
    if processor.auth().checks() {
        let object = Resource::Role(name.clone());
        processor.put_permissions(user, &object, |_| object.applicable())?;
    }
    Ok(ResponseBody::Void)
}

/// Checks a CREATE, also where it is only prepared. As in Cassandra, this does not depend on permissions; nor do the
/// other checks of this kind.
pub(super) fn validate_create(create: &CreateRole, execution: &Execution<'_>) -> Result<(), QueryError> {
    let CreateRole { role: name, if_not_exists, options } = create;
    validate_options(options, execution.processor)?;
    if name.is_empty() {
        return Err(QueryError::invalid("Role name can't be an empty string"));
    }
    validate_access(options, execution.processor)?;
    logged_in(execution)?;
    if !if_not_exists && execution.processor.has_role(name)? {
        return Err(QueryError::invalid(format!("{name} already exists")));
    }
    Ok(())
}

pub(super) fn alter(alter: &AlterRole, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let AlterRole { role: name, options, .. } = alter;
    let processor = execution.processor;
    authorize_alter(alter, execution)?;
    validate_alter(alter, execution)?;
    check_key(name)?;
    let known = processor.auth().book().roles.get(name).cloned();
    let Some(mut role) = known else { return Ok(ResponseBody::Void) };
    apply_options(&mut role, options)?;
    processor.change_role(name, &Change::AlterRole(name, &role))?;
    processor.put_access(name, options)?;
    match options.datacenters {
        Some(_) if !processor.auth().options.access.data_centers => {
            Err(QueryError::invalid("ACCESS TO DATACENTERS operations not supported by AllowAllNetworkAuthorizer"))
        }
        _ => Ok(ResponseBody::Void),
    }
}

pub(super) fn validate_alter(alter: &AlterRole, execution: &Execution<'_>) -> Result<(), QueryError> {
    let AlterRole { role: name, if_exists, options } = alter;
    validate_options(options, execution.processor)?;
    validate_access(options, execution.processor)?;
    if *options == RoleOptions::default() {
        return Err(QueryError::invalid("ALTER [ROLE|USER] can't be empty"));
    }
    logged_in(execution)?;
    if !if_exists && !execution.processor.has_role(name)? {
        return Err(QueryError::invalid(format!("Role {name} doesn't exist")));
    }
    Ok(())
}

fn authorize_alter(alter: &AlterRole, execution: &Execution<'_>) -> Result<(), QueryError> {
    let AlterRole { role: name, options, .. } = alter;
    let (user, is_super) = (execution.client.user.as_deref(), is_superuser(execution));
    let refuse = |text: &str| Err(QueryError::unauthorized(text));
    if options.superuser.is_some() {
        let is_own = user.is_some_and(|user| execution.processor.auth().book().all_of(user).contains(name.as_str()));
        if is_own {
            return refuse("You aren't allowed to alter your own superuser status or that of a role granted to you");
        }
        if !is_super {
            return refuse("Only superusers are allowed to alter superuser status");
        }
    }
    if options.datacenters.is_some() && !is_super {
        return refuse("Only superusers are allowed to alter access to datacenters.");
    }
    if options.cidrs.is_some() && !is_super {
        return refuse("Only superusers are allowed to alter access from CIDR groups.");
    }
    if is_super {
        return Ok(());
    }
    if user != Some(name) {
        return check(execution, Permission::Alter, &Resource::Role(name.clone()));
    }
    let unalterable = [(options.login.is_some(), "LOGIN"), (options.options.is_some(), "OPTIONS")];
    match unalterable.iter().find(|(is_written, _)| *is_written) {
        Some((_, option)) => refuse(&format!("You aren't allowed to alter {option}")),
        None => Ok(()),
    }
}

pub(super) fn drop(drop: &DropRole, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let name = &drop.role;
    let processor = execution.processor;
    check(execution, Permission::Drop, &Resource::Role(name.clone()))?;
    if processor.auth().authority(name).is_superuser && !is_superuser(execution) {
        return Err(QueryError::unauthorized("Only superusers can drop a role with superuser status"));
    }
    validate_drop(drop, execution)?;
    if processor.has_role(name)? {
        processor.forget_role(name)?;
    }
    Ok(ResponseBody::Void)
}

pub(super) fn validate_drop(drop: &DropRole, execution: &Execution<'_>) -> Result<(), QueryError> {
    let DropRole { role: name, if_exists } = drop;
    let user = logged_in(execution)?;
    if !if_exists && !execution.processor.has_role(name)? {
        return Err(QueryError::invalid(format!("{name} doesn't exist")));
    }
    if **user == **name {
        return Err(QueryError::invalid("Cannot DROP primary role for current login"));
    }
    Ok(())
}

pub(super) fn grant(change: &RoleChange, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let RoleChange { role, grantee } = change;
    authorize_membership(change, execution)?;
    let processor = execution.processor;
    for (member, of) in [(grantee, role), (role, grantee)] {
        if processor.auth().book().has(member, of) {
            return Err(QueryError::invalid(format!("{member} is a member of {of}")));
        }
    }
    processor.change_role(grantee, &Change::GrantRole { role, member: grantee })?;
    processor.apply_role_change(&Change::AddMember { role, member: grantee })?;
    Ok(ResponseBody::Void)
}

pub(super) fn revoke(change: &RoleChange, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let RoleChange { role, grantee } = change;
    authorize_membership(change, execution)?;
    let processor = execution.processor;
    if !processor.auth().book().roles.get(grantee).is_some_and(|known| known.member_of.contains(role)) {
        return Err(QueryError::invalid(format!("{grantee} is not a member of {role}")));
    }
    processor.apply_role_change(&Change::RemoveMember { roles: slice::from_ref(role), member: grantee })?;
    processor
        .change_roles(slice::from_ref(grantee), &Change::RevokeRole { role, members: slice::from_ref(grantee) })?;
    Ok(ResponseBody::Void)
}

fn authorize_membership(change: &RoleChange, execution: &Execution<'_>) -> Result<(), QueryError> {
    check(execution, Permission::Authorize, &Resource::Role(change.role.clone()))?;
    validate_membership(change, execution)
}

pub(super) fn validate_membership(change: &RoleChange, execution: &Execution<'_>) -> Result<(), QueryError> {
    logged_in(execution)?;
    for name in [&change.role, &change.grantee] {
        if !execution.processor.has_role(name)? {
            return Err(QueryError::invalid(format!("{name} doesn't exist")));
        }
    }
    Ok(())
}

pub(super) fn list(list: &ListRoles, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let names = listed(list.grantee.as_deref(), list.recursive, execution)?;
    let book = execution.processor.auth().book();
    let mut cells = Vec::new();
    let mut count = 0;
    let access = execution.processor.auth().options.access;
    let superusers = book.superusers();
    for (name, role) in names.iter().filter_map(|name| book.roles.get_key_value(name)) {
        write(&mut cells, name.as_bytes());
        write(&mut cells, &[u8::from(role.is_superuser)]);
        write(&mut cells, &[u8::from(role.can_login)]);
        write(&mut cells, &collection::map(std::iter::empty::<(&[u8], &[u8])>()));
        write(&mut cells, book.shown_data_centers(name, superusers.contains(name.as_str()), access).as_bytes());
        count += 1;
    }
    let options = CqlType::map(CqlType::Text, CqlType::Text);
    let columns = [
        ("role", CqlType::Text),
        ("super", CqlType::Boolean),
        ("login", CqlType::Boolean),
        ("options", options),
        ("datacenters", CqlType::Text),
    ];
    Ok(rows("roles", &columns, count, cells))
}

pub(super) fn list_users(execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let names = listed(None, false, execution)?;
    let book = execution.processor.auth().book();
    let superusers = book.superusers();
    let mut cells = Vec::new();
    let mut count = 0;
    for name in names.iter().filter(|name| book.roles.get(*name).is_some_and(|role| role.can_login)) {
        write(&mut cells, name.as_bytes());
        let is_superuser = superusers.contains(name.as_str());
        write(&mut cells, &[u8::from(is_superuser)]);
        let access = execution.processor.auth().options.access;
        let data_centers = book.shown_data_centers(name, is_superuser, access);
        write(&mut cells, data_centers.as_bytes());
        count += 1;
    }
    let columns = [("name", CqlType::Text), ("super", CqlType::Boolean), ("datacenters", CqlType::Text)];
    Ok(rows("users", &columns, count, cells))
}

/// A role of which something is listed must exist.
pub(super) fn validate_list(of: Option<&str>, execution: &Execution<'_>) -> Result<(), QueryError> {
    logged_in(execution)?;
    match of {
        Some(of) if !execution.processor.has_role(of)? => {
            Err(QueryError::invalid(format!("<role {of}> doesn't exist")))
        }
        _ => Ok(()),
    }
}

/// The roles that LIST shows to this client.
fn listed(of: Option<&str>, recursive: bool, execution: &Execution<'_>) -> Result<BTreeSet<String>, QueryError> {
    validate_list(of, execution)?;
    let user = logged_in(execution)?;
    let processor = execution.processor;
    let book = processor.auth().book();
    let roles_of = |name: &str| if recursive { book.all_of(name) } else { book.direct_of(name) };
    let describes = || processor.auth().authority_of(user, &book).allows(Permission::Describe, &Resource::AllRoles);
    let sees_all = !processor.auth().checks() || describes();
    let names = match of {
        None if sees_all => return Ok(book.roles.keys().cloned().collect()),
        None => roles_of(user),
        Some(of) if sees_all || book.all_of(user).contains(of) => roles_of(of),
        Some(of) => {
            let text = format!("You are not authorized to view roles granted to {of} ");
            return Err(QueryError::unauthorized(text));
        }
    };
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// The client's role. Clients that have not logged in may do nothing with roles.
pub(super) fn logged_in<'e>(execution: &Execution<'e>) -> Result<&'e Arc<str>, QueryError> {
    execution.client.user.as_ref().ok_or_else(|| QueryError::unauthorized(ANONYMOUS))
}

pub(super) fn is_superuser(execution: &Execution<'_>) -> bool {
    execution.client.user.as_ref().is_some_and(|user| execution.processor.auth().authority(user).is_superuser)
}

/// Refuses a client without a permission on roles, with the text of statements about roles.
pub(super) fn check(execution: &Execution<'_>, permission: Permission, resource: &Resource) -> Result<(), QueryError> {
    let Some(user) = &execution.client.user else { return Ok(()) };
    let allowed = execution.processor.ensure(user, permission, resource);
    allowed.map_err(|_| QueryError::unauthorized(format!("User {user} {NOT_ENOUGH}")))
}

fn validate_options(options: &RoleOptions, processor: &Processor) -> Result<(), QueryError> {
    let passwords = processor.auth().options.authenticator.takes_passwords();
    let unsupported = [
        (options.password.is_some() && !passwords, "PASSWORD"),
        (options.hashed_password.is_some() && !passwords, "HASHED_PASSWORD"),
        (options.options.is_some(), "OPTIONS"),
    ];
    if let Some((_, option)) = unsupported.iter().find(|(is_written, _)| *is_written) {
        return Err(QueryError::invalid(format!("{ROLE_MANAGER} doesn't support {option}")));
    }
    match &options.hashed_password {
        Some(hash) if !is_valid_hash(hash) => {
            Err(QueryError::invalid("Invalid hashed password value. Please use jBcrypt."))
        }
        _ => Ok(()),
    }
}

/// The access lists must name what exists.
fn validate_access(options: &RoleOptions, processor: &Processor) -> Result<(), QueryError> {
    if let Some(AccessList::Only(names)) = &options.datacenters {
        let own = &processor.options().node.data_center;
        if names.iter().any(|name| name.as_str() != &**own) {
            let names = names.join(", ");
            return Err(QueryError::invalid(format!(
                "Invalid value(s) for DATACENTERS '[{names}]',All values must be valid datacenters"
            )));
        }
    }
    let Some(AccessList::Only(names)) = &options.cidrs else { return Ok(()) };
    let book = processor.auth().book();
    let groups = &book.access.blocks;
    match processor.auth().options.access.cidrs != CidrChecks::Off && names.iter().all(|name| groups.contains_key(name))
    {
        true => Ok(()),
        false => Err(QueryError::invalid(format!(
            "Invalid CIDR group(s): [{}]. Available CIDR Groups are: [{}]",
            names.join(", "),
            groups.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn apply_options(role: &mut Role, options: &RoleOptions) -> Result<(), QueryError> {
    role.is_superuser = options.superuser.unwrap_or(role.is_superuser);
    role.can_login = options.login.unwrap_or(role.can_login);
    if let Some(password) = &options.password {
        role.salted_hash = Some(hash(password)?);
    }
    if let Some(hashed) = &options.hashed_password {
        role.salted_hash = Some(hashed.clone());
    }
    Ok(())
}

/// Refuses an empty name, which cannot be a key of a table.
pub(super) fn check_key(name: &str) -> Result<(), QueryError> {
    if name.is_empty() { Err(QueryError::invalid("Key may not be empty")) } else { Ok(()) }
}

impl Processor {
    /// Whether there is a role of this name. As in Cassandra, it is an error to ask for an empty one.
    pub(super) fn has_role(&self, name: &str) -> Result<bool, QueryError> {
        check_key(name)?;
        Ok(self.auth().book().roles.contains_key(name))
    }

    /// Changes the row of a role, and the book.
    fn change_role(&self, name: &str, change: &Change<'_>) -> Result<(), QueryError> {
        self.change_roles(&[name.to_owned()], change)
    }

    /// Changes the rows of these roles, and the book.
    fn change_roles(&self, names: &[String], change: &Change<'_>) -> Result<(), QueryError> {
        self.apply_role_change(change)?;
        let stored: Result<Vec<_>, QueryError> = names.iter().map(|name| self.read_role(name)).collect();
        let stored = stored?;
        self.auth().edit(|book| {
            for (name, role) in names.iter().zip(stored) {
                book.roles.remove(name);
                book.roles.extend(role.map(|role| (name.clone(), role)));
            }
        });
        Ok(())
    }

    /// Stores the access lists of a role that a statement has: data centers where they are in force, and groups of
    /// addresses always, as Cassandra does. Where those are not in force, only the empty list passes the checks before.
    fn put_access(&self, name: &str, options: &RoleOptions) -> Result<(), QueryError> {
        let access = self.auth().options.access;
        let names = |list: &AccessList| match list {
            AccessList::All => BTreeSet::new(),
            AccessList::Only(names) => names.iter().cloned().collect(),
        };
        if let Some(list) = options.datacenters.as_ref().filter(|_| access.data_centers) {
            let names = names(list);
            self.apply_role_change(&Change::PutDataCenters(name, &names))?;
            self.auth().edit(|book| AccessBook::put(&mut book.access.data_centers, name, names));
        }
        if let Some(list) = &options.cidrs {
            let names = names(list);
            self.apply_role_change(&Change::PutCidrGroups(name, &names))?;
            self.auth().edit(|book| AccessBook::put(&mut book.access.cidr_groups, name, names));
        }
        Ok(())
    }

    /// Removes a role, its permissions, those on it, and its memberships. The permissions go first, so that a role that
    /// is created again later has none of them.
    fn forget_role(&self, name: &str) -> Result<(), QueryError> {
        let (held, members, groups) = {
            let book = self.auth().book();
            let held = book.permissions.get(name).into_iter().flat_map(|granted| granted.keys());
            let held: Vec<(String, String)> = held.map(|resource| (name.to_owned(), resource.clone())).collect();
            let members = book.roles.iter().filter(|(_, role)| role.member_of.contains(name));
            let members: Vec<String> = members.map(|(member, _)| member.clone()).collect();
            let groups: Vec<String> =
                book.roles.get(name).into_iter().flat_map(|role| role.member_of.iter().cloned()).collect();
            (held, members, groups)
        };
        for held in held.chunks(CHANGED_TOGETHER) {
            self.apply_role_change(&Change::DeletePermissions(held))?;
        }
        self.auth().edit(|book| {
            book.permissions.remove(name);
        });
        self.revoke_all_on(&Resource::Role(name.to_owned()))?;
        for members in members.chunks(CHANGED_TOGETHER) {
            self.change_roles(members, &Change::RevokeRole { role: name, members })?;
        }
        self.apply_role_change(&Change::ForgetMembers(name))?;
        for groups in groups.chunks(CHANGED_TOGETHER) {
            self.apply_role_change(&Change::RemoveMember { roles: groups, member: name })?;
        }
        self.forget_identities(name)?;
        self.apply_role_change(&Change::DeleteAccess(name))?;
        self.apply_role_change(&Change::DeleteRole(name))?;
        self.auth().edit(|book| {
            book.access.data_centers.remove(name);
            book.access.cidr_groups.remove(name);
            book.roles.remove(name);
        });
        Ok(())
    }
}

fn write(cells: &mut Vec<u8>, value: &[u8]) {
    collection::write_part(Some(value), cells);
}

/// The answer of a LIST. Without rows it is empty, as in Cassandra.
pub(super) fn rows(table: &str, columns: &[(&str, CqlType)], row_count: usize, cells: Vec<u8>) -> ResponseBody {
    if row_count == 0 {
        return ResponseBody::Void;
    }
    let column = |(name, ty): &(&str, CqlType)| ColumnSpec {
        keyspace: "system_auth".into(),
        table: table.into(),
        name: (*name).into(),
        ty: ty.clone(),
    };
    let metadata = Arc::new(ResultColumns::new(columns.iter().map(column).collect()));
    ResponseBody::Rows(Rows { metadata, form: MetadataForm::default(), paging_state: None, row_count, cells })
}
