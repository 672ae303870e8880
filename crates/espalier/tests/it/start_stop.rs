//! Starting, refusing to start, stopping.

use testkit::TemporaryDirectory;

use crate::node::{Node, espalier, failure, run};
use std::os::unix::fs::PermissionsExt;

#[test]
fn sigterm_and_sigint_drain_and_exit_with_zero() {
    for signal in ["TERM", "INT"] {
        let directory = TemporaryDirectory::create();
        let node = Node::start(&directory.join("data"));
        node.signal(signal);
        let (code, log) = node.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("drained"), "{log}");
        assert!(!directory.join("data/espalier.sock").exists());
    }
}

#[test]
fn a_node_starts_again_after_a_kill() {
    let directory = TemporaryDirectory::create();
    let node = Node::start(&directory.join("data"));
    node.signal("KILL");
    assert_eq!(node.end().0, None);
    drop(Node::start(&directory.join("data")));
}

#[test]
fn a_second_process_on_the_directory_is_refused() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let _node = Node::start(&data);
    let line = failure(&run(&["serve", "--data", data.to_str().unwrap(), "--port", "0"]));
    assert!(line.starts_with("espalier: ") && line.contains("in use"), "{line}");
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let directory = TemporaryDirectory::create();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = directory.join("data");
    let line = failure(&run(&["serve", "--data", data.to_str().unwrap(), "--port", &port]));
    assert!(
        line.starts_with(&format!("espalier: cannot listen on 127.0.0.1:{port}: Address already in use")),
        "{line}"
    );
}

#[test]
fn a_directory_that_cannot_be_made_is_one_clear_line() {
    // A file in place of a directory stops even root.
    let directory = TemporaryDirectory::create();
    let file = directory.join("file");
    std::fs::write(&file, b"").unwrap();
    let data = file.join("data");
    let line = failure(&run(&["serve", "--data", data.to_str().unwrap(), "--port", "0"]));
    assert!(line.starts_with(&format!("espalier: {}: ", data.display())), "{line}");
}

#[test]
fn bad_options_are_one_clear_line() {
    let directory = TemporaryDirectory::create();
    let config = directory.join("espalier.yaml");
    std::fs::write(&config, "cluster_name: x\ncommitlog_synk: batch\n").unwrap();
    let line = failure(&run(&["serve", "--config", config.to_str().unwrap()]));
    assert_eq!(
        line,
        format!("espalier: {}:2: commitlog_synk: is no option of Espalier or of Cassandra 5.0", config.display())
    );
    let line = failure(&run(&["serve", "--config", "no-such-file.yaml"]));
    assert_eq!(line, "espalier: no-such-file.yaml: No such file or directory (os error 2)");
    let output = espalier(&["serve"]).env("ESPALIER_COMMITLOG_SYNC", "sometimes").output().unwrap();
    let line = failure(&output);
    assert_eq!(line, "espalier: ESPALIER_COMMITLOG_SYNC: expected periodic, batch, group or each, got \"sometimes\"");
    assert_eq!(run(&["serve", "--no-such-flag"]).status.code(), Some(2));
}

#[test]
fn options_without_effect_are_named_in_the_log() {
    let directory = TemporaryDirectory::create();
    let config = directory.join("espalier.yaml");
    std::fs::write(&config, "hinted_handoff_enabled: true\n").unwrap();
    let data = directory.join("data");
    let mut command = espalier(&["serve", "--port", "0", "--config", config.to_str().unwrap()]);
    command.args(["--data", data.to_str().unwrap()]).env("RUST_LOG", "info").stderr(std::process::Stdio::piped());
    let process = command.spawn().unwrap();
    let pid = process.id().to_string();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| process.wait_with_output().unwrap());
        while !data.join("espalier.sock").exists() {
            std::thread::yield_now();
        }
        assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
        let log = String::from_utf8(ended.join().unwrap().stderr).unwrap();
        let line = "hinted_handoff_enabled is accepted and has no effect: there are no other nodes to hint for";
        assert!(log.contains(line), "{log}");
    });
}

#[test]
fn only_the_owner_may_open_the_admin_socket() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let _node = Node::start(&data);
    let mode = std::fs::metadata(data.join("espalier.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_log_warns_of_a_node_that_lets_everybody_in_and_of_the_first_password() {
    let directory = TemporaryDirectory::create();
    let start = |name: &str, address: &str, options: &[(&str, &str)]| {
        let data = directory.join(name);
        let mut command = espalier(&["serve", "--data", data.to_str().unwrap(), "--port", "0", "--listen", address]);
        command.envs(options.iter().copied());
        Node::launch(command)
    };
    const PASSWORDS: (&str, &str) = ("ESPALIER_AUTHENTICATOR", "PasswordAuthenticator");
    const PERMISSIONS: (&str, &str) = ("ESPALIER_AUTHORIZER", "CassandraAuthorizer");
    let everybody = "every client that reaches 0.0.0.0 may do everything: set authenticator and authorizer";
    let every_role = "every role that can log in may do everything: set authorizer: CassandraAuthorizer";
    let first = "the superuser cassandra has its first password: change it with ALTER ROLE";
    let warnings = |node: &Node| [everybody, every_role, first].map(|text| node.started.contains(text));
    assert_eq!(warnings(&start("open", "127.0.0.1", &[])), [false, false, false]);
    assert_eq!(warnings(&start("open", "0.0.0.0", &[])), [true, false, false]);
    assert_eq!(warnings(&start("roles", "0.0.0.0", &[PASSWORDS])), [false, true, true]);
    let node = start("roles", "127.0.0.1", &[PASSWORDS, PERMISSIONS]);
    assert_eq!(warnings(&node), [false, false, true]);
    node.query_as("cassandra", "cassandra", "ALTER ROLE cassandra WITH PASSWORD = 'another'");
    drop(node);
    let node = start("roles", "127.0.0.1", &[PASSWORDS, PERMISSIONS]);
    assert_eq!(warnings(&node), [false, false, false]);
    node.query_as("cassandra", "another", "LIST ROLES");
}

#[test]
fn the_name_of_a_refused_login_adds_no_line_to_the_log() {
    let directory = TemporaryDirectory::create();
    let mut command = espalier(&["serve", "--data", directory.join("data").to_str().unwrap(), "--port", "0"]);
    command.env("ESPALIER_AUTHENTICATOR", "PasswordAuthenticator");
    let node = Node::launch(command);
    node.refused_login("name\nERROR forged\u{202e}\u{1b}[2J");
    node.signal("TERM");
    let (code, log) = node.end();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("forged")).collect();
    assert!(matches!(lines[..], [line] if line.contains("login refused")), "{log}");
    assert!(!log.contains(['\u{202e}', '\u{1b}']), "{log}");
}
