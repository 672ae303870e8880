//! How a table stores its columns: as CQL does, or in one of the forms with COMPACT STORAGE.

/// The form of a table, which `system_schema.tables` keeps as flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum TableForm {
    /// A table of CQL. A row exists when it was inserted or has a value.
    #[default]
    Ordinary,
    /// COMPACT STORAGE without clustering columns. The declared columns are static; a clustering column and a regular
    /// one, which statements cannot name, are for rows of clients before CQL.
    StaticCompact,
    /// COMPACT STORAGE with one clustering column, and at most one declared column outside the key. If there is none,
    /// a column of the empty type, which statements cannot name, says which rows exist.
    Dense,
    /// The same with several clustering columns. The last ones may be null.
    CompoundDense,
}

const COUNTER: &str = "counter";

impl TableForm {
    /// The form of a table with COMPACT STORAGE, by the number of its declared clustering columns.
    pub fn compact(clustering_columns: usize) -> TableForm {
        match clustering_columns {
            0 => TableForm::StaticCompact,
            1 => TableForm::Dense,
            _ => TableForm::CompoundDense,
        }
    }

    /// Whether the table has COMPACT STORAGE.
    pub fn is_compact(self) -> bool {
        self != TableForm::Ordinary
    }

    /// Whether the table has COMPACT STORAGE and clustering columns that statements may name.
    pub fn is_dense(self) -> bool {
        matches!(self, TableForm::Dense | TableForm::CompoundDense)
    }

    /// The flags of a table of this form, in the order of a set.
    pub fn flags(self, is_counter: bool) -> Vec<&'static str> {
        let [compound, dense] = match self {
            TableForm::Ordinary => [true, false],
            TableForm::StaticCompact => [false, false],
            TableForm::Dense => [false, true],
            TableForm::CompoundDense => [true, true],
        };
        let flags = [("compound", compound), (COUNTER, is_counter), ("dense", dense)];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect()
    }

    /// The form of a table with these flags. `None` if there are others (`super`, a table of super columns).
    pub fn of_flags<'f>(flags: impl IntoIterator<Item = &'f str>) -> Option<TableForm> {
        let (mut is_compound, mut is_dense) = (false, false);
        for flag in flags {
            match flag {
                "compound" => is_compound = true,
                "dense" => is_dense = true,
                COUNTER => {}
                _ => return None,
            }
        }
        Some(match (is_compound, is_dense) {
            (true, false) => TableForm::Ordinary,
            (false, false) => TableForm::StaticCompact,
            (false, true) => TableForm::Dense,
            (true, true) => TableForm::CompoundDense,
        })
    }
}

#[cfg(test)]
mod tests {
    use types::CqlType;
    use uuid::Uuid;

    use super::*;
    use crate::{TableBuilder, TableId};

    #[test]
    fn statements_name_what_a_form_does_not_hide() {
        let table = |form, value| {
            let builder = TableBuilder::new("k", "t", TableId(Uuid::nil())).form(form);
            let builder = builder.partition_key("p", CqlType::Int).clustering("c", CqlType::Text, false);
            builder.static_column("s", CqlType::Int).regular("v", value).build()
        };
        let cases = [
            (TableForm::Ordinary, CqlType::Empty, vec!["p", "c", "s", "v"]),
            (TableForm::StaticCompact, CqlType::Blob, vec!["p", "s"]),
            (TableForm::Dense, CqlType::Int, vec!["p", "c", "s", "v"]),
            (TableForm::CompoundDense, CqlType::Empty, vec!["p", "c", "s"]),
        ];
        for (form, value, named) in cases {
            let table = table(form, value);
            let names: Vec<String> = table.named_columns().iter().map(|column| column.name.to_string()).collect();
            assert_eq!(names, named, "{form:?}");
            for name in ["p", "c", "s", "v"] {
                assert_eq!(table.column(name).is_some(), named.contains(&name), "{form:?} {name}");
                assert!(table.stored_column(name).is_some(), "{form:?} {name}");
            }
            assert_eq!(table.compact_value().is_some(), form.is_compact());
            let dropped = table.to_builder().form(TableForm::Ordinary).build();
            assert_eq!(dropped.named_columns().len(), 4);
            assert_eq!(dropped == table, form == TableForm::Ordinary, "the form is part of a table");
        }
    }

    #[test]
    fn flags_of_all_forms_come_back_and_others_are_unknown() {
        for form in [TableForm::Ordinary, TableForm::StaticCompact, TableForm::Dense, TableForm::CompoundDense] {
            for is_counter in [false, true] {
                assert_eq!(TableForm::of_flags(form.flags(is_counter)), Some(form));
            }
        }
        assert_eq!(TableForm::CompoundDense.flags(true), ["compound", "counter", "dense"]);
        assert_eq!(TableForm::of_flags(["dense", "super"]), None);
    }
}
