//! Guardrails that forbid kinds of statements. They are checked when a statement is prepared.

use cql::ast::{AlterTableAction, Attributes, Identifier, Statement};

use model::TableOptions;

use crate::QueryError;
use crate::execution::Execution;

/// Features that statements may use, under the names of their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    pub user_timestamps_enabled: bool,
    pub alter_table_enabled: bool,
    pub group_by_enabled: bool,
    pub drop_truncate_table_enabled: bool,
    pub drop_keyspace_enabled: bool,
    pub read_before_write_list_operations_enabled: bool,
    pub allow_filtering_enabled: bool,
    pub simplestrategy_enabled: bool,
    pub use_statements_enabled: bool,
    pub uncompressed_tables_enabled: bool,
    pub zero_ttl_on_twcs_enabled: bool,
    pub zero_ttl_on_twcs_warned: bool,
    pub vector_type_enabled: bool,
    pub secondary_indexes_enabled: bool,
    pub compact_tables_enabled: bool,
    pub non_partition_restricted_index_query_enabled: bool,
}

impl Default for Flags {
    /// By default everything is allowed.
    fn default() -> Self {
        Flags {
            user_timestamps_enabled: true,
            alter_table_enabled: true,
            group_by_enabled: true,
            drop_truncate_table_enabled: true,
            drop_keyspace_enabled: true,
            read_before_write_list_operations_enabled: true,
            allow_filtering_enabled: true,
            simplestrategy_enabled: true,
            use_statements_enabled: true,
            uncompressed_tables_enabled: true,
            zero_ttl_on_twcs_enabled: true,
            zero_ttl_on_twcs_warned: false,
            vector_type_enabled: true,
            secondary_indexes_enabled: true,
            compact_tables_enabled: true,
            non_partition_restricted_index_query_enabled: true,
        }
    }
}

pub(super) fn require(enabled: bool, name: &str, what: &str) -> Result<(), QueryError> {
    if enabled {
        return Ok(());
    }
    Err(QueryError::invalid(format!("Guardrail {name} violated: {what} is not allowed")))
}

impl Flags {
    /// Refuses a SELECT that uses an index and names no partition.
    pub(crate) fn check_index_scan(&self) -> Result<(), QueryError> {
        let name = "non_partition_restricted_index_query_enabled";
        require(self.non_partition_restricted_index_query_enabled, name, "Non-partition key restricted query")
    }

    /// Refuses a statement that uses a forbidden feature. Names without a keyspace belong to `keyspace`.
    pub(crate) fn check(&self, statement: &Statement, keyspace: Option<&str>) -> Result<(), QueryError> {
        if *self == Flags::default() {
            return Ok(());
        }
        match statement {
            Statement::Select(select) => {
                let keyspace = select.table.keyspace.as_ref().map(Identifier::as_str).or(keyspace);
                let is_system = keyspace.is_some_and(engine::system::is_local_system_keyspace);
                if select.allow_filtering && !is_system && !self.allow_filtering_enabled {
                    return Err(QueryError::invalid(ALLOW_FILTERING));
                }
                require(self.group_by_enabled || select.group_by.is_empty(), "group_by", "GROUP BY functionality")
            }
            Statement::Insert(insert) => self.check_timestamp(&insert.attributes),
            Statement::InsertJson(insert) => self.check_timestamp(&insert.attributes),
            Statement::Update(update) => self.check_timestamp(&update.attributes),
            Statement::Delete(delete) => self.check_timestamp(&delete.attributes),
            Statement::Batch(batch) => {
                self.check_timestamp(&batch.attributes)?;
                batch.statements.iter().try_for_each(|statement| self.check_timestamp(statement.attributes()))
            }
            Statement::Truncate(_) | Statement::DropTable(_) => require(
                self.drop_truncate_table_enabled,
                "drop_truncate_table_enabled",
                "DROP and TRUNCATE TABLE functionality",
            ),
            Statement::DropKeyspace(_) => {
                require(self.drop_keyspace_enabled, "drop_keyspace_enabled", "DROP KEYSPACE functionality")
            }
            Statement::CreateIndex(_) => {
                require(self.secondary_indexes_enabled, "secondary_indexes", "Creating secondary indexes")
            }
            Statement::CreateTable(create) => {
                let allowed = self.compact_tables_enabled || !create.compact_storage;
                require(allowed, "compact_tables", "Creation of new COMPACT STORAGE tables")
            }
            Statement::AlterTable(alter) => {
                use AlterTableAction::{Add, Drop, Rename};
                let is_mutation = matches!(alter.action, Add { .. } | Drop { .. } | Rename { .. });
                let what = "User access to ALTER TABLE statement for column mutation";
                require(self.alter_table_enabled || !is_mutation, "alter_table", what)
            }
            _ => Ok(()),
        }
    }

