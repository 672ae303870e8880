//! Administration of a running node.

use testkit::TemporaryDirectory;

use crate::node::{Node, espalier, failure, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The output of a command on the node in `data`.
pub fn control(data: &Path, arguments: &[&str]) -> String {
    let mut all = vec![arguments[0], "--data", data.to_str().unwrap()];
    all.extend_from_slice(&arguments[1..]);
    let output = run(&all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The number after a name, and perhaps a colon, in a command's output.
pub fn number(text: &str, name: &str) -> u64 {
    let behind = text.lines().find_map(|line| line.trim().strip_prefix(name));
    let behind = behind.unwrap_or_else(|| panic!("no {name} in {text}"));
    behind.trim_start_matches([':', ' ']).parse().unwrap()
}

#[test]
fn a_running_node_reports_its_status() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    let status = control(&data, &["status"]);
    assert!(status.contains(&format!(": {}\n", node.address)), "{status}");
    assert!(status.contains("UN (up, normal)"), "{status}");
    let stats = control(&data, &["tablestats", "system", "local"]);
    assert!(stats.contains("Keyspace : system\n\t\tTable: local\n\t\tSSTable count: "), "{stats}");
    assert!(stats.contains("\t\tAllMemtablesOffHeapDataSize: "), "{stats}");
    let in_memory = control(&data, &["inmemorystatus"]);
    assert!(in_memory.starts_with("Max Memory to Lock:") && in_memory.contains("Refused writes"), "{in_memory}");
}

/// A socket's address has room for about a hundred bytes.
#[test]
fn a_node_with_a_deep_data_directory_can_be_controlled() {
    let directory = TemporaryDirectory::create();
    let data = directory.join(["deep"; 40].join("/"));
    let _node = Node::start(&data);
    assert!(control(&data, &["status"]).contains("UN"));
}

/// Scripts wait for the port and then send a command.
#[test]
fn a_node_whose_port_is_open_can_be_controlled() {
    // Only this process uses this address, so only its node can answer there.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = SocketAddr::from(([127, 64 | high, middle, low], 19042));
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let command = espalier(&["serve", "--data", data.to_str().unwrap(), "--listen", &ip, "--port", &port]);
    let waiting = std::thread::spawn(move || {
        while TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        data.join("espalier.sock").exists()
    });
    let _node = Node::launch(command);
    assert!(waiting.join().unwrap());
}

#[test]
fn flushing_writes_tables() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let _node = Node::start(&data);
    let sstables = || number(&control(&data, &["tablestats", "system", "local"]), "SSTable count");
    let before = sstables();
    assert_eq!(control(&data, &["flush", "system", "local"]), "");
    assert!(sstables() > before);
    assert!(control(&data, &["snapshot", "--tag", "s1", "system", "local"]).contains("s1"));
}

#[test]
fn compactions_wait_until_they_are_enabled_and_are_counted() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    node.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.query(
        "CREATE TABLE ks.t (k int PRIMARY KEY) \
         WITH compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'N'}",
    );
    assert_eq!(control(&data, &["disableautocompaction", "ks", "t"]), "");
    for _ in 0..3 {
        node.query("INSERT INTO ks.t (k) VALUES (1)");
        control(&data, &["flush", "ks", "t"]);
    }
    let sstables = || number(&control(&data, &["tablestats", "ks", "t"]), "SSTable count");
    assert_eq!(sstables(), 3);
    let before = control(&data, &["compactionstats"]);
    assert_eq!(control(&data, &["enableautocompaction", "ks", "t"]), "");
    // Waits as long as necessary: a failing test hangs.
    while sstables() > 1 || number(&control(&data, &["compactionstats"]), "pending tasks") > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = control(&data, &["compactionstats"]);
    for name in ["compactions completed", "data compacted"] {
        assert!(number(&after, name) > number(&before, name), "{before}{after}");
    }
    let status = control(&data, &["status"]);
    assert!(number(&status, "Compaction.CompletedTasks") >= number(&after, "compactions completed"), "{status}{after}");
    assert!(number(&status, "Compaction.BytesCompacted") >= number(&after, "data compacted"), "{status}{after}");
}

