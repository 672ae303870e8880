//! The tables of `system_auth`: they are read at the start, and every change of a role goes through here.

use std::collections::{BTreeMap, BTreeSet};

use types::collection;

use super::access::{self, AccessBook};
use super::book::{Role, RoleBook};
use super::permissions::{self, Permissions};
use crate::execution::{Control, Execution, RequestParts};
use crate::modify::Updates;
use crate::prepared::Work;
use crate::{ClientState, Processor, QueryError, QueryOptions, ResponseBody, Turn, Value};

/// The name of a role as a resource begins with this. `network_permissions` has such names.
const ROLE_PREFIX: &str = "roles/";

/// A row of an answer: the bytes of each column.
type Cells = Vec<Option<Vec<u8>>>;

// The last columns show whether rows that were written directly have expired.
const ROLES: &str = "SELECT role, is_superuser, can_login, salted_hash, member_of, ttl(is_superuser), ttl(can_login), \
                     ttl(salted_hash), ttl(member_of) FROM system_auth.roles";
const IDENTITIES: &str = "SELECT identity, role, ttl(role) FROM system_auth.identity_to_role";
const DATA_CENTERS: &str = "SELECT role, dcs, ttl(dcs) FROM system_auth.network_permissions";
const CIDR_GROUPS_OF_ROLES: &str = "SELECT role, cidr_groups, ttl(cidr_groups) FROM system_auth.cidr_permissions";
const CIDR_GROUPS: &str = "SELECT cidr_group, cidrs, ttl(cidrs) FROM system_auth.cidr_groups";
const PERMISSIONS: &str = "SELECT role, resource, permissions, ttl(permissions) FROM system_auth.role_permissions";

/// The number of rows that are written as one record of the log where a statement changes many. A record holds them
/// unless their names are very long.
pub(super) const CHANGED_TOGETHER: usize = 256;

