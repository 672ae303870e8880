//! The verbs about Cassandra's caches of roles. Here all roles and permissions are in memory, and rows that were
//! written directly are read from time to time. These verbs read them at once.

use super::{Request, Verb};
use query::{Processor, QueryError};
use std::fmt::Write;

/// Executes such a verb. Afterwards the roles that the request names, or all roles, are as the tables have them.
pub(super) fn execute(processor: &Processor, request: &Request) -> Result<String, QueryError> {
    let restricted: Vec<bool> = request.roles.iter().map(|role| processor.has_cidr_restriction(role)).collect();
    processor.reload_roles()?;
    match request.verb {
        Verb::InvalidateCredentialsCache => processor.forget_passwords(&request.roles),
        Verb::InvalidateCidrPermissionsCache => return Ok(invalidated(&request.roles, &restricted)),
        _ => {}
    }
    Ok(String::new())
}

/// The output of nodetool for the verb about groups of addresses.
fn invalidated(roles: &[String], known: &[bool]) -> String {
    if roles.is_empty() {
        return "Invalidated CIDR permissions cache\n".to_owned();
    }
    roles.iter().zip(known).fold(String::new(), |mut out, (role, is_known)| {
        // Writing to a String cannot fail.
        let _ = match is_known {
            true => writeln!(out, "Invalidated the role {role} from CIDR permissions cache"),
            false => writeln!(out, "Not found role {role} in CIDR permissions cache, nothing to invalidate"),
        };
        out
    })
}
