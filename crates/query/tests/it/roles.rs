//! Roles and permissions: who may log in, and who may do what.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use blockio::SimulatedDisk;
use query::{
    AccessOptions, AuthOptions, Authentication, Authenticator, BatchEntry, BatchKind, BatchStatement, CidrChecks,
    ClientState, ErrorKind, Flags, Guardrail, Guardrails, KeptForms, Processor, ProcessorOptions, QueryError,
    QueryHandler, QueryOptions, Value, Values,
};

use crate::node::TestNode;

/// A node whose clients have roles.
pub struct RoleNode {
    pub node: TestNode,
}

pub const WITH_ROLES: AuthOptions = AuthOptions {
    authenticator: Authenticator::Password,
    permissions: true,
    credentials_validity: Duration::from_secs(2),
    credentials_max: 9,
    access: AccessOptions { data_centers: false, cidrs: CidrChecks::Off, cidrs_of_superusers: false },
};

pub fn options() -> ProcessorOptions {
    ProcessorOptions { auth: WITH_ROLES, ..ProcessorOptions::default() }
}

fn sasl(name: &str, password: &str) -> Vec<u8> {
    format!("\0{name}\0{password}").into_bytes()
}

fn log_in(processor: &Processor, name: &str, password: &str) -> Result<ClientState, QueryError> {
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 4242)));
    let login = processor.log_in(&sasl(name, password), address, None)?;
    Ok(ClientState { user: Some(login.user), user_id: login.user_id, address, ..ClientState::default() })
}

impl RoleNode {
    /// A node with the keyspace `ks` and the table `t`. The client is the first superuser.
    pub fn new() -> RoleNode {
        RoleNode::with_guardrails(Guardrails::default())
    }

    fn with_guardrails(guardrails: Guardrails) -> RoleNode {
        let mut node = RoleNode { node: TestNode::with_options(ProcessorOptions { guardrails, ..options() }) };
        assert!(node.node.processor.start_roles().unwrap(), "the first password is still there");
        node.client("cassandra");
        node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
        node
    }

    /// The client is now the one with this name, which is also its password.
    pub fn client(&mut self, name: &str) {
        self.node.client = Arc::new(log_in(&self.node.processor, name, name).unwrap());
    }

    pub fn run(&self, statement: &str) {
        self.node.run(statement);
    }

    /// A role with its name as its password, and the client is this role.
    pub fn new_client(&mut self, name: &str) {
        self.client("cassandra");
        self.run(&format!("CREATE ROLE {name} WITH PASSWORD = '{name}' AND LOGIN = true"));
        self.client(name);
    }

    /// Executes a statement as the superuser; the client stays.
    pub fn as_superuser(&mut self, statement: &str) {
        let client = self.node.client.clone();
        self.client("cassandra");
        self.run(statement);
        self.node.client = client;
    }
}

#[test]
fn a_new_node_has_one_superuser_that_is_in_the_tables() {
    let node = RoleNode::new();
    let rows = node.node.rows("SELECT role, is_superuser, can_login, salted_hash FROM system_auth.roles");
    assert_eq!(rows.len(), 1);
    assert!(rows[0].starts_with("'cassandra' true true '$2a$10$"), "{rows:?}");
    assert_eq!(node.node.rows("LIST ROLES"), ["'cassandra' true true {} 'ALL'"]);
    assert_eq!(node.node.rows("LIST USERS"), ["'cassandra' true 'ALL'"]);
    let shown = "1 (1 superusers, 1 may log in; PasswordAuthenticator, CassandraAuthorizer)";
    assert_eq!(node.node.processor.shown_roles().as_deref(), Some(shown));
    assert_eq!(TestNode::new().processor.shown_roles(), None);
}

#[test]
fn a_wrong_name_and_a_wrong_password_get_the_same_error() {
    let node = RoleNode::new();
    node.run("CREATE ROLE r WITH PASSWORD = 'r'");
    let refused = |name: &str, password: &str| {
        let error = log_in(&node.node.processor, name, password).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadCredentials);
        error.message
    };
    assert_eq!(refused("cassandra", "x"), "Provided username cassandra and/or password are incorrect");
    assert_eq!(refused("nobody", "x"), "Provided username nobody and/or password are incorrect");
    assert_eq!(refused("r", "r"), "r is not permitted to log in");
    node.run("ALTER ROLE r WITH LOGIN = true");
    log_in(&node.node.processor, "r", "r").unwrap();
    // The old password was right a moment ago.
    node.run("ALTER ROLE r WITH PASSWORD = 'new'");
    assert_eq!(refused("r", "r"), "Provided username r and/or password are incorrect");
    log_in(&node.node.processor, "r", "new").unwrap();
}

