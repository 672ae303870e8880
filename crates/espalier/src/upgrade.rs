//! `espalier upgrade-from` and `espalier export`: from a stopped Cassandra node to this database, and back.

use crate::admin::client;
use crate::cli::{ExportNode, UpgradeFrom};
use crate::serve::open_engine;
use std::path::{Path, PathBuf};

/// Adopts a stopped Cassandra node's schema and SSTables. Its directories stay as they are.
pub fn upgrade_from(options: UpgradeFrom) -> Result<(), String> {
    if client::is_running(&options.node) {
        return Err("the node is running: stop it first (SIGTERM)".to_owned());
    }
    let sources: Vec<PathBuf> = options.sources.iter().map(|source| data_directory(source)).collect();
    let Some(main) = sources.iter().find(|source| source.join("system_schema").is_dir()) else {
        let first = options.sources.first().map_or(Path::new(""), PathBuf::as_path).display();
        return Err(format!("{first}: no data directory of a Cassandra node (no system_schema in it)"));
    };
    let commitlog = options.commitlog.unwrap_or_else(|| main.parent().unwrap_or(main).join("commitlog"));
    check_drained(&commitlog)?;
    let engine = open_engine(options.node.data, options.config)?;
    let adopted = engine.adopt(&sources).map_err(|error| error.to_string());
    let closed = engine.shutdown().map_err(|error| error.to_string());
    for table in adopted? {
        println!("{}.{}: {} SSTables", table.keyspace, table.name, table.sstables);
    }
    closed
}

/// The data directory: the one inside a storage directory, or the given one.
fn data_directory(source: &Path) -> PathBuf {
    let inside = source.join("data");
    if inside.join("system_schema").is_dir() { inside } else { source.to_path_buf() }
}

/// Writes a data directory that Cassandra can start from, of a stopped node or through the running one.
pub fn export(options: ExportNode) -> Result<(), String> {
    let data = std::path::absolute(options.to.join("data")).map_err(|error| error.to_string())?;
    if data.exists() {
        return Err(format!("{}: is there already", data.display()));
    }
    if client::is_running(&options.node) {
        return client::export(&options.node, data);
    }
    let engine = open_engine(options.node.data, options.config)?;
    let exported = engine.export(&data).map_err(|error| error.to_string());
    engine.shutdown().map_err(|error| error.to_string())?;
    println!("{}", client::exported(exported?, &data));
    Ok(())
}

/// Fails unless no segment of Cassandra's commit log holds a record.
fn check_drained(commitlog: &Path) -> Result<(), String> {
    let entries = match std::fs::read_dir(commitlog) {
        Ok(entries) => entries,
        Err(error) => return Err(format!("{}: {error} (--commitlog names another directory)", commitlog.display())),
    };
    let mut segments: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    for path in segments {
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if holds_records(&bytes) {
            let path = path.display();
            return Err(format!(
                "{path} holds writes that are in no SSTable: start the Cassandra node, run `nodetool drain`, stop it, and try again"
            ));
        }
    }
    Ok(())
}

/// Whether a segment of Cassandra's log has anything in its sections. An unreadable segment counts as one that has.
fn holds_records(segment: &[u8]) -> bool {
    let int = |at: usize| Some(u32::from_be_bytes(*segment.get(at..)?.first_chunk::<4>()?) as usize);
    if segment.iter().all(|byte| *byte == 0) {
        return false;
    }
    // Header: i32 version, i64 id, u16 length of parameters, parameters, u32 CRC.
    let Some(parameters) = segment.get(12..).and_then(|rest| rest.first_chunk::<2>()) else { return true };
    let mut section = 12 + 2 + usize::from(u16::from_be_bytes(*parameters)) + 4;
    // Section: i32 offset of the next one, u32 CRC, records. The last has offset 0.
    loop {
        match int(section) {
            None => return section < segment.len(),
            Some(0) => return false,
            Some(next) if next == section + 8 => section = next,
            Some(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a segment as Cassandra 5.0.8 leaves it: parameters `{}`, then sections of these lengths.
    fn segment(sections: &[usize]) -> Vec<u8> {
        let mut bytes =
            vec![0, 0, 0, 7, 0, 0, 1, 0xa1, 0xff, 0xc6, 0xea, 0x44, 0, 2, b'{', b'}', 0x76, 0x2e, 0x63, 0x15];
        for length in sections {
            let next = bytes.len() + 8 + length;
            bytes.extend_from_slice(&(next as u32).to_be_bytes());
            bytes.extend_from_slice(&[1; 4]);
            bytes.resize(next, 7);
        }
        bytes.resize(bytes.len() + 100, 0);
        bytes
    }

    #[test]
    fn a_drained_log_has_empty_sections_only() {
        assert!(!holds_records(&segment(&[])));
        assert!(!holds_records(&segment(&[0])));
        assert!(!holds_records(&[0; 64]));
        assert!(holds_records(&segment(&[354])));
        assert!(holds_records(&segment(&[0, 10])));
        assert!(holds_records(&[1, 2, 3]));
    }
}
