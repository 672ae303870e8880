//! Roles that change under clients that are connected, unusual names of roles, and many roles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use query::{ClientState, Processor, QueryHandler, QueryOptions, Request, Statement, Turn};
use testkit::{Random, seed};

use crate::roles::RoleNode;

/// Whether a client may carry out a prepared statement.
fn executes(processor: &Arc<Processor>, client: &Arc<ClientState>, statement: Statement<'_>) -> bool {
    let options = QueryOptions::default();
    let request = Request { statement, client, options: &options, version: protocol::Version::V5, trace: None };
    processor.begin(&request, Turn::BLOCKING, None).into_response().is_ok()
}

#[test]
fn no_execution_uses_a_permission_that_was_taken_away_before() {
    let mut node = RoleNode::new();
    node.new_client("r");
    let processor = Arc::clone(&node.node.processor);
    let client = Arc::clone(&node.node.client);
    node.client("cassandra");
    node.run("CREATE ROLE g");
    node.run("GRANT g TO r");
    let texts = ["INSERT INTO ks.t (k, v) VALUES (1, 1)", "UPDATE ks.t SET v = 2 WHERE k = 2"];
    let prepared = texts.map(|text| processor.prepare(text, None).unwrap());
    // It is odd while permissions change. Half of it is odd while they are granted.
    let generation = AtomicU64::new(0);
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (processor, client, prepared, generation, is_over) =
                (&processor, &client, &prepared[number % 2], &generation, &is_over);
            scope.spawn(move || {
                let mut compared = 0;
                while is_over.load(Ordering::SeqCst) == 0 || compared == 0 {
                    let before = generation.load(Ordering::SeqCst);
                    let statement = Statement::Prepared { statement: prepared, client_columns: None };
                    let is_accepted = executes(processor, client, statement);
                    if before % 2 == 0 && generation.load(Ordering::SeqCst) == before {
                        assert_eq!(is_accepted, before / 2 % 2 == 1, "generation {before}");
                        compared += 1;
                    }
                }
            });
        }
        let mut random = Random(seed(1));
        for number in 0..300 {
            let to = if random.one_in(2) { "r" } else { "g" };
            let on = ["ks.t", "KEYSPACE ks", "ALL KEYSPACES"][random.below(3)];
            for verb in ["GRANT", "REVOKE"] {
                generation.fetch_add(1, Ordering::SeqCst);
                let direction = if verb == "GRANT" { "TO" } else { "FROM" };
                node.run(&format!("{verb} MODIFY ON {on} {direction} {to}"));
                generation.fetch_add(1, Ordering::SeqCst);
            }
            if number % 10 == 0 {
                std::thread::yield_now();
            }
        }
        is_over.store(1, Ordering::SeqCst);
    });
}

#[test]
fn a_role_that_is_dropped_may_do_nothing_and_a_new_one_of_its_name_has_nothing() {
    let mut node = RoleNode::new();
    node.new_client("r");
    for grant in ["SELECT ON ks.t", "MODIFY ON KEYSPACE ks", "CREATE ON ALL ROLES", "AUTHORIZE ON ks.t"] {
        node.as_superuser(&format!("GRANT {grant} TO r"));
    }
    node.run("CREATE ROLE mine");
    node.run("SELECT * FROM ks.t");
    node.as_superuser("DROP ROLE r");
    let refused = |node: &RoleNode| {
        for (statement, permission) in [("SELECT * FROM ks.t", "SELECT"), ("DELETE FROM ks.t WHERE k = 1", "MODIFY")] {
            let text = format!("User r has no {permission} permission on <table ks.t> or any of its parents");
            assert_eq!(node.node.failure(statement), text);
        }
        let text = "User r does not have sufficient privileges to perform the requested operation";
        assert_eq!(node.node.failure("CREATE ROLE other"), text);
        assert_eq!(node.node.failure("DROP ROLE mine"), text);
    };
    refused(&node);
    node.as_superuser("CREATE ROLE r WITH LOGIN = true AND PASSWORD = 'r'");
    refused(&node);
    node.client("r");
    refused(&node);
}