#[test]
fn a_role_that_failed_to_log_in_several_times_is_refused_for_a_while() {
    let node = RoleNode::new();
    for _ in 0..10 {
        log_in(&node.node.processor, "cassandra", "x").unwrap_err();
    }
    log_in(&node.node.processor, "cassandra", "cassandra").unwrap_err();
    let elsewhere = Some(SocketAddr::from(([127, 0, 0, 2], 4242)));
    node.node.processor.log_in(&sasl("cassandra", "cassandra"), elsewhere, None).unwrap();
}

#[test]
fn roles_and_permissions_survive_a_restart() {
    let disk = SimulatedDisk::new();
    {
        let mut node = RoleNode { node: TestNode::in_directory(&disk, "/node", options()) };
        node.node.processor.start_roles().unwrap();
        node.client("cassandra");
        node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
        node.run("CREATE ROLE g");
        node.run("CREATE ROLE r WITH PASSWORD = 'r' AND LOGIN = true");
        node.run("GRANT g TO r");
        node.run("GRANT SELECT ON ks.t TO g");
        node.run("ALTER ROLE cassandra WITH PASSWORD = 'other'");
        node.node.processor.engine().shutdown().unwrap();
    }
    let mut node = RoleNode { node: TestNode::in_directory(&disk, "/node", options()) };
    assert!(!node.node.processor.start_roles().unwrap(), "the first password is not there any more");
    node.client("r");
    assert!(node.node.rows("SELECT * FROM ks.t").is_empty());
    let refused = node.node.failure("INSERT INTO ks.t (k) VALUES (1)");
    assert_eq!(refused, "User r has no MODIFY permission on <table ks.t> or any of its parents");
}

#[test]
fn a_prepared_statement_follows_grant_and_revoke_at_once() {
    let mut node = RoleNode::new();
    node.new_client("r");
    let prepared = node.node.processor.prepare("INSERT INTO ks.t (k, v) VALUES (1, 1)", None).unwrap();
    let executes = |node: &RoleNode| node.node.execute(&prepared, &QueryOptions::default()).is_ok();
    assert!(!executes(&node));
    for _ in 0..3 {
        node.as_superuser("GRANT MODIFY ON KEYSPACE ks TO r");
        assert!(executes(&node) && executes(&node));
        node.as_superuser("REVOKE MODIFY ON KEYSPACE ks FROM r");
        assert!(!executes(&node) && !executes(&node));
    }
    node.as_superuser("CREATE ROLE g WITH SUPERUSER = true");
    node.as_superuser("GRANT g TO r");
    assert!(executes(&node));
    node.as_superuser("REVOKE g FROM r");
    assert!(!executes(&node));
    node.as_superuser("GRANT MODIFY ON ks.t TO r");
    assert!(executes(&node));
    node.as_superuser("DROP ROLE r");
    assert!(!executes(&node));
}

#[test]
fn a_decision_for_one_role_does_not_hold_for_another() {
    let mut node = RoleNode::new();
    let prepared = node.node.processor.prepare("SELECT * FROM ks.t", None).unwrap();
    let executes = |node: &RoleNode| node.node.execute(&prepared, &QueryOptions::default()).is_ok();
    assert!(executes(&node));
    node.new_client("r");
    assert!(!executes(&node));
    node.client("cassandra");
    assert!(executes(&node));
}

#[test]
fn a_batch_needs_permissions_on_the_tables_of_all_its_statements() {
    let mut node = RoleNode::new();
    node.run("CREATE TABLE ks.u (k int PRIMARY KEY, v int)");
    node.new_client("r");
    node.as_superuser("GRANT MODIFY ON ks.t TO r");
    let texts = ["INSERT INTO ks.t (k) VALUES (1)", "INSERT INTO ks.u (k) VALUES (1)"];
    let refused = "User r has no MODIFY permission on <table ks.u> or any of its parents";
    let batch = format!("BEGIN BATCH {}; {}; APPLY BATCH", texts[0], texts[1]);
    assert_eq!(node.node.failure(&batch), refused);
    let no_values: [Value<'_>; 0] = [];
    let entry = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::Positional(&no_values) };
    let entries = texts.map(entry);
    let sent = |node: &RoleNode| node.node.batch(BatchKind::Logged, &entries, &QueryOptions::default());
    assert_eq!(sent(&node).unwrap_err().message, refused);
    node.as_superuser("GRANT MODIFY ON ALL TABLES IN KEYSPACE ks TO r");
    node.run(&batch);
    sent(&node).unwrap();
}

