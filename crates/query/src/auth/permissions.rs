//! Sets of permissions, and their names in tables and answers.

use cql::ast::Permission;

/// A set of permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Permissions(u16);

impl Permissions {
    pub fn of(permissions: &[Permission]) -> Permissions {
        permissions.iter().fold(Permissions::default(), |set, permission| Permissions(set.0 | bit(*permission)))
    }

    pub fn contains(self, permission: Permission) -> bool {
        self.0 & bit(permission) != 0
    }

    pub fn with(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }

    pub fn without(self, other: Permissions) -> Permissions {
        Permissions(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The permissions in Cassandra's order.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.contains(*permission))
    }
}

fn bit(permission: Permission) -> u16 {
    1 << permission as u16
}

/// The name in `system_auth.role_permissions`, and in errors.
pub(super) fn name(permission: Permission) -> &'static str {
    match permission {
        Permission::Create => "CREATE",
        Permission::Alter => "ALTER",
        Permission::Drop => "DROP",
        Permission::Select => "SELECT",
        Permission::Modify => "MODIFY",
        Permission::Authorize => "AUTHORIZE",
        Permission::Describe => "DESCRIBE",
        Permission::Execute => "EXECUTE",
        Permission::Unmask => "UNMASK",
        Permission::SelectMasked => "SELECT_MASKED",
    }
}

/// The permission of this name.
pub(super) fn named(text: &str) -> Option<Permission> {
    Permission::ALL.into_iter().find(|permission| name(*permission) == text)
}
