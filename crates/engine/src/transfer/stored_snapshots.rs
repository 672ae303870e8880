//! Listing and removing the snapshots on the disk.
//!
//! A snapshot is a directory in `snapshots/` of its table's directory, and stays there when the table is dropped. Its
//! manifest has the time when it was taken and, if it has a lifetime, when it expires. A snapshot is first renamed to a
//! name that the next start removes, and then removed, so that it exists complete or not at all.

use std::path::{Path, PathBuf};

use blockio::{Disk, DiskErrorKind, OpenOptions};

use super::Transfers;
use super::snapshot::timestamp_text;
use crate::error::EngineError;
use crate::files::{MANIFEST, SNAPSHOTS, UNFINISHED};

/// A snapshot of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// The table's keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// The bytes of its files, including SSTables that the table still has.
    pub size_bytes: u64,
    /// When it was taken: ISO 8601, in UTC. `None` if its manifest does not say.
    pub created_at: Option<String>,
    /// When it expires, in the same form; `None` is never.
    pub expires_at: Option<String>,
    directory: PathBuf,
}

impl Transfers {
    /// See [`crate::Engine::snapshots`].
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>, EngineError> {
        let (disk, data) = (&*self.shared.options().disk, self.shared.options().directory.join("data"));
        let mut snapshots = Vec::new();
        for keyspace in directories(disk, &data)? {
            for table in directories(disk, &data.join(&keyspace))? {
                let name = table.rsplit_once('-').map_or(&*table, |(name, _)| name).to_owned();
                let of_table = data.join(&keyspace).join(&table).join(SNAPSHOTS);
                for snapshot in directories(disk, &of_table)? {
                    if !snapshot.starts_with(UNFINISHED) {
                        snapshots.push(describe(disk, &keyspace, &name, &of_table, snapshot)?);
                    }
                }
            }
        }
        Ok(snapshots)
    }

    /// See [`crate::Engine::clear_snapshots`].
    pub fn clear_snapshots(&self, keyspaces: &[String], name: Option<&str>) -> Result<usize, EngineError> {
        let is_meant = |snapshot: &SnapshotInfo| {
            name.is_none_or(|name| snapshot.name == name)
                && (keyspaces.is_empty() || keyspaces.contains(&snapshot.keyspace))
        };
        self.remove_snapshots(is_meant)
    }

    /// See [`crate::Engine::clear_expired_snapshots`].
    pub fn clear_expired_snapshots(&self) -> Result<usize, EngineError> {
        // These texts sort as the times do.
        let now = timestamp_text(self.shared.now_millis());
        self.remove_snapshots(|snapshot| snapshot.expires_at.as_ref().is_some_and(|expires_at| *expires_at <= now))
    }

    fn remove_snapshots(&self, is_meant: impl Fn(&SnapshotInfo) -> bool) -> Result<usize, EngineError> {
        self.shared.check_writable()?;
        let disk = &*self.shared.options().disk;
        let mut count = 0;
        for snapshot in self.snapshots()?.into_iter().filter(is_meant) {
            let Some(parent) = snapshot.directory.parent() else { continue };
            let removed = parent.join(format!("{UNFINISHED}cleared-{}", self.shared.files().new_timeuuid()));
            match disk.rename(&snapshot.directory, &removed) {
                // Another request cleared it.
                Err(error) if error.kind() == DiskErrorKind::NotFound => continue,
                renamed => renamed?,
            }
            disk.sync_dir(parent)?;
            disk.remove_dir_all(&removed)?;
            count += 1;
        }
        Ok(count)
    }
}

fn directories(disk: &dyn Disk, directory: &Path) -> Result<Vec<String>, EngineError> {
    if !disk.exists(directory)? {
        return Ok(Vec::new());
    }
    Ok(disk.list(directory)?.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
}

fn describe(
    disk: &dyn Disk,
    keyspace: &str,
    table: &str,
    of_table: &Path,
    name: String,
) -> Result<SnapshotInfo, EngineError> {
    let directory = of_table.join(&name);
    let (mut size_bytes, mut manifest) = (0, String::new());
    for entry in disk.list(&directory)?.iter().filter(|entry| !entry.is_dir) {
        let file = disk.open(&directory.join(&entry.name), OpenOptions::read())?;
        let length = file.len()?;
        size_bytes += length;
        if entry.name == MANIFEST && length <= MANIFEST_BYTES_MAX {
            let mut bytes = vec![0; length as usize];
            let read = file.read_at(&mut bytes, 0)?;
            manifest = String::from_utf8_lossy(&bytes[..read]).into_owned();
        }
    }
    let (created_at, expires_at) = (field(&manifest, "created_at"), field(&manifest, "expires_at"));
    let (keyspace, table) = (keyspace.to_owned(), table.to_owned());
    Ok(SnapshotInfo { name, keyspace, table, size_bytes, created_at, expires_at, directory })
}

/// The size limit of a manifest. A larger one is not ours.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// The text of a field of a manifest, which has one level and no escapes in its times.
fn field(manifest: &str, name: &str) -> Option<String> {
    let (_, rest) = manifest.split_once(&format!("\"{name}\""))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    value.split_once('"').map(|(value, _)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn times_are_read_from_manifests() {
        let manifest = "{\"files\": [], \"created_at\" : \"2026-01-01T00:00:00.000Z\",\n \"expires_at\": null}";
        assert_eq!(field(manifest, "created_at").as_deref(), Some("2026-01-01T00:00:00.000Z"));
        assert_eq!(field(manifest, "expires_at"), None);
        assert_eq!(field("\"created_at\"", "created_at"), None);
    }
}
