//! The subject of an entry: its type, and the keyspace and the object that a statement names.

use std::sync::Arc;

use cql::ast::{Identifier, QualifiedName, Statement};
use model::Table;

use crate::auth::resource_names;
use crate::modify::ModificationPlan;
use crate::prepared::{Plan, Work};

/// The category of an entry, by which entries are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    Query,
    Dml,
    Ddl,
    Dcl,
    Other,
    Auth,
    Error,
    Prepare,
}

impl Category {
    /// All categories.
    pub const ALL: [Category; 8] = [
        Category::Query,
        Category::Dml,
        Category::Ddl,
        Category::Dcl,
        Category::Other,
        Category::Auth,
        Category::Error,
        Category::Prepare,
    ];

    /// The name in entries and options.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Query => "QUERY",
            Category::Dml => "DML",
            Category::Ddl => "DDL",
            Category::Dcl => "DCL",
            Category::Other => "OTHER",
            Category::Auth => "AUTH",
            Category::Error => "ERROR",
            Category::Prepare => "PREPARE",
        }
    }
}

/// The type of an entry: its name and its category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryType {
    pub name: &'static str,
    pub category: Category,
}

impl EntryType {
    pub const PREPARE: EntryType = EntryType::new("PREPARE_STATEMENT", Category::Prepare);
    pub const LOGIN_SUCCESS: EntryType = EntryType::new("LOGIN_SUCCESS", Category::Auth);
    pub const LOGIN_ERROR: EntryType = EntryType::new("LOGIN_ERROR", Category::Auth);
    pub const UNAUTHORIZED: EntryType = EntryType::new("UNAUTHORIZED_ATTEMPT", Category::Auth);
    pub const FAILURE: EntryType = EntryType::new("REQUEST_FAILURE", Category::Error);
    const BATCH: EntryType = EntryType::new("BATCH", Category::Dml);

    const fn new(name: &'static str, category: Category) -> EntryType {
        EntryType { name, category }
    }
}

/// The subject of an entry. Without a keyspace, an entry shows that of the client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub entry_type: EntryType,
    pub keyspace: Option<Arc<str>>,
    /// The keyspaces of a batch's statements. They are not shown.
    pub of_parts: Vec<Arc<str>>,
    /// The table, or whatever else the statement is about.
    pub scope: Option<Arc<str>>,
}