#[test]
fn truncate_does_not_tell_a_role_without_permission_whether_the_table_exists() {
    let mut node = RoleNode::new();
    let prepared = node.node.processor.prepare("TRUNCATE ks.later", None).unwrap();
    let execute = |node: &RoleNode| node.node.execute(&prepared, &QueryOptions::default());
    node.new_client("r");
    let refused = |table: &str| format!("User r has no MODIFY permission on <table {table}> or any of its parents");
    for table in ["ks.t", "ks.later", "nothing.t"] {
        assert_eq!(node.node.failure(&format!("TRUNCATE {table}")), refused(table));
    }
    assert_eq!(execute(&node).unwrap_err().message, refused("ks.later"));
    node.as_superuser("GRANT MODIFY ON ALL KEYSPACES TO r");
    assert_eq!(node.node.failure("TRUNCATE ks.later"), "table later does not exist");
    assert_eq!(node.node.failure("TRUNCATE nothing.t"), "keyspace nothing does not exist");
    assert_eq!(execute(&node).unwrap_err().message, "table later does not exist");
    // The statement that was prepared before finds the table that was made since.
    node.as_superuser("CREATE TABLE ks.later (k int PRIMARY KEY)");
    node.run("INSERT INTO ks.later (k) VALUES (1)");
    execute(&node).unwrap();
    node.as_superuser("GRANT SELECT ON ks.later TO r");
    assert!(node.node.rows("SELECT * FROM ks.later").is_empty());
}

#[test]
fn a_statement_about_what_does_not_exist_is_not_prepared() {
    let mut node = RoleNode::new();
    node.run("CREATE ROLE known");
    node.new_client("r");
    let prepare =
        |text: &str| QueryHandler::prepare(&*node.node.processor, &node.node.client, text, None, KeptForms::NOTHING);
    for (text, message) in [
        ("TRUNCATE ks.nothing", "table nothing does not exist"),
        ("TRUNCATE nothing.t", "keyspace nothing does not exist"),
        ("CREATE ROLE known", "known already exists"),
        ("CREATE ROLE ''", "Role name can't be an empty string"),
        ("ALTER ROLE nobody WITH LOGIN = true", "Role nobody doesn't exist"),
        ("ALTER ROLE known", "ALTER [ROLE|USER] can't be empty"),
        ("DROP ROLE nobody", "nobody doesn't exist"),
        ("DROP ROLE r", "Cannot DROP primary role for current login"),
        ("GRANT nobody TO known", "nobody doesn't exist"),
        ("REVOKE known FROM nobody", "nobody doesn't exist"),
        ("GRANT SELECT ON ks.t TO nobody", "Role nobody doesn't exist"),
        (
            "GRANT MODIFY ON KEYSPACE system_auth TO known",
            "Granting permissions on system keyspaces is strictly limited, this operation is not permitted",
        ),
        ("REVOKE SELECT ON ks.nothing FROM known", "Resource <table ks.nothing> doesn't exist"),
        ("LIST ROLES OF nobody", "<role nobody> doesn't exist"),
        ("LIST ALL OF nobody", "<role nobody> doesn't exist"),
        ("LIST ALL ON ks.nothing", "<table ks.nothing> doesn't exist"),
        ("ADD IDENTITY 'spiffe://a' TO ROLE 'nobody'", "Can not add identity for non-existent role 'nobody'"),
        ("DROP IDENTITY 'spiffe://a'", "identity 'spiffe://a' doesn't exist"),
    ] {
        assert_eq!(prepare(text).expect_err(text).message, message, "{text}");
    }
    // Permissions and the schema are checked when they are executed.
    for text in [
        "TRUNCATE ks.t",
        "CREATE ROLE IF NOT EXISTS known",
        "ALTER ROLE IF EXISTS nobody WITH LOGIN = true",
        "DROP ROLE known",
        "GRANT known TO r",
        "GRANT SELECT ON ks.t TO r",
        "LIST ROLES OF known",
        "DROP IDENTITY IF EXISTS 'spiffe://a'",
        "DROP TABLE ks.nothing",
        "CREATE TABLE ks.t (k int PRIMARY KEY)",
        "USE nothing",
    ] {
        prepare(text).expect(text);
    }
}

