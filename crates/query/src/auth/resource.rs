//! The objects of permissions: keyspaces, tables, roles, functions and MBeans, and those that contain them.

use std::fmt;

use cql::ast::{self, Permission};

use super::permissions::Permissions;
use crate::QueryError;
use crate::names::keyspace_of;

/// An object of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    AllKeyspaces,
    Keyspace(String),
    AllTables(String),
    Table(String, String),
    AllRoles,
    Role(String),
    AllFunctions,
    FunctionsIn(String),
    /// A function with the CQL names of its arguments' types.
    Function(String, String, Vec<String>),
    AllMBeans,
    MBean(String),
}

use Resource::*;

impl Resource {
    /// The object that a statement names. Unqualified names belong to `keyspace`.
    pub fn named(resource: &ast::Resource, keyspace: Option<&str>) -> Result<Resource, QueryError> {
        Ok(match resource {
            ast::Resource::AllKeyspaces => AllKeyspaces,
            ast::Resource::Keyspace(name) => Keyspace(name.as_str().to_owned()),
            ast::Resource::AllTables(name) => AllTables(name.as_str().to_owned()),
            ast::Resource::Table(table) => {
                Table(keyspace_of(table.keyspace.as_ref(), keyspace)?.to_owned(), table.name.as_str().to_owned())
            }
            ast::Resource::AllRoles => AllRoles,
            ast::Resource::Role(name) => Role(name.clone()),
            ast::Resource::AllFunctions => AllFunctions,
            ast::Resource::AllFunctionsIn(name) => FunctionsIn(name.as_str().to_owned()),
            ast::Resource::Function { name, arguments } => {
                let written = name.keyspace.as_ref();
                let arguments = arguments.iter().map(ToString::to_string).collect();
                Function(keyspace_of(written, keyspace)?.to_owned(), name.name.to_string(), arguments)
            }
            ast::Resource::AllMBeans => AllMBeans,
            ast::Resource::MBean(name) => MBean(name.clone()),
        })
    }

    /// The object with this name in the tables.
    pub fn from_name(name: &str) -> Option<Resource> {
        let (root, rest) = name.split_once('/').map_or((name, None), |(root, rest)| (root, Some(rest)));
        Some(match (root, rest) {
            ("data", None) => AllKeyspaces,
            ("data", Some(rest)) => match rest.split_once('/') {
                None => Keyspace(rest.to_owned()),
                Some((keyspace, "*")) => AllTables(keyspace.to_owned()),
                Some((keyspace, table)) => Table(keyspace.to_owned(), table.to_owned()),
            },
            ("roles", None) => AllRoles,
            ("roles", Some(role)) => Role(role.to_owned()),
            ("functions", None) => AllFunctions,
            ("functions", Some(rest)) => match rest.split_once('/') {
                None => FunctionsIn(rest.to_owned()),
                Some((keyspace, function)) => Function(keyspace.to_owned(), function.to_owned(), Vec::new()),
            },
            ("mbean", None) => AllMBeans,
            ("mbean", Some(name)) => MBean(name.to_owned()),
            _ => return None,
        })
    }

    /// The name in the tables.
    pub fn name(&self) -> String {
        match self {
            AllKeyspaces => "data".to_owned(),
            Keyspace(keyspace) => format!("data/{keyspace}"),
            AllTables(keyspace) => format!("data/{keyspace}/*"),
            Table(keyspace, table) => format!("data/{keyspace}/{table}"),
            AllRoles => "roles".to_owned(),
            Role(role) => format!("roles/{role}"),
            AllFunctions => "functions".to_owned(),
            FunctionsIn(keyspace) => format!("functions/{keyspace}"),
            Function(keyspace, name, arguments) => format!("functions/{keyspace}/{name}[{}]", arguments.join("^")),
            AllMBeans => "mbean".to_owned(),
            MBean(name) => format!("mbean/{name}"),
        }
    }

    /// The object that contains it.
    pub fn parent(&self) -> Option<Resource> {
        Some(match self {
            AllKeyspaces | AllRoles | AllFunctions | AllMBeans => return None,
            Keyspace(_) => AllKeyspaces,
            AllTables(keyspace) => Keyspace(keyspace.clone()),
            Table(keyspace, _) => AllTables(keyspace.clone()),
            Role(_) => AllRoles,
            FunctionsIn(_) => AllFunctions,
            Function(keyspace, ..) => FunctionsIn(keyspace.clone()),
            MBean(_) => AllMBeans,
        })
    }

