//! Side files: log records of one quarantined table, as `FORMAT.md` describes them.
//!
//! A file gets its name once it is complete and durable, and is never changed afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use model::TableId;
use uuid::Uuid;

use crate::error::EngineError;

const MAGIC: &[u8; 8] = b"ESPASIDE";
const VERSION: u32 = 1;
/// Marks the end, in the place of a record's length.
const END: u32 = u32::MAX;
const HEAD_START_SIZE_BYTES: u64 = 16;
const SUFFIX: &str = ".records";
const UNFINISHED_SUFFIX: &str = ".records.new";
/// Bytes that are written at once.
const CHUNK_SIZE_BYTES: usize = 1 << 20;
/// A message is shortened to this when it is stored, bytes.
const REASON_SIZE_BYTES_MAX: usize = 4 << 10;
/// The longest head that is read: names of a keyspace and a table have at most 64 KiB each.
const NAMES_SIZE_BYTES_MAX: u32 = 1 << 18;

/// The table whose records a file holds, and the reason why they were set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SideFileHead {
    pub id: TableId,
    pub keyspace: String,
    pub table: String,
    pub reason: String,
}

impl SideFileHead {
    fn encode(&self) -> Vec<u8> {
        let mut names = self.id.0.as_bytes().to_vec();
        let mut reason_end = self.reason.len().min(REASON_SIZE_BYTES_MAX);
        while !self.reason.is_char_boundary(reason_end) {
            reason_end -= 1;
        }
        for text in [&*self.keyspace, &*self.table, &self.reason[..reason_end]] {
            names.extend_from_slice(&(text.len() as u32).to_be_bytes());
            names.extend_from_slice(text.as_bytes());
        }
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_be_bytes());
        head.extend_from_slice(&(names.len() as u32).to_be_bytes());
        head.extend_from_slice(&names);
        head.extend_from_slice(&crc32fast::hash(&head).to_be_bytes());
        head
    }

    fn decode(names: &[u8]) -> Option<SideFileHead> {
        let (id, mut rest) = names.split_first_chunk::<16>()?;
        let mut text = || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (text, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = behind;
            String::from_utf8(text.to_vec()).ok()
        };
        let (keyspace, table, reason) = (text()?, text()?, text()?);
        rest.is_empty().then_some(SideFileHead { id: TableId(Uuid::from_bytes(*id)), keyspace, table, reason })
    }
}

/// The directory of a node's side files.
#[derive(Clone)]
pub(crate) struct SideFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
}

impl SideFiles {
    pub fn new(disk: &Arc<dyn Disk>, data_directory: &Path) -> SideFiles {
        SideFiles { disk: disk.clone(), directory: data_directory.join("quarantine") }
    }

    /// The paths of a table's files, oldest first.
    pub fn of_table(&self, id: TableId) -> Result<Vec<PathBuf>, EngineError> {
        if !self.disk.exists(&self.directory)? {
            return Ok(Vec::new());
        }
        let entries = self.disk.list(&self.directory)?;
        let mut numbers: Vec<u32> = entries.iter().filter_map(|entry| number_of(&entry.name, id)).collect();
        numbers.sort_unstable();
        Ok(numbers.into_iter().map(|number| self.directory.join(name_of(id, number))).collect())
    }

    /// The paths of the files of tables that are not known.
    pub fn of_others(&self, is_known: impl Fn(TableId) -> bool) -> Result<Vec<PathBuf>, EngineError> {
        if !self.disk.exists(&self.directory)? {
            return Ok(Vec::new());
        }
        let entries = self.disk.list(&self.directory)?;
        let is_others = |name: &str| id_of(name).is_some_and(|id| !is_known(id));
        Ok(entries
            .iter()
            .filter(|entry| is_others(&entry.name))
            .map(|entry| self.directory.join(&entry.name))
            .collect())
    }

