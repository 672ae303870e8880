//! The kernel's figures of a process.

use std::fs;

/// Cumulative figures of a process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    /// User and system time, seconds.
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub resident_bytes: u64,
    /// The bytes that were written, or will be written, to the device.
    pub written_bytes: u64,
}

impl Figures {
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// Linux reports times to user space in hundredths of a second, whatever its own tick is.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

pub fn figures(pid: u32) -> Figures {
    let mut figures = Figures::default();
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The name in brackets may contain blanks. Fields are therefore counted from its end.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let field = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        figures.user_seconds = field(11) as f64 / TICKS_PER_SECOND;
        figures.system_seconds = field(12) as f64 / TICKS_PER_SECOND;
        figures.resident_bytes = field(21) * PAGE_BYTES;
    }
    if let Ok(io) = fs::read_to_string(format!("/proc/{pid}/io")) {
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        figures.written_bytes = line.and_then(|number| number.parse().ok()).unwrap_or(0);
    }
    figures
}
