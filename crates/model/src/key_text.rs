//! Keys of partitions and rows as Cassandra's messages show them.

use types::CqlType;

use crate::{Clusterings, PartitionKey, Table};

impl Table {
    /// A partition's key: its values as plain text, with colons between them, and other colons escaped.
    pub fn key_text(&self, key: &PartitionKey) -> String {
        let columns = self.partition_key();
        let parts = columns.iter().zip(key.parts(columns.len()));
        let parts = parts.map(|(column, value)| match &column.ty {
            CqlType::Ascii | CqlType::Text => String::from_utf8_lossy(value).into_owned(),
            CqlType::Blob => value.iter().map(|byte| format!("{byte:02x}")).collect(),
            ty => ty.to_cql_literal(value).trim_matches('\'').to_owned(),
        });
        match columns.len() {
            1 => parts.collect(),
            _ => parts.map(|part| part.replace(':', "\\:")).collect::<Vec<_>>().join(":"),
        }
    }

    /// A row's primary key as a CQL literal: the only value, or all values in parentheses. A static row has an empty
    /// clustering.
    pub fn primary_key_literal(&self, key: &PartitionKey, clustering: &[u8]) -> String {
        let columns = self.partition_key();
        let partition = columns.iter().zip(key.parts(columns.len())).map(|(column, value)| (column, Some(value)));
        let clustering = self.clustering().iter().zip(Clusterings(clustering));
        let values = partition.chain(clustering);
        let literal =
            |value: Option<&[u8]>, ty: &CqlType| value.map_or("null".to_owned(), |value| ty.to_cql_literal(value));
        let literals: Vec<String> = values.map(|(column, value)| literal(value, &column.ty)).collect();
        match &literals[..] {
            [only] => only.clone(),
            _ => format!("({})", literals.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TableBuilder, TableId, push_component};
    use uuid::Uuid;

    #[test]
    fn keys_of_one_and_of_several_columns_are_shown_in_cassandras_way() {
        let builder = |name| TableBuilder::new("ks", name, TableId(Uuid::from_u128(1)));
        let one = builder("one").partition_key("k", CqlType::Text).build();
        let key = PartitionKey::new("it's: me".as_bytes());
        assert_eq!(one.key_text(&key), "it's: me");
        assert_eq!(one.primary_key_literal(&key, &[]), "'it''s: me'");

        let two = builder("two").partition_key("a", CqlType::Text).partition_key("b", CqlType::Blob);
        let two = two.clustering("c", CqlType::Int, false).build();
        let key = PartitionKey::new(b"\x00\x03x:y\x00\x00\x02\xca\xfe\x00");
        assert_eq!(two.key_text(&key), "x\\:y:cafe");
        let mut clustering = Vec::new();
        push_component(Some(&7_i32.to_be_bytes()), &mut clustering);
        assert_eq!(two.primary_key_literal(&key, &clustering), "('x:y', 0xcafe, 7)");
        assert_eq!(two.primary_key_literal(&key, &[]), "('x:y', 0xcafe)");
    }
}
