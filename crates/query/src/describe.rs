//! DESCRIBE: the elements of the schema as CQL text, in pages.

mod elements;
mod page;
mod statements;

use std::sync::Arc;

use cql::ast::{Describe, DescribeTarget};
use types::CqlType;

use crate::execution::Execution;
use crate::{ColumnSpec, MetadataForm, QueryError, ResponseBody, ResultColumns, Rows};

use page::{Page, write_cell};

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
    let mut page = Page::begin(statement, execution)?;
    elements::add(statement, &mut page, execution)?;
    Ok(page.end())
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
