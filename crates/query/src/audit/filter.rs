//! The choice of the requests that are entered.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::entry::Entry;

/// The names that are entered, among keyspaces, categories or users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// If it has names that are not excluded, only those are entered.
    pub included: BTreeSet<String>,
    /// These names are not entered, even if they are included.
    pub excluded: BTreeSet<String>,
}

impl Choice {
    /// Whether every name is included.
    fn includes_all(&self) -> bool {
        self.included.is_subset(&self.excluded)
    }

    /// Whether an entry with this name is entered. An entry without a name is never included by name.
    fn admits(&self, name: Option<&str>) -> bool {
        !name.is_some_and(|name| self.excluded.contains(name))
            && (self.includes_all() || name.is_some_and(|name| self.included.contains(name)))
    }

    /// Whether an entry that shows one name and concerns others is entered. The client may have chosen the shown name,
    /// such as the keyspace of its session. So the shown name can include the entry, but not exclude it. The entry is
    /// excluded if all the names that it concerns are.
    fn admits_all(&self, shown: Option<&str>, concerned: &[Arc<str>]) -> bool {
        let is_excluded = !concerned.is_empty() && concerned.iter().all(|name| self.excluded.contains(&**name));
        let mut names = shown.into_iter().chain(concerned.iter().map(|name| &**name));
        !is_excluded && (self.includes_all() || names.any(|name| self.included.contains(name)))
    }
}

/// The choice of the requests that are entered: all three parts must admit an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFilter {
    /// `included_keyspaces` and `excluded_keyspaces`.
    pub keyspaces: Choice,
    /// `included_categories` and `excluded_categories`, by [`Category::name`](super::Category::name).
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
    pub(super) fn admits(&self, entry: &Entry) -> bool {
        self.categories.admits(Some(entry.category().name()))
            && self.users.admits(entry.user())
            && self.keyspaces.admits_all(entry.keyspace(), entry.named_keyspaces())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::audit::Category;
    use crate::audit::subject::{EntryType, Subject};

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
        // As in Cassandra, an included name has no effect if it is also excluded, so other names are still entered.
        let both = Choice { included: names(&["b"]), excluded: names(&["b"]) };
        assert!(both.admits(Some("a")) && both.admits(None) && !both.admits(Some("b")));
        assert!(both.admits_all(Some("a"), &[]) && !both.admits_all(None, &["b".into()]));
    }

    #[test]
    fn all_parts_must_admit_an_entry() {
        let filter = AuditFilter {
            categories: Choice { included: names(&["DDL"]), excluded: names(&[]) },
            users: Choice { included: names(&[]), excluded: names(&["robot"]) },
            ..AuditFilter::default()
        };
        let admits = |keyspace: Option<&str>, category, user: Option<&str>| {
            let host = SocketAddr::from(([127, 0, 0, 1], 7000));
            let (entry_type, keyspace) = (EntryType { name: "X", category }, keyspace.map(Arc::from));
            let subject = Subject { entry_type, keyspace, of_parts: Vec::new(), scope: None };
            filter.admits(&Entry::new(user.map(Arc::from), host, None, 0, "x".into()).with_subject(subject))
        };
        assert!(admits(Some("k"), Category::Ddl, Some("ada")));
        assert!(!admits(Some("k"), Category::Query, Some("ada")));
        assert!(!admits(Some("k"), Category::Ddl, Some("robot")));
        assert!(!admits(Some("system_schema"), Category::Ddl, Some("ada")));
        assert!(admits(None, Category::Ddl, None));
    }

    #[test]
    fn the_keyspace_of_a_session_includes_an_entry_and_does_not_exclude_it() {
        let concerned = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
        let excluding = Choice { included: names(&[]), excluded: names(&["b", "c"]) };
        assert!(excluding.admits_all(Some("b"), &[]));
        assert!(excluding.admits_all(Some("b"), &concerned(&["a", "b"])));
        assert!(!excluding.admits_all(Some("b"), &concerned(&["b"])));
        assert!(!excluding.admits_all(Some("a"), &concerned(&["b", "c"])));
        let including = Choice { included: names(&["a"]), excluded: names(&[]) };
        assert!(including.admits_all(Some("a"), &[]));
        assert!(including.admits_all(Some("b"), &concerned(&["b", "a"])));
        assert!(!including.admits_all(Some("b"), &concerned(&["b"])));
        assert!(!including.admits_all(None, &[]));
    }
}