/// A change of the tables.
pub(super) enum Change<'c> {
    /// Writes all columns of a role, at this time or now.
    PutRole(&'c str, &'c Role, Option<i64>),
    /// Writes the columns of a role that ALTER changes.
    AlterRole(&'c str, &'c Role),
    DeleteRole(&'c str),
    /// Adds a role to those that a member has. This and the next write one element: a member may have thousands.
    GrantRole {
        role: &'c str,
        member: &'c str,
    },
    /// Removes a role from those that each of these members has.
    RevokeRole {
        role: &'c str,
        members: &'c [String],
    },
    AddMember {
        role: &'c str,
        member: &'c str,
    },
    /// Removes a role from the members of each of these roles.
    RemoveMember {
        roles: &'c [String],
        member: &'c str,
    },
    /// Forgets the members of a role.
    ForgetMembers(&'c str),
    /// Sets the permissions of a role on a resource, which has this name.
    PutPermissions(&'c str, &'c str, Permissions),
    /// Deletes all permissions of each role on the resource of the name beside it.
    DeletePermissions(&'c [(String, String)]),
    /// Binds an identity of certificates to a role.
    PutIdentity {
        identity: &'c str,
        role: &'c str,
    },
    DeleteIdentity(&'c str),
    /// Sets the data centers that a role may connect to; none stands for all.
    PutDataCenters(&'c str, &'c BTreeSet<String>),
    /// Sets the groups of addresses that a role may connect from; none stands for all.
    PutCidrGroups(&'c str, &'c BTreeSet<String>),
    /// Deletes both of a role.
    DeleteAccess(&'c str),
}

impl Processor {
    /// All roles and permissions of the tables.
    pub(super) fn read_role_book(&self) -> Result<RoleBook, QueryError> {
        let mut book = RoleBook::default();
        for row in self.ask(ROLES, &[])? {
            let [Some(name), columns @ ..] = &row[..] else { continue };
            let Some((role, ttls)) = role_of(columns) else { continue };
            book.expires |= expires(ttls);
            book.roles.insert(text(name), role);
        }
        for row in self.ask(PERMISSIONS, &[])? {
            let [Some(role), Some(resource), granted, ttls @ ..] = &row[..] else { continue };
            book.expires |= expires(ttls);
            let granted = permissions_of(granted.as_deref());
            if !granted.is_empty() {
                let of_role: &mut BTreeMap<_, _> = book.permissions.entry(text(role)).or_default();
                of_role.insert(text(resource), granted);
            }
        }
        for row in self.ask(IDENTITIES, &[])? {
            let [Some(identity), Some(role), ttls @ ..] = &row[..] else { continue };
            book.expires |= expires(ttls);
            book.identities.insert(text(identity), text(role));
        }
        book.access = self.read_access_book(&mut book.expires)?;
        Ok(book)
    }

    /// The places of the tables. Sets `may_expire` if one of their rows expires.
    pub(super) fn read_access_book(&self, may_expire: &mut bool) -> Result<AccessBook, QueryError> {
        let mut book = AccessBook::default();
        for row in self.ask(DATA_CENTERS, &[])? {
            let [Some(resource), names, ttls @ ..] = &row[..] else { continue };
            *may_expire |= expires(ttls);
            if let Some(role) = text(resource).strip_prefix(ROLE_PREFIX) {
                AccessBook::put(&mut book.data_centers, role, texts(names.as_deref()).into_iter().collect());
            }
        }
        for row in self.ask(CIDR_GROUPS_OF_ROLES, &[])? {
            let [Some(role), names, ttls @ ..] = &row[..] else { continue };
            *may_expire |= expires(ttls);
            AccessBook::put(&mut book.cidr_groups, &text(role), texts(names.as_deref()).into_iter().collect());
        }
        for row in self.ask(CIDR_GROUPS, &[])? {
            let [Some(group), blocks, ttls @ ..] = &row[..] else { continue };
            *may_expire |= expires(ttls);
            let blocks = blocks.iter().filter_map(|blocks| collection::elements(blocks).ok()).flatten();
            book.blocks.insert(text(group), blocks.flatten().flatten().filter_map(access::stored_cidr_block).collect());
        }
        Ok(book)
    }

    /// The role as the tables have it after a change. Their rows may have later timestamps than the change.
    pub(super) fn read_role(&self, name: &str) -> Result<Option<Role>, QueryError> {
        let rows = self.ask(&format!("{ROLES} WHERE role = ?"), &[Value::Bytes(name.as_bytes())])?;
        let row = rows.first().and_then(|row| role_of(row.get(1..)?));
        Ok(row.map(|(role, _)| role))
    }

    /// The permissions of a role on the resource of this name, as the tables have them.
    pub(super) fn read_permissions(&self, role: &str, resource: &str) -> Result<Permissions, QueryError> {
        let key = [role, resource].map(|text| Value::Bytes(text.as_bytes()));
        let rows = self.ask(&format!("{PERMISSIONS} WHERE role = ? AND resource = ?"), &key)?;
        Ok(permissions_of(rows.first().and_then(|row| row.get(2)?.as_deref())))
    }

    /// Makes a change durable, as one record of the log if one can hold all its rows. Otherwise they are written in
    /// their order.
    pub(super) fn apply_role_change(&self, change: &Change<'_>) -> Result<(), QueryError> {
        let mut updates = Updates::default();
        self.add_change(change, &mut updates)?;
        self.write_updates(updates)
    }

    fn add_change(&self, change: &Change<'_>, updates: &mut Updates) -> Result<(), QueryError> {
        let mut of = |text: &'static str, values: &[&str]| {
            let values: Vec<Value<'_>> = values.iter().map(|value| Value::Bytes(value.as_bytes())).collect();
            self.modify(text, &values, updates)
        };
        match change {
            Change::PutRole(name, role, timestamp) => self.put_role(name, role, *timestamp, updates),
            Change::AlterRole(name, role) => self.alter_role(name, role, updates),
            Change::GrantRole { role, member } => {
                let put = "UPDATE system_auth.roles SET member_of = member_of + ? WHERE role = ?";
                self.put_element(put, role, member, updates)
            }
            Change::RevokeRole { role, members } => {
                let remove = "UPDATE system_auth.roles SET member_of = member_of - ? WHERE role = ?";
                members.iter().try_for_each(|member| self.put_element(remove, role, member, updates))
            }
            Change::DeleteRole(name) => of("DELETE FROM system_auth.roles WHERE role = ?", &[name]),
            Change::AddMember { role, member } => {
                of("INSERT INTO system_auth.role_members (role, member) VALUES (?, ?)", &[role, member])
            }
            Change::RemoveMember { roles, member } => {
                let delete = "DELETE FROM system_auth.role_members WHERE role = ? AND member = ?";
                roles.iter().try_for_each(|role| of(delete, &[role, member]))
            }
            Change::ForgetMembers(role) => of("DELETE FROM system_auth.role_members WHERE role = ?", &[role]),
            Change::PutPermissions(role, resource, granted) => {
                let names: Vec<&str> = granted.iter().map(permissions::name).collect();
                let names = collection::list(sorted(names).iter().map(|name| name.as_bytes()));
                let values = [&names[..], role.as_bytes(), resource.as_bytes()].map(Value::Bytes);
                // The index first, for records that cannot hold both: a node that ends in between has no permission
                // that a DROP in Cassandra would miss.
                let index = "INSERT INTO system_auth.resource_role_permissons_index (resource, role) VALUES (?, ?)";
                of(index, &[resource, role])?;
                let put = "UPDATE system_auth.role_permissions SET permissions = ? WHERE role = ? AND resource = ?";
                self.modify(put, &values, updates)
            }
            Change::DeletePermissions(held) => {
                let delete = "DELETE FROM system_auth.role_permissions WHERE role = ? AND resource = ?";
                held.iter().try_for_each(|(role, resource)| of(delete, &[role, resource]))?;
                let index = "DELETE FROM system_auth.resource_role_permissons_index WHERE resource = ? AND role = ?";
                held.iter().try_for_each(|(role, resource)| of(index, &[resource, role]))
            }
            Change::PutIdentity { identity, role } => {
                of("INSERT INTO system_auth.identity_to_role (identity, role) VALUES (?, ?)", &[identity, role])
            }
            Change::DeleteIdentity(identity) => {
                of("DELETE FROM system_auth.identity_to_role WHERE identity = ?", &[identity])
            }
            Change::PutDataCenters(role, names) => {
                let put = "INSERT INTO system_auth.network_permissions (role, dcs) VALUES (?, ?)";
                self.put_names(put, &format!("{ROLE_PREFIX}{role}"), names, updates)
            }
            Change::PutCidrGroups(role, names) => self.put_names(
                "INSERT INTO system_auth.cidr_permissions (role, cidr_groups) VALUES (?, ?)",
                role,
                names,
                updates,
            ),
            Change::DeleteAccess(role) => {
                let resource = format!("{ROLE_PREFIX}{role}");
                of("DELETE FROM system_auth.network_permissions WHERE role = ?", &[&resource])?;
                of("DELETE FROM system_auth.cidr_permissions WHERE role = ?", &[role])
            }
        }
    }

    /// Writes the blocks of a group of addresses in place of those that it had.
    pub(super) fn write_cidr_group(&self, group: &str, blocks: &BTreeSet<Vec<u8>>) -> Result<(), QueryError> {
        let blocks = collection::list(blocks.iter().map(Vec::as_slice));
        let put = "UPDATE system_auth.cidr_groups SET cidrs = ? WHERE cidr_group = ?";
        self.modify_alone(put, &[Value::Bytes(&blocks), Value::Bytes(group.as_bytes())])
    }

    pub(super) fn delete_cidr_group(&self, group: &str) -> Result<(), QueryError> {
        let delete = "DELETE FROM system_auth.cidr_groups WHERE cidr_group = ?";
        self.modify_alone(delete, &[Value::Bytes(group.as_bytes())])
    }

    fn modify_alone(&self, statement: &str, values: &[Value<'_>]) -> Result<(), QueryError> {
        let mut updates = Updates::default();
        self.modify(statement, values, &mut updates)?;
        self.write_updates(updates)
    }

    fn put_role(
        &self,
        name: &str,
        role: &Role,
        timestamp: Option<i64>,
        updates: &mut Updates,
    ) -> Result<(), QueryError> {
        let timestamp = timestamp.unwrap_or_else(|| self.engine().next_timestamp_micros());
        let put = format!(
            "INSERT INTO system_auth.roles (role, is_superuser, can_login, salted_hash, member_of) \
             VALUES (?, ?, ?, ?, ?) \
             USING TIMESTAMP {timestamp}"
        );
        let member_of = collection::list(role.member_of.iter().map(String::as_bytes));
        let bytes = |value: bool| if value { &[1_u8][..] } else { &[0] };
        let values = [
            Value::Bytes(name.as_bytes()),
            Value::Bytes(bytes(role.is_superuser)),
            Value::Bytes(bytes(role.can_login)),
            role.salted_hash.as_deref().map_or(Value::Null, |hash| Value::Bytes(hash.as_bytes())),
            if role.member_of.is_empty() { Value::Null } else { Value::Bytes(&member_of) },
        ];
        self.modify(&put, &values, updates)
    }

    fn alter_role(&self, name: &str, role: &Role, updates: &mut Updates) -> Result<(), QueryError> {
        let put = "UPDATE system_auth.roles SET is_superuser = ?, can_login = ?, salted_hash = ? WHERE role = ?";
        let bytes = |value: bool| if value { &[1_u8][..] } else { &[0] };
        let values = [
            Value::Bytes(bytes(role.is_superuser)),
            Value::Bytes(bytes(role.can_login)),
            role.salted_hash.as_deref().map_or(Value::Null, |hash| Value::Bytes(hash.as_bytes())),
            Value::Bytes(name.as_bytes()),
        ];
        self.modify(put, &values, updates)
    }

    /// Adds a name to a set of a row, or removes it.
    fn put_element(&self, statement: &str, name: &str, key: &str, updates: &mut Updates) -> Result<(), QueryError> {
        let names = collection::list([name.as_bytes()].into_iter());
        self.modify(statement, &[Value::Bytes(&names), Value::Bytes(key.as_bytes())], updates)
    }

    /// Writes a set of names.
    fn put_names(
        &self,
        put: &str,
        key: &str,
        names: &BTreeSet<String>,
        updates: &mut Updates,
    ) -> Result<(), QueryError> {
        let names = collection::list(names.iter().map(String::as_bytes));
        self.modify(put, &[Value::Bytes(key.as_bytes()), Value::Bytes(&names)], updates)
    }

    /// Carries out a SELECT of the node's own.
    fn ask(&self, statement: &str, values: &[Value<'_>]) -> Result<Vec<Cells>, QueryError> {
        let prepared = self.prepare(statement, None)?;
        let Work::Select(select) = &prepared.plan.work else { return Err(QueryError::server("no SELECT")) };
        let (schema, client) = (self.engine().borrow_schema(), ClientState::default());
        let mut rows = Vec::new();
        let mut paging_state: Option<Vec<u8>> = None;
        loop {
            let options = QueryOptions { paging_state: paging_state.as_deref(), ..QueryOptions::default() };
            let parts = RequestParts { client: &client, options: &options, trace: None };
            let execution = Execution::new(self, &schema, parts, values, None, BLOCKING);
            let ResponseBody::Rows(answer) = select.execute(&execution)? else { return Ok(rows) };
            let columns = answer.metadata.specs().len();
            let mut cells = &answer.cells[..];
            for _ in 0..answer.row_count {
                rows.push((0..columns).map(|_| next_cell(&mut cells)).collect());
            }
            match answer.paging_state {
                Some(state) => paging_state = Some(state),
                None => return Ok(rows),
            }
        }
    }

    /// Adds a modification of the node's own to others.
    fn modify(&self, statement: &str, values: &[Value<'_>], updates: &mut Updates) -> Result<(), QueryError> {
        let prepared = self.prepare(statement, None)?;
        let Work::Modification(modification) = &prepared.plan.work else {
            return Err(QueryError::server("no modification"));
        };
        let (schema, client, options) =
            (self.engine().borrow_schema(), ClientState::default(), QueryOptions::default());
        let parts = RequestParts { client: &client, options: &options, trace: None };
        modification.add_to(updates, &Execution::new(self, &schema, parts, values, None, BLOCKING))
    }

    /// Writes the updates. They are durable when this returns.
    fn write_updates(&self, updates: Updates) -> Result<(), QueryError> {
        match updates.into_mutation() {
            Some(mutation) => Ok(engine::block_on(self.engine().write_parts(&mutation))?),
            None => Ok(()),
        }
    }
}

const BLOCKING: Control<'static> = Control { turn: Turn::BLOCKING, deadline: None, cancelled: None };

fn next_cell(cells: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = cells.split_first_chunk::<4>()?;
    *cells = rest;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    *cells = rest;
    Some(value.to_vec())
}

/// The role in these columns of [`ROLES`], and the remaining columns.
fn role_of(columns: &[Option<Vec<u8>>]) -> Option<(Role, &[Option<Vec<u8>>])> {
    let [is_superuser, can_login, salted_hash, member_of, ttls @ ..] = columns else { return None };
    let is_true = |value: &Option<Vec<u8>>| value.as_deref().is_some_and(|bytes| bytes.first() == Some(&1));
    let role = Role {
        is_superuser: is_true(is_superuser),
        can_login: is_true(can_login),
        salted_hash: salted_hash.as_deref().map(text),
        member_of: texts(member_of.as_deref()).into_iter().collect(),
    };
    Some((role, ttls))
}

fn permissions_of(names: Option<&[u8]>) -> Permissions {
    let named: Vec<_> = texts(names).iter().filter_map(|name| permissions::named(name)).collect();
    Permissions::of(&named)
}

/// Whether one of these values of `ttl` is a time: of a column an int, of a collection a list of ints and nulls.
fn expires(ttls: &[Option<Vec<u8>>]) -> bool {
    ttls.iter().flatten().any(|ttl| match collection::elements(ttl) {
        Ok(mut elements) if ttl.len() > 4 => elements.any(|element| matches!(element, Ok(Some(_)))),
        _ => true,
    })
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

fn texts(set: Option<&[u8]>) -> Vec<String> {
    let elements = set.and_then(|set| collection::elements(set).ok());
    elements.into_iter().flatten().flatten().flatten().map(text).collect()
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}
