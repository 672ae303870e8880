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
    let mut node = with_many_roles(COUNT, |number| match number.checked_sub(1) {
        None => "{}".to_owned(),
        Some(before) => format!("{{'r{before}'}}"),
    });
    assert_eq!(node.node.rows("LIST ROLES").len(), COUNT + 1);
    assert_eq!(node.node.rows("LIST USERS").len(), COUNT + 1);
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

/// A role may have thousands of others, so GRANT, REVOKE and ALTER do not write them all again.
#[test]
fn changes_of_a_role_write_only_what_changes() {
    let node = RoleNode::new();
    for name in ["r", "a", "b", "c"] {
        node.run(&format!("CREATE ROLE {name}"));
    }
    let written = || -> Vec<i64> {
        let rows = node.node.rows("SELECT WRITETIME(member_of) FROM system_auth.roles WHERE role = 'r'");
        let times = rows[0].trim_matches(['[', ']']).split(',');
        times.map(|time| time.trim().parse().unwrap_or_else(|_| panic!("{rows:?}"))).collect()
    };
    node.run("GRANT a TO r");
    node.run("GRANT b TO r");
    let first = written();
    assert!(first.len() == 2 && first[0] < first[1], "{first:?}");
    node.run("GRANT c TO r");
    node.run("ALTER ROLE r WITH LOGIN = true AND PASSWORD = 'r'");
    assert_eq!(written()[..2], first);
    node.run("REVOKE b FROM r");
    assert_eq!(written()[0], first[0]);
    assert_eq!(node.node.rows("LIST ROLES OF r NORECURSIVE").len(), 3);
    node.run("DROP ROLE a");
    let rows = node.node.rows("SELECT role, can_login, member_of FROM system_auth.roles WHERE role = 'r'");
    assert_eq!(rows, ["'r' true {'c'}"]);
    assert!(node.node.rows("SELECT * FROM system_auth.role_members WHERE role = 'a'").is_empty());
    node.node.processor.reload_roles().unwrap();
    assert_eq!(node.node.rows("LIST ROLES OF r").len(), 2);
}

/// A node with the roles `r0`, `r1` and so on. Their rows are written directly: each statement about a role is a few
/// durable writes.
fn with_many_roles(count: usize, member_of: impl Fn(usize) -> String) -> RoleNode {
    let node = RoleNode::new();
    for first in (0..count).step_by(100) {
        let row = |number: usize| {
            format!(
                "INSERT INTO system_auth.roles (role, can_login, is_superuser, member_of) \
                 VALUES ('r{number}', true, false, {});",
                member_of(number)
            )
        };
        let rows: String = (first..count.min(first + 100)).map(row).collect();
        node.run(&format!("BEGIN UNLOGGED BATCH {rows} APPLY BATCH"));
    }
    node.node.processor.reload_roles().unwrap();
    node
}

/// While the members of a role work, it is dropped, with what they had from it.
#[test]
fn a_role_with_thousands_of_members_is_dropped_while_they_work() {
    const MEMBERS: usize = 3_000;
    let mut node = with_many_roles(MEMBERS, |number| if number == 0 { "{}".to_owned() } else { "{'r0'}".to_owned() });
    node.run("GRANT SELECT ON ks.t TO r0");
    node.run(&format!("ALTER ROLE r{} WITH PASSWORD = 'r{}'", MEMBERS - 1, MEMBERS - 1));
    node.client(&format!("r{}", MEMBERS - 1));
    let member = Arc::clone(&node.node.client);
    node.client("cassandra");
    let processor = Arc::clone(&node.node.processor);
    let prepared = processor.prepare("SELECT * FROM ks.t WHERE k = 1", None).unwrap();
    let dropped = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (processor, member, prepared, dropped) = (&processor, &member, &prepared, &dropped);
        let worker = scope.spawn(move || {
            let (mut accepted, mut was_refused) = (0_u64, false);
            loop {
                let is_over = dropped.load(Ordering::SeqCst) == 1;
                let statement = Statement::Prepared { statement: prepared, client_columns: None };
                let is_accepted = executes(processor, member, statement);
                assert!(!(is_accepted && was_refused), "a permission came back");
                assert!(!(is_accepted && is_over), "a role that is dropped gives a permission");
                was_refused |= !is_accepted;
                accepted += u64::from(is_accepted);
                dropped.compare_exchange(2, 3, Ordering::SeqCst, Ordering::SeqCst).ok();
                if is_over {
                    return accepted;
                }
            }
        });
        // The worker has begun.
        dropped.store(2, Ordering::SeqCst);
        while dropped.load(Ordering::SeqCst) == 2 {
            std::thread::yield_now();
        }
        let records = || processor.engine().log_metrics().completed_tasks;
        let before = records();
        node.run("DROP ROLE r0");
        dropped.store(1, Ordering::SeqCst);
        let written = records() - before;
        assert!(written < MEMBERS as u64 / 100, "{written} records in the log");
        assert!(worker.join().unwrap() > 0);
    });
    assert_eq!(node.node.rows("LIST ROLES").len(), MEMBERS);
    node.node.processor.reload_roles().unwrap();
    assert_eq!(node.node.rows("LIST ROLES OF r7"), ["'r7' false true {} 'ALL'"]);
}