#[test]
fn unknown_tables_and_absent_nodes_are_errors() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let none = failure(&run(&["status", "--data", data.to_str().unwrap()]));
    assert!(none.starts_with("espalier: no node is running on "), "{none}");
    let _node = Node::start(&data);
    let line = failure(&run(&["flush", "--data", data.to_str().unwrap(), "nope"]));
    assert_eq!(line, "espalier: Keyspace [nope] does not exist.");
    let line = failure(&run(&["flush", "--data", data.to_str().unwrap(), "system", "nope"]));
    assert_eq!(line, "espalier: Unknown keyspace/table pair (system.nope)");
}

#[test]
fn a_drained_node_still_answers_and_stops_cleanly() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    assert_eq!(control(&data, &["drain"]), "");
    assert!(control(&data, &["status"]).contains(": DRAINED\n"));
    node.signal("TERM");
    let (code, log) = node.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn an_invalid_request_is_answered_with_an_error() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let _node = Node::start(&data);
    for line in ["\n", "garbage\n", "{\"verb\":\"explode\"}\n", "{\"verb\":\"status\",\"more\":1}\n"] {
        let mut socket = UnixStream::connect(data.join("espalier.sock")).unwrap();
        socket.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":\"cannot read the request: "), "{answer}");
    }
}