    /// Begins a new file of a table.
    pub fn create(&self, head: &SideFileHead) -> Result<SideFileWriter, EngineError> {
        self.disk.create_dir_all(&self.directory)?;
        let last = self.of_table(head.id)?.pop();
        let last = last.and_then(|path| number_of(&path.file_name()?.to_string_lossy(), head.id)).unwrap_or(0);
        let path = self.directory.join(name_of(head.id, last + 1));
        let unfinished = path.with_extension("records.new");
        let file = self.disk.open(&unfinished, OpenOptions::create())?;
        Ok(SideFileWriter {
            disk: self.disk.clone(),
            file,
            unfinished,
            path,
            pending: head.encode(),
            written_bytes: 0,
            records: 0,
        })
    }

    /// Removes a table's files, durably.
    pub fn remove(&self, id: TableId) -> Result<(), EngineError> {
        let files = self.of_table(id)?;
        for path in &files {
            self.disk.remove_file(path)?;
        }
        if files.is_empty() { Ok(()) } else { Ok(self.disk.sync_dir(&self.directory)?) }
    }

    /// Removes files that were left incomplete.
    pub fn remove_unfinished(&self) -> Result<(), EngineError> {
        if !self.disk.exists(&self.directory)? {
            return Ok(());
        }
        for entry in self.disk.list(&self.directory)?.iter().filter(|entry| entry.name.ends_with(UNFINISHED_SUFFIX)) {
            self.disk.remove_file(&self.directory.join(&entry.name))?;
        }
        Ok(())
    }

    /// Opens a file and reads its head.
    pub fn open(&self, path: &Path) -> Result<(SideFileHead, SideFileReader), EngineError> {
        let file = self.disk.open(path, OpenOptions::read())?;
        let length_bytes = file.len()?;
        let mut reader = SideFileReader { file, path: path.to_path_buf(), offset: 0, length_bytes, records: 0 };
        let head = reader.read_head()?;
        Ok((head, reader))
    }
}

/// A file that is being written. If it is dropped before it is finished, the next start removes it.
pub(crate) struct SideFileWriter {
    disk: Arc<dyn Disk>,
    file: Box<dyn File>,
    unfinished: PathBuf,
    path: PathBuf,
    pending: Vec<u8>,
    written_bytes: u64,
    records: u64,
}

impl SideFileWriter {
    /// Appends an update, serialized.
    pub fn append(&mut self, update: &[u8]) -> Result<(), EngineError> {
        debug_assert!(!update.is_empty() && update.len() < END as usize, "an update that a log record held");
        let length = (update.len() as u32).to_be_bytes();
        self.pending.extend_from_slice(&length);
        self.pending.extend_from_slice(&crc_of(&[&length, update]).to_be_bytes());
        self.pending.extend_from_slice(update);
        self.records += 1;
        if self.pending.len() < CHUNK_SIZE_BYTES { Ok(()) } else { self.write_pending() }
    }

    fn write_pending(&mut self) -> Result<(), EngineError> {
        self.file.write_at(&self.pending, self.written_bytes)?;
        self.written_bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Completes the file and gives it its name. It is durable when this returns.
    pub fn finish(mut self) -> Result<PathBuf, EngineError> {
        let (mark, count) = (END.to_be_bytes(), self.records.to_be_bytes());
        self.pending.extend_from_slice(&mark);
        self.pending.extend_from_slice(&count);
        self.pending.extend_from_slice(&crc_of(&[&mark, &count]).to_be_bytes());
        self.write_pending()?;
        self.file.sync_data()?;
        self.disk.rename(&self.unfinished, &self.path)?;
        for directory in self.path.ancestors().skip(1).take(2) {
            self.disk.sync_dir(directory)?;
        }
        Ok(self.path)
    }
}

/// A file that is being read, front to end.
pub(crate) struct SideFileReader {
    file: Box<dyn File>,
    path: PathBuf,
    offset: u64,
    length_bytes: u64,
    records: u64,
}

impl SideFileReader {
    /// Where the next record begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn damage(&self, offset: u64, expected: &str, found: &str) -> EngineError {
        let (path, expected, found) = (self.path.clone(), expected.to_owned(), found.to_owned());
        EngineError::SideFile { path, offset, expected, found }
    }

