//! The node's log, which goes to stderr.

use query::OneLine;
use std::fmt;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// Starts to log; `RUST_LOG` sets the level.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(ansi);
    subscriber.fmt_fields(OneLineFields).with_env_filter(filter).init();
}

/// Writes the message of an event and its other fields on one line. They have names and keys that clients choose, which
/// must not look like another line of the log.
#[derive(Debug)]
struct OneLineFields;

impl<'w> FormatFields<'w> for OneLineFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        DefaultFields::new().format_fields(Writer::new(&mut OneLine(&mut writer)), fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_name_in_a_message_or_a_field_adds_no_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time().fmt_fields(OneLineFields);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let name = "r\nERROR forged\u{202e}\u{1b}[2J é";
            tracing::warn!(client = 7, %name, "role {name} was let in");
        });
        let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.ends_with('\n') && log.contains("role r\\nERROR forged\\u{202e}"), "{log}");
        assert!(log.contains("client=7 name=r\\nERROR forged"), "{log}");
        assert!(!log.contains(['\u{202e}', '\u{1b}']) && log.contains('é'), "{log}");
    }
}
