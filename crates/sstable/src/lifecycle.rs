//! Which files of a directory count: replacing tables by others in one step, removing all, and what a crash leaves behind.
//!
//! See FORMAT.md for the protocol. A replacement is decided by one rename: before it nothing has happened, after it the
//! rest is carried out, if need be at the next start.

use std::path::Path;

use blockio::{Disk, OpenOptions};

use crate::descriptor::{Component, Descriptor, SSTableId, TEMPORARY};
use crate::error::{Corruption, SSTableError};
use crate::new_files::PreparedSSTable;
use crate::reader::read_whole;

/// Names of replacement records.
const RECORD_PREFIX: &str = "replacement-";
const RECORD_SUFFIX: &str = ".log";

/// The new and the old tables of a replacement.
#[derive(Debug, Default, PartialEq, Eq)]
struct Record {
    added: Vec<SSTableId>,
    removed: Vec<SSTableId>,
}

impl Record {
    fn encode(&self) -> String {
        let mut text = String::new();
        for id in &self.added {
            text += &format!("add {id}\n");
        }
        for id in &self.removed {
            text += &format!("remove {id}\n");
        }
        let crc = crc32fast::hash(text.as_bytes());
        text + &format!("crc {crc:08x}\n")
    }

    fn decode(file: &str, bytes: &[u8]) -> Result<Record, SSTableError> {
        let damaged = |got: &str| SSTableError::from(Corruption::new(file, 0, "a replacement record", got.to_owned()));
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("bytes that are not UTF-8"))?;
        let (body, crc) = text.rsplit_once("crc ").ok_or_else(|| damaged("no checksum"))?;
        if crc != format!("{:08x}\n", crc32fast::hash(body.as_bytes())) {
            return Err(damaged("another checksum"));
        }
        let mut record = Record::default();
        for line in body.lines() {
            let (list, id) = match line.split_once(' ') {
                Some(("add", id)) => (&mut record.added, id),
                Some(("remove", id)) => (&mut record.removed, id),
                _ => return Err(damaged(line)),
            };
            list.push(SSTableId::parse(id).ok_or_else(|| damaged(line))?);
        }
        Ok(record)
    }
}

/// Makes the prepared tables visible and removes the obsolete ones, all or nothing, also across a crash. All are in
/// `dir`. Open readers of obsolete tables go on reading.
///
/// After an error callers keep using what they had open; it tells whether the next start may decide otherwise.
pub fn replace_tables(
    disk: &dyn Disk,
    dir: &Path,
    prepared: Vec<PreparedSSTable>,
    obsolete: &[Descriptor],
) -> Result<Vec<Descriptor>, ReplaceError> {
    let added: Vec<Descriptor> = prepared.iter().map(|table| table.descriptor().clone()).collect();
    let record = Record {
        added: added.iter().map(|table| table.id.clone()).collect(),
        removed: obsolete.iter().map(|table| table.id.clone()).collect(),
    };
    let Some(first) = record.added.first().or(record.removed.first()) else { return Ok(added) };
    let path = dir.join(format!("{RECORD_PREFIX}{first}{RECORD_SUFFIX}"));
    let temporary = dir.join(format!("{RECORD_PREFIX}{first}{RECORD_SUFFIX}{TEMPORARY}"));
    if let Err(error) = write_record(disk, dir, &record, &temporary) {
        // Best effort: a record under a temporary name means nothing.
        let _ = disk.remove_file(&temporary);
        return Err(ReplaceError { error, may_be_decided: false });
    }
    let decided = disk.rename(&temporary, &path).and_then(|()| disk.sync_dir(dir));
    // From here on the record may be on the device: the prepared files must stay, whatever happens.
    prepared.into_iter().for_each(PreparedSSTable::keep);
    let carried_out = decided.map_err(SSTableError::from).and_then(|()| carry_out(disk, dir, &record, &path));
    carried_out.map_err(|error| ReplaceError { error, may_be_decided: true })?;
    Ok(added)
}

/// A replacement that was not carried out.
#[derive(Debug)]
pub struct ReplaceError {
    /// What went wrong.
    pub error: SSTableError,
    /// Whether the next start may carry it out: if not, nothing has happened.
    pub may_be_decided: bool,
}

impl From<ReplaceError> for SSTableError {
    fn from(error: ReplaceError) -> Self {
        error.error
    }
}

