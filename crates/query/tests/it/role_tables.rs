//! The rows of `system_auth` decide who may do what, also where they expire, have later times, or were written
//! directly.

use std::thread;
use std::time::{Duration, Instant};

use blockio::SimulatedDisk;
use query::QueryOptions;

use crate::node::TestNode;
use crate::roles::{RoleNode, options};

const MAKE_TABLE: [&str; 2] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int PRIMARY KEY, v int)",
];

/// A node with the files of this disk. The client is the first superuser.
fn start(disk: &SimulatedDisk) -> RoleNode {
    let mut node = RoleNode { node: TestNode::in_directory(disk, "/node", options()) };
    node.node.processor.start_roles().unwrap();
    node.client("cassandra");
    node
}

#[test]
fn a_role_and_a_grant_that_expire_end_also_after_a_restart() {
    let disk = SimulatedDisk::new();
    {
        let mut node = start(&disk);
        MAKE_TABLE.iter().for_each(|statement| node.run(statement));
        node.new_client("r");
        node.client("cassandra");
        node.run(
            "UPDATE system_auth.role_permissions USING TTL 2 SET permissions = {'SELECT'} \
             WHERE role = 'r' AND resource = 'data/ks'",
        );
        node.run(
            "INSERT INTO system_auth.roles (role, is_superuser, can_login) VALUES ('guest', true, true) USING TTL 2",
        );
        node.node.processor.engine().shutdown().unwrap();
    }
    let mut node = start(&disk);
    node.client("r");
    let given_up = Instant::now() + Duration::from_secs(60);
    let may_read = |node: &RoleNode| {
        let prepared = node.node.processor.prepare("SELECT * FROM ks.t", None).unwrap();
        node.node.execute(&prepared, &QueryOptions::default()).is_ok()
    };
    while may_read(&node) {
        assert!(Instant::now() < given_up, "the grant has expired");
        thread::sleep(Duration::from_millis(100));
        node.node.processor.refresh_roles().unwrap();
    }
    node.client("cassandra");
    while node.node.rows("LIST ROLES").iter().any(|role| role.starts_with("'guest'")) {
        assert!(Instant::now() < given_up, "the role has expired");
        thread::sleep(Duration::from_millis(100));
        node.node.processor.refresh_roles().unwrap();
    }
}

#[test]
fn rows_of_later_times_hold_against_statements() {
    let mut node = RoleNode::new();
    node.run("CREATE ROLE ghost");
    let future = 4_000_000_000_000_000_u64;
    node.run(&format!(
        "UPDATE system_auth.roles USING TIMESTAMP {future} SET is_superuser = true WHERE role = 'ghost'"
    ));
    node.node.processor.refresh_roles().unwrap();
    node.run("ALTER ROLE ghost WITH SUPERUSER = false");
    assert!(node.node.rows("LIST ROLES").contains(&"'ghost' true false {} 'ALL'".to_owned()), "the row is still there");
    node.run("CREATE ROLE r WITH PASSWORD = 'r' AND LOGIN = true");
    node.run(&format!(
        "UPDATE system_auth.role_permissions USING TIMESTAMP {future} SET permissions = permissions + {{'SELECT'}} \
         WHERE role = 'r' AND resource = 'data/ks/t'"
    ));
    node.node.processor.refresh_roles().unwrap();
    node.run("REVOKE SELECT ON ks.t FROM r");
    assert_eq!(node.node.rows("LIST ALL OF r"), ["'r' 'r' '<table ks.t>' 'SELECT'"]);
    node.client("r");
    node.run("SELECT * FROM ks.t");
}

/// The node ends after a table is dropped and before its permissions are.
#[test]
fn permissions_on_what_does_not_exist_are_gone_after_a_restart() {
    let disk = SimulatedDisk::new();
    let kept = ["data", "data/ks", "data/ks/t", "data/system_views/caches", "roles/cassandra", "functions", "mbean/x"];
    let gone = ["data/ks/gone", "data/other", "data/other/*", "data/other/t", "functions/other"];
    {
        let mut node = start(&disk);
        MAKE_TABLE.iter().for_each(|statement| node.run(statement));
        node.new_client("r");
        node.client("cassandra");
        for resource in kept.iter().chain(&gone) {
            node.run(&format!(
                "UPDATE system_auth.role_permissions SET permissions = {{'SELECT', 'DROP'}} \
                 WHERE role = 'r' AND resource = '{resource}'"
            ));
        }
        node.node.processor.engine().shutdown().unwrap();
    }
    let node = start(&disk);
    let mut left = node.node.rows("SELECT resource FROM system_auth.role_permissions WHERE role = 'r'");
    left.sort_unstable();
    let mut expected = kept.map(|resource| format!("'{resource}'"));
    expected.sort_unstable();
    assert_eq!(left, expected);
    node.run("DROP ROLE r");
    assert!(node.node.rows("LIST ALL OF cassandra").iter().all(|line| !line.contains("gone")));
}

#[test]
fn a_prepared_drop_of_an_index_is_checked_each_time() {
    let mut node = RoleNode::new();
    node.new_client("r");
    let prepared = node.node.processor.prepare("DROP INDEX IF EXISTS ks.ix", None).unwrap();
    let execute = |node: &RoleNode| node.node.execute(&prepared, &QueryOptions::default());
    execute(&node).unwrap();
    node.as_superuser("CREATE INDEX ix ON ks.t (v)");
    let refused = execute(&node).unwrap_err();
    assert_eq!(refused.message, "User r has no ALTER permission on <table ks.t> or any of its parents");
    node.as_superuser("GRANT ALTER ON ks.t TO r");
    execute(&node).unwrap();
}

/// The roles share the places of decisions.
#[test]
fn decisions_for_many_roles_in_turn_are_those_of_each() {
    let mut node = RoleNode::new();
    let prepared = node.node.processor.prepare("SELECT * FROM ks.t", None).unwrap();
    for number in 0..9 {
        node.new_client(&format!("r{number}"));
        if number % 2 == 0 {
            node.as_superuser(&format!("GRANT SELECT ON ks.t TO r{number}"));
        }
    }
    for round in 0..3 {
        for number in 0..9 {
            node.client(&format!("r{number}"));
            let is_allowed = node.node.execute(&prepared, &QueryOptions::default()).is_ok();
            assert_eq!(is_allowed, number % 2 == 0, "r{number}, round {round}");
        }
    }
}

#[test]
fn a_dropped_role_takes_no_permissions_on_another_role_with_it() {
    let mut node = RoleNode::new();
    for role in ["a", "a/b"] {
        node.run(&format!("CREATE ROLE '{role}'"));
    }
    node.new_client("r");
    node.as_superuser("GRANT ALTER ON ROLE 'a/b' TO r");
    node.as_superuser("GRANT ALTER ON ROLE a TO r");
    node.as_superuser("DROP ROLE a");
    assert_eq!(node.node.rows("LIST ALL OF r"), ["'r' 'r' '<role a/b>' 'ALTER'"]);
}
