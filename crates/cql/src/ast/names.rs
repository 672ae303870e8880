//! Names of columns, tables, types and functions.

use std::fmt;

use types::identifier::Quoted;

/// A name as CQL interprets it: in lower case unless it was quoted.
///
/// `Display` prints it as CQL, with double quotes where the text needs them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identifier(String);

impl Identifier {
    /// A name written without quotes: case is folded.
    pub fn unquoted(text: &str) -> Identifier {
        Identifier(text.to_ascii_lowercase())
    }

    /// A name written in quotes (given without them): kept as it is.
    pub fn quoted(text: impl Into<String>) -> Identifier {
        Identifier(text.into())
    }

    /// The name itself, never quoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name itself, never quoted.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl AsRef<str> for Identifier {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.0).fmt(f)
    }
}

/// Table, view or index name with an optional keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QualifiedName {
    /// Keyspace, if written.
    pub keyspace: Option<Identifier>,
    /// Name inside the keyspace.
    pub name: Identifier,
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(self.keyspace.as_ref(), &self.name, f)
    }
}

/// Name of a user-defined type with an optional keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserTypeName {
    /// Keyspace, if written.
    pub keyspace: Option<Identifier>,
    /// Name inside the keyspace.
    pub name: Identifier,
}

/// Prints the bare names: Cassandra never quotes type names in messages.
impl fmt::Display for UserTypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bare(self.keyspace.as_ref(), &self.name, f)
    }
}

/// Name of a function or aggregate with an optional keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// Keyspace, if written.
    pub keyspace: Option<Identifier>,
    /// Name inside the keyspace.
    pub name: Identifier,
}

impl FunctionName {
    /// The name as CQL, quoted where needed: how calls inside terms are printed.
    pub fn to_cql(&self) -> String {
        // TOKEN is reserved, but only a function can have that name here.
        let name = if self.name.as_str() == "token" { "token".to_string() } else { self.name.to_string() };
        match &self.keyspace {
            Some(keyspace) => format!("{keyspace}.{name}"),
            None => name,
        }
    }

    /// A name without a keyspace.
    pub fn unqualified(name: &str) -> FunctionName {
        FunctionName { keyspace: None, name: Identifier::quoted(name) }
    }
}

/// Prints the bare names, as messages about functions do.
impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bare(self.keyspace.as_ref(), &self.name, f)
    }
}

fn write_qualified(keyspace: Option<&Identifier>, name: &Identifier, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(keyspace) = keyspace {
        write!(f, "{keyspace}.")?;
    }
    write!(f, "{name}")
}

fn write_bare(keyspace: Option<&Identifier>, name: &Identifier, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(keyspace) = keyspace {
        write!(f, "{}.", keyspace.as_str())?;
    }
    f.write_str(name.as_str())
}