#[test]
fn a_creator_gets_all_permissions_and_a_drop_takes_them_away() {
    let mut node = RoleNode::new();
    node.new_client("r");
    assert_eq!(
        node.node.failure("CREATE TABLE ks.mine (k int PRIMARY KEY)"),
        "User r has no CREATE permission on <all tables in ks> or any of its parents"
    );
    node.as_superuser("GRANT CREATE ON KEYSPACE ks TO r");
    node.run("CREATE TABLE ks.mine (k int PRIMARY KEY)");
    node.run("INSERT INTO ks.mine (k) VALUES (1)");
    let names = ["ALTER", "DROP", "SELECT", "MODIFY", "AUTHORIZE", "UNMASK", "SELECT_MASKED"];
    let expected: Vec<String> = names.iter().map(|name| format!("'r' 'r' '<table ks.mine>' '{name}'")).collect();
    assert_eq!(node.node.rows("LIST ALL ON ks.mine OF r NORECURSIVE"), expected);
    node.run("DROP TABLE ks.mine");
    assert_eq!(node.node.rows("LIST ALL OF r"), ["'r' 'r' '<keyspace ks>' 'CREATE'"]);
    node.as_superuser("DROP KEYSPACE ks");
    node.client("cassandra");
    assert_eq!(node.node.rows("LIST ALL OF cassandra").len(), 4, "those on the role r");
    node.run("DROP ROLE r");
    assert!(node.node.rows("SELECT * FROM system_auth.role_permissions").is_empty());
    assert!(node.node.rows("SELECT * FROM system_auth.resource_role_permissons_index").is_empty());
}

#[test]
fn cycles_of_roles_are_refused() {
    let node = RoleNode::new();
    for role in ["a", "b", "c"] {
        node.run(&format!("CREATE ROLE {role}"));
    }
    node.run("GRANT a TO b");
    node.run("GRANT b TO c");
    assert_eq!(node.node.failure("GRANT c TO a"), "c is a member of a");
    assert_eq!(node.node.failure("GRANT a TO c"), "c is a member of a");
    assert_eq!(node.node.failure("GRANT a TO a"), "a is a member of a");
    assert_eq!(node.node.failure("REVOKE a FROM c"), "c is not a member of a");
    node.run("DROP ROLE b");
    assert!(node.node.rows("SELECT * FROM system_auth.role_members").is_empty());
    node.run("GRANT c TO a");
}

#[test]
fn every_role_reads_what_drivers_need_and_no_more_of_the_node() {
    let mut node = RoleNode::new();
    node.new_client("r");
    node.as_superuser("GRANT ALL ON ALL KEYSPACES TO r");
    node.run("SELECT key FROM system.local");
    node.run("SELECT * FROM system_schema.tables");
    node.run("SELECT * FROM system.size_estimates");
    node.run("SELECT * FROM system.table_estimates");
    let refused = |statement: &str| node.node.failure(statement);
    let no_read = "User r has no SELECT permission on <table system_auth.roles> or any of its parents";
    assert_eq!(refused("SELECT * FROM system_auth.roles"), no_read);
    let no_write = "User r has no MODIFY permission on <table system_auth.roles> or any of its parents";
    assert_eq!(refused("INSERT INTO system_auth.roles (role) VALUES ('x')"), no_write);
    assert_eq!(refused("DROP TABLE system_auth.roles"), "Cannot DROP <table system_auth.roles>");
    assert_eq!(
        refused("CREATE ROLE x"),
        "User r does not have sufficient privileges to perform the requested operation"
    );
}

#[test]
fn rows_that_were_written_directly_hold_after_the_next_look() {
    let mut node = RoleNode::new();
    node.new_client("r");
    node.as_superuser(
        "UPDATE system_auth.role_permissions SET permissions = {'SELECT'} WHERE role = 'r' AND resource = 'data'",
    );
    assert_eq!(node.node.failure("SELECT * FROM ks.t").split(' ').nth(4), Some("SELECT"));
    node.node.processor.refresh_roles().unwrap();
    node.run("SELECT * FROM ks.t");
}

