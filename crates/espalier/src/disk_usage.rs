//! Watches how much of the disk the data takes, for the thresholds of `data_disk_usage_percentage`.
//!
//! As in Cassandra, this is a percentage of the sum of the data and the free space of its file system, or of
//! `data_disk_usage_max_disk_size` if that is less.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blockio::Disk;
use query::{DiskUsage, DiskUsageState};

/// The time between two checks of the disk, as in Cassandra.
const PERIOD: Duration = Duration::from_secs(30);

/// The directory and the thresholds that are watched.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The directory of the node.
    pub data: PathBuf,
    /// The percentage above which writes are warned about.
    pub warn: Option<u64>,
    /// The percentage above which writes are refused.
    pub fail: Option<u64>,
    /// `data_disk_usage_max_disk_size`.
    pub disk_max_bytes: Option<u64>,
}

impl Watch {
    /// Sets the state repeatedly. Returns only if no threshold is set.
    pub async fn run(self, usage: Arc<DiskUsage>) {
        if self.warn.is_none() && self.fail.is_none() {
            return;
        }
        loop {
            let watch = self.clone();
            match tokio::task::spawn_blocking(move || watch.percentage()).await {
                Ok(Ok(percentage)) => self.log_change(percentage, &usage),
                Ok(Err(error)) => tracing::warn!("the usage of the disk is unknown: {error}"),
                Err(_) => return,
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn log_change(&self, percentage: u64, usage: &DiskUsage) {
        let state = self.state(percentage);
        if !usage.set(state) {
            return;
        }
        match (state, self.warn, self.fail) {
            (DiskUsageState::Full, _, Some(max)) => tracing::error!(
                "Local data disk usage {percentage}%(FULL) exceeds failure threshold of {max}%, will stop accepting writes"
            ),
            (DiskUsageState::Stuffed, Some(max), _) => {
                tracing::warn!("Local data disk usage {percentage}%(STUFFED) exceeds warning threshold of {max}%");
            }
            _ => tracing::info!("Local data disk usage is {percentage}%"),
        }
    }

    /// The state of a disk of which the data takes this percentage.
    pub fn state(&self, percentage: u64) -> DiskUsageState {
        let is_above = |threshold: Option<u64>| threshold.is_some_and(|threshold| percentage > threshold);
        match (is_above(self.fail), is_above(self.warn)) {
            (true, _) => DiskUsageState::Full,
            (false, true) => DiskUsageState::Stuffed,
            (false, false) => DiskUsageState::Spacious,
        }
    }

    fn percentage(&self) -> std::io::Result<u64> {
        let used = size_of_directory(&self.data)?;
        let free = blockio::SystemDisk::new().space(&self.data).map_err(std::io::Error::other)?.free_bytes;
        let total = used.saturating_add(free).min(self.disk_max_bytes.unwrap_or(u64::MAX)).max(1);
        Ok(percentage_of(used, total))
    }
}

fn percentage_of(used: u64, total: u64) -> u64 {
    // Rounded up, as in Cassandra: the threshold of 90 % is passed by the first byte above it.
    u64::try_from((u128::from(used) * 100).div_ceil(u128::from(total))).unwrap_or(u64::MAX)
}

/// The bytes of all files below a directory. Files may vanish meanwhile.
fn size_of_directory(directory: &Path) -> std::io::Result<u64> {
    let mut size_bytes = 0;
    let mut left = vec![directory.to_path_buf()];
    while let Some(directory) = left.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(found) if found.is_dir() => left.push(entry.path()),
                Ok(found) => size_bytes += found.len(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_thresholds() {
        let watch = Watch { data: PathBuf::new(), warn: Some(70), fail: Some(90), disk_max_bytes: None };
        let states = [70, 71, 90, 91].map(|percentage| watch.state(percentage));
        use DiskUsageState::{Full, Spacious, Stuffed};
        assert_eq!(states, [Spacious, Stuffed, Stuffed, Full]);
        assert_eq!([percentage_of(0, 100), percentage_of(1, 1000), percentage_of(100, 100)], [0, 1, 100]);
    }

    #[test]
    fn the_data_is_measured_against_the_size_that_the_disk_may_have() {
        let directory = testkit::TemporaryDirectory::create();
        std::fs::create_dir(directory.join("below")).unwrap();
        std::fs::write(directory.join("one"), [0; 600]).unwrap();
        std::fs::write(directory.join("below/other"), [0; 300]).unwrap();
        let watch = Watch { data: directory.0.clone(), warn: None, fail: None, disk_max_bytes: Some(1000) };
        assert_eq!(watch.percentage().unwrap(), 90);
    }
}
