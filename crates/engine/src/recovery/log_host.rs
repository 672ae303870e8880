//! The owner of the commit log: the log's host id is also kept in the data directory. A node refuses the log of another
//! node, because its records are for other tables, and its own node needs them.
//!
//! The id of a new log is in the file before the log exists. After a crash in between there is no log, and the next
//! start creates another id.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, DiskError, DiskErrorKind, OpenOptions};
use commitlog::{CommitLog, LogOptions};
use uuid::Uuid;

use crate::error::EngineError;

/// The name of the file in the data directory. It contains the id as text, and a line feed.
const FILE_NAME: &str = "host-id";
/// The name of the file until it is complete.
const NEW_FILE_NAME: &str = "host-id.new";

/// The place of the id.
#[derive(Clone)]
pub(crate) struct LogHost {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
}

impl LogHost {
    pub fn new(disk: &Arc<dyn Disk>, directory: &Path) -> LogHost {
        LogHost { disk: Arc::clone(disk), directory: directory.to_path_buf() }
    }

    /// Sets the options so that only this node's log, or a new one, is opened. `has_tables` means that the node was
    /// used before: if it kept no id, an older build did not have one, and the log is its own.
    pub fn claim(&self, options: &mut LogOptions, has_tables: bool) -> Result<(), EngineError> {
        // This is an id that no node has, so any existing log belongs to another node.
        let of_no_log = || (!has_tables).then(Uuid::new_v4);
        options.host_id = self.kept()?.or_else(of_no_log);
        let keeper = self.clone();
        options.on_new_log = Some(Arc::new(move |id| keeper.keep(id)));
        Ok(())
    }

    /// Keeps the id of the opened log.
    pub fn took(&self, log: &CommitLog) -> Result<(), EngineError> {
        let id = log.host_id();
        if self.kept()? == Some(id) {
            return Ok(());
        }
        match self.keep(id) {
            // This log is from an older build: the next start finds the same state, and a full disk does not prevent
            // reads.
            Err(error) if error.kind() == DiskErrorKind::Full => Ok(()),
            kept => Ok(kept?),
        }
    }

    fn kept(&self) -> Result<Option<Uuid>, EngineError> {
        let path = self.directory.join(FILE_NAME);
        let file = match self.disk.open(&path, OpenOptions::read()) {
            Err(error) if error.kind() == DiskErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = vec![0; file.len()? as usize];
        file.read_exact_at(&mut text, 0)?;
        let id = str::from_utf8(&text).ok().and_then(|text| Uuid::parse_str(text.trim()).ok());
        let damaged = || {
            let what = format!("{} does not hold the host id of the node's commit log", path.display());
            EngineError::Startup(format!("{what}: write the one that `espalier log describe` shows into it"))
        };
        id.map(Some).ok_or_else(damaged)
    }

    /// Writes the id. It is durable when this returns.
    fn keep(&self, id: Uuid) -> Result<(), DiskError> {
        let new = self.directory.join(NEW_FILE_NAME);
        let file = self.disk.open(&new, OpenOptions::create())?;
        file.write_at(format!("{id}\n").as_bytes(), 0)?;
        file.sync_data()?;
        self.disk.rename(&new, &self.directory.join(FILE_NAME))?;
        self.disk.sync_dir(&self.directory)
    }
}
