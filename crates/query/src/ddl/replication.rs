//! Replication options, checked and completed for one data center of one node.

use std::collections::BTreeMap;

use crate::QueryError;
use crate::execution::Execution;

const PACKAGE: &str = "org.apache.cassandra.locator.";

/// The replication factor of a keyspace whose options name none.
fn default_factor(execution: &Execution<'_>) -> i32 {
    execution.processor.options().guardrails.default_keyspace_rf.unwrap_or(1)
}

/// The options as stored: full class name, factors per data center.
pub(super) fn prepare(
    mut options: BTreeMap<String, String>,
    keyspace: &str,
    execution: &Execution<'_>,
) -> Result<BTreeMap<String, String>, QueryError> {
    let class =
        options.remove("class").ok_or_else(|| QueryError::configuration("Missing replication strategy class"))?;
    let full = if class.contains('.') { class } else { format!("{PACKAGE}{class}") };
    let prepared = match full.strip_prefix(PACKAGE) {
        Some("SimpleStrategy") => simple(options, keyspace, execution),
        Some("NetworkTopologyStrategy") => network_topology(options, keyspace, execution),
        Some("LocalStrategy") => {
            let message = "Unable to use given strategy class: LocalStrategy is reserved for internal use.";
            Err(QueryError::invalid(message))
        }
        Some("EverywhereStrategy") | Some("MetaStrategy") | Some(_) | None => {
            Err(QueryError::configuration(format!("Unable to find replication strategy class '{full}'")))
        }
    };
    let mut prepared = prepared?;
    prepared.insert("class".into(), full);
    Ok(prepared)
}

fn simple(
    options: BTreeMap<String, String>,
    keyspace: &str,
    execution: &Execution<'_>,
) -> Result<BTreeMap<String, String>, QueryError> {
    if let Some(unknown) = options.keys().find(|name| *name != "replication_factor") {
        return Err(unrecognized(unknown, "SimpleStrategy", keyspace));
    }
    let factor =
        options.get("replication_factor").map_or(Ok(default_factor(execution)), |factor| parse_factor(factor))?;
    execution.processor.options().guardrails.check_replication_factor(keyspace, factor.into(), execution)?;
    if factor > 1 {
        execution.warn(format!(
            "Your replication factor {factor} for keyspace {keyspace} is higher than the number of nodes 1"
        ));
    }
    Ok([("replication_factor".to_string(), factor.to_string())].into_iter().collect())
}

fn network_topology(
    mut options: BTreeMap<String, String>,
    keyspace: &str,
    execution: &Execution<'_>,
) -> Result<BTreeMap<String, String>, QueryError> {
    let local = execution.processor.options().node.data_center.to_string();
    if let Some(factor) = options.remove("replication_factor") {
        options.entry(local.clone()).or_insert(factor);
    }
    if let Some(unknown) = options.keys().find(|name| **name != local) {
        return Err(unrecognized(unknown, "NetworkTopologyStrategy", keyspace));
    }
    let factor = options.get(&local).map_or(Ok(default_factor(execution)), |factor| parse_factor(factor))?;
    if factor == 0 {
        return Err(QueryError::configuration("Configuration for at least one datacenter must be present"));
    }
    execution.processor.options().guardrails.check_replication_factor(keyspace, factor.into(), execution)?;
    if factor > 1 {
        execution.warn(format!(
            "Your replication factor {factor} for keyspace {keyspace} is higher than the number of nodes 1 for datacenter {local}"
        ));
    }
    Ok([(local, factor.to_string())].into_iter().collect())
}

fn parse_factor(text: &str) -> Result<i32, QueryError> {
    if text.contains('/') {
        let message = "Transient replication is disabled. Enable in cassandra.yaml to use.";
        return Err(QueryError::configuration(message));
    }
    let factor: i32 = text.parse().map_err(|_| QueryError::configuration(format!("For input string: \"{text}\"")))?;
    if factor < 0 {
        let message = format!("Replication factor must be non-negative, found {factor}");
        return Err(QueryError::configuration(message));
    }
    Ok(factor)
}

fn unrecognized(option: &str, strategy: &str, keyspace: &str) -> QueryError {
    QueryError::configuration(format!(
        "Unrecognized strategy option {{{option}}} passed to {strategy} for keyspace {keyspace}"
    ))
}
