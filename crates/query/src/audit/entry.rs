//! An entry of the audit log, and its line in the file.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use uuid::Uuid;

use super::Category;
use super::subject::{EntryType, Subject};
use crate::{ErrorKind, QueryError, without_passwords};

/// One entry. [`fmt::Display`] is its line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// `None` if it is not known.
    user: Option<Arc<str>>,
    host: SocketAddr,
    /// `None` for a client in the same process.
    source: Option<SocketAddr>,
    /// The time at which the request began, milliseconds since the epoch.
    timestamp_millis: u64,
    entry_type: EntryType,
    batch: Option<Uuid>,
    /// The keyspace that is shown: the statement's, or else the session's.
    keyspace: Option<Arc<str>>,
    /// The keyspaces that the statement itself names.
    named_keyspaces: Vec<Arc<str>>,
    scope: Option<Arc<str>>,
    /// The text of the statement, or a description of another request.
    operation: Arc<str>,
    /// The error's message.
    failure: Option<String>,
}

impl Entry {
    pub fn new(
        user: Option<Arc<str>>,
        host: SocketAddr,
        source: Option<SocketAddr>,
        timestamp_millis: u64,
        operation: Arc<str>,
    ) -> Entry {
        Entry {
            user,
            host,
            source,
            timestamp_millis,
            entry_type: EntryType::FAILURE,
            batch: None,
            keyspace: None,
            named_keyspaces: Vec::new(),
            scope: None,
            operation,
            failure: None,
        }
    }

    pub fn in_keyspace(self, keyspace: Option<Arc<str>>) -> Entry {
        Entry { keyspace, ..self }
    }

    pub fn in_batch(self, batch: Uuid) -> Entry {
        Entry { batch: Some(batch), ..self }
    }

    pub fn with_operation(self, operation: Arc<str>) -> Entry {
        Entry { operation, ..self }
    }

    pub fn with_type(self, entry_type: EntryType) -> Entry {
        Entry { entry_type, ..self }
    }

    /// A copy with this subject. The keyspace of the session stays where the subject has none.
    pub fn with_subject(&self, subject: Subject) -> Entry {
        let Subject { entry_type, keyspace, of_parts, scope } = subject;
        let named_keyspaces = keyspace.iter().cloned().chain(of_parts).collect();
        let keyspace = keyspace.or_else(|| self.keyspace.clone());
        Entry { entry_type, keyspace, named_keyspaces, scope, ..self.clone() }
    }

    /// The entry of the same request after a failure.
    pub fn failed(self, error: &QueryError) -> Entry {
        let is_secret = mentions_password(&self.operation);
        self.failed_with(error, is_secret)
    }

    /// The entry of the same request after a failure. `is_secret` says that a text of the request has a password.
    pub fn failed_with(self, error: &QueryError, is_secret: bool) -> Entry {
        let entry_type = match error.kind {
            ErrorKind::Unauthorized => EntryType::UNAUTHORIZED,
            _ => EntryType::FAILURE,
        };
        // A syntax error may quote the text, and so a password.
        let failure = match error.kind == ErrorKind::Syntax && is_secret {
            true => "Syntax Exception. Obscured for security reasons.".to_owned(),
            false => error.message.clone(),
        };
        Entry { entry_type, failure: Some(failure), ..self }
    }

    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub fn keyspace(&self) -> Option<&str> {
        self.keyspace.as_deref()
    }

    pub fn named_keyspaces(&self) -> &[Arc<str>] {
        &self.named_keyspaces
    }

    pub fn category(&self) -> Category {
        self.entry_type.category
    }

