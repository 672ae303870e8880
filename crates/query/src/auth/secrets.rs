//! Texts of statements without their passwords, for traces and logs.

use std::borrow::Cow;

use cql::ast::{QualifiedName, Statement};

/// Replaces everything that follows the word PASSWORD, or the name of the table of roles.
pub(crate) const HIDDEN: &str = " *******";

const PASSWORD: &str = "password";
/// The table whose rows contain hashes of passwords.
const ROLES: &str = "roles";

/// The column of that table with the hashes.
const HASH: &str = "salted_hash";

/// The text of a statement, which is cut after PASSWORD if the statement sets one. Cassandra does the same. It is also
/// cut after the name of the table if it writes to `system_auth.roles`, where hashes of passwords are kept, or compares
/// such hashes with its own. The rest has no comments, because one of them may be a password that was not to be set.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let (password, roles) = (end_of(PASSWORD, text), end_of(ROLES, text));
    if password.is_none() && roles.is_none() {
        return Cow::Borrowed(text);
    }
    let has = |word| end_of(word, text).is_some();
    let compares_hashes = |end: &usize| end_of(HASH, &text[*end..]).is_some();
    let end = match cql::parse(text).map(|parsed| parsed.statement) {
        // The text may be a wrong statement about a role, or a wrong write to the table of roles. Other texts that are
        // not statements, such as error messages, are not cut.
        Err(_) => password.or(roles.filter(|end| {
            let is_write = has("insert") || has("update");
            (has("system_auth") || has(HASH)) && (is_write || (has("where") && compares_hashes(end)))
        })),
        Ok(Statement::CreateRole(_) | Statement::AlterRole(_)) => password,
        Ok(Statement::Select(select)) => roles.filter(|end| is_of_roles(&select.table) && compares_hashes(end)),
        Ok(Statement::Delete(delete)) => roles.filter(|end| is_of_roles(&delete.table) && compares_hashes(end)),
        Ok(statement) => roles.filter(|_| writes_hashes(&statement)),
    };
    match end {
        Some(end) => Cow::Owned(format!("{}{HIDDEN}", cql::without_comments(&text[..end]))),
        None => Cow::Borrowed(text),
    }
}

/// The end of the first occurrence of a word of ASCII letters, in any case.
fn end_of(word: &str, text: &str) -> Option<usize> {
    let place = text.as_bytes().windows(word.len()).position(|found| found.eq_ignore_ascii_case(word.as_bytes()))?;
    Some(place + word.len())
}

/// Whether this may be the table of roles. A table without a keyspace may be in `system_auth`.
fn is_of_roles(table: &QualifiedName) -> bool {
    table.name.as_str() == ROLES && table.keyspace.as_ref().is_none_or(|keyspace| keyspace.as_str() == "system_auth")
}

/// Whether a statement writes rows with hashes.
fn writes_hashes(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(insert) => is_of_roles(&insert.table),
        Statement::InsertJson(insert) => is_of_roles(&insert.table),
        Statement::Update(update) => is_of_roles(&update.table),
        Statement::Batch(batch) => batch.statements.iter().any(|statement| is_of_roles(statement.table())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (text, shown) in [
            ("CREATE ROLE r WITH PASSWORD = 'secret'", "CREATE ROLE r WITH PASSWORD *******"),
            ("alter user r with hashed password '$2a$'", "alter user r with hashed password *******"),
            ("CREATE ROLE r WITH PASSWORD = 'secret", "CREATE ROLE r WITH PASSWORD *******"),
            (
                "/* é */ ALTER ROLE r WITH LOGIN = true AND password='x'",
                "  ALTER ROLE r WITH LOGIN = true AND password *******",
            ),
            ("ALTER ROLE é WITH PASSWORD = 'x'", "ALTER ROLE é WITH PASSWORD *******"),
            ("CREATE ROLE r WITH /* secret */ PASSWORD = 'x'", "CREATE ROLE r WITH   PASSWORD *******"),
            ("CREATE ROLE r -- secret\nWITH PASSWORD /* = */ = 'x'", "CREATE ROLE r  WITH PASSWORD *******"),
            ("CREATE ROLE '/*r*/' // secret, a PASSWORD\nWITH", "CREATE ROLE '/*r*/'   *******"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    #[test]
    fn a_column_of_this_name_is_shown() {
        let text = "INSERT INTO users (name, password) VALUES (?, ?)";
        assert_eq!(without_passwords(text), text);
    }

    #[test]
    fn a_hash_that_is_written_directly_is_not_shown() {
        for (text, shown) in [
            (
                "INSERT INTO system_auth.roles (role, salted_hash) VALUES ('r', '$2a$')",
                "INSERT INTO system_auth.roles *******",
            ),
            ("insert into Roles json '{}'", "insert into Roles *******"),
            (
                "UPDATE \"system_auth\".\"roles\" SET salted_hash = '$2a$' WHERE role = 'r'",
                "UPDATE \"system_auth\".\"roles *******",
            ),
            (
                "BEGIN BATCH INSERT INTO t (k) VALUES (1); UPDATE system_auth.roles SET salted_hash = '' WHERE role = 'r' APPLY BATCH",
                "BEGIN BATCH INSERT INTO t (k) VALUES (1); UPDATE system_auth.roles *******",
            ),
            (
                "INSERT INTO system_auth.roles (role, salted_hash) VALUES ('r', '$2a$",
                "INSERT INTO system_auth.roles *******",
            ),
            (
                "SELECT role FROM system_auth.roles WHERE salted_hash = '$2a$' ALLOW FILTERING",
                "SELECT role FROM system_auth.roles *******",
            ),
            ("SELECT * FROM system_auth.roles WHERE salted_hash = '$2a$", "SELECT * FROM system_auth.roles *******"),
            ("INSERT INTO roles (role, salted_hash) VALUES ('r', '$2a$", "INSERT INTO roles *******"),
            ("/* $2a$ */ INSERT INTO system_auth.roles JSON '{}'", "  INSERT INTO system_auth.roles *******"),
            (
                "DELETE FROM system_auth.roles WHERE role = 'r' IF salted_hash = '$2a$'",
                "DELETE FROM system_auth.roles *******",
            ),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
        for text in [
            "SELECT salted_hash FROM system_auth.roles",
            "INSERT INTO k.roles (k) VALUES (1)",
            "INSERT INTO t (roles) VALUES ({'a'})",
            "SELECT roles FROM t WHERE",
            "User r has no SELECT permission on <table system_auth.roles> or any of its parents",
            "Cannot ALTER <table system_auth.roles>",
            "DELETE FROM system_auth.roles WHERE role = 'r'",
        ] {
            assert_eq!(without_passwords(text), text);
        }
    }
}
