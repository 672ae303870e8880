//! Definitions of secondary indexes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use types::CqlType;
use types::identifier::Quoted;

use crate::{Column, ColumnId};

/// The option with the indexed column and the part of it.
const TARGET: &str = "target";

/// The part of a column that an index has the values of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum IndexPart {
    /// The value as a whole.
    Whole,
    /// The elements of a list or set, or the values of a map. The collection is not frozen, as in the next two.
    Values,
    /// The keys of a map.
    Keys,
    /// The entries of a map: keys with their values.
    Entries,
}

impl IndexPart {
    /// All parts, in the order of their numbers in files.
    pub const ALL: [IndexPart; 4] = [IndexPart::Whole, IndexPart::Values, IndexPart::Keys, IndexPart::Entries];

    /// The type of the part's values in a column of this type. An entry is a tuple of key and value.
    pub fn value_type(self, ty: &CqlType) -> CqlType {
        match (self, ty) {
            (IndexPart::Values, CqlType::List { element, .. } | CqlType::Set { element, .. }) => (**element).clone(),
            (IndexPart::Values, CqlType::Map { value, .. }) => (**value).clone(),
            (IndexPart::Keys, CqlType::Map { key, .. }) => (**key).clone(),
            (IndexPart::Entries, CqlType::Map { key, value, .. }) => {
                CqlType::tuple([(**key).clone(), (**value).clone()])
            }
            (_, ty) => ty.clone(),
        }
    }
}

/// What tells the contents of a table's indexes apart: indexes with the same key have the same entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct IndexKey {
    /// The column.
    pub column: ColumnId,
    /// The part of it.
    pub part: IndexPart,
}

/// A secondary index of a table, as `system_schema.indexes` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// The name, which no other index of the keyspace has.
    pub name: Arc<str>,
    /// The options: the `target`, and those that the user gave.
    pub options: BTreeMap<String, String>,
    /// The name of the indexed column.
    pub column: Arc<str>,
    /// The part of it.
    pub part: IndexPart,
}

impl Index {
    /// An index of a part of a column.
    pub fn new(name: &str, column: &Column, part: IndexPart) -> Index {
        let target = Target { column: &column.name, part, is_frozen: is_frozen_collection(&column.ty) }.to_string();
        let options = BTreeMap::from([(TARGET.to_owned(), target)]);
        Index { name: name.into(), options, column: column.name.clone(), part }
    }

    /// The index that is stored with these options; `None` if they name no target.
    pub fn from_options(name: &str, options: BTreeMap<String, String>) -> Option<Index> {
        let target = options.get(TARGET)?;
        let call = target.strip_suffix(')').and_then(|target| target.split_once('('));
        let (part, column) = match call {
            Some(("values", column)) => (IndexPart::Values, column),
            Some(("keys", column)) => (IndexPart::Keys, column),
            Some(("entries", column)) => (IndexPart::Entries, column),
            Some(("full", column)) => (IndexPart::Whole, column),
            _ => (IndexPart::Whole, target.as_str()),
        };
        let column: Arc<str> = unquoted(column).into();
        Some(Index { name: name.into(), options, column, part })
    }

    /// The indexed column and the part of it, as CREATE INDEX has them.
    pub fn target(&self) -> &str {
        self.options.get(TARGET).map_or("", String::as_str)
    }
}

fn unquoted(name: &str) -> String {
    let inner = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    inner.map_or_else(|| name.to_owned(), |inner| inner.replace("\"\"", "\""))
}

fn is_frozen_collection(ty: &CqlType) -> bool {
    ty.is_collection() && !ty.is_multi_cell()
}

struct Target<'a> {
    column: &'a str,
    part: IndexPart,
    is_frozen: bool,
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = Quoted(self.column);
        match self.part {
            IndexPart::Whole if self.is_frozen => write!(f, "full({column})"),
            IndexPart::Whole => write!(f, "{column}"),
            IndexPart::Values => write!(f, "values({column})"),
            IndexPart::Keys => write!(f, "keys({column})"),
            IndexPart::Entries => write!(f, "entries({column})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnKind, TableBuilder, TableId};

    #[test]
    fn an_index_is_the_same_after_it_was_stored() {
        let list = CqlType::list(CqlType::Int);
        let table = TableBuilder::new("ks", "t", TableId(uuid::Uuid::nil()))
            .partition_key("k", CqlType::Int)
            .add("a", CqlType::Int, ColumnKind::Regular)
            .add("a\"B", CqlType::Int, ColumnKind::Regular)
            .add("l", list.clone(), ColumnKind::Regular)
            .add("f", list.freeze(), ColumnKind::Regular)
            .add("m", CqlType::map(CqlType::Int, CqlType::Text), ColumnKind::Regular)
            .build();
        let cases = [
            ("a", IndexPart::Whole, "a"),
            ("a\"B", IndexPart::Whole, "\"a\"\"B\""),
            ("f", IndexPart::Whole, "full(f)"),
            ("l", IndexPart::Values, "values(l)"),
            ("m", IndexPart::Keys, "keys(m)"),
            ("m", IndexPart::Entries, "entries(m)"),
        ];
        for (column, part, target) in cases {
            let index = Index::new("i", table.column(column).unwrap(), part);
            assert_eq!(index.target(), target);
            assert_eq!(Index::from_options("i", index.options.clone()), Some(index));
        }
        assert_eq!(Index::from_options("i", BTreeMap::new()), None);
    }
}
