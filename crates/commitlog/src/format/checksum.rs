//! The checksums of blocks and bookkeeping start from a seed, which belongs to the log and can be computed back.

use std::sync::LazyLock;

use crc32fast::Hasher;
use uuid::Uuid;

const POLYNOMIAL: u32 = 0xedb8_8320;

/// A checksum of nothing yet. It is a copy, because a new one examines the processor's features each time, which takes
/// as long as the checksum of a short record.
pub(crate) fn empty_checksum() -> Hasher {
    static EMPTY: LazyLock<Hasher> = LazyLock::new(Hasher::new);
    EMPTY.clone()
}

/// The seed of the checksums of the log with this id.
pub(crate) fn seed_of(log_id: Uuid) -> u32 {
    crc32fast::hash(log_id.as_bytes())
}

/// The checksum state from which `bytes` lead to `checksum`.
pub(crate) fn checksum_before(checksum: u32, bytes: &[u8]) -> u32 {
    let mut register = !checksum;
    for byte in bytes.iter().rev() {
        for _ in 0..8 {
            // The polynomial's highest bit is set, and a shift to the right leaves that bit clear.
            let was_odd = register >> 31 == 1;
            register = if was_odd { (register ^ POLYNOMIAL) << 1 | 1 } else { register << 1 };
        }
        register ^= u32::from(*byte);
    }
    !register
}

#[cfg(test)]
mod tests {
    use super::checksum_before;

    #[test]
    fn a_seed_is_computed_from_a_checksum() {
        for (seed, text) in [(0, "a"), (1, "the log"), (0xdead_beef, ""), (u32::MAX, "0123456789")] {
            let mut hasher = crc32fast::Hasher::new_with_initial(seed);
            hasher.update(text.as_bytes());
            assert_eq!(checksum_before(hasher.finalize(), text.as_bytes()), seed);
        }
    }
}
