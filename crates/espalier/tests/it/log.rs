//! The commit log from an operator's view.

use testkit::TemporaryDirectory;

use crate::node::{Node, espalier, failure, run};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The output of `espalier log VERB`, and whether it succeeded.
fn log(verb: &str, data: &Path, more: &[&str]) -> (bool, String) {
    let output = run(&[&["log", verb, "--data", data.to_str().unwrap()], more].concat());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_log_of_a_running_and_of_a_stopped_node_is_shown() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    let (sound, text) = log("describe", &data, &[]);
    assert!(sound && text.contains("segments of 33554432 bytes, 1 in use"), "{text}");
    let status = String::from_utf8(run(&["status", "--data", data.to_str().unwrap()]).stdout).unwrap();
    assert!(status.contains("CommitLog.TotalCommitLogSize: 33554432\n"), "{status}");
    node.signal("KILL");
    node.end();
    let (sound, text) = log("verify", &data, &[]);
    assert!(sound && text.ends_with(" 0 damaged places\n"), "{text}");
    let (sound, text) = log("dump", &data, &["--json"]);
    assert!(sound && text.lines().count() > 1 && text.starts_with("{\"position\":{\"segment\":"), "{text}");
    let file = data.join("commitlog/commitlog.log");
    let (sound, by_file) = log("dump", &directory.join("elsewhere"), &["--json", "--file", file.to_str().unwrap()]);
    assert!(sound && by_file == text);
    let line = failure(&run(&["log", "describe", "--data", directory.join("elsewhere").to_str().unwrap()]));
    assert!(line.contains("elsewhere/commitlog/commitlog.log"), "{line}");
}

/// The commit log's metrics in `status`, by name.
fn log_metrics(data: &Path) -> HashMap<String, String> {
    let status = String::from_utf8(run(&["status", "--data", data.to_str().unwrap()]).stdout).unwrap();
    let metrics = status.lines().filter_map(|line| line.trim().strip_prefix("CommitLog.")?.split_once(": "));
    metrics.map(|(name, value)| (name.trim_end().to_owned(), value.to_owned())).collect()
}

#[test]
fn log_metrics_have_cassandras_names_and_a_start_reports_its_replay() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let config = directory.join("espalier.yaml");
    std::fs::write(&config, "commitlog_sync: batch\n").unwrap();
    let serve = || {
        let arguments =
            ["serve", "--data", data.to_str().unwrap(), "--port", "0", "--config", config.to_str().unwrap()];
        Node::launch(espalier(&arguments))
    };
    let node = serve();
    assert!(!node.started.contains("the commit log was replayed"), "{}", node.started);
    let metrics = log_metrics(&data);
    let count = |name: &str| metrics[name].split(' ').next().unwrap().parse::<u64>().unwrap();
    // The start writes its own tables, and waits for the device.
    let appended = count("CompletedTasks");
    assert!(appended > 0 && count("WaitingOnCommit") > 0 && count("WaitingOnFlush") > 0, "{metrics:?}");
    assert!(metrics["WaitingOnCommit"].ends_with(" µs)"), "{metrics:?}");
    assert_eq!([count("PendingTasks"), count("WaitingOnSegmentAllocation"), count("OverSizedMutations")], [0; 3]);
    assert_eq!((count("TotalCommitLogSize"), &*metrics["Closed"]), (32 << 20, "no"));
    node.signal("KILL");
    node.end();

    let node = serve();
    let line = node.started.lines().find(|line| line.contains("the commit log was replayed"));
    let field = |name: &str| -> u64 {
        let value = line.unwrap().split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.unwrap().parse().unwrap()
    };
    assert_eq!((field("records"), field("segments"), field("cut_records")), (appended, 1, 0), "{}", node.started);
    assert!(field("mutations") > 0 && field("bytes") > 0, "{}", node.started);
    assert_eq!(field("of_dropped_tables"), 0);
    // The field exists; its value is not checked.
    field("millis");
}

#[test]
fn the_error_for_a_damaged_log_names_the_place_and_the_remedy() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let node = Node::start(&data);
    node.signal("KILL");
    node.end();
    // The first block of the first segment: later frames state that it was on the device.
    let offset = (2 + 256) * 4096;
    let path = data.join("commitlog/commitlog.log");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset + 100).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset + 100).unwrap();
    let (sound, text) = log("verify", &data, &[]);
    assert!(!sound && text.contains(&format!("is damaged at offset {offset}: expected block 0")), "{text}");
    let serve = ["serve", "--data", data.to_str().unwrap(), "--port", "0"];
    let line = failure(&run(&serve));
    assert!(line.contains(&format!("at offset {offset}")) && line.contains("--commitlog-salvage"), "{line}");
}

#[test]
fn the_log_can_be_on_a_device() {
    let directory = TemporaryDirectory::create();
    let data = directory.join("data");
    let device = directory.join("device");
    std::fs::write(&device, vec![0; 9 << 20]).unwrap();
    let config = directory.join("espalier.yaml");
    let text = format!(
        "commitlog_device: {}\ncommitlog_segment_size: 1MiB\ncommitlog_sync: each\ncommit_failure_policy: stop_commit\n",
        device.display()
    );
    std::fs::write(&config, text).unwrap();
    let serve = |data: &Path| {
        let arguments =
            ["serve", "--data", data.to_str().unwrap(), "--port", "0", "--config", config.to_str().unwrap()];
        espalier(&arguments)
    };
    let node = Node::launch(serve(&data));
    let line = failure(&serve(&directory.join("other")).output().unwrap());
    assert!(line.contains("is in use by another process"), "{line}");
    node.signal("KILL");
    node.end();
    let (sound, text) = log("describe", &data, &["--config", config.to_str().unwrap()]);
    assert!(sound && text.starts_with(&format!("{}\n", device.display())) && text.contains("8 segments"), "{text}");
    drop(Node::launch(serve(&data)));
    assert!(!data.join("commitlog/commitlog.log").exists());
}
