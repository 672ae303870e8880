//! The verbs that turn the audit log and the full query log on and off.

use super::server::NodeState;
use super::{Request, Verb};
use crate::config;

/// Executes a verb about these logs.
pub(super) fn execute(node: &NodeState, request: &Request) -> Result<String, String> {
    let (logs, processor) = (&node.request_logs, &node.processor);
    match request.verb {
        Verb::EnableAuditLog => {
            logs.enable_audit(|configured| config::audit_of_verb(configured, &request.options), processor)?;
        }
        Verb::DisableAuditLog => logs.disable_audit(processor)?,
        Verb::GetAuditLog => return Ok(logs.auditing().shown()),
        Verb::EnableFullQueryLog => {
            let (_, configured) = logs.full_query_logging();
            logs.enable_query_log(config::full_query_of_verb(configured, &request.options)?, processor)?;
        }
        Verb::DisableFullQueryLog => logs.disable_query_log(processor)?,
        Verb::ResetFullQueryLog => logs.reset_query_log(processor)?,
        Verb::GetFullQueryLog => {
            let (enabled, options) = logs.full_query_logging();
            return Ok(options.shown(enabled));
        }
        verb => return Err(format!("{verb:?} is not about these logs")),
    }
    Ok(String::new())
}
