//! The check of permissions before a statement is executed, and what a change of the schema does to permissions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cql::ast::Permission;
use model::{Schema, Table};

use super::Auth;
use super::access::AccessOptions;
use super::book::is_own_keyspace;
use super::needs::{self, Need};
use super::permissions;
use super::resource::Resource;
use super::store::{CHANGED_TOGETHER, Change};
use crate::prepared::{Plan, Prepared, Work};
use crate::{ChangeKind, ClientState, Processor, QueryError, SchemaChange, SchemaTarget};

/// Tables of `system` that clients need to find their way, and which every role may read. The schema's tables are
/// readable too, and the traces.
const READABLE: [(&str, &str); 5] = [
    ("system", "local"),
    ("system", "peers"),
    ("system", "peers_v2"),
    ("system", "size_estimates"),
    ("system", "table_estimates"),
];
const READABLE_KEYSPACES: [&str; 3] = ["system_schema", "system_virtual_schema", "system_traces"];

impl Auth {
    /// Whether clients log in, so that statements go through the gate.
    #[inline]
    pub fn has_logins(&self) -> bool {
        self.options.authenticator.is_required()
    }

    /// Whether statements need permissions.
    pub fn checks(&self) -> bool {
        self.options.permissions
    }

    /// Whether the client's role was allowed to execute this statement in this epoch.
    #[inline]
    fn remembers(&self, plan: &Plan, client: &ClientState) -> bool {
        plan.allowed_to(client).load(Ordering::Relaxed) == self.decision(client) && client.user_id != 0
    }

    fn decision(&self, client: &ClientState) -> u64 {
        u64::from(self.epoch.load(Ordering::Acquire)) << 32 | u64::from(client.user_id)
    }
}

impl Processor {
    /// Whether guardrails hold for the client. As in Cassandra they do not hold for superusers and for the node's own
    /// requests. Without authentication they apply to all clients.
    pub(crate) fn is_guarded(&self, client: &ClientState) -> bool {
        let is_ordinary = |user: &str| !self.auth().authority(user).is_superuser;
        !self.auth().has_logins() || client.user.as_deref().is_some_and(is_ordinary)
    }

