//! The mapping between the columns of a file and those of the table, by name.

use std::sync::Arc;

use model::{Column, ColumnKind, Table};
use types::{CqlType, MarshalClass};

use super::UnfilteredForm;
use crate::error::{Corruption, SSTableError};
use crate::stats::{HeaderColumn, SerializationHeader};

/// The name that errors about messages give instead of a file's name.
pub(crate) const MESSAGE: &str = "message";

/// A static or regular column of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileColumn {
    /// The index in the table's current columns; `None` if the column is gone.
    pub target: Option<usize>,
    /// Cells with timestamps up to this one (microseconds) are dropped.
    pub dropped_until: i64,
    /// The length of every value of a simple column, if fixed.
    pub fixed_length: Option<usize>,
    /// Whether cells have paths.
    pub complex: bool,
    /// In a message, the type of a complex column, by which the order of its cells is checked.
    pub ordered_by: Option<CqlType>,
}

/// The columns of a file, and the encodings of its keys.
#[derive(Clone, Debug)]
pub(crate) struct FileColumns {
    /// Whether unfiltereds are in a file or in a message.
    pub form: UnfilteredForm,
    pub statics: Vec<FileColumn>,
    pub regulars: Vec<FileColumn>,
    /// How many of the first regular columns are simple, were never dropped, and are the table's first in the same
    /// order.
    pub copied_regulars: usize,
    /// Whether these are all regular columns of file and table, with the same lengths, and no counters. Cells may be
    /// copied between such files.
    pub are_alike: bool,
    /// Fixed lengths of the clustering types.
    pub clustering: Vec<Option<usize>>,
    /// The reason why the file cannot be read under this version of the table: it has a column that the table neither
    /// has nor had. During log replay a file may be opened under a schema that is older than the file.
    pub unknown: Option<String>,
}

/// The type of a column's values in a file.
fn parse_class(file: &str, class: &str) -> Result<CqlType, SSTableError> {
    CqlType::parse_marshal_class(class)
        .map_err(|error| Corruption::new(file, 0, "a marshal class in the header", error.to_string()).into())
}

impl FileColumns {
    /// Maps the header's columns to the table's.
    pub fn new(file: &str, header: &SerializationHeader, table: &Table) -> Result<Self, SSTableError> {
        let clustering = header
            .clustering_classes
            .iter()
            .map(|class| clustering_length(file, class))
            .collect::<Result<Vec<_>, _>>()?;
        if clustering.len() != table.clustering().len() {
            let expected = format!("{} clustering columns as the table has", table.clustering().len());
            return Err(Corruption::new(file, 0, expected, clustering.len().to_string()).into());
        }
        let mut unknown = None;
        let regulars = Self::relate(file, &header.regulars, table, ColumnKind::Regular, &mut unknown)?;
        let statics = Self::relate(file, &header.statics, table, ColumnKind::Static, &mut unknown)?;
        Ok(Self::of_columns(UnfilteredForm::File, statics, regulars, clustering, unknown, table))
    }

    /// The columns of a message, of which the names are known.
    pub fn of_message(statics: &[&str], regulars: &[&str], table: &Table) -> Result<Self, SSTableError> {
        let relate = |names: &[&str], is_static: bool| -> Result<Vec<FileColumn>, SSTableError> {
            let current = table.columns(is_static);
            let mut related: Vec<FileColumn> = Vec::with_capacity(names.len());
            for name in names {
                let target = current.index_of(name);
                let Some(column) = target.and_then(|index| current.columns.get(index)) else {
                    let what = format!("column {name}, which table {} does not have", table.name);
                    return Err(SSTableError::Unsupported { file: MESSAGE.into(), what });
                };
                if related.last().is_some_and(|last| last.target >= target) {
                    return Err(Corruption::new(MESSAGE, 0, "columns in Cassandra's order", name.to_string()).into());
                }
                related.push(FileColumn {
                    target,
                    dropped_until: dropped_until(table, name),
                    fixed_length: column.ty.fixed_length(),
                    complex: column.is_complex(),
                    ordered_by: column.is_complex().then(|| column.ty.clone()),
                });
            }
            Ok(related)
        };
        let clustering = table.clustering().iter().map(|column| column.ty.fixed_length()).collect();
        let (statics, regulars) = (relate(statics, true)?, relate(regulars, false)?);
        Ok(Self::of_columns(UnfilteredForm::Message, statics, regulars, clustering, None, table))
    }

