//! The entries of the audit log. Their fields, but for times, ports and batches, were recorded from Cassandra's.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use query::{
    AuditFilter, AuditOptions, AuthOptions, Authentication, Authenticator, BatchEntry, BatchKind, BatchStatement,
    Choice, ClientState, ProcessorOptions, QueryHandler, QueryOptions, Request, RequestLog, Statement, Turn, Values,
};

use crate::node::TestNode;

/// Keeps the entries in memory.
#[derive(Debug, Default)]
struct Entries(Mutex<Vec<String>>);

impl RequestLog for Entries {
    fn append(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 4242);

struct AuditedNode {
    node: TestNode,
    entries: Arc<Entries>,
}

impl AuditedNode {
    fn new(filter: AuditFilter, auth: AuthOptions) -> AuditedNode {
        let entries = Arc::new(Entries::default());
        let audit = AuditOptions { filter, log: entries.clone() };
        let mut node =
            TestNode::with_options(ProcessorOptions { audit: Some(audit), auth, ..ProcessorOptions::default() });
        node.processor.start_roles().unwrap();
        node.client = Arc::new(ClientState { address: Some(SocketAddr::from(ADDRESS)), ..ClientState::default() });
        AuditedNode { node, entries }
    }

    fn of_anybody() -> AuditedNode {
        AuditedNode::new(AuditFilter::default(), AuthOptions::default())
    }

    /// The client logs in.
    fn log_in(&mut self, name: &str, password: &str) {
        let token = format!("\0{name}\0{password}").into_bytes();
        if let Ok(login) = self.node.processor.log_in(&token, Some(SocketAddr::from(ADDRESS)), None) {
            let address = Some(SocketAddr::from(ADDRESS));
            let (user, user_id) = (Some(login.user), login.user_id);
            self.node.client = Arc::new(ClientState { address, user, user_id, ..ClientState::default() });
        }
    }

    /// The entries since the last call, from their types on, and without batches' ids.
    fn entries(&self) -> Vec<String> {
        let lines = std::mem::take(&mut *self.entries.0.lock().unwrap());
        lines.iter().map(|line| of_type(line)).collect()
    }

