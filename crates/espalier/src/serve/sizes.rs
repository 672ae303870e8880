//! Large partitions and collections in SSTables, in the log.

use engine::{Oversize, SizeHook};
use query::{Guardrails, Violation};
use server::LogRateLimit;
use std::sync::Arc;

/// The number of messages of each level in a minute. A compaction may find a large partition in every megabyte.
const MESSAGES_MAX: u32 = 1000;

/// Logs what violates the guardrails.
pub(super) fn hook(guardrails: Guardrails) -> SizeHook {
    let (warnings, failures) = (LogRateLimit::new(MESSAGES_MAX), LogRateLimit::new(MESSAGES_MAX));
    SizeHook(Arc::new(move |found: &Oversize| match guardrails.size_violation(found) {
        Some(Violation::Warning(text)) => warnings.log(|left_out| tracing::warn!("{text}{left_out}")),
        Some(Violation::Failure(text)) => failures.log(|left_out| tracing::error!("{text}{left_out}")),
        None => {}
    }))
}
