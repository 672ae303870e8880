//! The entries of a request whose answer is not known yet.

use std::sync::Arc;

use super::Auditor;
use super::entry::Entry;
use crate::{ErrorKind, QueryError};

/// The possible entries of a request. Its outcome decides which of them are written. If this is dropped before the
/// outcome is known, because nobody waits for the answer any more, the request is entered as a failure.
#[must_use]
pub(crate) struct Audited {
    auditor: Arc<Auditor>,
    /// The entries if the request succeeds.
    done: Vec<Entry>,
    /// The entry if the request fails; `None` once the outcome was entered.
    failed: Option<Entry>,
    /// The entry if the client has to prepare the statement again.
    forgotten: Option<Entry>,
}

impl Audited {
    pub(super) fn new(auditor: &Arc<Auditor>, done: Vec<Entry>, failed: Entry) -> Audited {
        Audited { auditor: Arc::clone(auditor), done, failed: Some(failed), forgotten: None }
    }

    /// Sets the entry for the case that the client has to prepare the statement again.
    pub(super) fn or_forgotten(mut self, entry: Entry) -> Audited {
        self.forgotten = Some(entry);
        self
    }

    /// Enters the outcome.
    pub fn enter(mut self, outcome: Result<(), &QueryError>) {
        let Some(failed) = self.failed.take() else { return };
        match outcome {
            Ok(()) => self.done.iter().for_each(|entry| self.auditor.append(entry)),
            Err(error) => {
                let forgotten = self.forgotten.take().filter(|_| matches!(error.kind, ErrorKind::Unprepared { .. }));
                self.auditor.append(&forgotten.unwrap_or(failed).failed(error));
            }
        }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if let Some(failed) = self.failed.take() {
            let error = QueryError::server("the request timed out, or its connection was closed, before its answer");
            self.auditor.append(&failed.failed(&error));
        }
    }
}