    /// The entries of a statement, whatever its outcome.
    fn entries_of(&self, statement: &str) -> Vec<String> {
        let _ = self.node.try_run(statement, &QueryOptions::default());
        self.entries()
    }
}

/// The part of a line that is the same at all times.
fn of_type(line: &str) -> String {
    let (_, rest) = line.split_once("|type:").unwrap();
    let Some((before, batch)) = rest.split_once("|batch:") else { return rest.to_owned() };
    let (id, after) = batch.split_once('|').unwrap();
    assert_eq!(id.len(), 36, "{line}");
    format!("{before}|{}", after.replace(id, "ID"))
}

#[test]
fn an_entry_names_its_client_and_its_node() {
    let node = AuditedNode::of_anybody();
    node.node.run("SELECT * FROM system_auth.roles");
    let line = node.entries.0.lock().unwrap()[0].clone();
    let (before, _) = line.split_once("|timestamp:").unwrap();
    assert_eq!(before, "user:anonymous|host:/127.0.0.1:7000|source:/127.0.0.1|port:4242");
}

#[test]
fn statements_have_the_types_and_scopes_of_cassandra() {
    let mut node = AuditedNode::of_anybody();
    for (statement, entry) in [
        (
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE_KEYSPACE|category:DDL|ks:k",
        ),
        ("CREATE TABLE k.t(a int primary key,b text)", "CREATE_TABLE|category:DDL|ks:k|scope:t"),
        ("CREATE TYPE k.u(a int)", "CREATE_TYPE|category:DDL|ks:k|scope:u"),
        ("INSERT INTO k.t(a,b) VALUES(1,'x')", "UPDATE|category:DML|ks:k|scope:t"),
        ("UPDATE k.t SET b='y' WHERE a=1", "UPDATE|category:DML|ks:k|scope:t"),
        ("SELECT * FROM k.t", "SELECT|category:QUERY|ks:k|scope:t"),
        ("SELECT * FROM system_views.thread_pools", "SELECT|category:QUERY|ks:system_views|scope:thread_pools"),
        ("DELETE FROM k.t WHERE a=1", "DELETE|category:DML|ks:k|scope:t"),
        ("TRUNCATE k.t", "TRUNCATE|category:DDL|ks:k|scope:t"),
        ("USE k", "USE_KEYSPACE|category:OTHER|ks:k"),
    ] {
        assert_eq!(node.entries_of(statement), [format!("{entry}|operation:{statement}")]);
    }
    node.node.use_keyspace("k");
    node.entries();
    for (statement, entry) in [
        ("ALTER TABLE t ADD c int", "ALTER_TABLE|category:DDL|ks:k|scope:t"),
        ("DESCRIBE TABLE t", "DESCRIBE|category:OTHER|ks:k"),
        (
            "BEGIN BATCH INSERT INTO t(a) VALUES(1); INSERT INTO k.t(a) VALUES(2); APPLY BATCH",
            "BATCH|category:DML|ks:k",
        ),
        ("INSERT INTO t(a) VALUES (3) IF NOT EXISTS", "UPDATE|category:DML|ks:k|scope:t"),
        ("SELECT * FROM nope", "REQUEST_FAILURE|category:ERROR|ks:k"),
        ("DROP TYPE u", "DROP_TYPE|category:DDL|ks:k|scope:u"),
        ("ALTER KEYSPACE k WITH durable_writes=true", "ALTER_KEYSPACE|category:DDL|ks:k"),
        ("DROP TABLE t", "DROP_TABLE|category:DDL|ks:k|scope:t"),
        ("DROP KEYSPACE k", "DROP_KEYSPACE|category:DDL|ks:k"),
    ] {
        let failure = if entry.starts_with("REQUEST_FAILURE") { "; table nope does not exist" } else { "" };
        assert_eq!(node.entries_of(statement), [format!("{entry}|operation:{statement}{failure}")]);
    }
    assert!(node.entries_of("SELECT * FROM system.local").is_empty());
    let nothing = "REQUEST_FAILURE|category:ERROR|ks:k|operation:line 0:-1 no viable alternative at input '<EOF>'";
    assert_eq!(node.entries_of(""), [nothing]);
}

#[test]
fn statements_about_roles_are_entered_without_passwords() {
    let auth = AuthOptions { authenticator: Authenticator::Password, permissions: true, ..AuthOptions::default() };
    let mut node = AuditedNode::new(AuditFilter::default(), auth);
    node.log_in("cassandra", "cassandra");
    assert_eq!(node.entries(), ["LOGIN_SUCCESS|category:AUTH|operation:LOGIN SUCCESSFUL"]);
    node.node.run("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.node.run("CREATE TABLE k.t(a int primary key)");
    node.entries();
    for (statement, entry) in [
        ("LIST ROLES", "LIST_ROLES|category:DCL"),
        ("LIST USERS", "LIST_ROLES|category:DCL"),
        ("CREATE ROLE s", "CREATE_ROLE|category:DCL"),
        ("GRANT SELECT ON k.t TO s", "GRANT|category:DCL|ks:data/k/*|scope:data/k/t"),
        ("REVOKE SELECT ON ALL KEYSPACES FROM s", "REVOKE|category:DCL|ks:data|scope:data"),
        ("GRANT s TO cassandra", "GRANT|category:DCL"),
        ("LIST ALL PERMISSIONS", "LIST_PERMISSIONS|category:DCL"),
        ("DROP ROLE s", "DROP_ROLE|category:DCL"),
    ] {
        assert_eq!(node.entries_of(statement), [format!("{entry}|operation:{statement}")]);
    }
    for statement in [
        "CREATE ROLE r WITH PASSWORD='hush' AND LOGIN=true",
        "ALTER ROLE nobody WITH PASSWORD='hush'",
        "CREATE ROLE q WITH PASSWORD='hush' AND",
        "CREATE ROLE q WITH PASSWORD hush",
    ] {
        let entries = node.entries_of(statement);
        assert!(entries.len() == 1 && !entries[0].contains("hush"), "{entries:?}");
        assert!(entries[0].contains("PASSWORD *******"), "{entries:?}");
    }
    node.log_in("r", "wrong");
    assert_eq!(
        node.entries(),
        ["LOGIN_ERROR|category:AUTH|operation:LOGIN FAILURE; Provided username r and/or password *******"]
    );
    node.log_in("r", "hush");
    node.entries();
    assert_eq!(
        node.entries_of("SELECT * FROM k.t"),
        ["UNAUTHORIZED_ATTEMPT|category:AUTH|operation:SELECT * FROM k.t; User r has no SELECT permission on <table \
          k.t> or any of its parents"]
    );
}

#[test]
fn a_batch_has_an_entry_for_itself_and_for_each_statement() {
    let mut node = AuditedNode::of_anybody();
    node.node.create_keyspace();
    node.node.run("CREATE TABLE ks.t(a int primary key, b text)");
    node.entries();
    let prepared = node.node.processor.prepare("INSERT INTO ks.t(a) VALUES(1)", None).unwrap();
    let text = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::Positional(&[]) };
    let known =
        || BatchEntry { statement: BatchStatement::Prepared(prepared.clone()), values: Values::Positional(&[]) };
    let run = |entries: &[BatchEntry<'_>]| {
        let _ = node.node.batch(BatchKind::Logged, entries, &QueryOptions::default());
        node.entries()
    };
    assert_eq!(
        run(&[known(), text("DELETE FROM ks.t WHERE a = 7")]),
        [
            "BATCH|category:DML|ks:ks|operation:BatchId:[ID] - BATCH of [2] statements",
            "UPDATE|category:DML|ks:ks|scope:t|operation:INSERT INTO ks.t(a) VALUES(1)",
            "DELETE|category:DML|ks:ks|scope:t|operation:DELETE FROM ks.t WHERE a = 7",
        ]
    );
    assert_eq!(
        run(&[known(), text("SELECT * FROM ks.t")]),
        ["REQUEST_FAILURE|category:ERROR|ks:ks|operation:BATCH of 2 statements at consistency ONE; Invalid statement \
          in batch: only UPDATE, INSERT and DELETE statements are allowed."]
    );
    // As in Cassandra, those statements are counted that were prepared before the first that cannot be.
    let failures = |entries: &[BatchEntry<'_>]| match &run(entries)[..] {
        [entry] => entry.strip_prefix("REQUEST_FAILURE|category:ERROR|ks:ks|operation:").unwrap().to_owned(),
        entries => panic!("{entries:?}"),
    };
    let (unknown, select) = (|| text("DELETE FROM ks.nope WHERE a = 7"), || text("SELECT * FROM ks.t"));
    for (entries, count) in
        [(vec![unknown()], 0), (vec![known(), unknown()], 1), (vec![select(), known(), unknown(), known()], 2)]
    {
        let end = "statements at consistency ONE; table nope does not exist";
        assert_eq!(failures(&entries), format!("BATCH of {count} {end}"));
    }
    let marker = || text("DELETE FROM ks.t WHERE a = ?");
    assert_eq!(
        failures(&[known(), marker(), unknown()]),
        "BATCH of 1 statements at consistency ONE; There were 1 markers(?) in CQL but 0 bound variables"
    );
}

#[test]
fn a_statement_that_has_to_be_prepared_again_is_not_named() {
    let mut node = AuditedNode::of_anybody();
    node.node.create_keyspace();
    node.node.run("CREATE TABLE ks.t(a int primary key)");
    let prepared = node.node.processor.prepare("INSERT INTO ks.t(a) VALUES(1)", None).unwrap();
    node.node.run("DROP TABLE ks.t");
    node.entries();
    let error = node.node.execute(&prepared, &QueryOptions::default()).unwrap_err();
    assert!(error.message.starts_with("Prepared query with ID "), "{error:?}");
    let expected =
        |operation: &str| format!("REQUEST_FAILURE|category:ERROR|ks:ks|operation:{operation}; {}", error.message);
    assert_eq!(node.entries(), [expected("null")]);
    let known = BatchEntry { statement: BatchStatement::Prepared(prepared.clone()), values: Values::Positional(&[]) };
    node.node.batch(BatchKind::Logged, &[known], &QueryOptions::default()).unwrap_err();
    assert_eq!(node.entries(), [expected("BATCH of 0 statements at consistency ONE")]);
    // The server does not have the statement any more.
    for (before, operation) in [(None, "null"), (Some(3), "BATCH of 3 statements at consistency ONE")] {
        let statement = Statement::Unknown { id: &prepared.id(), before };
        let outcome = node.node.begin_statement(statement, &QueryOptions::default(), Turn::BLOCKING, None);
        assert_eq!(outcome.into_response().unwrap_err().message, error.message);
        assert_eq!(node.entries(), [expected(operation)]);
    }
}

#[test]
fn a_request_whose_client_has_left_is_a_failure() {
    let mut node = AuditedNode::of_anybody();
    node.node.create_keyspace();
    node.node.run("CREATE TABLE ks.t(a int primary key)");
    node.entries();
    let text = "SELECT * FROM ks.t";
    let request = |client| Request {
        statement: Statement::Text(text),
        client,
        options: &DEFAULT_OPTIONS,
        version: protocol::Version::V4,
        trace: None,
    };
    // A scan goes to the blocking pool, and here it is never run.
    drop(node.node.processor.begin(&request(&node.node.client), Turn::NON_BLOCKING, None));
    let entries = node.entries();
    assert_eq!(entries.len(), 1);
    assert!(
        entries[0].starts_with("REQUEST_FAILURE|category:ERROR|ks:ks|operation:SELECT * FROM ks.t; "),
        "{entries:?}"
    );
    // One that is run is entered once.
    node.node.processor.begin(&request(&node.node.client), Turn::NON_BLOCKING, None).into_response().unwrap();
    assert_eq!(node.entries(), ["SELECT|category:QUERY|ks:ks|scope:t|operation:SELECT * FROM ks.t"]);
}

static DEFAULT_OPTIONS: std::sync::LazyLock<QueryOptions<'static>> = std::sync::LazyLock::new(QueryOptions::default);

#[test]
fn the_filter_chooses_entries_and_the_node_itself_is_not_entered() {
    let filter = AuditFilter {
        categories: Choice { included: ["DDL".to_owned()].into(), ..Choice::default() },
        ..AuditFilter::default()
    };
    let mut node = AuditedNode::new(filter, AuthOptions::default());
    node.node.create_keyspace();
    assert_eq!(node.entries().len(), 1);
    assert_eq!(node.entries_of("CREATE TABLE ks.t(a int primary key)").len(), 1);
    assert!(node.entries_of("SELECT * FROM ks.t").is_empty());
    assert!(node.entries_of("SELECT * FROM ks.nope").is_empty());
    node.node.client = Arc::new(ClientState::default());
    assert!(node.entries_of("DROP TABLE ks.t").is_empty());
}

#[test]
fn the_keyspace_of_a_session_hides_no_statement() {
    let auth = AuthOptions { authenticator: Authenticator::Password, permissions: true, ..AuthOptions::default() };
    let mut node = AuditedNode::new(AuditFilter::default(), auth);
    node.log_in("cassandra", "cassandra");
    node.node.create_keyspace();
    node.node.run("CREATE TABLE ks.t(a int primary key)");
    node.node.client = Arc::new(ClientState { keyspace: Some("system".into()), ..(*node.node.client).clone() });
    node.entries();
    for (statement, entry) in [
        ("CREATE ROLE s", "CREATE_ROLE|category:DCL|ks:system"),
        ("GRANT SELECT ON ALL KEYSPACES TO s", "GRANT|category:DCL|ks:data|scope:data"),
        ("LIST ROLES", "LIST_ROLES|category:DCL|ks:system"),
        ("DESCRIBE KEYSPACES", "DESCRIBE|category:OTHER|ks:system"),
        ("BEGIN BATCH INSERT INTO ks.t(a) VALUES(1); APPLY BATCH", "BATCH|category:DML|ks:system"),
    ] {
        assert_eq!(node.entries_of(statement), [format!("{entry}|operation:{statement}")]);
    }
    let failed = node.entries_of("SELECT nope FROM ks.t");
    assert!(matches!(&failed[..], [entry] if entry.starts_with("REQUEST_FAILURE|category:ERROR|ks:system|")));
    let text = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::Positional(&[]) };
    node.node.batch(BatchKind::Logged, &[text("DELETE FROM ks.t WHERE a = 7")], &QueryOptions::default()).unwrap();
    assert_eq!(node.entries().len(), 2);
    // Statements that name an excluded keyspace, or find their tables there, are left out as before.
    assert!(node.entries_of("SELECT * FROM local").is_empty());
    assert!(node.entries_of("USE system").is_empty());
}

