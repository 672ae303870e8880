//! Masks of columns (dynamic data masking).

use std::sync::Arc;

use types::CqlType;

/// The mask of a column: a function whose result readers without the permission UNMASK see instead of the value.
///
/// The function's first argument is the column's value. The others are constant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnMask {
    /// The name of a function of the keyspace `system`, without the keyspace.
    pub function: Arc<str>,
    /// The arguments after the first one.
    pub arguments: Vec<MaskArgument>,
}

/// A constant argument of a mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskArgument {
    /// The type.
    pub ty: CqlType,
    /// The serialized value; `None` is null.
    pub value: Option<Vec<u8>>,
}

impl ColumnMask {
    /// The same mask with the types that `replace` returns.
    pub(crate) fn map_types(&self, replace: impl Fn(&CqlType) -> CqlType) -> ColumnMask {
        let argument = |old: &MaskArgument| MaskArgument { ty: replace(&old.ty), value: old.value.clone() };
        ColumnMask { function: self.function.clone(), arguments: self.arguments.iter().map(argument).collect() }
    }
}
