//! The verbs about groups of addresses (`CassandraCIDRAuthorizer`).

use super::{Request, Verb};
use query::{Processor, QueryError};
use std::net::IpAddr;

/// Executes such a verb.
pub(super) fn execute(processor: &Processor, request: &Request) -> Result<String, QueryError> {
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
        Verb::CidrFilteringStats => Ok(stats(processor)),
        _ => {
            processor.reload_cidr_groups()?;
            Ok("Reloaded CIDR groups cache\n".to_owned())
        }
    }
}

/// The statistics of the checks of addresses, in nodetool's two tables.
fn stats(processor: &Processor) -> String {
    let counts = processor.cidr_counts();
    let counts = counts.iter().map(|(name, count)| vec![name.clone(), count.to_string()]);
    let counts: Vec<_> = std::iter::once(vec!["name".to_owned(), "value".to_owned()]).chain(counts).collect();
    let heads = ["name", "p50th", "p95th", "p99th", "p999th", "max"].map(str::to_owned).to_vec();
    let latencies = processor.cidr_latencies();
    let latencies = latencies.iter().map(|(name, times)| {
        std::iter::once((*name).to_owned()).chain(times.iter().map(|time| format!("{time:?}"))).collect()
    });
    let latencies: Vec<_> = std::iter::once(heads).chain(latencies).collect();
    let (counts, latencies) = (table(&counts), table(&latencies));
    format!("cidr_filtering_metrics_counts:\n{counts}\ncidr_filtering_metrics_latencies:\n{latencies}\n")
}

/// Rows whose columns are as wide as their widest value.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join(" ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A list with a heading, as nodetool prints it; nothing if it is empty.
fn set(heading: &str, values: impl IntoIterator<Item = impl ToString>) -> String {
    let lines: Vec<String> = values.into_iter().map(|value| value.to_string() + "\n").collect();
    if lines.is_empty() { String::new() } else { format!("[{heading}]\n{}", lines.concat()) }
}
