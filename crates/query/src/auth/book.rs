//! All roles and permissions of the node, in memory. The tables of `system_auth` are the durable form.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use cql::ast::Permission;

use super::access::AccessBook;
use super::permissions::Permissions;
use super::resource::Resource;

/// A role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    pub is_superuser: bool,
    pub can_login: bool,
    pub salted_hash: Option<String>,
    /// The roles that were granted to it.
    pub member_of: BTreeSet<String>,
}

/// All roles and permissions.
#[derive(Debug, Default)]
pub(super) struct RoleBook {
    pub roles: BTreeMap<String, Role>,
    /// The permissions of each role, by the resource's name in the tables.
    pub permissions: BTreeMap<String, BTreeMap<String, Permissions>>,
    /// The role of each identity that certificates may have.
    pub identities: BTreeMap<String, String>,
    /// The places that roles may connect to and from.
    pub access: AccessBook,
    /// Whether a row of the tables expires.
    pub expires: bool,
}

impl RoleBook {
    /// The role, and all that were granted to it directly or through others.
    pub fn all_of<'b>(&'b self, role: &str) -> BTreeSet<&'b str> {
        let mut all = BTreeSet::new();
        let mut open: Vec<&str> = vec![role];
        while let Some(next) = open.pop() {
            let Some((name, role)) = self.roles.get_key_value(next) else { continue };
            if all.insert(name.as_str()) {
                open.extend(role.member_of.iter().map(String::as_str));
            }
        }
        all
    }

    /// Whether a role is another one, or has it, directly or through others.
    pub fn has(&self, role: &str, other: &str) -> bool {
        let mut seen = HashSet::from([role]);
        let mut open = vec![role];
        while let Some(next) = open.pop() {
            let Some(known) = self.roles.get(next) else { continue };
            if next == other {
                return true;
            }
            open.extend(known.member_of.iter().map(String::as_str).filter(|granted| seen.insert(granted)));
        }
        false
    }

    /// The role, and those that were granted to it directly.
    pub fn direct_of<'b>(&'b self, role: &str) -> BTreeSet<&'b str> {
        let Some((name, role)) = self.roles.get_key_value(role) else { return BTreeSet::new() };
        let known = role.member_of.iter().filter(|granted| self.roles.contains_key(*granted));
        known.map(String::as_str).chain([name.as_str()]).collect()
    }

    /// The roles that are superusers, by themselves or because they have a role that is one.
    pub fn superusers(&self) -> HashSet<&str> {
        let mut members: HashMap<&str, Vec<&str>> = HashMap::new();
        for (name, role) in &self.roles {
            role.member_of.iter().for_each(|granted| members.entry(granted).or_default().push(name));
        }
        let mut open: Vec<&str> =
            self.roles.iter().filter(|(_, role)| role.is_superuser).map(|(name, _)| name.as_str()).collect();
        let mut found = HashSet::new();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(members.get(next).into_iter().flatten());
            }
        }
        found
    }

    /// The authority of a role, by itself and through others.
    pub fn authority_of(&self, role: &str) -> Authority {
        let roles = self.all_of(role);
        if roles.iter().any(|role| self.roles[*role].is_superuser) {
            return Authority { is_superuser: true, ..Authority::default() };
        }
        let mut authority = Authority::default();
        for (name, granted) in roles.iter().filter_map(|role| self.permissions.get(*role)).flatten() {
            let known = authority.permissions.entry(name.clone()).or_default();
            *known = known.with(*granted);
        }
        authority
    }
}

/// The authority of a role, by itself and through the roles that were granted to it.
#[derive(Debug, Default)]
pub(super) struct Authority {
    pub is_superuser: bool,
    /// The permissions of a role that is no superuser, by the resource's name in the tables.
    permissions: BTreeMap<String, Permissions>,
}

impl Authority {
    /// Whether the role has this permission on the object, or on one that contains it.
    pub fn allows(&self, permission: Permission, resource: &Resource) -> bool {
        if self.is_superuser {
            return resource.chain().any(|resource| resource.applicable().contains(permission));
        }
        // Permissions on all keyspaces do not include the node's own keyspaces.
        let own = resource.data_keyspace().is_some_and(is_own_keyspace);
        let holding = |resource: &Resource| !(own && *resource == Resource::AllKeyspaces);
        let granted = |resource: Resource| self.permissions.get(&resource.name()).copied();
        resource.chain().filter(holding).filter_map(granted).any(|granted| granted.contains(permission))
    }
}

/// A cache of the authorities that were asked for since the last change of the book.
#[derive(Debug, Default)]
pub(super) struct AuthorityByRole {
    by_role: HashMap<String, Arc<Authority>>,
    /// The number of roles and of their permissions.
    size: usize,
}

impl AuthorityByRole {
    /// The most roles and permissions that are kept.
    const SIZE_MAX: usize = 100_000;