#[test]
fn large_partitions_and_collections_are_logged_when_they_are_flushed_and_compacted() {
    let directory = TemporaryDirectory::create();
    let (data, config) = (directory.join("node"), directory.join("espalier.yaml"));
    let thresholds = "partition_size_warn_threshold: 200B\npartition_tombstones_fail_threshold: 2\n\
                      collection_size_warn_threshold: 100B\nitems_per_collection_fail_threshold: 3\n";
    std::fs::write(&config, thresholds).unwrap();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--port", "0", "--config", config.to_str().unwrap()];
    let node = Node::launch(espalier(&arguments));
    node.query("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.query("CREATE TABLE k.t (a int, b text, s set<text>, PRIMARY KEY (a, b))");
    control(&data, &["disableautocompaction"]);
    for half in 0..2 {
        node.query(&format!("UPDATE k.t SET s = s + {{'{half}1', '{half}2'}} WHERE a = 1 AND b = 'x'"));
        node.query(&format!("INSERT INTO k.t (a, b) VALUES (2, '{}')", half.to_string().repeat(150)));
        node.query(&format!("DELETE FROM k.t WHERE a = 3 AND b = '{half}'"));
        node.query(&format!("DELETE FROM k.t WHERE a = 3 AND b = '{half}{half}'"));
        control(&data, &["flush", "k", "t"]);
    }
    node.query("INSERT INTO k.t (a, b) VALUES (4, 'a flush of several')");
    (0..3).for_each(|row| node.query(&format!("DELETE FROM k.t WHERE a = 5 AND b = '{row}'")));
    control(&data, &["flush", "k", "t"]);
    control(&data, &["compact", "k", "t"]);
    node.signal("TERM");
    let (_, log) = node.end();
    let count = |texts: &[&str]| log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count();
    let tombstones = "Guardrail partition_tombstones violated: Partition k.t";
    let size = "Guardrail partition_size violated: Partition k.t";
    let in_row = "Detected collection s in row (1, 'x') in table k.t";
    // Partition 5 has too much at once, and the others only after their halves were merged.
    let of_5 = format!("{tombstones}:5 on sstable {}", std::fs::canonicalize(&data).unwrap().display());
    let has_3 =
        "Data.db has 3 tombstones, this exceeds the failure threshold of 2. Partitions with too many tombstones";
    assert_eq!(count(&["ERROR", &of_5, has_3]), 2, "{log}");
    assert_eq!(count(&["ERROR", tombstones, ":3 on", "has 4 tombstones"]), 1, "{log}");
    assert_eq!(count(&[tombstones]), 3, "{log}");
    let large = "this exceeds the warning threshold of 200. Too large partitions can cause performance problems.";
    assert_eq!(count(&["WARN", size, ":2 on", large]), 1, "{log}");
    let four = "with 4 items, this exceeds the failure threshold of 3.";
    assert_eq!(count(&["ERROR", "Guardrail items_per_collection violated: ", in_row, four]), 1, "{log}");
    assert_eq!(count(&["Guardrail collection_size violated"]), 0, "100 bytes are not above the threshold: {log}");
}

#[test]
fn the_audit_log_and_the_full_query_log_are_turned_on_and_off() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    let shown = control(&data, &["getauditlog"]);
    assert!(shown.starts_with("enabled             false\nlogger              FileAuditLogger\n"), "{shown}");
    assert_eq!(control(&data, &["enableauditlog", "--excluded-keyspaces", "other", "--roll-cycle", "DAILY"]), "");
    let shown = control(&data, &["getauditlog"]);
    assert!(shown.contains("enabled             true\n") && shown.contains("roll_cycle          DAILY\n"), "{shown}");
    assert!(shown.contains("excluded_keyspaces  other\n"), "{shown}");

    let queries = directory.join("queries");
    let path = queries.to_str().unwrap();
    let refused = failure(&run(&["enablefullquerylog", "--data", data.to_str().unwrap()]));
    assert_eq!(refused, "espalier: cassandra.yaml did not set log_dir and not set as parameter");
    assert_eq!(control(&data, &["enablefullquerylog", "--path", path, "--blocking", "false"]), "");
    let shown = control(&data, &["getfullquerylog"]);
    assert!(shown.contains("enabled             true\n") && shown.contains("block               false\n"), "{shown}");
    assert!(shown.contains(&format!("log_dir             {path}\n")), "{shown}");
    let refused = failure(&run(&["enablefullquerylog", "--data", data.to_str().unwrap(), "--path", path]));
    assert_eq!(refused, "espalier: Already logging to a full query log");

    node.query("SELECT release_version FROM system.local");
    assert_eq!(control(&data, &["disableauditlog"]), "");
    assert_eq!(control(&data, &["disablefullquerylog"]), "");
    node.query("SELECT cluster_name FROM system.local");
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (audit, queries) = (text(&data.join("audit/audit.log")), text(&queries.join("full_query.log")));
    for log in [&audit, &queries] {
        assert!(log.contains("SELECT release_version FROM system.local"), "{log}");
        assert!(!log.contains("SELECT cluster_name"), "{log}");
    }
    assert!(control(&data, &["getfullquerylog"]).contains("enabled             false\n"));
    assert_eq!(control(&data, &["resetfullquerylog"]), "");
    assert!(!directory.join("queries/full_query.log").exists());
    let binary = run(&["enableauditlog", "--data", data.to_str().unwrap(), "--logger", "BinAuditLogger"]);
    assert_eq!(failure(&binary), "espalier: logger: BinAuditLogger is not supported; accepted: FileAuditLogger");
}

