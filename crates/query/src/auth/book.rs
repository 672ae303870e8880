//! All roles and permissions of the node, in memory. The tables of `system_auth` are the durable form.

use std::collections::{BTreeMap, BTreeSet};

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

    /// The role, and those that were granted to it directly.
    pub fn direct_of<'b>(&'b self, role: &str) -> BTreeSet<&'b str> {
        let Some((name, role)) = self.roles.get_key_value(role) else { return BTreeSet::new() };
        let known = role.member_of.iter().filter(|granted| self.roles.contains_key(*granted));
        known.map(String::as_str).chain([name.as_str()]).collect()
    }

    /// Whether the role, or one that was granted to it, is a superuser.
    pub fn is_superuser(&self, role: &str) -> bool {
        self.all_of(role).into_iter().any(|role| self.roles[role].is_superuser)
    }

    /// Whether the role has this permission on the object, or on one that contains it.
    pub fn allows(&self, role: &str, permission: Permission, resource: &Resource) -> bool {
        let roles = self.all_of(role);
        if roles.iter().any(|role| self.roles[*role].is_superuser) {
            return resource.chain().any(|resource| resource.applicable().contains(permission));
        }
        // What is granted on all keyspaces is not granted on the node's own.
        let own = resource.data_keyspace().is_some_and(is_own_keyspace);
        let holding = |resource: &Resource| !(own && *resource == Resource::AllKeyspaces);
        resource.chain().filter(holding).any(|resource| {
            let name = resource.name();
            let granted = |role: &&str| self.permissions.get(*role)?.get(&name).copied();
            roles.iter().filter_map(granted).any(|granted| granted.contains(permission))
        })
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
        let book = book(&[("a", &["b", "gone"]), ("b", &["c"]), ("c", &["a"]), ("d", &[])]);
        assert_eq!(book.all_of("a"), BTreeSet::from(["a", "b", "c"]));
        assert_eq!(book.direct_of("a"), BTreeSet::from(["a", "b"]));
        assert!(book.all_of("gone").is_empty());
    }

    #[test]
    fn a_permission_on_a_keyspace_holds_for_its_tables_and_for_members_of_the_role() {
        let mut book = book(&[("user", &["group"]), ("group", &[]), ("other", &[])]);
        let granted = BTreeMap::from([("data/ks".to_owned(), Permissions::of(&[Permission::Select]))]);
        book.permissions.insert("group".to_owned(), granted);
        let table = Resource::Table("ks".to_owned(), "t".to_owned());
        assert!(book.allows("user", Permission::Select, &table));
        assert!(!book.allows("user", Permission::Modify, &table));
        assert!(!book.allows("other", Permission::Select, &table));
        assert!(!book.allows("user", Permission::Select, &Resource::Table("k".to_owned(), "t".to_owned())));
        book.roles.get_mut("group").unwrap().is_superuser = true;
        assert!(book.allows("user", Permission::Modify, &table));
        assert!(!book.allows("other", Permission::Modify, &table));
    }

    #[test]
    fn a_permission_on_all_keyspaces_does_not_hold_for_those_of_the_node() {
        let mut book = book(&[("user", &[])]);
        let on = |name: &str| BTreeMap::from([(name.to_owned(), Permissions::of(&[Permission::Select]))]);
        let table = |keyspace: &str| Resource::Table(keyspace.to_owned(), "t".to_owned());
        book.permissions.insert("user".to_owned(), on("data"));
        assert!(book.allows("user", Permission::Select, &table("ks")));
        for keyspace in ["system_auth", "system_views"] {
            assert!(!book.allows("user", Permission::Select, &table(keyspace)), "{keyspace}");
        }
        book.permissions.insert("user".to_owned(), on("data/system_auth"));
        assert!(book.allows("user", Permission::Select, &table("system_auth")));
    }
}
