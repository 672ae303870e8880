//! A schema made from a file's own header: enough to read the file where no other schema is known.

use model::{Table, TableBuilder, TableId};
use types::{CqlType, MarshalClass};
use uuid::Uuid;

use crate::error::{Corruption, SSTableError};
use crate::stats::{HeaderColumn, SerializationHeader, Statistics};

/// The name of the `index`-th key column if it is not known: `key`, `key2`, ...
fn default_name(stem: &str, index: usize) -> String {
    if index == 0 { stem.to_owned() } else { format!("{stem}{}", index + 1) }
}

impl SerializationHeader {
    /// The types of the partition key's columns.
    pub fn partition_key_types(&self, file: &str) -> Result<Vec<CqlType>, SSTableError> {
        match parse(file, &self.key_class)? {
            MarshalClass::Plain(ty) | MarshalClass::Reversed(ty) => Ok(vec![ty]),
            MarshalClass::Composite(types) => Ok(types),
        }
    }

    /// The types of the clustering columns, and whether each is descending.
    pub fn clustering_types(&self, file: &str) -> Result<Vec<(CqlType, bool)>, SSTableError> {
        let ty = |class: &String| match parse(file, class)? {
            MarshalClass::Plain(ty) => Ok((ty, false)),
            MarshalClass::Reversed(ty) => Ok((ty, true)),
            MarshalClass::Composite(_) => {
                Err(SSTableError::Unsupported { file: file.to_owned(), what: "a composite clustering column".into() })
            }
        };
        self.clustering_classes.iter().map(ty).collect()
    }
}

impl Statistics {
    /// A table with the columns of the header. The header does not name key columns: `key_names` gives the names of
    /// partition key and clustering columns in order, and missing ones get Cassandra's default names.
    pub fn to_table(
        &self,
        file: &str,
        keyspace: &str,
        name: &str,
        key_names: &[String],
    ) -> Result<Table, SSTableError> {
        let header = &self.header;
        let mut key_names = key_names.iter();
        let mut builder = TableBuilder::new(keyspace, name, TableId(Uuid::nil()));
        for (index, ty) in header.partition_key_types(file)?.into_iter().enumerate() {
            let name = key_names.next().cloned().unwrap_or_else(|| default_name("key", index));
            builder = builder.partition_key(&name, ty);
        }
        for (index, (ty, reversed)) in header.clustering_types(file)?.into_iter().enumerate() {
            let name = key_names.next().cloned().unwrap_or_else(|| default_name("column", index));
            builder = builder.clustering(&name, ty, reversed);
        }
        for HeaderColumn { name, class } in &header.statics {
            builder = builder.static_column(name, value_type(file, class)?);
        }
        for HeaderColumn { name, class } in &header.regulars {
            builder = builder.regular(name, value_type(file, class)?);
        }
        let options = model::TableOptions { bloom_filter_fp_chance: self.bloom_filter_fp_chance, ..Default::default() };
        Ok(builder.options(options).build())
    }
}

fn parse(file: &str, class: &str) -> Result<MarshalClass, SSTableError> {
    MarshalClass::parse(class).map_err(|error| Corruption::new(file, 0, "a marshal class", error.to_string()).into())
}

fn value_type(file: &str, class: &str) -> Result<CqlType, SSTableError> {
    CqlType::parse_marshal_class(class)
        .map_err(|error| Corruption::new(file, 0, "a marshal class", error.to_string()).into())
}
