//! `WITH name = value AND ...`.

/// Value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// A constant or keyword: its raw text.
    Text(String),
    /// A map of constants: their raw texts, in the order written.
    Map(Vec<(String, String)>),
}

/// Properties in the order written; no name appears twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    pub entries: Vec<(String, PropertyValue)>,
}

impl Properties {
    /// The value of a property, if it was given.
    pub fn get(&self, name: &str) -> Option<&PropertyValue> {
        self.entries.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Whether there are no properties.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
