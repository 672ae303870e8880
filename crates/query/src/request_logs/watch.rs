//! Watches a request until its answer is known.

use std::sync::Arc;

use super::RequestLog;
use crate::audit::Audited;
use crate::entry::{Answer, MustBlock, Outcome, Pending};
use crate::{QueryError, Response};

/// A request that is entered in the logs when its answer is known.
#[must_use]
pub(crate) struct Watch {
    audited: Option<Audited>,
    /// The full query log, and the line if the request succeeds.
    logged: Option<(Arc<dyn RequestLog>, String)>,
}

impl Watch {
    pub(super) fn new(audited: Option<Audited>, logged: Option<(Arc<dyn RequestLog>, String)>) -> Watch {
        Watch { audited, logged }
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
            let response = std::future::poll_fn(|context| pending.poll(context)).await;
            self.over_response(response)
        })
    }

    fn over_response(self, response: Result<Response, QueryError>) -> Result<Response, QueryError> {
        self.enter(response.as_ref().map(|_| ()));
        response
    }

    fn enter(self, outcome: Result<(), &QueryError>) {
        if let Some(audited) = self.audited {
            audited.enter(outcome);
        }
        if let Some((log, line)) = self.logged.filter(|_| outcome.is_ok()) {
            log.append(line);
        }
    }
}
