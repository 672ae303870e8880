//! The full query log: requests that succeeded, as a client could send them again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use query::{
    AuditFilter, AuditOptions, AuthOptions, Authentication, Authenticator, BatchEntry, BatchKind, BatchStatement,
    ClientState, ProcessorOptions, QueryOptions, RequestLog, Value, Values,
};

use crate::node::TestNode;

/// Keeps the lines in memory.
#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl RequestLog for Lines {
    fn append(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Lines {
    /// The lines since the last call, without their times.
    fn take(&self) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        let without_time = |line: String| {
            let (kind, rest) = line.split_once("|query start time:").unwrap();
            format!("{kind}|{}", rest.split_once('|').unwrap().1)
        };
        lines.into_iter().map(without_time).collect()
    }
}

/// A node with a full query log, and the table `ks.t`.
fn logged() -> (TestNode, Arc<Lines>) {
    let mut node = TestNode::with(&["CREATE TABLE t (k int PRIMARY KEY, v text)"]);
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 4242)));
    node.client = Arc::new(ClientState { address, ..(*node.client).clone() });
    let lines = Arc::new(Lines::default());
    node.processor.set_query_log(Some(lines.clone()));
    (node, lines)
}

const OPTIONS: &str = "|keyspace:ks|consistency level:ONE|serial consistency level:SERIAL";

#[test]
fn a_statement_is_logged_with_its_values_and_options() {
    let (node, lines) = logged();
    node.run("SELECT * FROM t");
    let values = [Value::Bytes(&[0, 0, 0, 1]), Value::Null];
    let options = QueryOptions {
        values: Values::Positional(&values),
        timestamp: Some(5),
        page_size: Some(10),
        ..QueryOptions::default()
    };
    node.try_run("INSERT INTO t (k, v) VALUES (?, ?)", &options).unwrap();
    let prepared = node.processor.prepare("SELECT v FROM t WHERE k = :k", Some("ks")).unwrap();
    let named = [("k", Value::Bytes(&[0, 0, 0, 1]))];
    node.execute(&prepared, &QueryOptions { values: Values::Named(&named), ..QueryOptions::default() }).unwrap();
    let insert = "|query:INSERT INTO t (k, v) VALUES (?, ?)|values:0x00000001,null";
    assert_eq!(
        lines.take(),
        [
            format!("type:single-query|protocol version:5{OPTIONS}|query:SELECT * FROM t|values:"),
            format!("type:single-query|protocol version:5|timestamp:5{OPTIONS}|page size:10{insert}"),
            format!(
                "type:single-query|protocol version:5{OPTIONS}|query:SELECT v FROM t WHERE k = :k|values:k=0x00000001"
            ),
        ]
    );
}

#[test]
fn a_batch_is_one_line() {
    let (node, lines) = logged();
    let prepared = node.processor.prepare("INSERT INTO t (k, v) VALUES (?, 'a')", Some("ks")).unwrap();
    let values = [Value::Bytes(&[0, 0, 0, 2])];
    let entries = [
        BatchEntry { statement: BatchStatement::Prepared(prepared), values: Values::Positional(&values) },
        BatchEntry { statement: BatchStatement::Text("DELETE FROM t WHERE k = 3"), values: Values::NONE },
    ];
    node.batch(BatchKind::Unlogged, &entries, &QueryOptions::default()).unwrap();
    let queries = "|batch type:UNLOGGED|query:INSERT INTO t (k, v) VALUES (?, 'a')|values:0x00000002\
                   |query:DELETE FROM t WHERE k = 3|values:";
    assert_eq!(lines.take(), [format!("type:batch|protocol version:5{OPTIONS}{queries}")]);
}

#[test]
fn failures_and_the_nodes_own_statements_are_not_logged() {
    let (mut node, lines) = logged();
    assert!(node.failure("SELECT nothing FROM t").contains("Undefined column name"));
    assert!(lines.take().is_empty());
    let client = node.client.clone();
    node.client = Arc::new(ClientState { address: None, ..(*client).clone() });
    node.run("SELECT * FROM t");
    assert!(lines.take().is_empty());
    node.client = client;
    node.run("SELECT k FROM t WHERE v = 'a\nb' ALLOW FILTERING");
    let line = lines.take().remove(0);
    assert!(line.contains("'a\\nb'"), "a line break is escaped: {line}");
}

#[test]
fn passwords_are_not_logged() {
    let auth = AuthOptions { authenticator: Authenticator::Password, ..AuthOptions::default() };
    let mut node = TestNode::with_options(ProcessorOptions { auth, ..ProcessorOptions::default() });
    node.processor.start_roles().unwrap();
    let login = node.processor.log_in(b"\0cassandra\0cassandra", None, None).unwrap();
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 4242)));
    let (user, user_id) = (Some(login.user), login.user_id);
    node.client = Arc::new(ClientState { address, user, user_id, ..ClientState::default() });
    let lines = Arc::new(Lines::default());
    node.processor.set_query_log(Some(lines.clone()));
    node.run("CREATE ROLE r WITH PASSWORD = 'hush'");
    let line = lines.take().remove(0);
    assert!(line.ends_with("|query:CREATE ROLE r WITH PASSWORD *******|values:"), "{line}");
}

#[test]
fn both_logs_are_turned_on_and_off_while_the_node_runs() {
    let (node, lines) = logged();
    let audit = Arc::new(Lines::default());
    let count = |lines: &Lines| std::mem::take(&mut *lines.0.lock().unwrap()).len();
    node.processor.set_audit(Some(AuditOptions { filter: AuditFilter::default(), log: audit.clone() }));
    node.run("SELECT * FROM t");
    assert_eq!((count(&lines), count(&audit)), (1, 1));
    node.processor.set_query_log(None);
    node.run("SELECT * FROM t");
    assert_eq!((count(&lines), count(&audit)), (0, 1));
    node.processor.set_audit(None);
    node.run("SELECT * FROM t");
    assert_eq!((count(&lines), count(&audit)), (0, 0));
}
