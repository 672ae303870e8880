//! Definitions of secondary indexes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use types::identifier::Quoted;
use types::{CqlType, Similarity};

use crate::{Analysis, Column, ColumnId, LetterCase, SasiOptions};

/// The option with the indexed column and the part of it.
pub const INDEX_TARGET: &str = "target";
/// The option with the class of an index that is not plain.
pub const INDEX_CLASS: &str = "class_name";
/// The option of an index of vectors with the function by which they are compared.
pub const INDEX_SIMILARITY: &str = "similarity_function";
/// The names of the class of storage-attached indexes, in small letters.
const STORAGE_ATTACHED: [&str; 3] =
    ["sai", "storageattachedindex", "org.apache.cassandra.index.sai.storageattachedindex"];
/// The name of the class of SASI indexes.
const SASI: &str = "org.apache.cassandra.index.sasi.SASIIndex";

/// The part of a column whose values an index contains.
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
    /// The value as a vector, which is found by its similarity to a given one.
    Vectors(Similarity),
}

impl IndexPart {
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

    /// Whether it is a part of a collection that is not frozen.
    pub fn is_of_collection(self) -> bool {
        matches!(self, IndexPart::Values | IndexPart::Keys | IndexPart::Entries)
    }

    /// The function by which vectors are compared, if the index is one of vectors.
    pub fn similarity(self) -> Option<Similarity> {
        match self {
            IndexPart::Vectors(similarity) => Some(similarity),
            _ => None,
        }
    }
}

/// Identifies the contents of an index of a table: indexes with the same key have the same entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct IndexKey {
    /// The column.
    pub column: ColumnId,
    /// The part of it.
    pub part: IndexPart,
    /// The analysis of text.
    pub analysis: Analysis,
}

/// The class of an index, which determines the queries that it answers. Indexes of all classes have the same entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexClass {
    /// `legacy_local_table`, Cassandra's default: one restriction to one value.
    Plain,
    /// `StorageAttachedIndex`: values and ranges, several restrictions together.
    StorageAttached,
    /// `SASIIndex`: values, ranges of numbers, and LIKE.
    Sasi,
}

impl IndexClass {
    /// The class that `USING` names; `None` if there is no such class.
    pub fn of_name(name: &str) -> Option<IndexClass> {
        if name == SASI {
            return Some(IndexClass::Sasi);
        }
        STORAGE_ATTACHED.contains(&name.to_ascii_lowercase().as_str()).then_some(IndexClass::StorageAttached)
    }
}

/// A secondary index of a table, as `system_schema.indexes` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// The name, which no other index of the keyspace has.
    pub name: Arc<str>,
    /// The class, which determines the queries that it answers.
    pub class: IndexClass,
    /// The options: the `target`, the `class_name` unless the index is plain, and those that the user gave.
    pub options: BTreeMap<String, String>,
    /// The name of the indexed column.
    pub column: Arc<str>,
    /// The part of it.
    pub part: IndexPart,
}

impl Index {
    /// A plain index of a part of a column.
    pub fn plain(name: &str, column: &Column, part: IndexPart) -> Index {
        let target =
            IndexTarget { column: &column.name, part, is_frozen: is_frozen_collection(&column.ty) }.to_string();
        let options = BTreeMap::from([(INDEX_TARGET.to_owned(), target)]);
        Index { name: name.into(), class: IndexClass::Plain, options, column: column.name.clone(), part }
    }

    /// A storage-attached index of a part of a column, with the name by which its class was written and further
    /// options.
    pub fn storage_attached(
        name: &str,
        column: &Column,
        part: IndexPart,
        class_name: &str,
        options: BTreeMap<String, String>,
    ) -> Index {
        let mut index = Index { class: IndexClass::StorageAttached, ..Index::plain(name, column, part) };
        index.options.extend(options);
        index.options.insert(INDEX_CLASS.to_owned(), class_name.to_owned());
        index
    }

    /// As [`storage_attached`](Self::storage_attached), a SASI index.
    pub fn sasi(
        name: &str,
        column: &Column,
        part: IndexPart,
        class_name: &str,
        options: BTreeMap<String, String>,
    ) -> Index {
        let attached = Index::storage_attached(name, column, part, class_name, options);
        Index { class: IndexClass::Sasi, ..attached }
    }

