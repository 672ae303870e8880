//! User-defined types, and the size of an expanded type.
//!
//! Types are shared: a user type that others use ten times is one value behind ten pointers. Code that walks a whole
//! type (for its class in an SSTable, or its description to a client) visits every use, so types have a size limit.

use std::sync::Arc;

use crate::CqlType;

/// How deep types may nest: `int` is 1 deep, `list<int>` is 2 deep, a field of a user type is one deeper than that.
pub const TYPE_DEPTH_MAX: u16 = 64;

/// How many types a type may consist of, including itself, and with user types expanded at each use.
pub const TYPE_PARTS_MAX: u32 = 16_384;

/// A user-defined type: a tuple whose fields have names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserType {
    pub keyspace: Arc<str>,
    pub name: Arc<str>,
    fields: Vec<Field>,
    /// Places of the fields, by name.
    by_name: Vec<u32>,
    shape: Shape,
}

/// A field's name and type.
pub type Field = (Arc<str>, CqlType);

/// Properties of a type that would otherwise need another walk through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// See [`TYPE_DEPTH_MAX`]; saturates at its maximum.
    pub depth: u16,
    /// See [`TYPE_PARTS_MAX`]; saturates at its maximum.
    pub parts: u32,
    /// Whether freezing the type would change it, or a type inside it.
    pub(crate) holds_unfrozen: bool,
}

impl UserType {
    /// A type with these fields, in declaration order.
    pub fn new(keyspace: Arc<str>, name: Arc<str>, fields: Vec<Field>) -> UserType {
        let shape = Shape::around(fields.iter().map(|(_, ty)| ty));
        let mut by_name: Vec<u32> = (0..fields.len() as u32).collect();
        by_name.sort_by(|one, other| fields[*one as usize].0.cmp(&fields[*other as usize].0));
        UserType { keyspace, name, fields, by_name, shape }
    }

    /// The same type with other fields.
    pub fn with_fields(&self, fields: Vec<Field>) -> UserType {
        UserType::new(self.keyspace.clone(), self.name.clone(), fields)
    }

    /// Names and types, in declaration order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The position of the field with this (case-sensitive) name.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|place| (*self.fields[*place as usize].0).cmp(name));
        found.ok().map(|place| self.by_name[place] as usize)
    }

    /// The type with frozen fields, for a frozen use of it.
    pub fn freeze_fields(self: &Arc<UserType>) -> Arc<UserType> {
        if !self.shape.holds_unfrozen {
            return self.clone();
        }
        Arc::new(self.with_fields(self.fields.iter().map(|(name, field)| (name.clone(), field.freeze())).collect()))
    }
}

impl Shape {
    const SCALAR: Shape = Shape { depth: 1, parts: 1, holds_unfrozen: false };

    /// The shape of a frozen type that contains these.
    fn around<'t>(inner: impl IntoIterator<Item = &'t CqlType>) -> Shape {
        inner.into_iter().map(CqlType::shape).fold(Shape::SCALAR, |whole, part| Shape {
            depth: whole.depth.max(part.depth.saturating_add(1)),
            parts: whole.parts.saturating_add(part.parts),
            holds_unfrozen: whole.holds_unfrozen || part.holds_unfrozen,
        })
    }
}

impl CqlType {
    /// The size of the type. Does not walk into user types.
    pub fn shape(&self) -> Shape {
        let mut shape = match self {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => Shape::around([&**element]),
            // The element of a vector stays as declared.
            CqlType::Vector { element, .. } => Shape { holds_unfrozen: false, ..Shape::around([&**element]) },
            CqlType::Map { key, value, .. } => Shape::around([&**key, &**value]),
            CqlType::Tuple(elements) => Shape::around(elements.iter()),
            CqlType::Udt { definition, .. } => definition.shape,
            _ => Shape::SCALAR,
        };
        shape.holds_unfrozen |= self.is_multi_cell();
        shape
    }

    /// Checks that the type is not too large to be stored and described: [`TYPE_DEPTH_MAX`], [`TYPE_PARTS_MAX`]. The
    /// error names the limit.
    pub fn check_size(&self) -> Result<(), String> {
        let Shape { depth, parts, .. } = self.shape();
        if depth > TYPE_DEPTH_MAX {
            return Err(format!("types may be nested {TYPE_DEPTH_MAX} deep, and this one is {depth} deep"));
        }
        if parts > TYPE_PARTS_MAX {
            return Err(format!(
                "a type may consist of {TYPE_PARTS_MAX} types with its user types written out, and this one of {parts}"
            ));
        }
        Ok(())
    }
}