#[test]
fn a_client_that_did_not_log_in_may_do_nothing_with_roles() {
    let node = TestNode::new();
    node.processor.start_roles().unwrap();
    let anonymous = "You have to be logged in and not anonymous to perform this request";
    for statement in ["CREATE ROLE r", "DROP ROLE r", "LIST ROLES", "LIST USERS", "LIST ALL", "GRANT a TO b"] {
        assert_eq!(node.failure(statement), anonymous, "{statement}");
    }
    let unsupported = "org.apache.cassandra.auth.CassandraRoleManager doesn't support PASSWORD";
    assert_eq!(node.failure("CREATE ROLE r WITH PASSWORD = 'x'"), unsupported);
}

/// A node whose roles have places.
fn node_with_places(cidrs: CidrChecks) -> RoleNode {
    let access = AccessOptions { data_centers: true, cidrs, cidrs_of_superusers: false };
    let auth = AuthOptions { access, ..WITH_ROLES };
    let mut node = RoleNode { node: TestNode::with_options(ProcessorOptions { auth, ..ProcessorOptions::default() }) };
    node.node.processor.start_roles().unwrap();
    node.client("cassandra");
    for group in ["('home', {('127.0.0.0', 8)})", "('ten', {('10.0.0.0', 8), ('11.0.0.0', 8)})"] {
        node.run(&format!("INSERT INTO system_auth.cidr_groups (cidr_group, cidrs) VALUES {group}"));
    }
    node.node.processor.refresh_roles().unwrap();
    node
}

const READ: &str = "SELECT key FROM system.local";

#[test]
fn a_role_connects_to_its_data_centers_only() {
    let mut node = node_with_places(CidrChecks::Off);
    let create = |role: &str, rest: &str| format!("CREATE ROLE {role} WITH PASSWORD = '{role}' AND LOGIN = true{rest}");
    node.run(&create("here", " AND ACCESS TO DATACENTERS {'datacenter1'}"));
    node.run(&create("anywhere", " AND ACCESS TO ALL DATACENTERS"));
    node.run("CREATE ROLE group_of_roles");
    assert_eq!(
        node.node.failure("CREATE ROLE r WITH ACCESS TO DATACENTERS {'dc2'}"),
        "Invalid value(s) for DATACENTERS '[dc2]',All values must be valid datacenters"
    );
    assert_eq!(
        node.node.rows("LIST ROLES"),
        [
            "'anywhere' false true {} 'ALL'",
            "'cassandra' true true {} 'ALL'",
            "'group_of_roles' false false {} 'n/a'",
            "'here' false true {} 'datacenter1'",
        ]
    );
    // Superusers may connect to all, whatever their list says.
    node.run("ALTER ROLE here WITH SUPERUSER = true");
    assert_eq!(node.node.rows("LIST ROLES OF here"), ["'here' true true {} 'ALL'"]);
    assert!(node.node.rows("LIST USERS").contains(&"'here' true 'ALL'".to_owned()));
    node.run("ALTER ROLE here WITH SUPERUSER = false");
    let stored = || {
        let mut rows = node.node.rows("SELECT role, dcs FROM system_auth.network_permissions");
        rows.sort();
        rows
    };
    let expected = ["'roles/anywhere' {}", "'roles/group_of_roles' {}", "'roles/here' {'datacenter1'}"];
    assert_eq!(stored(), expected);
    // Another node of the cluster may know another data center.
    node.run("INSERT INTO system_auth.network_permissions (role, dcs) VALUES ('roles/anywhere', {'dc2'})");
    node.node.processor.refresh_roles().unwrap();
    node.client("here");
    node.run(READ);
    node.client("anywhere");
    assert_eq!(node.node.failure(READ), "You do not have access to this datacenter (datacenter1)");
    node.as_superuser("ALTER ROLE anywhere WITH ACCESS TO ALL DATACENTERS");
    node.run(READ);
    node.as_superuser("DROP ROLE here");
    node.client("cassandra");
    assert_eq!(node.node.rows("SELECT role FROM system_auth.network_permissions").len(), 2);
}

