//! Collecting what statements write, partition by partition.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Mutation, PartitionKey, PartitionUpdateBuilder, Table, TableId};

/// Collects the updates of one or more statements. All of them become one mutation: one record in the log.
#[derive(Debug, Default)]
pub(super) struct Updates {
    builders: Vec<PartitionUpdateBuilder>,
    /// Places in `builders`; filled from the second one on.
    places: HashMap<(TableId, PartitionKey), usize>,
}

impl Updates {
    /// Where changes of this partition are to be added.
    pub fn partition(&mut self, table: &Arc<Table>, key: &PartitionKey) -> &mut PartitionUpdateBuilder {
        let place = self.place(table, key);
        &mut self.builders[place]
    }

    fn place(&mut self, table: &Arc<Table>, key: &PartitionKey) -> usize {
        let is_same = |builder: &PartitionUpdateBuilder| builder.table().id == table.id && builder.key() == key;
        if let Some(last) = self.builders.len().checked_sub(1) {
            if is_same(&self.builders[last]) {
                return last;
            }
            let first = &self.builders[0];
            self.places.entry((first.table().id, first.key().clone())).or_insert(0);
            if let Some(place) = self.places.get(&(table.id, key.clone())) {
                return *place;
            }
            self.places.insert((table.id, key.clone()), last + 1);
        }
        self.builders.push(PartitionUpdateBuilder::new(table.clone(), key.clone()));
        self.builders.len() - 1
    }

    /// The tables of which a partition was named, whether or not anything is written to it.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.builders.iter().map(PartitionUpdateBuilder::table)
    }

    /// The mutation; `None` if there is nothing to write.
    pub fn into_mutation(self) -> Option<Mutation> {
        let filled = self.builders.into_iter().filter(|builder| !builder.is_empty());
        let updates: Vec<_> = filled.map(PartitionUpdateBuilder::build).collect();
        (!updates.is_empty()).then(|| Mutation::new(updates))
    }
}
