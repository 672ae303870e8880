//! The audit log and the full query log on a device that takes no more.

use testkit::TemporaryDirectory;

use crate::admin::{control, number};
use crate::node::{Node, espalier};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The room that is left for each log, bytes.
const ROOM_BYTES: u64 = 10_000;

/// Files of the node may have no more than this many bytes. The commit log is smaller.
const FILE_BLOCKS: u64 = 512 << 10;

/// A command that runs another one, which gets an error where it would make a file too large. This is how a full device
/// looks to it: a write takes a part of the bytes, and the next one none.
fn with_small_files(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {FILE_BLOCKS}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// The largest size of a file for commands of `with_small_files`, bytes. The unit of `ulimit` depends on the shell.
fn file_bytes_max() -> u64 {
    let mut cat = Command::new("cat");
    cat.arg("/proc/self/limits");
    let limits = String::from_utf8(with_small_files(&cat).output().unwrap().stdout).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file size")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Makes the current file of a log, with room for `ROOM_BYTES` more. It takes no space on the disk.
fn fill(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = File::create(path).unwrap();
    file.set_len(file_bytes_max() - ROOM_BYTES - 1).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"\n").unwrap();
}

/// The number of whole lines with this end in the last part of a file.
fn whole_lines(path: &Path, end: &str) -> u64 {
    let file = File::open(path).unwrap();
    let size_bytes = file.metadata().unwrap().len();
    let last_bytes = size_bytes.min(ROOM_BYTES);
    let mut text = vec![0; last_bytes as usize];
    file.read_exact_at(&mut text, size_bytes - last_bytes).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines = text.split_inclusive('\n').filter(|line| line.starts_with("INFO ") && line.ends_with(end));
    lines.count() as u64
}

/// A log in this test.
struct Log {
    path: PathBuf,
    /// How the line of an entry ends.
    end: &'static str,
    /// Its name in the answer to `status`.
    lost: &'static str,
}

/// Requests are served, each entry is written or counted as lost, and the node's log says what happened. Once there is
/// room again, entries are written again.
fn a_full_device_is_reported(waits: bool) {
    const REQUESTS: u64 = 60;
    let directory = TemporaryDirectory::create();
    let (data, queries) = (directory.join("data"), directory.join("queries"));
    let logs = [
        Log { path: data.join("audit/audit.log"), end: "= 'end'\n", lost: "Audit log, lost entries" },
        Log { path: queries.join("full_query.log"), end: "= 'end'|values:\n", lost: "Query log, lost entries" },
    ];
    logs.iter().for_each(|log| fill(&log.path));
    let mut command = espalier(&["serve", "--data", data.to_str().unwrap(), "--port", "0"]);
    let options = "enabled: true, logger: FileAuditLogger, roll_cycle: DAILY, excluded_keyspaces: none";
    command.env("ESPALIER_AUDIT_LOGGING_OPTIONS", format!("{{{options}, block: {waits}}}"));
    let node = Node::launch(with_small_files(&command));
    let (path, waits) = (queries.to_str().unwrap(), waits.to_string());
    control(&data, &["enablefullquerylog", "--path", path, "--blocking", &waits, "--roll-cycle", "DAILY"]);
    let send = || {
        let select =
            format!("SELECT key FROM system.local /* {} */ WHERE key = 'end'", "x".repeat(ROOM_BYTES as usize / 20));
        (0..REQUESTS).for_each(|_| assert_eq!(node.row_count(&select), 0));
    };
    let lost = |log: &Log| number(&control(&data, &["status"]), log.lost);
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        }
    };

    send();
    let mut counts = Vec::new();
    for log in &logs {
        wait_until("each entry is written or lost", &|| whole_lines(&log.path, log.end) + lost(log) == REQUESTS);
        let written = whole_lines(&log.path, log.end);
        assert!((5..20).contains(&written), "{written} entries in {}", log.path.display());
        std::fs::rename(&log.path, log.path.with_extension("full")).unwrap();
        counts.push(lost(log));
    }
    send();
    for (log, count) in logs.iter().zip(counts) {
        wait_until("later entries are written", &|| log.path.exists() && whole_lines(&log.path, log.end) > 0);
        assert_eq!(lost(log), count);
    }
    node.signal("TERM");
    let (status, rest) = node.end();
    assert_eq!(status, Some(0));
    for kind in ["audit log", "full query log"] {
        let report = format!(" of the {kind} lost: File too large (os error 27)");
        assert!(rest.lines().any(|line| line.contains("ERROR") && line.contains(&report)), "{rest}");
    }
}

#[test]
fn a_full_device_is_reported_where_requests_wait_for_logs() {
    a_full_device_is_reported(true);
}

#[test]
fn a_full_device_is_reported_where_requests_do_not_wait_for_logs() {
    a_full_device_is_reported(false);
}
