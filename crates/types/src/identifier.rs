//! Names in CQL text: when a name must be quoted, and the words that are not names without quotes.

use std::fmt;

use crate::CqlType;

/// The name under which `system_schema` stores the type of a compact table's missing column; CQL has no such word.
pub(crate) const EMPTY_TYPE: &str = "empty";

/// CQL's reserved keywords, lower-case and sorted. Without quotes, none of them is a name.
pub const RESERVED_KEYWORDS: &[&str] = &[
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// Whether CQL reads this name unchanged only inside double quotes.
pub fn needs_quotes(name: &str) -> bool {
    let mut bytes = name.bytes();
    let plain = bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    !plain || RESERVED_KEYWORDS.binary_search(&name).is_ok()
}

/// Displays a name in the form that CQL reads back: quoted only if necessary.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if needs_quotes(self.0) { write!(f, "\"{}\"", self.0.replace('"', "\"\"")) } else { f.write_str(self.0) }
    }
}

/// Displays the name of a user type in the form that CQL reads back where a type is expected: names of CQL's own types
/// are quoted too.
#[derive(Clone, Copy, Debug)]
pub struct QuotedType<'a>(pub &'a str);

impl fmt::Display for QuotedType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CqlType::native(self.0).is_some() || self.0 == EMPTY_TYPE {
            true => write!(f, "\"{}\"", self.0),
            false => Quoted(self.0).fmt(f),
        }
    }
}

/// The slot of a name in a Java hash map of `count` names. Cassandra prints the names of such a map in slot order.
pub fn hash_slot(name: &str, count: usize) -> u32 {
    // Java's maps start with 16 slots and double where more than three quarters are taken.
    let slots = (count * 4).div_ceil(3).next_power_of_two().max(16) as u32;
    // ByteBuffer.hashCode goes over signed bytes from the last to the first; HashMap folds the upper half in.
    let hash = name.bytes().rev().fold(1_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add((byte as i8).into()));
    let hash = hash as u32;
    (hash ^ (hash >> 16)) & (slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_need_quotes_get_them() {
        let quoted = |name| Quoted(name).to_string();
        assert_eq!(quoted("users_2"), "users_2");
        assert_eq!(quoted("Users"), "\"Users\"");
        assert_eq!(quoted("2nd"), "\"2nd\"");
        assert_eq!(quoted("table"), "\"table\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted(""), "\"\"");
        assert!(RESERVED_KEYWORDS.is_sorted());
    }

    #[test]
    fn a_user_type_is_quoted_where_a_type_of_cql_has_its_name() {
        let quoted = |name| QuotedType(name).to_string();
        assert_eq!(["int", "varchar", "empty", "set"].map(quoted), ["\"int\"", "\"varchar\"", "\"empty\"", "\"set\""]);
        assert_eq!(["vector", "map", "frozen", "point"].map(quoted), ["vector", "map", "frozen", "point"]);
    }
}
