//! Collecting what statements write, partition by partition.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Mutation, PartitionKey, PartitionUpdateBuilder, Table, TableId};

/// Collects the updates of one or more statements. All of them become one mutation: one record in the log.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// The one that most statements have.
    first: Option<PartitionUpdateBuilder>,
    others: Vec<PartitionUpdateBuilder>,
    /// Places in `others`; filled from the second one on.
    places: HashMap<(TableId, PartitionKey), usize>,
}

impl Updates {
    /// Where changes of this partition are to be added.
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

    /// The tables of which a partition was named, whether or not anything is written to it.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.first.iter().chain(&self.others).map(PartitionUpdateBuilder::table)
    }

    /// The mutation; `None` if there is nothing to write.
    pub fn into_mutation(self) -> Option<Mutation> {
        let first = self.first.filter(|builder| !builder.is_empty()).map(PartitionUpdateBuilder::build);
        if self.others.is_empty() {
            return first.map(Mutation::from);
        }
        let filled = self.others.into_iter().filter(|builder| !builder.is_empty());
        let updates: Vec<_> = first.into_iter().chain(filled.map(PartitionUpdateBuilder::build)).collect();
        (!updates.is_empty()).then(|| Mutation::new(updates))
    }
}