    /// The index that is stored with these options; `None` if they name no target, or a class that does not exist.
    pub fn from_options(name: &str, options: BTreeMap<String, String>) -> Option<Index> {
        let class = match options.get(INDEX_CLASS) {
            Some(class) => IndexClass::of_name(class)?,
            None => IndexClass::Plain,
        };
        let target = options.get(INDEX_TARGET)?;
        let call = target.strip_suffix(')').and_then(|target| target.split_once('('));
        let (part, column) = match call {
            Some(("values", column)) => (IndexPart::Values, column),
            Some(("keys", column)) => (IndexPart::Keys, column),
            Some(("entries", column)) => (IndexPart::Entries, column),
            Some(("full", column)) => (IndexPart::Whole, column),
            _ => (IndexPart::Whole, target.as_str()),
        };
        let column: Arc<str> = unquoted(column).into();
        Some(Index { name: name.into(), class, options, column, part })
    }

    /// The same index as an index of vectors. `None` if the similarity function that it names does not exist.
    pub fn of_vectors(mut self) -> Option<Index> {
        let named = self.options.get(INDEX_SIMILARITY).map(|name| Similarity::of_name(name));
        self.part = IndexPart::Vectors(named.unwrap_or(Some(Similarity::Cosine))?);
        Some(self)
    }

    /// The indexed column and the part of it, as CREATE INDEX has them.
    pub fn target(&self) -> &str {
        self.options.get(INDEX_TARGET).map_or("", String::as_str)
    }

    /// The name of the class as it was written; `None` if the index is plain.
    pub fn class_name(&self) -> Option<&str> {
        self.options.get(INDEX_CLASS).map(String::as_str)
    }

    /// The analysis of text that its options ask for, if the column is of this type.
    pub fn analysis(&self, column: &CqlType) -> Analysis {
        if self.class == IndexClass::Plain || !matches!(self.part.value_type(column), CqlType::Ascii | CqlType::Text) {
            return Analysis::NONE;
        }
        if self.class == IndexClass::Sasi {
            return self.sasi_options().analysis();
        }
        let is =
            |key: &str, wanted: &str| self.options.get(key).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        Analysis {
            case: if is("case_sensitive", "false") { LetterCase::Lower } else { LetterCase::AsWritten },
            normalizes: is("normalize", "true"),
            folds_to_ascii: is("ascii", "true"),
            ..Analysis::NONE
        }
    }

    /// The options of a SASI index.
    pub fn sasi_options(&self) -> SasiOptions<'_> {
        SasiOptions(&self.options)
    }

    /// The options that the user gave.
    pub fn given_options(&self) -> impl Iterator<Item = (&str, &str)> {
        let given = self.options.iter().filter(|(key, _)| *key != INDEX_TARGET && *key != INDEX_CLASS);
        given.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

fn unquoted(name: &str) -> String {
    let inner = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    inner.map_or_else(|| name.to_owned(), |inner| inner.replace("\"\"", "\""))
}

fn is_frozen_collection(ty: &CqlType) -> bool {
    ty.is_collection() && !ty.is_multi_cell()
}

struct IndexTarget<'a> {
    column: &'a str,
    part: IndexPart,
    is_frozen: bool,
}

impl fmt::Display for IndexTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = Quoted(self.column);
        match self.part {
            IndexPart::Whole if self.is_frozen => write!(f, "full({column})"),
            IndexPart::Whole | IndexPart::Vectors(_) => write!(f, "{column}"),
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
            let column = table.column(column).unwrap();
            let given = BTreeMap::from([("ascii".to_owned(), "false".to_owned())]);
            for index in
                [Index::plain("i", column, part), Index::storage_attached("i", column, part, "SAI", given.clone())]
            {
                assert_eq!(index.target(), target);
                assert_eq!(Index::from_options("i", index.options.clone()), Some(index));
            }
        }
        assert_eq!(Index::from_options("i", BTreeMap::new()), None);
        let unknown = [(INDEX_TARGET, "a"), (INDEX_CLASS, "nosuch")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(Index::from_options("i", BTreeMap::from(unknown)), None);
    }
}