    /// The object and all that contain it, from the inside.
    pub fn chain(&self) -> impl Iterator<Item = Resource> {
        std::iter::successors(Some(self.clone()), Resource::parent)
    }

    /// Whether it contains the object with this name in the tables.
    pub fn contains(&self, name: &str) -> bool {
        Resource::from_name(name).is_some_and(|object| object.chain().skip(1).any(|outer| outer == *self))
    }

    /// The permissions that apply to it.
    pub fn applicable(&self) -> Permissions {
        use Permission::*;
        Permissions::of(match self {
            AllKeyspaces | Keyspace(_) | AllTables(_) => {
                &[Create, Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked]
            }
            Table(..) => &[Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked],
            AllRoles => &[Create, Alter, Drop, Authorize, Describe],
            Role(_) => &[Alter, Drop, Authorize, Describe],
            AllFunctions | FunctionsIn(_) => &[Create, Alter, Drop, Authorize, Execute],
            Function(..) => &[Alter, Drop, Authorize, Execute],
            AllMBeans | MBean(_) => &[Select, Modify, Authorize, Describe, Execute],
        })
    }

    /// The keyspace of data, or that is data.
    pub fn data_keyspace(&self) -> Option<&str> {
        match self {
            Keyspace(keyspace) | AllTables(keyspace) | Table(keyspace, _) => Some(keyspace),
            _ => None,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllKeyspaces => f.write_str("<all keyspaces>"),
            Keyspace(keyspace) => write!(f, "<keyspace {keyspace}>"),
            AllTables(keyspace) => write!(f, "<all tables in {keyspace}>"),
            Table(keyspace, table) => write!(f, "<table {keyspace}.{table}>"),
            AllRoles => f.write_str("<all roles>"),
            Role(role) => write!(f, "<role {role}>"),
            AllFunctions => f.write_str("<all functions>"),
            FunctionsIn(keyspace) => write!(f, "<all functions in {keyspace}>"),
            Function(keyspace, name, arguments) => write!(f, "<function {keyspace}.{name}({})>", arguments.join(", ")),
            AllMBeans => f.write_str("<all mbeans>"),
            MBean(name) => write!(f, "<mbean {name}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_tables_is_read_as_it_was_written() {
        let (keyspace, table) = ("ks".to_owned(), "t".to_owned());
        for resource in [
            AllKeyspaces,
            Keyspace(keyspace.clone()),
            AllTables(keyspace.clone()),
            Table(keyspace.clone(), table.clone()),
            AllRoles,
            Role("a/b".to_owned()),
            AllFunctions,
            FunctionsIn(keyspace),
            AllMBeans,
            MBean("org.apache:type=*".to_owned()),
        ] {
            assert_eq!(Resource::from_name(&resource.name()), Some(resource));
        }
        assert_eq!(Resource::from_name("nothing"), None);
    }

    #[test]
    fn a_table_is_in_all_tables_of_its_keyspace() {
        let table = Table("ks".to_owned(), "t".to_owned());
        let names: Vec<String> = table.chain().map(|resource| resource.name()).collect();
        assert_eq!(names, ["data/ks/t", "data/ks/*", "data/ks", "data"]);
    }

    #[test]
    fn a_keyspace_contains_its_tables_and_functions_and_a_role_contains_nothing() {
        let (ks, role) = (|| "ks".to_owned(), Role("a".to_owned()));
        for name in ["data/ks/*", "data/ks/t"] {
            assert!(Keyspace(ks()).contains(name), "{name}");
        }
        assert!(FunctionsIn(ks()).contains("functions/ks/f[int^text]"));
        for name in ["data/ks", "data/ks2/t", "functions/ks/f[int]", "roles/ks"] {
            assert!(!Keyspace(ks()).contains(name), "{name}");
        }
        for name in ["roles/a/b", "roles/a", "roles"] {
            assert!(!role.contains(name), "{name}");
        }
    }
}