#[test]
fn names_of_roles_have_any_letters() {
    let mut node = RoleNode::new();
    let names = ["it's", "a\"b", "é漢😀", " ", "a/b", "*", "a|b", "a\nb", "$$", "\u{202e}", "roles", "Upper"];
    let quoted = |name: &str| format!("'{}'", name.replace('\'', "''"));
    for name in names {
        let (role, other) = (quoted(name), quoted(&format!("{name} too")));
        node.run(&format!("CREATE ROLE {role} WITH LOGIN = true AND PASSWORD = {role}"));
        node.run(&format!("CREATE ROLE {other}"));
        node.run(&format!("GRANT {other} TO {role}"));
        node.run(&format!("GRANT SELECT ON ks.t TO {other}"));
        node.run(&format!("GRANT ALTER ON ROLE {other} TO {role}"));
        node.client(name);
        node.run("SELECT * FROM ks.t");
        node.run(&format!("ALTER ROLE {other} WITH LOGIN = true"));
        node.client("cassandra");
        assert_eq!(node.node.rows(&format!("LIST ROLES OF {role}")).len(), 2, "{name}");
        assert_eq!(node.node.rows(&format!("LIST ALL ON ROLE {other} OF {role}")).len(), 1, "{name}");
        node.run(&format!("DROP ROLE {other}"));
        assert!(node.node.rows(&format!("SELECT * FROM system_auth.role_permissions WHERE role = {role}")).is_empty());
        node.run(&format!("DROP ROLE {role}"));
    }
    let empty = "Key may not be empty";
    for statement in ["DROP ROLE IF EXISTS ''", "LIST ROLES OF ''", "GRANT '' TO cassandra", "LIST ALL ON ROLE ''"] {
        assert_eq!(node.node.failure(statement), empty, "{statement}");
    }
    let long = "x".repeat(70_000);
    assert!(node.node.failure(&format!("CREATE ROLE {long}")).contains("65535"));
    assert_eq!(node.node.rows("LIST ROLES").len(), 1);
}

#[test]
fn ten_thousand_roles_are_listed_and_read_again() {
    const COUNT: usize = 10_000;
    let mut node = RoleNode::new();
    // The rows of roles are written directly: each statement about a role is a few durable writes.
    for first in (0..COUNT).step_by(100) {
        let rows: String = (first..first + 100)
            .map(|number| {
                let member_of = if number == 0 { "{}".to_owned() } else { format!("{{'r{}'}}", number - 1) };
                format!(
                    "INSERT INTO system_auth.roles (role, can_login, is_superuser, member_of) \
                     VALUES ('r{number}', true, false, {member_of});"
                )
            })
            .collect();
        node.run(&format!("BEGIN UNLOGGED BATCH {rows} APPLY BATCH"));
    }
    node.node.processor.reload_roles().unwrap();
    assert_eq!(node.node.rows("LIST ROLES").len(), COUNT + 1);
    // The last one is a member of all.
    let last = format!("r{}", COUNT - 1);
    assert_eq!(node.node.rows(&format!("LIST ROLES OF {last}")).len(), COUNT);
    assert_eq!(node.node.rows(&format!("LIST ROLES OF {last} NORECURSIVE")).len(), 2);
    assert_eq!(node.node.failure(&format!("GRANT {last} TO r0")), format!("{last} is a member of r0"));
    node.run("GRANT SELECT ON ks.t TO r0");
    node.run(&format!("ALTER ROLE {last} WITH PASSWORD = '{last}'"));
    node.client(&last);
    for _ in 0..3 {
        node.run("SELECT * FROM ks.t");
    }
    node.as_superuser("DROP ROLE r5000");
    assert!(node.node.failure("SELECT * FROM ks.t").starts_with(&format!("User {last} has no SELECT permission")));
}

#[test]
fn a_dropped_role_leaves_the_permissions_on_a_role_whose_name_begins_with_its_name_and_a_slash() {
    let mut node = RoleNode::new();
    for role in ["r", "a", "\"a/b\"", "\"a/\""] {
        node.run(&format!("CREATE ROLE {role}"));
    }
    for role in ["a", "\"a/b\"", "\"a/\""] {
        node.run(&format!("GRANT ALTER ON ROLE {role} TO r"));
    }
    node.run("DROP ROLE a");
    let left = ["'r' 'r' '<role a/>' 'ALTER'", "'r' 'r' '<role a/b>' 'ALTER'"];
    assert_eq!(node.node.rows("LIST ALL OF r"), left);
    node.client("cassandra");
    let index = "SELECT resource FROM system_auth.resource_role_permissons_index WHERE role = 'r' ALLOW FILTERING";
    let mut indexed = node.node.rows(index);
    indexed.sort();
    assert_eq!(indexed, ["'roles/a/'", "'roles/a/b'"]);
}
