//! Texts of statements without their passwords, for traces and logs.

use std::borrow::Cow;

use cql::ast::Statement;

/// What stands for everything that follows the word PASSWORD.
const HIDDEN: &str = " *******";

const PASSWORD: &str = "password";

/// The text of a statement, which is cut after PASSWORD if the statement sets one.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let Some(start) =
        text.as_bytes().windows(PASSWORD.len()).position(|word| word.eq_ignore_ascii_case(PASSWORD.as_bytes()))
    else {
        return Cow::Borrowed(text);
    };
    match cql::parse(text).map(|parsed| parsed.statement) {
        // It may be a statement about a role with a mistake.
        Err(_) | Ok(Statement::CreateRole(_) | Statement::AlterRole(_)) => {
            Cow::Owned(format!("{}{HIDDEN}", &text[..start + PASSWORD.len()]))
        }
        Ok(_) => Cow::Borrowed(text),
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
                "/* é */ ALTER ROLE r WITH LOGIN = true AND password *******",
            ),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    #[test]
    fn a_column_of_this_name_is_shown() {
        let text = "INSERT INTO users (name, password) VALUES (?, ?)";
        assert_eq!(without_passwords(text), text);
    }
}