    fn write_fields(&self, out: &mut impl Write) -> fmt::Result {
        write!(out, "user:{}|host:/{}", self.user().unwrap_or("null"), self.host)?;
        if let Some(source) = self.source {
            write!(out, "|source:/{}|port:{}", source.ip(), source.port())?;
        }
        let EntryType { name, category } = self.entry_type;
        write!(out, "|timestamp:{}|type:{name}|category:{}", self.timestamp_millis, category.name())?;
        if let Some(batch) = self.batch {
            write!(out, "|batch:{batch}")?;
        }
        if let Some(keyspace) = &self.keyspace {
            write!(out, "|ks:{keyspace}")?;
        }
        if let Some(scope) = &self.scope {
            write!(out, "|scope:{scope}")?;
        }
        write!(out, "|operation:{}", without_passwords(&self.operation))?;
        match &self.failure {
            // As in Cassandra.
            Some(failure) if self.operation.is_empty() => out.write_str(&without_passwords(failure)),
            Some(failure) => write!(out, "; {}", without_passwords(failure)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Entry {
    /// The line. A line break within a statement or a name is shown as `\n`, so that no client can forge an entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_fields(&mut OneLine(f))
    }
}

/// Whether a text has a password, or the hash of one, so that a message that quotes it may show that.
pub(super) fn mentions_password(text: &str) -> bool {
    matches!(without_passwords(text), Cow::Owned(_))
}

/// Writes texts with those characters escaped that end a line, or change how the rest of it is shown.
#[derive(Debug)]
pub struct OneLine<'w, W>(pub &'w mut W);

impl<W: Write> Write for OneLine<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_escaped) {
            match part.char_indices().next_back().filter(|(_, last)| is_escaped(*last)) {
                Some((start, last)) => write!(self.0, "{}{}", &part[..start], last.escape_default())?,
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// Control characters, line separators, and characters of Unicode's category "format": those that change the direction
/// of the text, and invisible ones.
fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{890}'..='\u{891}' | '\u{8E2}'
            | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}' | '\u{110BD}' | '\u{110CD}' | '\u{13430}'..='\u{1343F}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(operation: &str) -> Entry {
        let host = SocketAddr::from(([127, 0, 0, 1], 7000));
        let source = Some(SocketAddr::from(([10, 0, 0, 7], 4242)));
        Entry::new(Some("ada".into()), host, source, 1_795_693_783_356, operation.into())
    }

    #[test]
    fn a_line_has_the_fields_of_cassandra() {
        let subject = Subject {
            entry_type: EntryType { name: "SELECT", category: Category::Query },
            keyspace: Some("k".into()),
            of_parts: Vec::new(),
            scope: Some("t".into()),
        };
        assert_eq!(
            entry("SELECT * FROM k.t").with_subject(subject).to_string(),
            "user:ada|host:/127.0.0.1:7000|source:/10.0.0.7|port:4242|timestamp:1795693783356|type:SELECT|category:QUERY|\
             ks:k|scope:t|operation:SELECT * FROM k.t"
        );
    }

    #[test]
    fn a_statement_cannot_forge_an_entry() {
        let line = entry("INSERT INTO t(a) VALUES('x\nuser:root|host:\r\u{85}\u{2028}')").to_string();
        assert!(!line.contains(is_escaped), "{line}");
        assert!(line.ends_with("VALUES('x\\nuser:root|host:\\r\\u{85}\\u{2028}')"), "{line}");
    }

    #[test]
    fn no_character_hides_or_turns_the_rest_of_a_line() {
        let line = entry("SELECT '\u{202e}\u{200b}\u{2066}\u{feff}\u{ad}\u{e0041}\u{1b}[2K' é漢 FROM t").to_string();
        let shown = "SELECT '\\u{202e}\\u{200b}\\u{2066}\\u{feff}\\u{ad}\\u{e0041}\\u{1b}[2K' é漢 FROM t";
        assert!(line.ends_with(&format!("|operation:{shown}")), "{line}");
    }

    #[test]
    fn a_failure_shows_no_password() {
        let syntax = |text: &str| QueryError::new(ErrorKind::Syntax, text);
        let failed =
            entry("CREATE ROLE r WITH PASSWORD 'hush").failed(&syntax("line 1:28 mismatched 'hush'")).to_string();
        assert!(
            failed.ends_with("CREATE ROLE r WITH PASSWORD *******; Syntax Exception. Obscured for security reasons.")
        );
        let wrong = QueryError::new(ErrorKind::BadCredentials, "Provided username r and/or password are incorrect");
        let line = entry("LOGIN FAILURE").failed(&wrong).with_type(EntryType::LOGIN_ERROR).to_string();
        assert!(line.ends_with("|operation:LOGIN FAILURE; Provided username r and/or password *******"), "{line}");
    }
}
