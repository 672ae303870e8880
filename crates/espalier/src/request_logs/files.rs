//! The current file of a log of requests, and those that were renamed.

use super::options::{Kind, RollCycle};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use types::text::{Separator, format_timestamp};

/// The current file is renamed before its period is over if it reaches this part of the size of all files.
const CURRENT_PART: u64 = 4;

/// The files of a log in one directory. Only the log's thread uses them.
pub(super) struct Files {
    kind: Kind,
    directory: PathBuf,
    cycle: RollCycle,
    size_bytes_max: u64,
    file: File,
    size_bytes: u64,
    /// The beginning of the current file's period, seconds since the epoch.
    period_start: u64,
    /// Whether the file may end within a line, because a write failed.
    is_torn: bool,
}

impl Files {
    /// Opens the current file, which may be there from an earlier start.
    pub fn open(kind: Kind, directory: &Path, cycle: RollCycle, size_bytes_max: u64) -> io::Result<Files> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let file = open_current(&directory.join(kind.current()))?;
        let metadata = file.metadata()?;
        let size_bytes = metadata.len();
        let written = if size_bytes > 0 { metadata.modified()? } else { SystemTime::now() };
        let period_start = cycle.period_start(written);
        let is_torn = size_bytes > 0 && !ends_with_line_break(&directory.join(kind.current()))?;
        let directory = directory.to_owned();
        Ok(Files { kind, directory, cycle, size_bytes_max, file, size_bytes, period_start, is_torn })
    }

    /// Appends entries with their times. The error has the number of entries that were not written.
    pub fn append<'e>(
        &mut self,
        entries: impl IntoIterator<Item = &'e (SystemTime, String), IntoIter: ExactSizeIterator>,
    ) -> Result<(), (usize, io::Error)> {
        let mut entries = entries.into_iter();
        let (mut lines, mut unwritten) = (String::new(), 0);
        loop {
            let entry = entries.next();
            let is_over = entry.is_none_or(|(time, _)| self.is_over(*time, lines.len()));
            if is_over && !lines.is_empty() {
                self.write(&lines)
                    .map_err(|error| (unwritten + entries.len() + usize::from(entry.is_some()), error))?;
                (lines, unwritten) = (String::new(), 0);
            }
            let Some((time, text)) = entry else { return Ok(()) };
            if is_over {
                self.roll(*time).map_err(|error| (entries.len() + 1, error))?;
            }
            lines += &self.kind.line(*time, text);
            unwritten += 1;
        }
    }

    /// Whether an entry of this time belongs to a new file. This many bytes wait to be written.
    fn is_over(&self, time: SystemTime, waiting_bytes: usize) -> bool {
        self.cycle.period_start(time) > self.period_start
            || self.size_bytes + waiting_bytes as u64 >= self.size_bytes_max / CURRENT_PART
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
        }
        self.is_torn = true;
        self.file.write_all(lines.as_bytes())?;
        self.is_torn = false;
        self.size_bytes += lines.len() as u64;
        Ok(())
    }

    /// Renames the current file, begins a new one, and removes the oldest.
    fn roll(&mut self, time: SystemTime) -> io::Result<()> {
        if self.size_bytes > 0 {
            std::fs::rename(self.current(), self.rolled_path())?;
            self.file = open_current(&self.current())?;
            (self.size_bytes, self.is_torn) = (0, false);
            self.remove_oldest()?;
        }
        self.period_start = self.cycle.period_start(time);
        Ok(())
    }

    fn current(&self) -> PathBuf {
        self.directory.join(self.kind.current())
    }

    /// A name that no file has yet. Names sort by age.
    fn rolled_path(&self) -> PathBuf {
        let start = format_timestamp(self.period_start as i64 * 1000, Separator::Literal);
        let start: String = start.chars().take("2026-11-26T11:50".len()).filter(|c| *c != ':').collect();
        let path = |number: u32| self.directory.join(format!("{}{start}.{number:04}.log", self.kind.rolled_prefix()));
        (0..).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(u32::MAX))
    }

    /// Removes the oldest files while all of them are too large together.
    fn remove_oldest(&self) -> io::Result<()> {
        let mut rolled = rolled(self.kind, &self.directory)?;
        rolled.sort();
        let mut size: u64 = rolled.iter().map(|(_, size)| size).sum();
        for (path, file_size) in rolled {
            if size <= self.size_bytes_max {
                break;
            }
            std::fs::remove_file(path)?;
            size -= file_size;
        }
        Ok(())
    }
}

