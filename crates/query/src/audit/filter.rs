//! The choice of the requests that are entered.

use std::collections::BTreeSet;

use super::Category;

/// The names that are entered, among keyspaces, categories or users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// If it is not empty, only these names are entered.
    pub included: BTreeSet<String>,
    /// These names are not entered, even if they are included.
    pub excluded: BTreeSet<String>,
}

impl Choice {
    /// Whether an entry with this name is entered. An entry without a name is never included by name.
    fn admits(&self, name: Option<&str>) -> bool {
        !name.is_some_and(|name| self.excluded.contains(name))
            && (self.included.is_empty() || name.is_some_and(|name| self.included.contains(name)))
    }
}

/// The choice of the requests that are entered: all three parts must admit an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFilter {
    /// `included_keyspaces` and `excluded_keyspaces`.
    pub keyspaces: Choice,
    /// `included_categories` and `excluded_categories`, by [`Category::name`].
    pub categories: Choice,
    /// `included_users` and `excluded_users`.
    pub users: Choice,
}

impl Default for AuditFilter {
    /// Cassandra's default leaves out the keyspaces that drivers read all the time.
    fn default() -> AuditFilter {
        let excluded = ["system", "system_schema", "system_virtual_schema"].map(str::to_owned).into();
        AuditFilter {
            keyspaces: Choice { included: BTreeSet::new(), excluded },
            categories: Choice::default(),
            users: Choice::default(),
        }
    }
}

impl AuditFilter {
    /// Whether an entry is entered.
    pub(super) fn admits(&self, keyspace: Option<&str>, category: Category, user: Option<&str>) -> bool {
        self.keyspaces.admits(keyspace) && self.categories.admits(Some(category.name())) && self.users.admits(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_excluded_name_is_never_entered() {
        let choice = Choice { included: names(&["a", "b"]), excluded: names(&["b"]) };
        assert!(choice.admits(Some("a")));
        assert!(!choice.admits(Some("b")));
        assert!(!choice.admits(Some("c")));
        assert!(!choice.admits(None));
        let excluding = Choice { included: names(&[]), excluded: names(&["b"]) };
        assert!(excluding.admits(Some("a")) && excluding.admits(None) && !excluding.admits(Some("b")));
    }

    #[test]
    fn all_parts_must_admit_an_entry() {
        let filter = AuditFilter {
            categories: Choice { included: names(&["DDL"]), excluded: names(&[]) },
            users: Choice { included: names(&[]), excluded: names(&["robot"]) },
            ..AuditFilter::default()
        };
        assert!(filter.admits(Some("k"), Category::Ddl, Some("ada")));
        assert!(!filter.admits(Some("k"), Category::Query, Some("ada")));
        assert!(!filter.admits(Some("k"), Category::Ddl, Some("robot")));
        assert!(!filter.admits(Some("system_schema"), Category::Ddl, Some("ada")));
        assert!(filter.admits(None, Category::Ddl, None));
    }
}
