//! The verbs about groups of addresses (`CassandraCIDRAuthorizer`).

use super::{Request, Verb};
use query::{Processor, QueryError};
use std::net::IpAddr;

/// Executes such a verb.
pub(super) fn carry_out(processor: &Processor, request: &Request) -> Result<String, QueryError> {
    let named = || request.cidr_group.as_deref().ok_or_else(|| QueryError::invalid("requires a cidr group name"));
    match request.verb {
        Verb::UpdateCidrGroup => {
            if request.addresses.is_empty() {
                let text = "updatecidrgroup command requires a cidr group name and atleast one CIDR";
                return Err(QueryError::invalid(text));
            }
            processor.update_cidr_group(named()?, &request.addresses)?;
            Ok(String::new())
        }
        Verb::DropCidrGroup => {
            processor.drop_cidr_group(named()?)?;
            Ok(format!("Deleted CIDR group {}\n", named()?))
        }
        Verb::ListCidrGroups => {
            let groups = processor.cidr_groups()?;
            let Some(name) = &request.cidr_group else { return Ok(set("CIDR Groups", groups.keys())) };
            let blocks =
                groups.get(name).ok_or_else(|| QueryError::invalid(format!("CIDR group '{name}' doesn't exists")))?;
            Ok(set("CIDRs", blocks))
        }
        Verb::GetCidrGroupsOfIp => {
            let text = request.addresses.first().ok_or_else(|| QueryError::invalid("Requires IP address as input"))?;
            let address: IpAddr = text.parse().map_err(|_| QueryError::invalid(format!("Invalid IP {text}")))?;
            Ok(set("CIDR Groups", processor.cidr_groups_of(address)?))
        }
        _ => {
            processor.reload_cidr_groups()?;
            Ok("Reloaded CIDR groups cache\n".to_owned())
        }
    }
}

/// A list with a heading, as nodetool prints it; nothing if it is empty.
fn set(heading: &str, values: impl IntoIterator<Item = impl ToString>) -> String {
    let lines: Vec<String> = values.into_iter().map(|value| value.to_string() + "\n").collect();
    if lines.is_empty() { String::new() } else { format!("[{heading}]\n{}", lines.concat()) }
}