impl Subject {
    /// The subject of a batch of these modifications.
    pub fn batch<'m>(parts: impl Iterator<Item = &'m ModificationPlan>) -> Subject {
        let of_parts = parts.map(|part| Arc::clone(&part.table().keyspace)).collect();
        Subject { of_parts, ..Subject::of_session(EntryType::BATCH) }
    }

    /// The subject of a prepared statement. Unqualified names belong to `keyspace`.
    pub fn of_plan(plan: &Plan, keyspace: Option<&str>) -> Subject {
        let of_table = |name, category, table: Option<&Table>| Subject {
            entry_type: EntryType::new(name, category),
            keyspace: table.map(|table| Arc::clone(&table.keyspace)),
            of_parts: Vec::new(),
            scope: table.map(|table| Arc::clone(&table.name)),
        };
        match &plan.work {
            Work::Select(_) => of_table("SELECT", Category::Query, plan.tables.first().map(|table| &**table)),
            Work::Modification(modification) | Work::Derived(modification) => {
                let name = if modification.is_deletion() { "DELETE" } else { "UPDATE" };
                of_table(name, Category::Dml, Some(modification.table()))
            }
            Work::Truncate(table) => of_table("TRUNCATE", Category::Ddl, Some(table)),
            Work::Batch(batch) => Subject::batch(batch.statements().iter()),
            Work::Use(keyspace) => {
                let entry_type = EntryType::new("USE_KEYSPACE", Category::Other);
                Subject { keyspace: Some(Arc::clone(keyspace)), ..Subject::of_session(entry_type) }
            }
            Work::Describe(_) => Subject::of_session(EntryType::new("DESCRIBE", Category::Other)),
            Work::Schema(statement) => Subject::of_schema(statement, keyspace),
        }
    }

    fn of_session(entry_type: EntryType) -> Subject {
        Subject { entry_type, keyspace: None, of_parts: Vec::new(), scope: None }
    }

    fn of_schema(statement: &Statement, session: Option<&str>) -> Subject {
        let ddl = |name, keyspace: Option<&Identifier>, scope: Option<&Identifier>| Subject {
            entry_type: EntryType::new(name, Category::Ddl),
            keyspace: keyspace.map(Identifier::as_str).or(session).map(Arc::from),
            of_parts: Vec::new(),
            scope: scope.map(|scope| scope.as_str().into()),
        };
        let named = |name, object: &QualifiedName| ddl(name, object.keyspace.as_ref(), Some(&object.name));
        let dcl = |name| Subject::of_session(EntryType::new(name, Category::Dcl));
        let on_resource = |name, resource| match resource_names(resource, session) {
            Some((parent, resource)) => {
                Subject { keyspace: Some(parent.into()), scope: Some(resource.into()), ..dcl(name) }
            }
            None => dcl(name),
        };
        match statement {
            Statement::CreateKeyspace(create) => ddl("CREATE_KEYSPACE", Some(&create.keyspace), None),
            Statement::AlterKeyspace(alter) => ddl("ALTER_KEYSPACE", Some(&alter.keyspace), None),
            Statement::DropKeyspace(drop) => ddl("DROP_KEYSPACE", Some(&drop.keyspace), None),
            Statement::CreateTable(create) => named("CREATE_TABLE", &create.table),
            Statement::AlterTable(alter) => named("ALTER_TABLE", &alter.table),
            Statement::DropTable(drop) => named("DROP_TABLE", &drop.table),
            Statement::Truncate(table) => named("TRUNCATE", table),
            Statement::CreateType(create) => ddl("CREATE_TYPE", create.name.keyspace.as_ref(), Some(&create.name.name)),
            Statement::AlterType(alter) => ddl("ALTER_TYPE", alter.name.keyspace.as_ref(), Some(&alter.name.name)),
            Statement::DropType(drop) => ddl("DROP_TYPE", drop.name.keyspace.as_ref(), Some(&drop.name.name)),
            Statement::CreateIndex(create) => ddl("CREATE_INDEX", create.table.keyspace.as_ref(), create.name.as_ref()),
            Statement::DropIndex(drop) => named("DROP_INDEX", &drop.index),
            Statement::CreateView(create) => named("CREATE_VIEW", &create.view),
            Statement::AlterView(alter) => named("ALTER_VIEW", &alter.view),
            Statement::DropView(drop) => named("DROP_VIEW", &drop.view),
            Statement::CreateFunction(create) => {
                ddl("CREATE_FUNCTION", create.name.keyspace.as_ref(), Some(&create.name.name))
            }
            Statement::DropFunction(drop) => ddl("DROP_FUNCTION", drop.name.keyspace.as_ref(), Some(&drop.name.name)),
            Statement::CreateAggregate(create) => {
                ddl("CREATE_AGGREGATE", create.name.keyspace.as_ref(), Some(&create.name.name))
            }
            Statement::DropAggregate(drop) => ddl("DROP_AGGREGATE", drop.name.keyspace.as_ref(), Some(&drop.name.name)),
            Statement::CreateTrigger(create) => {
                ddl("CREATE_TRIGGER", create.table.keyspace.as_ref(), Some(&create.name))
            }
            Statement::DropTrigger(drop) => ddl("DROP_TRIGGER", drop.table.keyspace.as_ref(), Some(&drop.name)),
            Statement::CreateRole(_) => dcl("CREATE_ROLE"),
            Statement::AlterRole(_) => dcl("ALTER_ROLE"),
            Statement::DropRole(_) => dcl("DROP_ROLE"),
            Statement::AddIdentity(_) => dcl("CREATE_IDENTITY"),
            Statement::DropIdentity(_) => dcl("DROP_IDENTITY"),
            Statement::GrantRole(_) => dcl("GRANT"),
            Statement::RevokeRole(_) => dcl("REVOKE"),
            Statement::GrantPermissions(change) => on_resource("GRANT", &change.resource),
            Statement::RevokePermissions(change) => on_resource("REVOKE", &change.resource),
            Statement::ListPermissions(_) => dcl("LIST_PERMISSIONS"),
            Statement::ListRoles(_) | Statement::ListUsers => dcl("LIST_ROLES"),
            // The other statements have work of their own.
            _ => Subject::of_session(EntryType::new("OTHER", Category::Other)),
        }
    }
}