/// Recorded from Cassandra, which changes the choice of its configuration while the log is on as configured.
#[test]
fn options_of_the_audit_log_that_a_command_does_not_name_are_those_of_the_configuration() {
    let directory = TemporaryDirectory::create();
    let shown = |data: &Path| {
        let answer = control(data, &["getauditlog"]);
        let value = |key: &str| {
            let line = answer.lines().find(|line| line.starts_with(key)).unwrap();
            line[key.len()..].trim().to_owned()
        };
        ["enabled", "roll_cycle", "excluded_keyspaces", "included_users", "excluded_users"].map(value).join(" ")
    };
    let start = |name: &str, enabled: &str| {
        let data = directory.join(name);
        let mut command = espalier(&["serve", "--data", data.to_str().unwrap(), "--port", "0"]);
        let options =
            format!("{{enabled: {enabled}, logger: FileAuditLogger, excluded_users: robot, roll_cycle: DAILY}}");
        command.env("ESPALIER_AUDIT_LOGGING_OPTIONS", options);
        (Node::launch(command), data)
    };

    let (_node, data) = start("off", "false");
    control(&data, &["enableauditlog", "--excluded-keyspaces", "other", "--roll-cycle", "HOURLY"]);
    assert_eq!(shown(&data), "true HOURLY other  robot");
    control(&data, &["enableauditlog", "--included-users", "ada,robot"]);
    assert_eq!(shown(&data), "true DAILY system,system_schema,system_virtual_schema ada robot");
    control(&data, &["disableauditlog"]);
    assert_eq!(shown(&data), "false DAILY system,system_schema,system_virtual_schema  robot");

    let (_node, data) = start("on", "true");
    control(&data, &["enableauditlog", "--excluded-keyspaces", "other", "--roll-cycle", "HOURLY"]);
    assert_eq!(shown(&data), "true HOURLY other  robot");
    control(&data, &["enableauditlog", "--included-users", "ada,robot"]);
    assert_eq!(shown(&data), "true DAILY other ada robot");
    control(&data, &["disableauditlog"]);
    assert_eq!(shown(&data), "false DAILY other ada robot");
    // The log that a command turned on leaves the configuration as it is.
    control(&data, &["enableauditlog", "--excluded-users", "ada"]);
    assert_eq!(shown(&data), "true DAILY other  ada");
    control(&data, &["enableauditlog", "--excluded-users", "eve"]);
    assert_eq!(shown(&data), "true DAILY other ada eve");
}

#[test]
fn groups_of_addresses_are_changed_and_looked_up() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let _node = Node::start(&data);
    assert_eq!(control(&data, &["listcidrgroups"]), "");
    assert_eq!(control(&data, &["updatecidrgroup", "office", "10.1.2.3/8", "2001:db8::/32"]), "");
    assert_eq!(control(&data, &["updatecidrgroup", "lab", "10.1.0.0/16", "192.168.0.0/16"]), "");
    assert_eq!(control(&data, &["listcidrgroups"]), "[CIDR Groups]\nlab\noffice\n");
    assert_eq!(control(&data, &["listcidrgroups", "office"]), "[CIDRs]\n10.0.0.0/8\n2001:db8::/32\n");
    assert_eq!(control(&data, &["getcidrgroupsofip", "10.1.7.7"]), "[CIDR Groups]\nlab\n");
    assert_eq!(control(&data, &["updatecidrgroup", "lab", "192.168.0.0/16"]), "");
    assert_eq!(control(&data, &["getcidrgroupsofip", "10.1.7.7"]), "[CIDR Groups]\noffice\n");
    assert_eq!(control(&data, &["getcidrgroupsofip", "8.8.8.8"]), "");
    assert_eq!(control(&data, &["reloadcidrgroupscache"]), "Reloaded CIDR groups cache\n");
    assert_eq!(control(&data, &["dropcidrgroup", "lab"]), "Deleted CIDR group lab\n");
    let fails = |arguments: &[&str]| {
        failure(&run(&[&[arguments[0], "--data", data.to_str().unwrap()], &arguments[1..]].concat()))
    };
    assert_eq!(fails(&["dropcidrgroup", "lab"]), "espalier: CIDR group 'lab' doesn't exists");
    assert_eq!(fails(&["updatecidrgroup", "lab", "10.0.0.0"]), "espalier: 10.0.0.0 is not a valid CIDR String");
    assert_eq!(fails(&["getcidrgroupsofip", "ten"]), "espalier: Invalid IP ten");
}
