//! The pages that the allocator keeps of freed memory.
//!
//! jemalloc keeps them for some seconds in the arena of the thread that freed them, where other threads cannot use
//! them. Requests with large values then make the process much larger than its memory budgets count. A [`Watch`]
//! observes the resident memory. Each time it has grown by a step, all free pages are returned to the system. The
//! memory that remains is in use, and the next step begins there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use tikv_jemalloc_ctl::{Access, AsName, Mib};

/// The time between two checks: at a gigabyte a second the memory grows by 20 MiB in between.
const PERIOD: Duration = Duration::from_millis(20);
/// The time between two checks while the memory does not grow.
const IDLE_PERIOD: Duration = Duration::from_millis(100);
const STEP_BYTES_MIN: u64 = 16 << 20;
/// A step is the memory of all requests divided by this.
const STEPS_OF_REQUEST_BYTES: u64 = 4;

/// Observes the memory of this process, on a thread of its own.
pub struct Watch {
    statistics: File,
    page_bytes: u64,
    step_bytes: u64,
    /// The least resident memory since free pages were given back.
    least_bytes: u64,
}

impl Watch {
    /// Starts the thread, which ends with the process. `request_bytes_max` is the memory that all requests may take.
    ///
    /// # Errors
    ///
    /// The system's, if there is no `/proc`, or no thread.
    pub fn start(request_bytes_max: u64) -> std::io::Result<()> {
        let watch = Watch {
            statistics: File::open("/proc/self/statm")?,
            page_bytes: rustix::param::page_size() as u64,
            step_bytes: (request_bytes_max / STEPS_OF_REQUEST_BYTES).max(STEP_BYTES_MIN),
            least_bytes: u64::MAX,
        };
        std::thread::Builder::new().name("free-pages".to_owned()).spawn(move || watch.run()).map(drop)
    }

    fn run(mut self) {
        while let Some(resident_bytes) = self.resident_bytes() {
            let grown_bytes = self.grown_bytes(resident_bytes);
            if grown_bytes >= self.step_bytes {
                if let Err(error) = give_back() {
                    tracing::warn!("the allocator keeps its free pages: {error}");
                    return;
                }
                self.least_bytes = u64::MAX;
            }
            std::thread::sleep(if grown_bytes > self.step_bytes / 4 { PERIOD } else { IDLE_PERIOD });
        }
    }

    /// The growth since the memory was least.
    fn grown_bytes(&mut self, resident_bytes: u64) -> u64 {
        self.least_bytes = self.least_bytes.min(resident_bytes);
        resident_bytes - self.least_bytes
    }

    /// The second number of `/proc/self/statm`, in bytes; see proc(5).
    fn resident_bytes(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.statistics.read_at(&mut text, 0).ok()?;
        let pages = str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?;
        Some(pages.parse::<u64>().ok()? * self.page_bytes)
    }
}

/// Gives the free pages of all arenas back to the system: a decay time of zero does that at once.
///
/// # Errors
///
/// The allocator's. The pages then go back in their own time.
fn give_back() -> tikv_jemalloc_ctl::Result<()> {
    for arena in arenas()? {
        // An arena that no thread has used yet has no decay time. That of large allocations keeps nothing: its decay
        // time is zero, and remains so.
        if let Ok(decay_ms) = arena.update(0_isize) {
            arena.write(decay_ms)?;
        }
    }
    Ok(())
}

/// The names of the decay times of all arenas.
fn arenas() -> tikv_jemalloc_ctl::Result<impl Iterator<Item = Mib<[usize; 3]>>> {
    let count: u32 = b"arenas.narenas\0".name().read()?;
    let first: Mib<[usize; 3]> = b"arena.0.dirty_decay_ms\0".name().mib()?;
    Ok((0..count as usize).map(move |index| {
        let mut arena = first;
        arena[1] = index;
        arena
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        let statistics = File::open("/proc/self/statm").unwrap();
        Watch { statistics, page_bytes: rustix::param::page_size() as u64, step_bytes: 1, least_bytes: u64::MAX }
    }

    #[test]
    fn free_pages_go_back_to_the_system() {
        const BYTES: usize = 64 << 20;
        const PART_BYTES: usize = 1 << 20;
        let watch = watch();
        let parts: Vec<Vec<u8>> = (0..BYTES / PART_BYTES).map(|_| vec![1; PART_BYTES]).collect();
        let full_bytes = watch.resident_bytes().unwrap();
        drop(parts);
        give_back().unwrap();
        let left_bytes = watch.resident_bytes().unwrap();
        assert!(left_bytes + BYTES as u64 / 2 < full_bytes, "{left_bytes} of {full_bytes} bytes are left");
    }

    /// Also that of large allocations, whose decay time is not the one of the others.
    #[test]
    fn each_arena_keeps_its_decay_time() {
        const LARGE_BYTES: usize = 8 << 20;
        let large = vec![1_u8; LARGE_BYTES];
        let decay_times = || arenas().unwrap().map(|arena| arena.read().ok()).collect::<Vec<Option<isize>>>();
        let before = decay_times();
        assert!(before.contains(&Some(0)) && before.iter().flatten().any(|decay_ms| *decay_ms > 0), "{before:?}");
        give_back().unwrap();
        let kept = before.iter().zip(decay_times()).all(|(before, after)| before.is_none() || *before == after);
        assert!(kept, "{before:?}, {:?}", decay_times());
        drop(large);
    }

    #[test]
    fn growth_counts_from_the_least_memory() {
        let mut watch = watch();
        let grown: Vec<u64> = [70, 90, 60, 65, 100].map(|resident| watch.grown_bytes(resident)).to_vec();
        assert_eq!(grown, [0, 20, 0, 5, 40]);
    }
}