/// The permissions on a dropped keyspace go, in few writes, and those on another one stay.
#[test]
fn thousands_of_permissions_go_with_their_keyspace() {
    const ROLES: usize = 2_000;
    let node = with_many_roles(ROLES, |_| "{}".to_owned());
    node.run("CREATE KEYSPACE gone WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE gone.t (k int PRIMARY KEY)");
    for first in (0..ROLES).step_by(100) {
        let rows = |number: usize| {
            ["data/gone", "data/gone/t", "data/ks"].map(|resource| {
                format!(
                    "INSERT INTO system_auth.role_permissions (role, resource, permissions) \
                     VALUES ('r{number}', '{resource}', {{'SELECT'}}); \
                     INSERT INTO system_auth.resource_role_permissons_index (resource, role) \
                     VALUES ('{resource}', 'r{number}');"
                )
            })
        };
        let rows: String = (first..first + 100).flat_map(rows).collect();
        node.run(&format!("BEGIN UNLOGGED BATCH {rows} APPLY BATCH"));
    }
    node.node.processor.reload_roles().unwrap();
    let records = || node.node.processor.engine().log_metrics().completed_tasks;
    let before = records();
    node.run("DROP KEYSPACE gone");
    let written = records() - before;
    assert!(written < ROLES as u64 / 20, "{written} records in the log");
    assert_eq!(node.node.rows("LIST ALL OF r7"), ["'r7' 'r7' '<keyspace ks>' 'SELECT'"]);
    for (table, others) in [("role_permissions", 4), ("resource_role_permissons_index", 4)] {
        let rows = node.node.rows(&format!("SELECT role, resource FROM system_auth.{table}"));
        let of_roles = rows.iter().filter(|row| row.starts_with("'r"));
        assert!(of_roles.clone().all(|row| row.ends_with("'data/ks'")), "{table}");
        assert_eq!(of_roles.count(), ROLES, "{table}");
        assert!(rows.len() <= ROLES + others, "{table}");
    }
}

/// GRANTs that each would close a cycle together are made at once: one of them at least is refused.
#[test]
fn grants_at_the_same_time_make_no_cycle() {
    const ROLES: usize = 6;
    let node = RoleNode::new();
    for number in 0..ROLES {
        node.run(&format!("CREATE ROLE c{number}"));
    }
    for round in 0..20 {
        let step = 1 + round % (ROLES - 1);
        let granted: Vec<bool> = std::thread::scope(|scope| {
            let grants = (0..ROLES).map(|number| {
                let (processor, client) = (&node.node.processor, &node.node.client);
                let text = format!("GRANT c{number} TO c{}", (number + step) % ROLES);
                scope.spawn(move || executes(processor, client, Statement::Text(&text)))
            });
            let threads: Vec<_> = grants.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(granted.contains(&true) && granted.contains(&false), "round {round}: {granted:?}");
        // In a cycle, two roles would have each other.
        let all: Vec<_> = (0..ROLES).map(|number| node.node.rows(&format!("LIST ROLES OF c{number}"))).collect();
        let has = |of: usize, role: usize| all[of].iter().any(|row| row.starts_with(&format!("'c{role}' ")));
        for (first, second) in (0..ROLES).flat_map(|first| (0..first).map(move |second| (first, second))) {
            assert!(!(has(first, second) && has(second, first)), "round {round}: c{first}, c{second}");
        }
        for number in 0..ROLES {
            let (processor, client) = (&node.node.processor, &node.node.client);
            let text = format!("REVOKE c{number} FROM c{}", (number + step) % ROLES);
            executes(processor, client, Statement::Text(&text));
        }
    }
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
