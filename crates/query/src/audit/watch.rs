//! Watches a request until its answer is known.

use std::sync::Arc;

use super::Auditor;
use super::entry::Entry;
use crate::entry::{Answer, MustBlock, Outcome, Pending};
use crate::{QueryError, Response, Turn};

/// A request whose entries are made when its answer is known. If it is dropped before, because nobody waits for the
/// answer any more, the failure is entered.
#[must_use]
pub(crate) struct Watch {
    auditor: Arc<Auditor>,
    /// The entries if the request succeeds.
    done: Vec<Entry>,
    /// The entry if the request fails; `None` once the outcome was entered.
    failed: Option<Entry>,
}

impl Watch {
    pub(super) fn new(auditor: &Arc<Auditor>, done: Vec<Entry>, failed: Entry) -> Watch {
        Watch { auditor: Arc::clone(auditor), done, failed: Some(failed) }
    }

    /// The same outcome, which is entered when it is final.
    pub fn over(self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Done(Answer::Written) => {
                self.enter(Ok(()));
                Outcome::Done(Answer::Written)
            }
            Outcome::Done(Answer::Response(response)) => {
                self.enter(response.as_ref().as_ref().map(|_| ()));
                Outcome::Done(Answer::Response(response))
            }
            Outcome::Pending(pending) => Outcome::Pending(Box::new(self.over_pending(*pending))),
            Outcome::MustBlock(work) => {
                let (limit, need) = (*work.limit(), work.need());
                Outcome::MustBlock(Box::new(MustBlock::new(limit, need, move |deadline, cancelled| {
                    self.over_response(work.run_with(deadline, cancelled))
                })))
            }
        }
    }

    fn over_pending(self, mut pending: Pending) -> Pending {
        let limit = *pending.limit();
        Pending::of_future(limit, async move {
            let response = std::future::poll_fn(|context| pending.poll(Turn::BLOCKING, context)).await;
            self.over_response(response)
        })
    }

    fn over_response(self, response: Result<Response, QueryError>) -> Result<Response, QueryError> {
        self.enter(response.as_ref().map(|_| ()));
        response
    }

    fn enter(mut self, outcome: Result<(), &QueryError>) {
        let Some(failed) = self.failed.take() else { return };
        match outcome {
            Ok(()) => self.done.iter().for_each(|entry| self.auditor.append(entry)),
            Err(error) => self.auditor.append(&failed.failed(error)),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(failed) = self.failed.take() {
            let error = QueryError::server("the request timed out, or its connection was closed, before its answer");
            self.auditor.append(&failed.failed(&error));
        }
    }
}
