//! The updates of statements, collected by partition.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Mutation, PartitionKey, PartitionUpdateBuilder, Table, TableId};

/// Collects the updates of one or more statements. They become one mutation, and so one record in the log.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// The first partition's update. Most statements have no others.
    first: Option<PartitionUpdateBuilder>,
    others: Vec<PartitionUpdateBuilder>,
    /// Places in `others`. It is filled from the second partition on.
    places: HashMap<(TableId, PartitionKey), usize>,
}

impl Updates {
    /// The builder for changes of this partition.
    pub fn partition(&mut self, table: &Arc<Table>, key: &PartitionKey) -> &mut PartitionUpdateBuilder {
        let is_same = |builder: &PartitionUpdateBuilder| builder.table().id == table.id && builder.key() == key;
        let new = || PartitionUpdateBuilder::new(table.clone(), key.clone());
        if self.first.as_ref().is_none_or(is_same) {
            return self.first.get_or_insert_with(new);
        }
        let last = self.others.len().wrapping_sub(1);
        if self.others.get(last).is_some_and(is_same) {
            return &mut self.others[last];
        }
        let place = *self.places.entry((table.id, key.clone())).or_insert(self.others.len());
        if place == self.others.len() {
            self.others.push(new());
        }
        &mut self.others[place]
    }

    /// The tables of all named partitions, including those to which nothing is written.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.first.iter().chain(&self.others).map(PartitionUpdateBuilder::table)
    }

    /// The mutation; `None` if there is nothing to write.
    pub fn into_mutation(self) -> Option<Mutation> {
        if self.others.is_empty() {
            return self.first.filter(|builder| !builder.is_empty()).map(PartitionUpdateBuilder::into_mutation);
        }
        let first = self.first.filter(|builder| !builder.is_empty()).map(PartitionUpdateBuilder::build);
        let filled = self.others.into_iter().filter(|builder| !builder.is_empty());
        let updates: Vec<_> = first.into_iter().chain(filled.map(PartitionUpdateBuilder::build)).collect();
        (!updates.is_empty()).then(|| Mutation::new(updates))
    }
}
