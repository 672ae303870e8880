//! DESCRIBE.

mod elements;
mod statements;

use std::sync::Arc;

use cql::ast::{Describe, DescribeTarget};
use types::CqlType;

use crate::execution::Execution;
use crate::{ColumnSpec, MetadataForm, QueryError, ResponseBody, ResultColumns, Rows};

pub use statements::snapshot_schema;

/// A row of the answer.
pub(crate) struct Element {
    keyspace: String,
    kind: &'static str,
    name: String,
    /// `None` in lists of names.
    statement: Option<String>,
}

/// The columns of the answer.
pub(crate) fn result_metadata(statement: &Describe) -> Arc<ResultColumns> {
    let names: &[&str] = match statement.target {
        DescribeTarget::Cluster => &["cluster", "partitioner", "snitch"],
        DescribeTarget::Keyspaces
        | DescribeTarget::Tables
        | DescribeTarget::Types
        | DescribeTarget::Functions
        | DescribeTarget::Aggregates => &["keyspace_name", "type", "name"],
        _ => &["keyspace_name", "type", "name", "create_statement"],
    };
    metadata(names.iter().map(|name| (*name, CqlType::Text)))
}

fn metadata<'n>(columns: impl Iterator<Item = (&'n str, CqlType)>) -> Arc<ResultColumns> {
    let spec = |(name, ty): (&str, CqlType)| ColumnSpec {
        keyspace: "system".into(),
        table: "describe".into(),
        name: name.into(),
        ty,
    };
    Arc::new(ResultColumns::new(columns.map(spec).collect()))
}

/// Executes the statement.
pub(crate) fn execute(statement: &Describe, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    if matches!(statement.target, DescribeTarget::Cluster) {
        return Ok(describe_cluster(statement, execution));
    }
    let elements = elements::of(statement, execution)?;
    let with_statements = result_metadata(statement).specs().len() == 4;
    page(statement, elements, with_statements, execution)
}

/// The paging state is the number of elements before the next page.
fn page(
    statement: &Describe,
    elements: Vec<Element>,
    with_statements: bool,
    execution: &Execution<'_>,
) -> Result<ResponseBody, QueryError> {
    let start = match execution.options.paging_state {
        None => 0,
        Some(state) => {
            let offset = <[u8; 8]>::try_from(state).map(u64::from_be_bytes);
            offset.map_err(|_| QueryError::protocol("Invalid value for the paging state"))? as usize
        }
    };
    let size = execution.options.page_size.filter(|size| *size > 0).map_or(usize::MAX, |size| size as usize);
    let end = start.saturating_add(size).min(elements.len());
    let shown = elements.get(start.min(end)..end).unwrap_or_default();
    let mut cells = Vec::new();
    for element in shown {
        execution.check_room(cells.len())?;
        for text in [&element.keyspace, element.kind, &element.name] {
            write_cell(text.as_bytes(), &mut cells);
        }
        if with_statements {
            write_cell(element.statement.as_deref().unwrap_or_default().as_bytes(), &mut cells);
        }
    }
    let paging_state = if end < elements.len() { Some((end as u64).to_be_bytes().to_vec()) } else { None };
    let (metadata, form) = (result_metadata(statement), MetadataForm::default());
    Ok(ResponseBody::Rows(Rows { metadata, form, paging_state, row_count: shown.len(), cells }))
}

fn write_cell(bytes: &[u8], cells: &mut Vec<u8>) {
    types::collection::write_part(Some(bytes), cells);
}

fn describe_cluster(statement: &Describe, execution: &Execution<'_>) -> ResponseBody {
    let node = &execution.processor.options().node;
    let mut cells = Vec::new();
    for text in [node.cluster_name.as_str(), "Murmur3Partitioner", "DynamicEndpointSnitch"] {
        write_cell(text.as_bytes(), &mut cells);
    }
    let mut metadata = result_metadata(statement);
    if let Some(keyspace) = execution.client.keyspace.as_deref()
        && !engine::system::is_local_system_keyspace(keyspace)
    {
        let ty = CqlType::map(CqlType::Text, CqlType::list(CqlType::Text).freeze());
        let columns = metadata.specs().iter().map(|column| (&*column.name, column.ty.clone()));
        metadata = self::metadata(columns.chain([("range_ownership", ty)]));
        let replica = format!("/{}:{}", node.broadcast_address, node.storage_port);
        let replicas = types::collection::list([replica.as_bytes()].into_iter());
        let tokens = node.token_texts();
        let owners = tokens.iter().map(|token| (token.as_bytes(), replicas.as_slice()));
        write_cell(&types::collection::map(owners), &mut cells);
    }
    ResponseBody::Rows(Rows { metadata, form: MetadataForm::default(), paging_state: None, row_count: 1, cells })
}