#[test]
fn a_batch_is_left_out_if_all_keyspaces_of_its_statements_are() {
    let keyspaces = Choice { excluded: ["ks".to_owned()].into(), ..Choice::default() };
    let mut node = AuditedNode::new(AuditFilter { keyspaces, ..AuditFilter::default() }, AuthOptions::default());
    node.node.create_keyspace();
    node.node.run("CREATE TABLE ks.t(a int primary key)");
    node.node.run("CREATE KEYSPACE k2 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.node.run("CREATE TABLE k2.t(a int primary key)");
    node.entries();
    let batch = |statements: &str| format!("BEGIN BATCH {statements} APPLY BATCH");
    let (hidden, shown) = ("INSERT INTO ks.t(a) VALUES(1)", "INSERT INTO k2.t(a) VALUES(1)");
    assert!(node.entries_of(&batch(&format!("{hidden}; {hidden};"))).is_empty());
    assert_eq!(node.entries_of(&batch(&format!("{hidden}; {shown};"))).len(), 1);
    let text = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::Positional(&[]) };
    let run = |entries: &[BatchEntry<'_>]| {
        node.node.batch(BatchKind::Logged, entries, &QueryOptions::default()).unwrap();
        node.entries().len()
    };
    assert_eq!(run(&[text(hidden)]), 0);
    assert_eq!(run(&[text(hidden), text(shown)]), 2, "the batch and one of its statements");
}

#[test]
fn the_failure_of_a_batch_shows_no_password() {
    let mut node = AuditedNode::of_anybody();
    node.node.create_keyspace();
    node.entries();
    for secret in ["CREATE ROLE r WITH PASSWORD = hush", "CREATE USER r WITH 'hush' PASSWORD"] {
        let text = |text| BatchEntry { statement: BatchStatement::Text(text), values: Values::Positional(&[]) };
        let entries = [text("INSERT INTO ks.t(a) VALUES(1"), text(secret)];
        for entries in [&entries[1..], &entries] {
            node.node.batch(BatchKind::Logged, entries, &QueryOptions::default()).unwrap_err();
            let entered = node.entries();
            let end = "at consistency ONE; Syntax Exception. Obscured for security reasons.";
            assert!(matches!(&entered[..], [entry] if entry.ends_with(end)), "{entered:?}");
        }
    }
}