/// Writes a record under its temporary name, durably, and with it the names of the files that it speaks of.
fn write_record(disk: &dyn Disk, dir: &Path, record: &Record, temporary: &Path) -> Result<(), SSTableError> {
    let file = disk.open(temporary, OpenOptions::create())?;
    file.write_at(record.encode().as_bytes(), 0)?;
    file.sync_data()?;
    Ok(disk.sync_dir(dir)?)
}

/// Does what a record says, from whatever point it was left at.
fn carry_out(disk: &dyn Disk, dir: &Path, record: &Record, path: &Path) -> Result<(), SSTableError> {
    let names: Vec<String> =
        disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect();
    let of = |id: &SSTableId, name: &str| Descriptor::parse_file_name(name).is_some_and(|(other, _)| other == *id);
    let toc_temporary = format!("{}{TEMPORARY}", Component::Toc.name());
    for id in &record.added {
        let temporary = |name: &&String| of(id, name) && name.ends_with(TEMPORARY);
        let (toc, others): (Vec<_>, Vec<_>) =
            names.iter().filter(temporary).partition(|name| name.ends_with(&toc_temporary));
        for name in others.into_iter().chain(toc) {
            disk.rename(&dir.join(name), &dir.join(name.trim_end_matches(TEMPORARY)))?;
        }
    }
    disk.sync_dir(dir)?;
    for id in &record.removed {
        for name in names.iter().filter(|name| of(id, name)) {
            disk.remove_file(&dir.join(name))?;
        }
    }
    disk.sync_dir(dir)?;
    disk.remove_file(path)?;
    Ok(disk.sync_dir(dir)?)
}

/// Finishes replacements that were decided, then removes what unfinished writes left in a directory: temporary files,
/// and tables without TOC.txt. Called before any table of the directory is opened or written; returns the names removed.
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, SSTableError> {
    for entry in disk.list(dir)? {
        if !entry.is_dir && entry.name.starts_with(RECORD_PREFIX) && entry.name.ends_with(RECORD_SUFFIX) {
            let path = dir.join(&entry.name);
            let record = Record::decode(&entry.name, &read_whole(disk, &path)?.unwrap_or_default())?;
            carry_out(disk, dir, &record, &path)?;
        }
    }
    let names: Vec<String> =
        disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect();
    let complete: Vec<SSTableId> = names
        .iter()
        .filter_map(|name| Descriptor::parse_file_name(name))
        .filter(|(_, component)| *component == Component::Toc.name())
        .map(|(id, _)| id)
        .collect();
    let is_leftover = |name: &String| match Descriptor::parse_file_name(name) {
        Some((id, _)) => name.ends_with(TEMPORARY) || !complete.contains(&id),
        None => name.starts_with(RECORD_PREFIX) && name.ends_with(TEMPORARY),
    };
    let leftovers: Vec<String> = names.into_iter().filter(is_leftover).collect();
    for name in &leftovers {
        disk.remove_file(&dir.join(name))?;
    }
    if !leftovers.is_empty() {
        disk.sync_dir(dir)?;
    }
    Ok(leftovers)
}

/// Removes all tables of a directory with everything that belongs to them, finished or not; other files and directories
/// (snapshots) stay. Nobody may write there meanwhile; open readers go on reading. After a crash in the middle every table is
/// there or a leftover, and calling it again goes on.
pub fn remove_tables(disk: &dyn Disk, dir: &Path) -> Result<(), SSTableError> {
    let entries = disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name);
    let is_ours = |name: &String| {
        let is_record = name.starts_with(RECORD_PREFIX);
        Descriptor::parse_file_name(name).is_some()
            || is_record && name.trim_end_matches(TEMPORARY).ends_with(RECORD_SUFFIX)
    };
    // A table without TOC.txt is a leftover: so is one that a replacement puts in place of others after this.
    let is_toc = |name: &String| name.trim_end_matches(TEMPORARY).ends_with(Component::Toc.name());
    let (tocs, others): (Vec<_>, Vec<_>) = entries.filter(is_ours).partition(is_toc);
    for names in [tocs, others] {
        for name in &names {
            disk.remove_file(&dir.join(name))?;
        }
        if !names.is_empty() {
            disk.sync_dir(dir)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_damage_is_seen() {
        let record = Record {
            added: vec![SSTableId::from_sequence(9)],
            removed: vec![SSTableId::from_sequence(1), SSTableId::from_sequence(2)],
        };
        let text = record.encode();
        assert_eq!(Record::decode("r", text.as_bytes()).unwrap(), record);
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(Record::decode("r", &damaged).is_err(), "{at}");
            assert!(Record::decode("r", &text.as_bytes()[..at]).is_err(), "{at}");
        }
    }
}
