//! Version-1 UUIDs: the time in them, the smallest and greatest of a millisecond, and a generator.

use std::sync::atomic::{AtomicI64, Ordering};

/// 100 ns intervals between 1582-10-15, where version-1 time begins, and 1970-01-01.
const UNIX_EPOCH_TICKS: i64 = 0x01b2_1dd2_1381_4000;
const TICKS_PER_MILLI: i64 = 10_000;
const TICKS_PER_MICRO: i64 = 10;

/// The low half of the smallest timeuuid of its time (timeuuids compare it as signed bytes).
const LOW_MIN: u64 = 0x8080_8080_8080_8080;
/// The low half of the greatest.
const LOW_MAX: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The version digit of a UUID.
pub fn version(uuid: &[u8; 16]) -> u8 {
    uuid[6] >> 4
}

/// The 60-bit timestamp with the version digit on top, by which timeuuids are ordered.
pub fn time_order(uuid: &[u8; 16]) -> u64 {
    let high = high_half(uuid);
    high << 48 | (high >> 16 & 0xffff) << 32 | high >> 32
}

/// The timestamp of a version-1 UUID: 100 ns intervals since 1582-10-15.
pub fn timestamp(uuid: &[u8; 16]) -> u64 {
    time_order(uuid) & 0x0fff_ffff_ffff_ffff
}

/// The time of a version-1 UUID in milliseconds since 1970, rounded toward zero.
pub fn unix_millis(uuid: &[u8; 16]) -> i64 {
    (timestamp(uuid) as i64 - UNIX_EPOCH_TICKS) / TICKS_PER_MILLI
}

/// The time of a version-1 UUID in microseconds since 1970, rounded toward zero.
pub fn unix_micros(uuid: &[u8; 16]) -> i64 {
    (timestamp(uuid) as i64 - UNIX_EPOCH_TICKS) / TICKS_PER_MICRO
}

/// A version-1 UUID of this time (100 ns intervals since 1970; only 60 bits count) and low half.
pub fn from_unix_ticks(ticks: i64, low: u64) -> [u8; 16] {
    let time = ticks.wrapping_add(UNIX_EPOCH_TICKS) as u64;
    let high = time << 32 | (time >> 32 & 0xffff) << 16 | 0x1000 | (time >> 48 & 0x0fff);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&high.to_be_bytes());
    uuid[8..].copy_from_slice(&low.to_be_bytes());
    uuid
}

/// The low half for a clock sequence (14 bits count) and node (48 bits count).
pub fn low_half(clock_sequence: u16, node: u64) -> u64 {
    0x8000_0000_0000_0000 | u64::from(clock_sequence & 0x3fff) << 48 | node & 0xffff_ffff_ffff
}

/// CQL's `minTimeuuid`: no timeuuid of this millisecond (since 1970) or later is smaller.
pub fn min_for_millis(millis: i64) -> [u8; 16] {
    from_unix_ticks(millis.wrapping_mul(TICKS_PER_MILLI), LOW_MIN)
}

/// CQL's `maxTimeuuid`: no timeuuid of this millisecond (since 1970) or earlier is greater.
pub fn max_for_millis(millis: i64) -> [u8; 16] {
    from_unix_ticks(millis.wrapping_mul(TICKS_PER_MILLI).wrapping_add(TICKS_PER_MILLI - 1), LOW_MAX)
}

/// Makes timeuuids that never repeat and never decrease, from any number of threads.
#[derive(Debug)]
pub struct Generator {
    low: u64,
    /// The time of the last one, in 100 ns intervals since 1970.
    last_ticks: AtomicI64,
}

impl Generator {
    /// A generator for a clock sequence (14 bits) and node (48 bits); two generators in use must differ in one of them.
    pub fn new(clock_sequence: u16, node: u64) -> Generator {
        Generator { low: low_half(clock_sequence, node), last_ticks: AtomicI64::new(i64::MIN) }
    }

    /// The next timeuuid, of time `now_micros` (since 1970) or, if that is not later than the last, just after it.
    pub fn next(&self, now_micros: i64) -> [u8; 16] {
        let now = now_micros.saturating_mul(TICKS_PER_MICRO);
        let after = |last: i64| now.max(last.saturating_add(1));
        let mut last = self.last_ticks.load(Ordering::Relaxed);
        loop {
            let next = after(last);
            match self.last_ticks.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return from_unix_ticks(next, self.low),
                Err(found) => last = found,
            }
        }
    }
}

fn high_half(uuid: &[u8; 16]) -> u64 {
    (u128::from_be_bytes(*uuid) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CqlType;

    #[test]
    fn times_round_trip() {
        for millis in [0, 1, -1, 1_700_000_000_123, -12_219_292_800_000] {
            assert_eq!(unix_millis(&min_for_millis(millis)), millis);
            assert_eq!(version(&min_for_millis(millis)), 1);
        }
        let uuid = from_unix_ticks(17_000_000_000_001_234, low_half(0x1234, 0xaabb_ccdd_eeff));
        assert_eq!(unix_micros(&uuid), 1_700_000_000_000_123);
        assert_eq!(uuid[8..], [0x92, 0x34, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
    }

    #[test]
    fn min_and_max_enclose_their_millisecond() {
        let t = CqlType::Timeuuid;
        let inside = from_unix_ticks(5 * TICKS_PER_MILLI + 77, low_half(0, 0));
        assert!(t.compare(&min_for_millis(5), &inside).is_lt());
        assert!(t.compare(&inside, &max_for_millis(5)).is_lt());
        assert!(t.compare(&max_for_millis(4), &min_for_millis(5)).is_lt());
    }

    #[test]
    fn generated_ones_only_go_up() {
        let generator = Generator::new(1, 2);
        let mut last = generator.next(1_000);
        for now in [1_000, 1_000, 999, 0, 1_001, 1_001] {
            let next = generator.next(now);
            assert!(CqlType::Timeuuid.compare(&last, &next).is_lt());
            last = next;
        }
    }
}