#[test]
fn a_role_connects_from_its_groups_of_addresses_only() {
    let mut node = node_with_places(CidrChecks::Enforce);
    let create = |role: &str, groups: &str| {
        format!("CREATE ROLE {role} WITH PASSWORD = '{role}' AND LOGIN = true AND ACCESS FROM CIDRS {groups}")
    };
    node.run(&create("near", "{'home', 'ten'}"));
    node.run(&create("far", "{'ten'}"));
    assert_eq!(
        node.node.failure(&create("lost", "{'nope'}")),
        "Invalid CIDR group(s): [nope]. Available CIDR Groups are: [home, ten]"
    );
    // Several lists are one set.
    node.run(&create("both", "{'ten'} AND ACCESS FROM CIDRS {'home', 'ten'}"));
    let of_both = "SELECT cidr_groups FROM system_auth.cidr_permissions WHERE role = 'both'";
    assert_eq!(node.node.rows(of_both), ["{'home', 'ten'}"]);
    node.client("near");
    node.run(READ);
    // A plan that one client was allowed to execute is not allowed to others.
    let prepared = node.node.processor.prepare(READ, None).unwrap();
    node.node.execute(&prepared, &QueryOptions::default()).unwrap();
    node.client("far");
    let refused = "You do not have access from this IP 127.0.0.1";
    assert_eq!(node.node.failure(READ), refused);
    assert_eq!(node.node.execute(&prepared, &QueryOptions::default()).unwrap_err().message, refused);
    let elsewhere =
        ClientState { address: Some(SocketAddr::from(([11, 0, 0, 1], 4242))), ..(*node.node.client).clone() };
    node.node.client = Arc::new(elsewhere);
    node.run(READ);
    node.client("far");
    node.as_superuser("ALTER ROLE far WITH ACCESS FROM ALL CIDRS");
    node.run(READ);
    // Superusers are exempt.
    node.as_superuser("ALTER ROLE cassandra WITH ACCESS FROM CIDRS {'ten'}");
    node.client("cassandra");
    node.run(READ);
}

/// Recorded from Cassandra's classes: the lists of a role that is dropped go, and must not leave it free.
#[test]
fn a_connected_role_that_may_not_log_in_any_more_may_connect_to_no_place() {
    let refused_here = "You do not have access to this datacenter (datacenter1)";
    let refused_from = "You do not have access from this IP 127.0.0.1";
    for (data_centers, cidrs, refused) in
        [(true, CidrChecks::Off, refused_here), (false, CidrChecks::Enforce, refused_from)]
    {
        let access = AccessOptions { data_centers, cidrs, cidrs_of_superusers: false };
        // Every role that can log in may do everything.
        let auth = AuthOptions { access, permissions: false, ..WITH_ROLES };
        let mut node =
            RoleNode { node: TestNode::with_options(ProcessorOptions { auth, ..ProcessorOptions::default() }) };
        node.node.processor.start_roles().unwrap();
        node.client("cassandra");
        node.run("CREATE ROLE other WITH PASSWORD = 'other' AND LOGIN = true AND SUPERUSER = true");
        for name in ["r", "other"] {
            node.as_superuser(&format!("CREATE ROLE IF NOT EXISTS {name} WITH PASSWORD = '{name}' AND LOGIN = true"));
            node.client(name);
            let prepared = node.node.processor.prepare(READ, None).unwrap();
            let execute = |node: &RoleNode| node.node.execute(&prepared, &QueryOptions::default());
            node.run(READ);
            execute(&node).unwrap();
            node.as_superuser(&format!("ALTER ROLE {name} WITH LOGIN = false"));
            assert_eq!(node.node.failure(READ), refused, "{name}");
            assert_eq!(execute(&node).unwrap_err().message, refused, "{name}");
            node.as_superuser(&format!("ALTER ROLE {name} WITH LOGIN = true"));
            node.run(READ);
            execute(&node).unwrap();
            node.as_superuser(&format!("DROP ROLE {name}"));
            assert_eq!(node.node.failure(READ), refused, "{name}");
            assert_eq!(execute(&node).unwrap_err().message, refused, "{name}");
        }
    }
}

#[test]
fn a_login_from_elsewhere_is_reported_where_addresses_are_only_monitored() {
    let mut node = node_with_places(CidrChecks::Monitor);
    node.run("CREATE ROLE far WITH PASSWORD = 'far' AND LOGIN = true AND ACCESS FROM CIDRS {'ten'}");
    let notice = |address: [u8; 4]| {
        node.node.processor.log_in(&sasl("far", "far"), Some(SocketAddr::from((address, 1))), None).unwrap().notice
    };
    assert_eq!(notice([10, 0, 0, 1]), None);
    let reported = "role far does not have access from IP 127.0.0.1, and was let in";
    assert_eq!(notice([127, 0, 0, 1]).as_deref(), Some(reported));
    node.client("far");
    node.run(READ);
}

