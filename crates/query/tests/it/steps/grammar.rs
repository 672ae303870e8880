//! The kinds of statements that the grammar has, and those of them that may be refused.

use cql::ast::Statement;

use super::joined;

/// A kind of statement that may be refused: what this node does not have, or what an anonymous client may not do. It is
/// refused after it is parsed and prepared.
pub(super) struct Refusable {
    pub(super) name: &'static str,
    pub(super) statement: fn(usize) -> String,
}

macro_rules! statements {
    ($($variant:ident)*) => {
        /// The kinds of statements that the grammar has.
        pub(super) const STATEMENTS: &[&str] = &[$(stringify!($variant)),*];

        /// A new kind of statement does not compile here until it is listed, and then needs a measurement.
        pub(super) fn kind_of(statement: &Statement) -> &'static str {
            match statement {
                $(Statement::$variant { .. } => stringify!($variant)),*
            }
        }
    };
}

statements! {
    Select Insert InsertJson Update Delete Batch Use Truncate Describe CreateKeyspace AlterKeyspace DropKeyspace
    CreateTable AlterTable DropTable CreateType AlterType DropType CreateIndex DropIndex CreateView AlterView DropView
    CreateFunction DropFunction CreateAggregate DropAggregate CreateTrigger DropTrigger CreateRole AlterRole DropRole
    AddIdentity DropIdentity GrantPermissions RevokePermissions GrantRole RevokeRole ListPermissions ListRoles ListUsers
}

/// A map of `size` entries, as options have it.
fn map_of(size: usize) -> String {
    format!("{{{}}}", joined(size, ", ", |i| format!("'name{i}': '1'")))
}

pub(super) const REFUSABLE: &[Refusable] = &[
    Refusable {
        name: "a keyspace of many data centers",
        statement: |size| format!("CREATE KEYSPACE far WITH replication = {}", map_of(size)),
    },
    Refusable {
        name: "a keyspace altered to many data centers",
        statement: |size| format!("ALTER KEYSPACE ks WITH replication = {}", map_of(size)),
    },
    Refusable {
        name: "an index with many options",
        statement: |size| format!("CREATE CUSTOM INDEX i ON t (v) USING 'sai' WITH OPTIONS = {}", map_of(size)),
    },
    Refusable { name: "an index dropped", statement: |size| format!("DROP INDEX ks.{}", "i".repeat(size)) },
    Refusable {
        name: "a view of many columns",
        statement: |size| {
            let names = joined(size, ", ", |i| format!("c{i}"));
            let conditions = joined(size, " AND ", |i| format!("c{i} IS NOT NULL"));
            format!("CREATE MATERIALIZED VIEW w AS SELECT {names} FROM t WHERE {conditions} PRIMARY KEY (k, {names})")
        },
    },
    Refusable {
        name: "a view altered with many options",
        statement: |size| format!("ALTER MATERIALIZED VIEW w WITH caching = {}", map_of(size)),
    },
    Refusable { name: "a view dropped", statement: |size| format!("DROP MATERIALIZED VIEW {}", "w".repeat(size)) },
    Refusable {
        name: "a function of many arguments",
        statement: |size| {
            let arguments = joined(size, ", ", |i| format!("a{i} int"));
            format!("CREATE FUNCTION f ({arguments}) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return 1;'")
        },
    },
    Refusable {
        name: "a function dropped by its arguments",
        statement: |size| format!("DROP FUNCTION f ({})", joined(size, ", ", |_| "int".into())),
    },
    Refusable {
        name: "an aggregate of many arguments",
        statement: |size| format!("CREATE AGGREGATE a ({}) SFUNC f STYPE int", joined(size, ", ", |_| "int".into())),
    },
    Refusable {
        name: "an aggregate dropped by its arguments",
        statement: |size| format!("DROP AGGREGATE a ({})", joined(size, ", ", |_| "int".into())),
    },
    Refusable { name: "a trigger", statement: |size| format!("CREATE TRIGGER x ON t USING '{}'", "c".repeat(size)) },
    Refusable { name: "a trigger dropped", statement: |size| format!("DROP TRIGGER {} ON t", "x".repeat(size)) },
    Refusable {
        name: "a role with many options",
        statement: |size| format!("CREATE ROLE r WITH OPTIONS = {}", map_of(size)),
    },
    Refusable {
        name: "a role altered with many options",
        statement: |size| format!("ALTER ROLE r WITH OPTIONS = {}", map_of(size)),
    },
    Refusable { name: "a role dropped", statement: |size| format!("DROP ROLE {}", "r".repeat(size)) },
    Refusable { name: "an identity", statement: |size| format!("ADD IDENTITY '{}' TO ROLE 'r'", "i".repeat(size)) },
    Refusable { name: "an identity dropped", statement: |size| format!("DROP IDENTITY '{}'", "i".repeat(size)) },
    Refusable {
        name: "permissions granted",
        statement: |size| format!("GRANT SELECT ON TABLE t TO {}", "r".repeat(size)),
    },
    Refusable {
        name: "permissions revoked",
        statement: |size| format!("REVOKE SELECT ON TABLE t FROM {}", "r".repeat(size)),
    },
    Refusable { name: "a role granted", statement: |size| format!("GRANT r TO {}", "r".repeat(size)) },
    Refusable { name: "a role revoked", statement: |size| format!("REVOKE r FROM {}", "r".repeat(size)) },
    Refusable {
        name: "permissions listed",
        statement: |size| format!("LIST ALL PERMISSIONS ON TABLE t OF {}", "r".repeat(size)),
    },
    Refusable { name: "roles listed", statement: |size| format!("LIST ROLES OF {}", "r".repeat(size)) },
    Refusable { name: "users listed", statement: |_| "LIST USERS".into() },
];
