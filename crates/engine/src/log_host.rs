//! Whose log it is: the host id that the node's commit log bears is kept in the data directory too. A node does not
//! take the log of another one: what is in that is of other tables, and wanted by its own node.
//!
//! The id of a log that is about to be made is in the file before there is the log. A crash between leaves no log, for
//! which the next start makes another id.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, DiskError, DiskErrorKind, OpenOptions};
use commitlog::{CommitLog, LogOptions};
use uuid::Uuid;

use crate::error::EngineError;

/// In the data directory: the id as text, and a line's end.
const FILE_NAME: &str = "host-id";
/// Its name until it is whole.
const NEW_FILE_NAME: &str = "host-id.new";

/// Where it is kept.
#[derive(Clone)]
pub(crate) struct LogHost {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
}

impl LogHost {
    pub fn new(disk: &Arc<dyn Disk>, directory: &Path) -> LogHost {
        LogHost { disk: Arc::clone(disk), directory: directory.to_path_buf() }
    }

    /// Has the log that is opened be this node's, or a new one. `has_tables`: the node was here before; where it kept
    /// no id, an older build did not know of one, and the log is taken to be its own.
    pub fn claim(&self, options: &mut LogOptions, has_tables: bool) -> Result<(), EngineError> {
        // An id that nobody has: whatever log is there is another node's.
        let of_no_log = || (!has_tables).then(Uuid::new_v4);
        options.host_id = self.kept()?.or_else(of_no_log);
        let keeper = self.clone();
        options.on_new_log = Some(Arc::new(move |id| keeper.keep(id)));
        Ok(())
    }

    /// The log was opened: its id is the node's.
    pub fn took(&self, log: &CommitLog) -> Result<(), EngineError> {
        let id = log.host_id();
        if self.kept()? == Some(id) {
            return Ok(());
        }
        match self.keep(id) {
            // It is an older build's log: the next start finds it as this one did, and a full disk keeps nobody from
            // reading.
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

    /// Durable when it returns.
    fn keep(&self, id: Uuid) -> Result<(), DiskError> {
        let new = self.directory.join(NEW_FILE_NAME);
        let file = self.disk.open(&new, OpenOptions::create())?;
        file.write_at(format!("{id}\n").as_bytes(), 0)?;
        file.sync_data()?;
        self.disk.rename(&new, &self.directory.join(FILE_NAME))?;
        self.disk.sync_dir(&self.directory)
    }
}
