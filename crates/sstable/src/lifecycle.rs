//! The lifecycle of SSTables in a directory: replacing tables atomically, removing all tables, and cleaning up after a
//! crash.
//!
//! FORMAT.md describes the protocol. One rename decides a replacement: before it nothing has happened, and after it the
//! rest is carried out, if necessary at the next start. A table also appears and disappears by one rename, that of its
//! TOC.txt. A table whose TOC.txt has neither name is therefore damaged, and not a leftover.

use std::collections::{BTreeMap, BTreeSet};
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

/// Makes the prepared tables visible and removes the obsolete ones, atomically even across a crash. All are in `dir`.
/// Open readers of obsolete tables keep working.
///
/// After an error callers keep using what they had open. The error says whether the next start may decide otherwise.
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
        // Best effort: a record under a temporary name is meaningless.
        let _ = disk.remove_file(&temporary);
        return Err(ReplaceError { error, may_be_decided: false });
    }
    let decided = disk.rename(&temporary, &path).and_then(|()| disk.sync_dir(dir));
    // From here on the record may be on the device, so the prepared files must stay, whatever happens.
    prepared.into_iter().for_each(PreparedSSTable::keep);
    let applied = decided.map_err(SSTableError::from).and_then(|()| apply_record(disk, dir, &record, &path));
    applied.map_err(|error| ReplaceError { error, may_be_decided: true })?;
    Ok(added)
}

/// A replacement that failed.
#[derive(Debug)]
pub struct ReplaceError {
    /// The cause.
    pub error: SSTableError,
    /// Whether the next start may still carry it out. If false, nothing has happened.
    pub may_be_decided: bool,
}

impl From<ReplaceError> for SSTableError {
    fn from(error: ReplaceError) -> Self {
        error.error
    }
}

/// Writes a record durably under its temporary name, and makes the names of the files in it durable.
fn write_record(disk: &dyn Disk, dir: &Path, record: &Record, temporary: &Path) -> Result<(), SSTableError> {
    let file = disk.open(temporary, OpenOptions::create())?;
    file.write_at(record.encode().as_bytes(), 0)?;
    file.sync_data()?;
    Ok(disk.sync_dir(dir)?)
}

/// Carries out a record, from whatever point it had reached.
fn apply_record(disk: &dyn Disk, dir: &Path, record: &Record, path: &Path) -> Result<(), SSTableError> {
    let names = file_names(disk, dir)?;
    let of = |id: &SSTableId, name: &str| Descriptor::parse_file_name(name).is_some_and(|(other, _)| other == *id);
    for id in &record.added {
        let temporary = |name: &&String| of(id, name) && name.ends_with(TEMPORARY);
        let (toc, others): (Vec<_>, Vec<_>) = names.iter().filter(temporary).partition(|name| is_toc(name));
        for name in others.into_iter().chain(toc) {
            disk.rename(&dir.join(name), &dir.join(name.trim_end_matches(TEMPORARY)))?;
        }
    }
    disk.sync_dir(dir)?;
    // The order does not matter: until the record is gone it says that these tables are removed.
    for id in &record.removed {
        for name in names.iter().filter(|name| of(id, name)) {
            disk.remove_file(&dir.join(name))?;
        }
    }
    disk.sync_dir(dir)?;
    disk.remove_file(path)?;
    Ok(disk.sync_dir(dir)?)
}

fn file_names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, SSTableError> {
    Ok(disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect())
}

/// Whether the name is that of a TOC.txt, temporary or not.
fn is_toc(name: &str) -> bool {
    let component = Descriptor::parse_file_name(name).map(|(_, component)| component.trim_end_matches(TEMPORARY));
    component == Some(Component::Toc.name())
}

/// Whether the name is that of a decided replacement's record.
fn is_record(name: &str) -> bool {
    name.starts_with(RECORD_PREFIX) && name.ends_with(RECORD_SUFFIX)
}

fn is_temporary_record(name: &str) -> bool {
    name.strip_suffix(TEMPORARY).is_some_and(is_record)
}

/// The files found of a table.
#[derive(Default)]
struct FoundFiles {
    toc: bool,
    temporary_toc: bool,
    /// Other components under their final names.
    others: bool,
}

impl FoundFiles {
    /// The tables among a directory's names, by id.
    fn among(names: &[String]) -> BTreeMap<SSTableId, FoundFiles> {
        let mut found = BTreeMap::<SSTableId, FoundFiles>::new();
        for name in names {
            let Some((id, _)) = Descriptor::parse_file_name(name) else { continue };
            let found = found.entry(id).or_default();
            match (is_toc(name), name.ends_with(TEMPORARY)) {
                (true, false) => found.toc = true,
                (true, true) => found.temporary_toc = true,
                (false, false) => found.others = true,
                (false, true) => {}
            }
        }
        found
    }

    /// Whether it is left over from an interrupted write or removal: these have TOC.txt under its temporary name as
    /// long as any file has its final name.
    fn is_leftover(&self) -> bool {
        !self.toc && (self.temporary_toc || !self.others)
    }

    fn has_lost_toc(&self) -> bool {
        !self.toc && !self.is_leftover()
    }
}