#[test]
fn identities_belong_to_roles() {
    let mut node = RoleNode::new();
    for statement in [
        "CREATE ROLE lord WITH SUPERUSER = true",
        "CREATE ROLE other WITH LOGIN = true",
        "ADD IDENTITY 'spiffe://o' TO ROLE 'other'",
        "ADD IDENTITY IF NOT EXISTS 'spiffe://o' TO ROLE 'lord'",
        "ADD IDENTITY 'spiffe://l' TO ROLE 'lord'",
        "DROP IDENTITY IF EXISTS 'gone'",
    ] {
        node.run(statement);
    }
    for (statement, text) in [
        ("ADD IDENTITY 'spiffe://o' TO ROLE 'lord'", "spiffe://o already exists"),
        ("ADD IDENTITY 'x' TO ROLE 'nobody'", "Can not add identity for non-existent role 'nobody'"),
        ("ADD IDENTITY '' TO ROLE 'lord'", "Key may not be empty"),
        ("DROP IDENTITY 'gone'", "identity 'gone' doesn't exist"),
    ] {
        assert_eq!(node.node.failure(statement), text);
    }
    node.new_client("a");
    let refused = "User a does not have sufficient privileges to perform the requested operation";
    for statement in ["ADD IDENTITY 'q' TO ROLE 'a'", "DROP IDENTITY 'spiffe://o'", "DROP IDENTITY 'gone'"] {
        assert_eq!(node.node.failure(statement), refused);
    }
    node.as_superuser("GRANT CREATE ON ALL ROLES TO a");
    node.as_superuser("GRANT DROP ON ROLE other TO a");
    node.run("ADD IDENTITY 'q' TO ROLE 'a'");
    let bound = "Only superusers can bind identities to a role with superuser status";
    assert_eq!(node.node.failure("ADD IDENTITY 'r' TO ROLE 'lord'"), bound);
    node.run("DROP IDENTITY 'spiffe://o'");
    assert_eq!(node.node.failure("DROP IDENTITY 'spiffe://l'"), refused);
    node.client("cassandra");
    node.run("DROP ROLE lord");
    assert_eq!(node.node.rows("SELECT identity, role FROM system_auth.identity_to_role"), ["'q' 'a'"]);
}

#[test]
fn guardrails_hold_for_ordinary_roles_and_not_for_superusers() {
    const GROUPED: &str = "SELECT k FROM ks.t GROUP BY k";
    const REFUSED: &str = "Guardrail group_by violated: GROUP BY functionality is not allowed";
    let flags = Flags { group_by_enabled: false, ..Flags::default() };
    let columns_per_table = Guardrail { warn: None, fail: Some(2) };
    let mut node = RoleNode::with_guardrails(Guardrails { flags, columns_per_table, ..Guardrails::default() });
    let create = |name: &str| format!("CREATE TABLE ks.{name} (k int PRIMARY KEY, a int, b int)");
    let prepare = |node: &RoleNode| {
        QueryHandler::prepare(&*node.node.processor, &node.node.client, GROUPED, None, KeptForms::NOTHING)
    };
    node.run(GROUPED);
    node.run(&create("wide"));
    let prepared = prepare(&node).unwrap();
    node.node.execute(&prepared, &QueryOptions::default()).unwrap();

    node.new_client("someone");
    node.as_superuser("GRANT ALL ON KEYSPACE ks TO someone");
    assert_eq!(node.node.failure(GROUPED), REFUSED);
    assert_eq!(prepare(&node).unwrap_err().message, REFUSED);
    assert_eq!(node.node.execute(&prepared, &QueryOptions::default()).unwrap_err().message, REFUSED);
    let kept = KeptForms { qualified: Some(&prepared), ..KeptForms::NOTHING };
    let again = QueryHandler::prepare(&*node.node.processor, &node.node.client, GROUPED, None, kept);
    assert_eq!(again.unwrap_err().message, REFUSED);
    assert_eq!(
        node.node.failure(&create("wider")),
        "Guardrail columns_per_table violated: Tables cannot have more than 2 columns, but 3 provided for table wider"
    );

    node.as_superuser("ALTER ROLE someone WITH SUPERUSER = true");
    node.run(GROUPED);
    node.run(&create("wider"));
    node.as_superuser("ALTER ROLE someone WITH SUPERUSER = false");
    assert_eq!(node.node.failure(GROUPED), REFUSED);
}
