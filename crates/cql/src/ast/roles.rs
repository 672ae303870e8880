//! Roles, users, identities and permissions.

use super::names::{FunctionName, Identifier, QualifiedName};
use super::types::TypeName;

/// A set of datacenters or CIDR groups a role may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessList {
    All,
    Only(Vec<String>),
}

/// Options of CREATE/ALTER ROLE and USER; `None` if not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    pub password: Option<String>,
    pub hashed_password: Option<String>,
    pub superuser: Option<bool>,
    pub login: Option<bool>,
    pub options: Option<Vec<(String, String)>>,
    pub datacenters: Option<AccessList>,
    pub cidrs: Option<AccessList>,
}

/// `CREATE ROLE` and `CREATE USER` (which has login set). For CREATE, login and superuser are always set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRole {
    pub role: String,
    pub if_not_exists: bool,
    pub options: RoleOptions,
}

/// `ALTER ROLE` and `ALTER USER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterRole {
    pub role: String,
    pub if_exists: bool,
    pub options: RoleOptions,
}

/// `DROP ROLE` and `DROP USER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRole {
    pub role: String,
    pub if_exists: bool,
}

/// `ADD IDENTITY ... TO ROLE ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddIdentity {
    pub identity: String,
    pub role: String,
    pub if_not_exists: bool,
}

/// `DROP IDENTITY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIdentity {
    pub identity: String,
    pub if_exists: bool,
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
}

impl Permission {
    /// All permissions, in Cassandra's order.
    pub const ALL: [Permission; 10] = [
        Permission::Create,
        Permission::Alter,
        Permission::Drop,
        Permission::Select,
        Permission::Modify,
        Permission::Authorize,
        Permission::Describe,
        Permission::Execute,
        Permission::Unmask,
        Permission::SelectMasked,
    ];
}

/// The object of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    AllKeyspaces,
    Keyspace(Identifier),
    /// `ALL TABLES IN KEYSPACE ks`.
    AllTables(Identifier),
    Table(QualifiedName),
    AllRoles,
    Role(String),
    AllFunctions,
    AllFunctionsIn(Identifier),
    Function {
        name: FunctionName,
        arguments: Vec<TypeName>,
    },
    AllMBeans,
    /// An object name, or a pattern of names.
    MBean(String),
}

/// `GRANT permissions ON resource TO role`, or REVOKE ... FROM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionsChange {
    pub permissions: Vec<Permission>,
    pub resource: Resource,
    pub role: String,
}

/// `GRANT role TO grantee`, or `REVOKE role FROM grantee`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleChange {
    pub role: String,
    pub grantee: String,
}

/// `LIST permissions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPermissions {
    pub permissions: Vec<Permission>,
    pub resource: Option<Resource>,
    pub grantee: Option<String>,
    pub recursive: bool,
}

/// `LIST ROLES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRoles {
    pub grantee: Option<String>,
    pub recursive: bool,
}
