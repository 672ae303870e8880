//! The updates of statements, collected by partition.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Mutation, PartitionKey, PartitionUpdateBuilder, Table, TableId};

/// Collects the updates of one or more statements. They become one mutation, and so one record in the log.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// The first partition's update. Most statements have no others.
    first: Option<PartitionUpdateBuilder>,
    others: Option<Box<Others>>,
}

/// The updates of all partitions but the first.
#[derive(Debug, Default)]
struct Others {
    builders: Vec<PartitionUpdateBuilder>,
    /// Places in `builders`.
    places: HashMap<(TableId, PartitionKey), usize>,
}

// See `PartitionUpdateBuilder` for the limit.
const _: () = assert!(size_of::<Updates>() <= 128);

impl Updates {
    /// The builder for changes of this partition.
    pub fn partition(&mut self, table: &Arc<Table>, key: &PartitionKey) -> &mut PartitionUpdateBuilder {
        let is_same = |builder: &PartitionUpdateBuilder| builder.table().id == table.id && builder.key() == key;
        let new = || PartitionUpdateBuilder::new(table.clone(), key.clone());
        if self.first.as_ref().is_none_or(is_same) {
            return self.first.get_or_insert_with(new);
        }
        let Others { builders, places } = &mut **self.others.get_or_insert_default();
        let last = builders.len().wrapping_sub(1);
        if builders.get(last).is_some_and(is_same) {
            return &mut builders[last];
        }
        let place = *places.entry((table.id, key.clone())).or_insert(builders.len());
        if place == builders.len() {
            builders.push(new());
        }
        &mut builders[place]
    }

    /// Calls `visit` for the tables of all named partitions, including those to which nothing is written. Ends at the
    /// first error, and returns it.
    #[inline]
    pub fn try_for_each_table<'u, E>(
        &'u self,
        mut visit: impl FnMut(&'u Arc<Table>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(first) = &self.first {
            visit(first.table())?;
        }
        match &self.others {
            None => Ok(()),
            Some(others) => others.builders.iter().try_for_each(|builder| visit(builder.table())),
        }
    }

    /// The mutation; `None` if there is nothing to write.
    #[inline]
    pub fn into_mutation(self) -> Option<Mutation> {
        let first = self.first.filter(|builder| !builder.is_empty());
        match self.others {
            None => first.map(PartitionUpdateBuilder::into_mutation),
            Some(others) => {
                let builders =
                    first.into_iter().chain(others.builders.into_iter().filter(|builder| !builder.is_empty()));
                let updates: Vec<_> = builders.map(PartitionUpdateBuilder::build).collect();
                (!updates.is_empty()).then(|| Mutation::new(updates))
            }
        }
    }
}
