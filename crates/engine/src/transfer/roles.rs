//! The roles and permissions of an adopted node.

use std::path::PathBuf;
use std::sync::Arc;

use model::{Mutation, PartitionKey, PartitionUpdate, Table};

use super::Transfers;
use crate::error::EngineError;
use crate::read;
use crate::system::{SystemRow, SystemWrite};

const KEYSPACE: &str = "system_auth";

/// The tables about roles that are adopted. `roles` itself comes last: a node that has roles has the others too.
const TABLES: [&str; 8] = [
    "role_members",
    "role_permissions",
    "resource_role_permissons_index",
    "network_permissions",
    "cidr_permissions",
    "cidr_groups",
    "identity_to_role",
    "roles",
];

/// The partitions of a table about roles that were written.
pub(super) struct Written {
    table: Arc<Table>,
    keys: Vec<PartitionKey>,
}

impl Transfers {
    /// Takes over the roles of another node, with their passwords and permissions, unless this node has roles of its
    /// own. The partitions that may have been written are added to `written`, also if an error is returned.
    pub(super) fn adopt_roles(&self, data: &[PathBuf], written: &mut Vec<Written>) -> Result<(), EngineError> {
        if !read::system_rows(&self.shared, KEYSPACE, "roles")?.is_empty() {
            return Ok(());
        }
        for name in TABLES {
            let rows = self.foreign_rows(data, KEYSPACE, name)?;
            let table = self.shared.find_table(KEYSPACE, name);
            let updates = self.updates_of(&table, &rows);
            if !updates.is_empty() {
                written.push(Written { table, keys: updates.iter().map(|update| update.key().clone()).collect() });
                self.writes.durably(Mutation::new(updates))?;
            }
        }
        Ok(())
    }

    /// Deletes what [`adopt_roles`](Self::adopt_roles) wrote.
    pub(super) fn remove_roles(&self, written: &[Written]) -> Result<(), EngineError> {
        for Written { table, keys } in written {
            let timestamp = self.shared.next_timestamp_micros();
            let delete = |key: &PartitionKey| {
                let mut write = SystemWrite::new(table, key.bytes(), timestamp);
                write.clear();
                write.build()
            };
            self.writes.durably(Mutation::new(keys.iter().map(delete).collect()))?;
        }
        Ok(())
    }

    /// The updates that write a table's rows, in which the rows of a partition are adjacent.
    fn updates_of(&self, table: &Arc<Table>, rows: &[SystemRow]) -> Vec<PartitionUpdate> {
        let [key] = table.partition_key() else { return Vec::new() };
        let timestamp = self.shared.next_timestamp_micros();
        let partitions = rows.chunk_by(|left, right| left.get(&key.name) == right.get(&key.name));
        let update = |partition: &[SystemRow]| {
            let key = partition.first().and_then(|row| row.get(&key.name)).unwrap_or_default();
            let mut write = SystemWrite::new(table, key, timestamp);
            for row in partition {
                let clustering = table.clustering().iter().map(|column| row.get(&column.name).unwrap_or_default());
                let regulars = table.regulars().columns.iter();
                let values = regulars.map(|column| (&*column.name, row.get(&column.name).map(<[u8]>::to_vec)));
                write.row(&clustering.collect::<Vec<_>>(), &values.collect::<Vec<_>>());
            }
            write.build()
        };
        partitions.map(update).collect()
    }
}
