//! The current file of a log of requests, and those that were renamed.

use super::options::{Kind, RollCycle};
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use types::text::{Separator, format_timestamp};

/// The current file is renamed before its period is over if it reaches this part of the size of all files.
const CURRENT_PART: u64 = 4;

/// Lines are written when their total length reaches this, so that a long queue is not in memory twice.
const WRITE_BYTES: usize = 1 << 20;

/// The files of a log in one directory. Only the log's thread uses them.
#[derive(Debug)]
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
        let directory = directory.to_owned();
        let (size_bytes, period_start, is_torn) = (0, 0, false);
        let mut files = Files { kind, directory, cycle, size_bytes_max, file, size_bytes, period_start, is_torn };
        files.refresh_state()?;
        Ok(files)
    }

    /// Reads the size, the period and the end of the current file.
    pub fn refresh_state(&mut self) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        self.size_bytes = metadata.len();
        let written = if self.size_bytes > 0 { metadata.modified()? } else { SystemTime::now() };
        self.period_start = self.cycle.period_start(written);
        self.is_torn = self.size_bytes > 0 && !ends_with_line_break(&self.file, self.size_bytes)?;
        Ok(())
    }

    /// Appends entries with their times. The error has the number of entries that were not written.
    pub fn append<'e>(
        &mut self,
        entries: impl IntoIterator<Item = &'e (SystemTime, String), IntoIter: ExactSizeIterator>,
    ) -> Result<(), (usize, io::Error)> {
        let mut entries = entries.into_iter();
        self.follow().map_err(|error| (entries.len(), error))?;
        let (mut lines, mut unwritten) = (String::new(), 0);
        loop {
            let entry = entries.next();
            let is_over = entry.is_none_or(|(time, _)| self.is_over(*time, lines.len()));
            if (is_over || lines.len() >= WRITE_BYTES) && !lines.is_empty() {
                let others = entries.len() + usize::from(entry.is_some());
                self.write(&lines).map_err(|(whole, error)| (unwritten - whole + others, error))?;
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

    /// Opens the current file again if it is no longer in its place because it or the directory was moved or removed.
    fn follow(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        if std::fs::symlink_metadata(self.current())
            .is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
        {
            return Ok(());
        }
        *self = Files::open(self.kind, &self.directory, self.cycle, self.size_bytes_max)?;
        Ok(())
    }

    /// Whether an entry of this time belongs to a new file. This many bytes wait to be written.
    fn is_over(&self, time: SystemTime, waiting_bytes: usize) -> bool {
        self.cycle.period_start(time) > self.period_start
            || self.size_bytes + waiting_bytes as u64 >= self.size_bytes_max / CURRENT_PART
    }

    /// Appends lines. The error has the number of lines that were written whole: a full device takes the first ones,
    /// and perhaps a part of the next.
    fn write(&mut self, lines: &str) -> Result<(), (usize, io::Error)> {
        if self.is_torn {
            self.file.write_all(b"\n").map_err(|error| (0, error))?;
            (self.size_bytes, self.is_torn) = (self.size_bytes + 1, false);
        }
        let (lines, mut end) = (lines.as_bytes(), 0);
        while let Some(rest) = lines.get(end..).filter(|rest| !rest.is_empty()) {
            let error = match self.file.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(bytes) => {
                    end += bytes;
                    self.size_bytes += bytes as u64;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let written = lines.get(..end).unwrap_or_default();
            self.is_torn = written.last().is_some_and(|last| *last != b'\n');
            return Err((written.iter().filter(|byte| **byte == b'\n').count(), error));
        }
        Ok(())
    }

    /// Renames the current file, begins a new one, and removes the oldest.
    fn roll(&mut self, time: SystemTime) -> io::Result<()> {
        if self.size_bytes > 0 {
            std::fs::rename(self.current(), self.rolled_path()?)?;
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

    /// A name that no file has yet: the beginning of the period, and a number above those of its other files. A lower
    /// one would make the newest file look like the oldest.
    fn rolled_path(&self) -> io::Result<PathBuf> {
        let start = format_timestamp(self.period_start as i64 * 1000, Separator::Literal);
        let start: String = start.chars().take("2026-11-26T11:50".len()).filter(|c| *c != ':').collect();
        let rolled = rolled(self.kind, &self.directory)?;
        let last = rolled.iter().filter(|file| file.start == start).map(|file| file.number).max();
        let number = last.map_or(0, |last| last.saturating_add(1));
        Ok(self.directory.join(format!("{}{start}.{number:04}.log", self.kind.rolled_prefix())))
    }

    /// Removes the oldest files while all of them are too large together.
    fn remove_oldest(&self) -> io::Result<()> {
        let mut rolled = rolled(self.kind, &self.directory)?;
        rolled.sort();
        let mut size_bytes: u64 = rolled.iter().map(|file| file.size_bytes).sum();
        for file in rolled {
            if size_bytes <= self.size_bytes_max {
                break;
            }
            std::fs::remove_file(file.path)?;
            size_bytes -= file.size_bytes;
        }
        Ok(())
    }
}

/// A file that was renamed. The order is that of age.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rolled {
    /// The beginning of its period, as its name has it.
    start: String,
    /// Its number within the period.
    number: u64,
    path: PathBuf,
    size_bytes: u64,
}

/// The files that were renamed.
fn rolled(kind: Kind, directory: &Path) -> io::Result<Vec<Rolled>> {
    let mut rolled = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.strip_prefix(kind.rolled_prefix())?.strip_suffix(".log"));
        let Some((start, number)) = parts.and_then(|parts| parts.rsplit_once('.')) else { continue };
        let Ok(number) = number.parse() else { continue };
        rolled.push(Rolled {
            start: start.to_owned(),
            number,
            path: entry.path(),
            size_bytes: entry.metadata()?.len(),
        });
    }
    Ok(rolled)
}

/// Removes all files of a log that is closed.
pub(super) fn remove_all(kind: Kind, directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for file in rolled(kind, directory)? {
        std::fs::remove_file(file.path)?;
    }
    match std::fs::remove_file(directory.join(kind.current())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file to append to it. Anything else of this name is refused: a pipe or a device could block the node, and a
/// link could lead to another file.
fn open_current(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{} is no regular file", path.display()))),
    }
}

/// Whether a file, which is not empty, ends with a whole line.
fn ends_with_line_break(file: &File, size_bytes: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, size_bytes - 1)?;
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
    fn the_newest_files_of_a_period_stay_when_all_are_too_large() {
        let directory = directory("newest");
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Daily, 4000).unwrap();
        files.period_start = 0;
        let mut order = Vec::new();
        for second in 0..200 {
            files.append(&[(at(second), format!("{second:04} {}", "x".repeat(600)))]).unwrap();
            order = rolled(Kind::Audit, &directory).unwrap();
        }
        order.sort();
        let paths = order.iter().map(|file| file.path.clone()).chain([files.current()]);
        let text: String = paths.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let kept: Vec<u64> = text.lines().map(|line| line.split(' ').rev().nth(1).unwrap().parse().unwrap()).collect();
        assert!(kept.len() >= 5, "{kept:?}");
        assert_eq!(kept, (200 - kept.len() as u64..200).collect::<Vec<_>>());
        // Numbers with more digits are higher ones.
        let last = order.pop().unwrap();
        let many = |number: u64| directory.join(format!("audit-1970-01-01T0000.{number:04}.log"));
        std::fs::rename(&last.path, many(9_999)).unwrap();
        assert_eq!(files.rolled_path().unwrap(), many(10_000));
        std::fs::write(many(10_000), "newest").unwrap();
        assert_eq!(rolled(Kind::Audit, &directory).unwrap().iter().max().unwrap().path, many(10_000));
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
    fn lines_that_a_full_device_still_took_are_not_lost() {
        let directory = directory("full");
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Daily, 1 << 30).unwrap();
        // A pipe that does not wait is full after some bytes, and has room again once it is read.
        let (mut reader, writer) = std::io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        files.file = File::from(std::os::fd::OwnedFd::from(writer));
        let lines = format!("{}\n", "x".repeat(999)).repeat(200);
        let (whole, error) = files.write(&lines).unwrap_err();
        assert_eq!((error.kind(), files.is_torn), (io::ErrorKind::WouldBlock, true));
        assert_eq!((whole as u64, !files.size_bytes.is_multiple_of(1000)), (files.size_bytes / 1000, true));
        assert_eq!(files.write(&lines).unwrap_err().0, 0);
        let mut taken = vec![0; files.size_bytes as usize];
        std::io::Read::read_exact(&mut reader, &mut taken).unwrap();
        assert!(taken == lines.as_bytes()[..taken.len()], "the first bytes were written once");
        files.write("next\n").unwrap();
        drop(files);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut reader, &mut rest).unwrap();
        assert_eq!(rest, "\nnext\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn only_a_regular_file_is_opened() {
        let directory = directory("regular");
        std::fs::create_dir_all(&directory).unwrap();
        let current = directory.join(Kind::FullQuery.current());
        let open = || Files::open(Kind::FullQuery, &directory, RollCycle::Daily, 1 << 30).err().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &current, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(open().to_string().ends_with("full_query.log is no regular file"), "{}", open());
        std::fs::remove_file(&current).unwrap();
        for target in ["/dev/full", "elsewhere"] {
            std::os::unix::fs::symlink(target, &current).unwrap();
            assert_eq!(open().raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
            std::fs::remove_file(&current).unwrap();
        }
        std::fs::create_dir(&current).unwrap();
        assert_eq!(open().kind(), io::ErrorKind::IsADirectory);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_was_moved_or_whose_directory_was_removed_is_created_again() {
        let directory = directory("moved");
        let mut files = Files::open(Kind::Audit, &directory, RollCycle::Daily, 1 << 30).unwrap();
        let mut append = |text: &str| files.append(&[(SystemTime::now(), text.to_owned())]);
        let current = directory.join(Kind::Audit.current());
        append("first").unwrap();
        let moved = directory.join("moved");
        std::fs::rename(&current, &moved).unwrap();
        append("second").unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        append("third").unwrap();
        let text = std::fs::read_to_string(&current).unwrap();
        assert!(text.ends_with("- third\n") && text.lines().count() == 1, "{text}");
        // While there can be no directory, all entries are lost, and later ones are not.
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::write(&directory, "in its place").unwrap();
        assert_eq!(append("fourth").unwrap_err().0, 1);
        std::fs::remove_file(&directory).unwrap();
        append("fifth").unwrap();
        assert!(std::fs::read_to_string(&current).unwrap().ends_with("- fifth\n"));
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