    fn take(&mut self, length: u64, expected: &str) -> Result<Vec<u8>, EngineError> {
        // The file's own length bounds what is allocated.
        if self.length_bytes - self.offset < length {
            return Err(self.damage(self.offset, expected, "the end of the file"));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, self.offset)?;
        self.offset += length;
        Ok(bytes)
    }

    fn take_u32(&mut self, expected: &str) -> Result<u32, EngineError> {
        let bytes = self.take(4, expected)?;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    fn check_crc(&mut self, start: u64, parts: &[&[u8]]) -> Result<(), EngineError> {
        let (expected, found) = (crc_of(parts), self.take_u32("a checksum")?);
        if expected == found {
            return Ok(());
        }
        Err(self.damage(start, &format!("bytes of checksum {found:08x}"), &format!("{expected:08x}")))
    }

    /// Reads the head; returns whose records these are.
    fn read_head(&mut self) -> Result<SideFileHead, EngineError> {
        let start = self.take(HEAD_START_SIZE_BYTES, "a side file of a quarantined table")?;
        let (magic, rest) = start.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(self.damage(0, "a side file of a quarantined table", "another file"));
        }
        let numbers: Vec<u32> =
            rest.chunks(4).map(|part| part.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))).collect();
        let [version, length] = numbers[..] else { return Err(self.damage(8, "a version and a length", "less")) };
        if version != VERSION {
            return Err(self.damage(8, &format!("version {VERSION}"), &format!("version {version}")));
        }
        if length > NAMES_SIZE_BYTES_MAX {
            return Err(self.damage(12, "names of a table", &format!("{length} bytes")));
        }
        let names = self.take(length.into(), "names of a table")?;
        self.check_crc(0, &[&start, &names])?;
        let at = HEAD_START_SIZE_BYTES;
        let head = SideFileHead::decode(&names).ok_or_else(|| self.damage(at, "names of a table", "other bytes"))?;
        match self.path.file_name().and_then(|name| number_of(&name.to_string_lossy(), head.id)) {
            Some(_) => Ok(head),
            None => Err(self.damage(at, "the table id of the file's name", &head.id.0.simple().to_string())),
        }
    }

    /// The next update, serialized; `None` at the end.
    pub fn next_update(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        let start = self.offset;
        let length = self.take_u32("a record or the end mark")?;
        if length == END {
            return self.check_end(start).map(|()| None);
        }
        let found = self.take_u32("a checksum")?;
        let update = self.take(length.into(), "a record")?;
        let expected = crc_of(&[&length.to_be_bytes(), &update]);
        if expected != found {
            return Err(self.damage(start, &format!("a record of checksum {found:08x}"), &format!("{expected:08x}")));
        }
        self.records += 1;
        Ok(Some(update))
    }

    fn check_end(&mut self, start: u64) -> Result<(), EngineError> {
        let count = self.take(8, "the number of records")?;
        self.check_crc(start, &[&END.to_be_bytes(), &count])?;
        if count != self.records.to_be_bytes() || self.offset != self.length_bytes {
            return Err(self.damage(start, "the end after all records", "another number of them, or more bytes"));
        }
        Ok(())
    }
}

fn crc_of(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn name_of(id: TableId, number: u32) -> String {
    format!("{}-{number}{SUFFIX}", id.0.simple())
}

fn id_of(name: &str) -> Option<TableId> {
    let id = TableId(Uuid::try_parse(name.split_once('-')?.0).ok()?);
    number_of(name, id).map(|_| id)
}

fn number_of(name: &str, id: TableId) -> Option<u32> {
    let rest = name.strip_prefix(&id.0.simple().to_string())?.strip_prefix('-')?;
    rest.strip_suffix(SUFFIX)?.parse().ok()
}
