//! The values that INs give to columns, and their combinations.

use crate::QueryError;
use crate::execution::Execution;
use crate::guardrail::IN_SELECT_CARTESIAN_PRODUCT;

/// The most combinations that INs of several columns may make. One IN may have more values: they were all sent.
const COMBINATIONS_MAX: usize = 65_536;

/// The most bytes that the combinations may have in all.
const COMBINATION_BYTES_MAX: usize = 64 << 20;

/// The permitted values of successive columns: a list for each column, or for columns restricted together.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    lists: Vec<Vec<Vec<u8>>>,
}

impl Alternatives {
    /// Adds the values of the next columns.
    pub fn push(&mut self, values: Vec<Vec<u8>>) {
        self.lists.push(values);
    }

    /// How many combinations there are.
    fn count(&self) -> usize {
        self.lists.iter().map(Vec::len).fold(1, usize::saturating_mul)
    }

    /// The bytes of all combinations.
    fn size_bytes(&self, count: usize) -> usize {
        let of_list = |list: &Vec<Vec<u8>>| {
            let bytes: usize = list.iter().map(Vec::len).sum();
            bytes.saturating_mul(count / list.len().max(1))
        };
        self.lists.iter().map(of_list).fold(0, usize::saturating_add)
    }

    /// The combinations of values, which are counted before they are made: too many of them are refused. `key` is the
    /// word for the columns in the guardrail's messages.
    pub fn combinations(&self, key: &str, execution: &Execution<'_>) -> Result<Vec<Vec<&[u8]>>, QueryError> {
        let count = self.count();
        let guardrail = execution.processor.options().guardrails.in_select_cartesian_product;
        guardrail.check(&IN_SELECT_CARTESIAN_PRODUCT, key, count, execution)?;
        execution.work(count as u64)?;
        let multiplies = self.lists.iter().filter(|list| list.len() > 1).count() > 1;
        if multiplies {
            check_combinations(count)?;
            if self.size_bytes(count) > COMBINATION_BYTES_MAX {
                let message = format!("The IN restrictions on {key} produce more than {COMBINATION_BYTES_MAX} bytes");
                return Err(QueryError::invalid(message));
            }
        }
        let mut combinations = vec![Vec::with_capacity(self.lists.len())];
        for list in &self.lists {
            let longer = |known: &Vec<_>| {
                let known: Vec<&[u8]> = known.clone();
                list.iter().map(move |value| known.iter().copied().chain([&value[..]]).collect())
            };
            combinations = combinations.iter().flat_map(longer).collect();
        }
        debug_assert_eq!(combinations.len(), count);
        Ok(combinations)
    }
}

/// Refuses absurdly many combinations of INs.
pub(crate) fn check_combinations(count: usize) -> Result<(), QueryError> {
    if count <= COMBINATIONS_MAX {
        return Ok(());
    }
    Err(QueryError::invalid(format!(
        "The cartesian product of the IN restrictions produces {count} values, more than the maximum of {COMBINATIONS_MAX}"
    )))
}