/// The files that were renamed, with their sizes in bytes.
fn rolled(kind: Kind, directory: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut rolled = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let is_rolled = |name: &str| name.starts_with(kind.rolled_prefix()) && name.ends_with(".log");
        if entry.file_name().to_str().is_some_and(is_rolled) {
            rolled.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(rolled)
}

/// Removes all files of a log that is closed.
pub(super) fn remove_all(kind: Kind, directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for (path, _) in rolled(kind, directory)? {
        std::fs::remove_file(path)?;
    }
    match std::fs::remove_file(directory.join(kind.current())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_current(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Whether a file, which is not empty, ends with a whole line.
fn ends_with_line_break(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("espalier-audit-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        directory
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7)
    }

    #[test]
    fn a_line_looks_like_one_of_cassandras_log() {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_693_783_356);
        assert_eq!(
            Kind::Audit.line(time, "user:a"),
            "INFO  [audit-log] 2026-11-26 11:49:43,356 FileAuditLogger - user:a\n"
        );
        let line = Kind::FullQuery.line(time, "type:batch");
        assert_eq!(line, "INFO  [full-query-log] 2026-11-26 11:49:43,356 FullQueryLogger - type:batch\n");
    }

    #[test]
    fn each_period_has_a_file_of_its_own() {
        let directory = directory("periods");
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Hourly, 1 << 30).unwrap();
        files.period_start = 0;
        let entries = [
            (at(10), "a".to_owned()),
            (at(3599), "b".to_owned()),
            (at(3600), "c".to_owned()),
            (at(9000), "d".to_owned()),
        ];
        files.append(&entries).unwrap();
        assert_eq!(
            names(&directory),
            ["audit-1970-01-01T0000.0000.log", "audit-1970-01-01T0100.0000.log", "audit.log"]
        );
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(text("audit-1970-01-01T0000.0000.log").lines().count(), 2);
        assert!(text("audit-1970-01-01T0100.0000.log").ends_with("- c\n") && text("audit.log").ends_with("- d\n"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_oldest_files_are_removed_when_all_are_too_large() {
        let directory = directory("oldest");
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Minutely, 4000).unwrap();
        files.period_start = 0;
        for minute in 0..60 {
            files.append(&[(at(minute * 60), "x".repeat(300))]).unwrap();
        }
        let names = names(&directory);
        let size: u64 = names.iter().map(|name| std::fs::metadata(directory.join(name)).unwrap().len()).sum();
        assert!((2000..=5000).contains(&size), "{size} bytes in {names:?}");
        assert_eq!(names.last().map(String::as_str), Some("audit.log"));
        assert!(names.contains(&"audit-1970-01-01T0058.0000.log".to_owned()), "{names:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_large_file_is_renamed_within_its_period() {
        let directory = directory("large");
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Daily, 4000).unwrap();
        files.period_start = 0;
        let entries: Vec<_> = (0..8).map(|second| (at(second), "x".repeat(600))).collect();
        files.append(&entries).unwrap();
        assert_eq!(names(&directory).len(), 4, "{:?}", names(&directory));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_line_that_was_cut_short_is_ended() {
        let directory = directory("cut");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(Kind::Audit.current()), "half a li").unwrap();
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Daily, 1 << 30).unwrap();
        files.append(&[(SystemTime::now(), "whole".to_owned())]).unwrap();
        let text = std::fs::read_to_string(directory.join(Kind::Audit.current())).unwrap();
        assert!(text.starts_with("half a li\nINFO ") && text.ends_with(" - whole\n"), "{text}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_start_continues_the_file() {
        let directory = directory("continued");
        let now = SystemTime::now();
        for text in ["first", "second"] {
            let mut files = Files::open(Kind::Audit, &directory, RollCycle::Daily, 1 << 30).unwrap();
            files.period_start = RollCycle::Daily.period_start(now);
            files.append(&[(now, text.to_owned())]).unwrap();
        }
        let text = std::fs::read_to_string(directory.join(Kind::Audit.current())).unwrap();
        let entries: Vec<_> = text.lines().map(|line| line.split(" - ").nth(1).unwrap()).collect();
        assert_eq!(entries, ["first", "second"]);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