    fn of_columns(
        form: UnfilteredForm,
        statics: Vec<FileColumn>,
        regulars: Vec<FileColumn>,
        clustering: Vec<Option<usize>>,
        unknown: Option<String>,
        table: &Table,
    ) -> Self {
        let is_copied = |(index, column): &(usize, &FileColumn)| {
            column.target == Some(*index) && !column.complex && column.dropped_until == i64::MIN
        };
        let copied_regulars = regulars.iter().enumerate().take_while(is_copied).count();
        let current = &table.regulars().columns;
        let is_alike = |(column, file): (&Arc<Column>, &FileColumn)| {
            column.ty.fixed_length() == file.fixed_length && !matches!(column.ty, CqlType::Counter)
        };
        FileColumns {
            form,
            statics,
            are_alike: copied_regulars == regulars.len()
                && current.len() == regulars.len()
                && current.iter().zip(&regulars).all(is_alike),
            copied_regulars,
            regulars,
            clustering,
            unknown,
        }
    }

    pub fn of(&self, is_static: bool) -> &[FileColumn] {
        if is_static { &self.statics } else { &self.regulars }
    }

    /// The indexes in the file of regular columns, ascending, given by their indexes in the table.
    pub fn places_of(&self, targets: &[usize]) -> Vec<usize> {
        // Usually these first columns are all of them.
        let (same, others) = targets.split_at(targets.partition_point(|target| *target < self.copied_regulars));
        let place = |target: &usize| self.regulars.iter().position(|column| column.target == Some(*target));
        same.iter().copied().chain(others.iter().filter_map(place)).collect()
    }

    fn relate(
        file: &str,
        columns: &[HeaderColumn],
        table: &Table,
        column_kind: ColumnKind,
        unknown: &mut Option<String>,
    ) -> Result<Vec<FileColumn>, SSTableError> {
        let current = table.columns(column_kind == ColumnKind::Static);
        let mut related: Vec<FileColumn> = Vec::with_capacity(columns.len());
        let mut last_target = None;
        for column in columns {
            let ty = parse_class(file, &column.class)?;
            let complex = ty.is_multi_cell();
            let dropped = table.dropped().iter().find(|dropped| *dropped.name == column.name);
            let target = current.index_of(&column.name).filter(|index| current.columns[*index].is_complex() == complex);
            if target.is_none() && dropped.is_none() {
                let what =
                    format!("column {} of {column_kind:?} kind, which table {} does not have", column.name, table.name);
                unknown.get_or_insert(what);
            }
            if target.is_some() && target <= last_target {
                return Err(Corruption::new(file, 0, "columns in Cassandra's order", column.name.clone()).into());
            }
            last_target = target.or(last_target);
            let dropped_until = dropped_until(table, &column.name);
            let fixed_length = ty.fixed_length();
            related.push(FileColumn { target, dropped_until, fixed_length, complex, ordered_by: None });
        }
        Ok(related)
    }
}

/// Cells of a column up to this timestamp were dropped; `i64::MIN` if it never was.
fn dropped_until(table: &Table, name: &str) -> i64 {
    let dropped = table.dropped().iter().find(|dropped| *dropped.name == *name);
    dropped.map_or(i64::MIN, |dropped| dropped.dropped_time_micros)
}

fn clustering_length(file: &str, class: &str) -> Result<Option<usize>, SSTableError> {
    match MarshalClass::parse(class) {
        Ok(MarshalClass::Plain(ty) | MarshalClass::Reversed(ty)) => Ok(ty.fixed_length()),
        Ok(MarshalClass::Composite(_)) => Ok(None),
        Err(error) => Err(Corruption::new(file, 0, "a marshal class in the header", error.to_string()).into()),
    }
}