    /// Refuses a statement that guardrails forbid to the client.
    pub(crate) fn check_forbidden(&self, plan: &Plan, client: &ClientState) -> Result<(), QueryError> {
        match &plan.forbidden {
            Some(error) if self.is_guarded(client) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Refuses a statement that the client has no permission for. Call it only if [`Auth::has_logins`].
    pub(crate) fn check_permissions(&self, statement: &Prepared, client: &ClientState) -> Result<(), QueryError> {
        let (auth, plan) = (self.auth(), &statement.plan);
        if auth.options.access != AccessOptions::default() {
            self.check_access(client)?;
        }
        if auth.remembers(plan, client) {
            return Ok(());
        }
        // The node's own requests have no role.
        let Some(user) = &client.user else { return Ok(()) };
        self.check_forbidden(plan, client)?;
        // The epoch comes first: a change that comes in between must not be missed.
        let decision = auth.decision(client);
        for need in needs::of(plan, statement.keyspace.as_deref(), self.engine())? {
            match need {
                Need::On(permission, resource) => self.ensure_on_data(user, permission, &resource)?,
                Need::Superuser(text) if !auth.authority(user).is_superuser => {
                    return Err(QueryError::unauthorized(text));
                }
                Need::Superuser(_) => {}
                Need::MaskedColumns(table, columns) => self.ensure_may_ask(user, &table, &columns)?,
            }
        }
        if writes_roles(plan) {
            auth.note_outdated();
            return Ok(());
        }
        // What a change of the schema needs depends on the schema: an index that did not exist may exist later.
        if !matches!(plan.work, Work::Schema(_)) {
            plan.allowed_to(client).store(decision, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Refuses a statement on data, or on the schema, that this role may not carry out.
    fn ensure_on_data(&self, user: &str, permission: Permission, resource: &Resource) -> Result<(), QueryError> {
        if !self.auth().checks() {
            return Ok(());
        }
        if let Some(keyspace) = resource.data_keyspace() {
            if matches!(permission, Permission::Create | Permission::Alter | Permission::Drop) {
                check_system_schema(keyspace, permission, resource)?;
            }
            if permission == Permission::Select && is_always_readable(resource) {
                return Ok(());
            }
        }
        self.ensure(user, permission, resource)
    }

    /// Whether the client reads the values of masked columns, rather than their masks.
    pub(crate) fn sees_clear_values(&self, client: &ClientState, table: &Table) -> bool {
        if !self.options().dynamic_data_masking_enabled || !self.auth().checks() {
            return true;
        }
        // The node's own requests have no role, and without authentication no client has one.
        client.user.as_deref().is_none_or(|user| self.allows_on(user, &[Permission::Unmask], table))
    }

    /// Refuses a condition on masked columns, whose answer reveals their values.
    fn ensure_may_ask(&self, user: &str, table: &Table, columns: &[Arc<str>]) -> Result<(), QueryError> {
        if !self.auth().checks() || self.allows_on(user, &[Permission::Unmask, Permission::SelectMasked], table) {
            return Ok(());
        }
        let (keyspace, name, columns) = (&table.keyspace, &table.name, columns.join(", "));
        Err(QueryError::unauthorized(format!(
            "User {user} has no UNMASK nor SELECT_MASKED permission on table {keyspace}.{name}, cannot query masked columns [{columns}]"
        )))
    }

    /// Whether a role has one of these permissions on a table.
    fn allows_on(&self, user: &str, permissions: &[Permission], table: &Table) -> bool {
        let resource = Resource::Table(table.keyspace.to_string(), table.name.to_string());
        let authority = self.auth().authority(user);
        permissions.iter().any(|permission| authority.allows(*permission, &resource))
    }

    /// Refuses a role that has no such permission on the object or on one that contains it.
    pub(super) fn ensure(&self, user: &str, permission: Permission, resource: &Resource) -> Result<(), QueryError> {
        if !self.auth().checks() {
            return Ok(());
        }
        if self.auth().authority(user).allows(permission, resource) {
            return Ok(());
        }
        let permission = permissions::name(permission);
        let text = format!("User {user} has no {permission} permission on {resource} or any of its parents");
        Err(QueryError::unauthorized(text))
    }

    /// Grants the creator of an object all permissions on it, and revokes all permissions on a dropped object.
    pub(crate) fn follow_schema_change(
        &self,
        change: &SchemaChange,
        contained: &[SchemaChange],
        client: &ClientState,
    ) -> Result<(), QueryError> {
        if !self.auth().checks() {
            return Ok(());
        }
        let _one_at_a_time = self.auth().one_at_a_time();
        match change.kind {
            ChangeKind::Updated => Ok(()),
            ChangeKind::Created => {
                let Some(user) = &client.user else { return Ok(()) };
                objects(change).iter().filter(|object| !matches!(object, Resource::AllTables(_))).try_for_each(
                    |object| self.put_permissions(user, object, |granted| granted.with(object.applicable())),
                )
            }
            ChangeKind::Dropped => {
                let dropped = contained.iter().chain([change]).flat_map(objects);
                dropped.into_iter().try_for_each(|object| self.revoke_all_on(&object))
            }
        }
    }

    /// Revokes the permissions on keyspaces and tables that do not exist. They are left over if the node ended right
    /// after a drop.
    pub(super) fn revoke_what_a_drop_left(&self) -> Result<(), QueryError> {
        let gone: BTreeSet<String> = {
            let (book, schema) = (self.auth().book(), self.engine().borrow_schema());
            let names = book.permissions.values().flat_map(|granted| granted.keys());
            let is_gone =
                |name: &&String| Resource::from_name(name).is_some_and(|resource| !exists(&resource, &schema));
            names.filter(is_gone).cloned().collect()
        };
        gone.iter().filter_map(|name| Resource::from_name(name)).try_for_each(|object| self.revoke_all_on(&object))
    }

    /// Revokes all permissions on an object, and on the objects that it contains, from all roles.
    pub(super) fn revoke_all_on(&self, object: &Resource) -> Result<(), QueryError> {
        let name = object.name();
        let holders: Vec<(String, String)> = {
            let book = self.auth().book();
            let of_role = |(role, granted): (&String, &std::collections::BTreeMap<String, _>)| {
                let is_gone = |known: &&String| **known == name || object.contains(known);
                granted.keys().filter(is_gone).map(|known| (role.clone(), known.clone())).collect::<Vec<_>>()
            };
            book.permissions.iter().flat_map(of_role).collect()
        };
        for holders in holders.chunks(CHANGED_TOGETHER) {
            self.apply_role_change(&Change::DeletePermissions(holders))?;
            self.auth().edit(|book| {
                for (role, resource) in holders {
                    if let Some(granted) = book.permissions.get_mut(role) {
                        granted.remove(resource);
                    }
                }
            });
        }
        Ok(())
    }
}

/// The objects of permissions that a change of the schema concerns.
fn objects(change: &SchemaChange) -> Vec<Resource> {
    let keyspace = change.keyspace.to_string();
    match &change.target {
        SchemaTarget::Keyspace => vec![Resource::Keyspace(keyspace.clone()), Resource::FunctionsIn(keyspace)],
        SchemaTarget::Table(table) => vec![Resource::Table(keyspace, table.to_string())],
        _ => Vec::new(),
    }
}

/// Whether an object exists, as far as the schema has such objects. A quarantined table exists.
fn exists(resource: &Resource, schema: &Schema) -> bool {
    let has_keyspace = |name: &str| schema.keyspace(name).is_some() || is_own_keyspace(name);
    match resource {
        Resource::Keyspace(keyspace) | Resource::AllTables(keyspace) | Resource::FunctionsIn(keyspace) => {
            has_keyspace(keyspace)
        }
        Resource::Table(keyspace, table) => {
            let is_known = schema.table(keyspace, table).is_some() || schema.unreadable(keyspace, table).is_some();
            is_known || is_own_keyspace(keyspace)
        }
        _ => true,
    }
}

fn is_always_readable(resource: &Resource) -> bool {
    match resource {
        Resource::Table(keyspace, table) => {
            READABLE_KEYSPACES.contains(&keyspace.as_str()) || READABLE.contains(&(keyspace, table))
        }
        _ => false,
    }
}

/// Refuses changes of the node's own schema. The replication of `system_auth` and the like may be altered.
fn check_system_schema(keyspace: &str, permission: Permission, resource: &Resource) -> Result<(), QueryError> {
    if engine::system::is_local_system_keyspace(keyspace) {
        return Err(QueryError::unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    let is_replication = permission == Permission::Alter && matches!(resource, Resource::Keyspace(_));
    if engine::system::is_system_keyspace(keyspace) && !is_replication {
        return Err(QueryError::unauthorized(format!("Cannot {} {resource}", permissions::name(permission))));
    }
    Ok(())
}

/// Whether a plan writes rows of `system_auth`, which the book must follow.
fn writes_roles(plan: &Plan) -> bool {
    let is_write = plan.is_modification() || matches!(plan.work, Work::Truncate(_));
    is_write && plan.tables.iter().any(|table| &*table.keyspace == "system_auth")
}