/// Makes the names of a directory durable, finishes decided replacements, and then removes what unfinished writes and
/// removals left: temporary files, and tables whose TOC.txt has its temporary name. It is called before any table of
/// the directory is opened or written, because a caller that finds a table may discard the part of the log that the
/// table covers. Returns the removed names. A table without any TOC.txt is damaged and stays: see [`missing_tocs`].
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, SSTableError> {
    // The process that named a file may have been killed before it synced the name.
    disk.sync_dir(dir)?;
    for name in file_names(disk, dir)?.iter().filter(|name| is_record(name)) {
        let path = dir.join(name);
        let record = Record::decode(name, &read_whole(disk, &path)?.unwrap_or_default())?;
        apply_record(disk, dir, &record, &path)?;
    }
    let names = file_names(disk, dir)?;
    let found = FoundFiles::among(&names);
    let is_leftover = |id: &SSTableId| found.get(id).is_some_and(FoundFiles::is_leftover);
    let mut removed = remove_files(disk, dir, &is_leftover)?;
    let is_temporary = |name: &&String| match Descriptor::parse_file_name(name) {
        Some((id, _)) => !is_leftover(&id) && name.ends_with(TEMPORARY),
        None => is_temporary_record(name),
    };
    let temporary: Vec<String> = names.iter().filter(is_temporary).cloned().collect();
    remove_and_sync(disk, dir, &temporary)?;
    removed.extend(temporary);
    Ok(removed)
}

/// The damage of tables that have components but no TOC.txt, which neither a write nor a removal causes. This includes
/// the format `big`, whose files other programs may have put there.
pub fn missing_tocs(disk: &dyn Disk, dir: &Path) -> Result<Vec<SSTableError>, SSTableError> {
    let names = file_names(disk, dir)?;
    let lost = FoundFiles::among(&names).into_iter().filter(|(_, found)| found.has_lost_toc());
    let lost = lost.map(|(id, _)| Descriptor::new(dir, id)).chain(big_without_toc(dir, &names));
    let damage = |table: Descriptor| {
        Corruption::new(&table.file_name(Component::Toc), 0, "a component that every table has", "no such file").into()
    };
    Ok(lost.map(damage).collect())
}

fn big_without_toc(dir: &Path, names: &[String]) -> impl Iterator<Item = Descriptor> {
    let of = |name: &String| Descriptor::of_path(&dir.join(name)).filter(Descriptor::is_big);
    let tables: BTreeSet<Descriptor> = names.iter().filter_map(of).collect();
    tables.into_iter().filter(|table| !names.contains(&table.file_name(Component::Toc)))
}

/// Removes tables of a directory with all their files; open readers keep working. After a crash in the middle each
/// table is complete or a leftover.
pub fn remove_tables(disk: &dyn Disk, dir: &Path, tables: &[Descriptor]) -> Result<(), SSTableError> {
    if tables.is_empty() {
        // The directory may not exist either.
        return Ok(());
    }
    remove_files(disk, dir, &|id| tables.iter().any(|table| table.id == *id)).map(|_| ())
}

/// Removes all tables of a directory with all their files, finished or not; other files and directories (snapshots)
/// stay. Nothing may write there meanwhile; open readers keep working. After a crash in the middle every table is
/// complete or a leftover, and calling it again continues.
pub fn remove_all_tables(disk: &dyn Disk, dir: &Path) -> Result<(), SSTableError> {
    for name in file_names(disk, dir)?.iter().filter(|name| is_record(name)) {
        let path = dir.join(name);
        // A record that outlived the TOC.txt of its tables would bring them back. The contents of a damaged record do
        // not matter here.
        match Record::decode(name, &read_whole(disk, &path)?.unwrap_or_default()) {
            Ok(record) => apply_record(disk, dir, &record, &path)?,
            Err(_) => disk.remove_file(&path)?,
        }
    }
    remove_files(disk, dir, &|_| true)?;
    let mut temporary = file_names(disk, dir)?;
    temporary.retain(|name| is_temporary_record(name));
    remove_and_sync(disk, dir, &temporary)
}

/// Removes all files of tables and returns their names. Only this function decides the order: TOC.txt gets its
/// temporary name, which makes its table a leftover; the other files are removed; TOC.txt is removed last.
fn remove_files(
    disk: &dyn Disk,
    dir: &Path,
    is_gone: &dyn Fn(&SSTableId) -> bool,
) -> Result<Vec<String>, SSTableError> {
    let mut names = file_names(disk, dir)?;
    names.retain(|name| Descriptor::parse_file_name(name).is_some_and(|(id, _)| is_gone(&id)));
    let (tocs, others): (Vec<_>, Vec<_>) = names.iter().cloned().partition(|name| is_toc(name));
    let mut temporary = BTreeSet::new();
    for toc in &tocs {
        let name = format!("{}{TEMPORARY}", toc.trim_end_matches(TEMPORARY));
        if name != *toc {
            disk.rename(&dir.join(toc), &dir.join(&name))?;
        }
        temporary.insert(name);
    }
    if !temporary.is_empty() {
        // This is needed even if nothing was renamed: the process that began this may have been killed before its
        // rename was durable.
        disk.sync_dir(dir)?;
    }
    remove_and_sync(disk, dir, &others)?;
    remove_and_sync(disk, dir, &temporary.into_iter().collect::<Vec<_>>())?;
    Ok(names)
}

fn remove_and_sync(disk: &dyn Disk, dir: &Path, names: &[String]) -> Result<(), SSTableError> {
    for name in names {
        disk.remove_file(&dir.join(name))?;
    }
    if names.is_empty() { Ok(()) } else { Ok(disk.sync_dir(dir)?) }
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
