//! Tools for SSTables, on files that Cassandra wrote.

use testkit::TemporaryDirectory;

use crate::node::{Node, failure, run};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sstable/tests/from_cassandra/5.0.8").join(name)
}

fn text(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A copy with one bit of Data.db flipped.
fn damaged(name: &str, directory: &TemporaryDirectory) -> PathBuf {
    let target = directory.join(name);
    std::fs::create_dir_all(&target).unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if path.to_string_lossy().ends_with("-Data.db") {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        std::fs::write(target.join(path.file_name().unwrap()), bytes).unwrap();
    }
    target
}

#[test]
fn an_sstable_is_dumped_verified_and_described() {
    let directory = fixture("wide_rt");
    let directory = directory.to_str().unwrap();
    let dump: serde_json::Value = serde_json::from_str(&text(&["sstable", "dump", "-t", directory])).unwrap();
    let lines = text(&["sstable", "dump", "-t", "--lines", directory]);
    assert_eq!(lines.lines().count(), dump.as_array().unwrap().len());
    assert!(text(&["sstable", "dump", "--rows", directory]).lines().count() > lines.lines().count());
    assert!(text(&["sstable", "verify", "--extended", directory]).contains("da-1-bti: sound, "));
    let metadata = text(&["sstable", "metadata", "--json", directory]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(metadata["Partitioner"], "org.apache.cassandra.dht.Murmur3Partitioner");
    assert!(text(&["sstable", "metadata", directory]).contains("\nMinimum timestamp: "));
}

#[test]
fn an_export_has_cassandras_components_and_the_same_rows() {
    let scratch = TemporaryDirectory::create();
    let exported = scratch.join("exported");
    let names = |directory: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    for name in ["wide_rt", "kv"] {
        let (source, target) = (fixture(name), exported.join(name));
        let (from, to) = (source.to_str().unwrap(), target.to_str().unwrap());
        let reported = text(&["sstable", "export", "--to", to, from]);
        assert!(reported.contains("da-1-bti: ") && reported.trim_end().ends_with(" rows"), "{reported}");
        let ours = names(&target);
        assert!(ours.is_subset(&names(&source)), "{ours:?}");
        assert!(!ours.iter().any(|file| file.contains("Checksums")), "{ours:?}");
        assert!(text(&["sstable", "verify", "--extended", to]).contains("da-1-bti: sound, "));
        let rows = |directory| text(&["sstable", "dump", "--rows", directory]);
        assert_eq!(rows(to), rows(from), "{name}");
    }
    let damaged = damaged("wide_rt", &scratch);
    let target = scratch.join("of_damaged");
    let refused = failure(&run(&["sstable", "export", "--to", target.to_str().unwrap(), damaged.to_str().unwrap()]));
    assert!(refused.contains("da-1-bti-Data.db is corrupt at offset "), "{refused}");
    assert_eq!(names(&target).len(), 0, "what is not sound is not exported");
}

#[test]
fn sstables_of_the_older_format_are_dumped_verified_and_described() {
    for version in ["nb", "oa"] {
        let directory = fixture("kv").join("../../5.0.8-big").join(version).join("wide");
        let directory = directory.to_str().unwrap();
        let rows = text(&["sstable", "dump", "--rows", directory]);
        // Two partitions: 360 rows, 24 bounds and a static row each; then one row and the deletion of a partition.
        assert_eq!(rows.lines().count(), 2 * (360 + 24 + 1) + 2, "{version}");
        let verified = text(&["sstable", "verify", directory]);
        assert!(verified.contains("-big: sound, 2 partitions\n"), "{verified}");
        let metadata = text(&["sstable", "metadata", "--json", directory]);
        let metadata: serde_json::Value = serde_json::from_str(metadata.lines().next().unwrap()).unwrap();
        assert!(metadata["Files"]["Index.db"].as_u64().is_some());
        assert_eq!(metadata["First key"] == "--", version == "nb");
        let target = TemporaryDirectory::create();
        let refused = failure(&run(&["sstable", "export", "--to", target.0.to_str().unwrap(), directory]));
        assert!(refused.contains("export of the format big"), "{refused}");
    }
}

#[test]
fn damage_is_reported_and_the_rest_is_saved() {
    let scratch = TemporaryDirectory::create();
    let directory = damaged("wide_rt", &scratch);
    let directory = directory.to_str().unwrap();
    let verified = run(&["sstable", "verify", directory]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&verified.stdout).contains("Data.db is corrupt"), "{verified:?}");
    assert!(failure(&run(&["sstable", "dump", directory])).contains("corrupt file da-1-bti-Data.db at offset "));
    let saved = scratch.join("saved");
    let salvaged = run(&["sstable", "salvage", "--to", saved.to_str().unwrap(), directory]);
    assert_eq!(salvaged.status.code(), Some(1), "something was lost");
    assert!(
        String::from_utf8_lossy(&salvaged.stdout).contains("\nlost: bytes ") || salvaged.stdout.starts_with(b"lost: ")
    );
    text(&["sstable", "verify", "--extended", saved.to_str().unwrap()]);
}

#[test]
fn a_path_without_an_sstable_is_one_clear_line() {
    let none = failure(&run(&["sstable", "dump", "/proc/self/status"]));
    assert!(
        none.contains("neither a file of a da-*-bti-*, oa-*-big-* or nb-*-big-* SSTable nor a directory with one"),
        "{none}"
    );
    let scratch = TemporaryDirectory::create();
    let absent =
        failure(&run(&["upgrade-from", "--data", scratch.join("n").to_str().unwrap(), scratch.0.to_str().unwrap()]));
    assert!(absent.contains("no data directory of a Cassandra node"), "{absent}");
}

#[test]
fn imports_go_through_a_running_node() {
    let scratch = TemporaryDirectory::create();
    let data = scratch.join("data");
    let _node = Node::start(&data);
    let arguments = ["sstable", "import", "--data", data.to_str().unwrap(), "ks", "t", fixture("kv").to_str().unwrap()]
        .map(str::to_owned);
    let refused = failure(&run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(refused, "espalier: Keyspace [ks] does not exist.");
}

#[test]
fn a_running_node_is_exported() {
    let scratch = TemporaryDirectory::create();
    let data = scratch.join("data");
    let node = Node::start(&data);
    node.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    node.query("INSERT INTO ks.t (k, v) VALUES (1, 'not flushed')");
    let to = scratch.join("out");
    let arguments = ["export", "--data", data.to_str().unwrap(), "--to", to.to_str().unwrap()];
    let reported = text(&arguments);
    assert!(reported.ends_with(&format!(" SSTables in {}\n", to.join("data").display())), "{reported}");
    let tables =
        |keyspace: &str| std::fs::read_dir(to.join("data").join(keyspace)).unwrap().map(|entry| entry.unwrap().path());
    let exported = tables("ks").next().unwrap();
    let rows = text(&["sstable", "dump", "--rows", exported.to_str().unwrap()]);
    assert!(rows.lines().count() == 1 && rows.contains("not flushed"), "{rows}");
    assert!(tables("system_schema").count() >= 4);
    node.query("INSERT INTO ks.t (k, v) VALUES (2, 'afterwards')");
    let snapshots = data.join("data/ks").join(exported.file_name().unwrap()).join("snapshots");
    assert_eq!(std::fs::read_dir(snapshots).unwrap().count(), 0, "what it copied from is gone");
    assert!(failure(&run(&arguments)).ends_with("is there already"));
}
