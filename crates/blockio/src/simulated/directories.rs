//! Directories are made one by one, and become durable with a sync of their parent, as on the real disk.

use std::path::Path;

use super::State;
use super::faults::Verb;
use super::names::Node;
use crate::DiskError;
use crate::directories::DirectoryCalls;

pub(super) struct SimulatedCalls<'a> {
    pub state: &'a mut State,
}

impl DirectoryCalls for SimulatedCalls<'_> {
    fn is_directory(&mut self, path: &Path) -> bool {
        self.state.names.get(path) == Some(Node::Directory)
    }

    fn make(&mut self, path: &Path) -> Result<(), DiskError> {
        self.state.names.set(path, Some(Node::Directory));
        Ok(())
    }

    fn sync_name(&mut self, path: &Path, _was_found: bool) -> Result<(), DiskError> {
        let Some(parent) = path.parent() else { return Ok(()) };
        self.state.on_names(Verb::SyncDirectory, "sync directory", parent)?;
        self.state.names.sync(parent);
        Ok(())
    }
}
