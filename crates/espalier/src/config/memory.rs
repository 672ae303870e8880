//! The amount of memory.

use std::path::Path;

/// Where the kernel reports the machine's memory, and the limit of the process's control group.
const MACHINE: &str = "/proc/meminfo";
const GROUP: &str = "/sys/fs/cgroup/memory.max";

/// The machine's memory, or the control group's limit if that is lower, bytes; 0 if neither is known.
pub fn system_memory_bytes() -> u64 {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let machine = total_of(&read(MACHINE)).unwrap_or(0);
    read(GROUP).trim().parse().map_or(machine, |group: u64| group.min(machine))
}

/// `MemTotal:       24681532 kB`
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_total_is_read() {
        assert_eq!(total_of("Bogus: 1 kB\nMemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total_of("MemTotal: many"), None);
        assert!(system_memory_bytes() > 1 << 20);
    }
}