    pub fn get(&self, role: &str) -> Option<Arc<Authority>> {
        self.by_role.get(role).cloned()
    }

    pub fn put(&mut self, role: &str, authority: Arc<Authority>) {
        let size = 1 + authority.permissions.len();
        if self.size + size > AuthorityByRole::SIZE_MAX {
            *self = AuthorityByRole::default();
        }
        if self.by_role.insert(role.to_owned(), authority).is_none() {
            self.size += size;
        }
    }
}

/// Whether it is a keyspace of the node's own, whose tables may be virtual.
pub(super) fn is_own_keyspace(name: &str) -> bool {
    engine::system::is_system_keyspace(name) || ["system_views", "system_virtual_schema"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(grants: &[(&str, &[&str])]) -> RoleBook {
        let mut book = RoleBook::default();
        for (role, granted) in grants {
            let member_of = granted.iter().map(|granted| (*granted).to_owned()).collect();
            book.roles.insert((*role).to_owned(), Role { member_of, ..Role::default() });
        }
        book
    }

    #[test]
    fn roles_are_inherited_through_roles_and_a_cycle_ends() {
        let mut book = book(&[("a", &["b", "gone"]), ("b", &["c"]), ("c", &["a"]), ("d", &[])]);
        assert_eq!(book.all_of("a"), BTreeSet::from(["a", "b", "c"]));
        assert_eq!(book.direct_of("a"), BTreeSet::from(["a", "b"]));
        assert!(book.all_of("gone").is_empty());
        for (role, other) in [("a", "a"), ("a", "c"), ("c", "b")] {
            assert!(book.has(role, other), "{role} {other}");
        }
        for (role, other) in [("a", "d"), ("d", "a"), ("a", "gone"), ("gone", "gone")] {
            assert!(!book.has(role, other), "{role} {other}");
        }
        assert!(book.superusers().is_empty());
        book.roles.get_mut("c").unwrap().is_superuser = true;
        assert_eq!(book.superusers(), HashSet::from(["a", "b", "c"]));
    }

    #[test]
    fn a_permission_on_a_keyspace_holds_for_its_tables_and_for_members_of_the_role() {
        let mut book = book(&[("user", &["group"]), ("group", &[]), ("other", &[])]);
        let granted = BTreeMap::from([("data/ks".to_owned(), Permissions::of(&[Permission::Select]))]);
        book.permissions.insert("group".to_owned(), granted);
        let table = Resource::Table("ks".to_owned(), "t".to_owned());
        let allows = |book: &RoleBook, role, permission, on: &Resource| book.authority_of(role).allows(permission, on);
        assert!(allows(&book, "user", Permission::Select, &table));
        assert!(!allows(&book, "user", Permission::Modify, &table));
        assert!(!allows(&book, "other", Permission::Select, &table));
        assert!(!allows(&book, "user", Permission::Select, &Resource::Table("k".to_owned(), "t".to_owned())));
        book.roles.get_mut("group").unwrap().is_superuser = true;
        assert!(allows(&book, "user", Permission::Modify, &table));
        assert!(!allows(&book, "other", Permission::Modify, &table));
        assert_eq!(book.superusers(), HashSet::from(["group", "user"]));
    }

    #[test]
    fn what_roles_have_is_kept_up_to_a_size() {
        let mut known = AuthorityByRole::default();
        let names: Vec<String> = (0..AuthorityByRole::SIZE_MAX / 2).map(|number| format!("data/k/t{number}")).collect();
        let authority = || {
            let permissions = names.iter().map(|name| (name.clone(), Permissions::of(&[Permission::Select]))).collect();
            Arc::new(Authority { is_superuser: false, permissions })
        };
        known.put("a", authority());
        known.put("a", authority());
        assert_eq!(known.size, 1 + names.len());
        known.put("b", authority());
        assert!(known.get("a").is_none() && known.get("b").is_some());
        assert_eq!(known.size, 1 + names.len());
    }

    #[test]
    fn a_permission_on_all_keyspaces_does_not_hold_for_those_of_the_node() {
        let mut book = book(&[("user", &[])]);
        let on = |name: &str| BTreeMap::from([(name.to_owned(), Permissions::of(&[Permission::Select]))]);
        let table = |keyspace: &str| Resource::Table(keyspace.to_owned(), "t".to_owned());
        book.permissions.insert("user".to_owned(), on("data"));
        let allows = |book: &RoleBook, on: &Resource| book.authority_of("user").allows(Permission::Select, on);
        assert!(allows(&book, &table("ks")));
        for keyspace in ["system_auth", "system_views"] {
            assert!(!allows(&book, &table(keyspace)), "{keyspace}");
        }
        book.permissions.insert("user".to_owned(), on("data/system_auth"));
        assert!(allows(&book, &table("system_auth")));
    }
}