    /// Refuses USE if it is forbidden. This is no guardrail in Cassandra, and holds for superusers too.
    pub(crate) fn check_use(&self, statement: &Statement) -> Result<(), QueryError> {
        match statement {
            Statement::Use(_) if !self.use_statements_enabled => Err(QueryError::invalid(USE_STATEMENTS)),
            _ => Ok(()),
        }
    }

    fn check_timestamp(&self, attributes: &Attributes) -> Result<(), QueryError> {
        let allowed = self.user_timestamps_enabled || attributes.timestamp.is_none();
        require(allowed, "user_timestamps", "User provided timestamps (USING TIMESTAMP)")
    }

    /// Refuses a write that has to read a list first.
    pub(crate) fn check_list_read(&self, execution: &Execution<'_>) -> Result<(), QueryError> {
        let enabled = self.read_before_write_list_operations_enabled || !execution.is_guarded();
        require(enabled, "read_before_write_list_operations", "List operation requiring read before write")
    }

    /// Refuses options of a table that is created or altered, or warns about them.
    pub(crate) fn check_table(&self, options: &TableOptions, execution: &Execution<'_>) -> Result<(), QueryError> {
        if *self == Flags::default() || !execution.is_guarded() {
            return Ok(());
        }
        let is_uncompressed = options.compression.get("enabled").is_some_and(|enabled| enabled == "false");
        let allowed = self.uncompressed_tables_enabled || !is_uncompressed;
        require(allowed, "uncompressed_tables_enabled", "Uncompressed table")?;
        let class = options.compaction.get("class").map_or("", |class| class.rsplit('.').next().unwrap_or(class));
        if options.default_time_to_live != 0 || class != "TimeWindowCompactionStrategy" {
            return Ok(());
        }
        let text = |level: &str| format!("{ZERO_TTL} is not {level}. {ZERO_TTL_REASON}");
        if !self.zero_ttl_on_twcs_enabled {
            return Err(QueryError::invalid(text("allowed")));
        }
        if self.zero_ttl_on_twcs_warned {
            execution.warn(text("recommended"));
        }
        Ok(())
    }

    /// Refuses SimpleStrategy if it is forbidden.
    pub(crate) fn check_strategy(&self, class: &str, execution: &Execution<'_>) -> Result<(), QueryError> {
        let is_simple = class.rsplit('.').next() == Some("SimpleStrategy");
        let allowed = self.simplestrategy_enabled || !is_simple || !execution.is_guarded();
        require(allowed, "simplestrategy", "SimpleStrategy")
    }
}

const ALLOW_FILTERING: &str = "Guardrail allow_filtering violated: Querying with ALLOW FILTERING is not allowed. ALLOW FILTERING can potentially visit all the data in the table and have unpredictable performance.";

const USE_STATEMENTS: &str = "USE statements prohibited. (see use_statements_enabled in cassandra.yaml)";

const ZERO_TTL: &str = "Guardrail zero_ttl_on_twcs violated: 0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy";

const ZERO_TTL_REASON: &str = "It is suspicious to use default_time_to_live set to 0 with such compaction strategy. Please keep in mind that data will not start to automatically expire after they are older than a respective compaction window unit of a certain size. Please set TTL for your INSERT or UPDATE statements if you expect data to be expired as table settings will not do it. ";
