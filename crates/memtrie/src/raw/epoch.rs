//! Reclamation: which readers are active, and what waits until they have finished (E1 to E3 of `FORMAT.md`).

use std::collections::VecDeque;
use std::sync::OnceLock;

use super::memory::Ptr;
use crate::sync::{AtomicU64, Ordering, PIN_SLOTS, fence, fence_behind_lock};

/// A slot on its own pair of cache lines. 0 = free; otherwise the pin's epoch, and in the lowest bits its reach.
#[repr(align(128))]
struct PinSlot(AtomicU64);

/// The bits of a slot below the epoch. The 48 bits above them suffice for a hundred thousand batches a second during 89
/// years.
const REACH_BITS: u32 = 16;

/// The keys that a pin may read together, and therefore has to see as they were at one time (E4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach(u16);

impl Reach {
    /// Single keys, independently of each other.
    pub(crate) const SINGLE_KEYS: Reach = Reach(0);
    /// Any keys.
    pub(crate) const ALL: Reach = Reach(u16::MAX);

    /// The keys that start with `prefix`. Different prefixes may have the same reach.
    #[inline]
    pub(crate) fn below(prefix: &[u8]) -> Reach {
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let (words, rest) = prefix.as_chunks::<8>();
        let mut hash = prefix.len() as u64;
        for word in words {
            hash = (hash.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        }
        for byte in rest {
            hash = (hash.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(FACTOR);
        }
        // Neither of the two constants.
        Reach((hash >> 48) as u16 % (u16::MAX - 1) + 1)
    }
}

struct PinSlots {
    slots: [PinSlot; PIN_SLOTS],
    more: OnceLock<Box<PinSlots>>,
}

impl PinSlots {
    fn new() -> PinSlots {
        PinSlots { slots: std::array::from_fn(|_| PinSlot(AtomicU64::new(0))), more: OnceLock::new() }
    }
}

/// The epoch and the pins of one trie.
pub(crate) struct Epochs {
    epoch: AtomicU64,
    pins: PinSlots,
}

/// A claimed slot, which permits reading until it is dropped.
pub(crate) struct PinGuard<'a>(&'a AtomicU64);

impl Drop for PinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

thread_local! {
    static FIRST_SLOT: usize = {
        static NEXT: std::sync::atomic::AtomicUsize = const { std::sync::atomic::AtomicUsize::new(0) };
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % PIN_SLOTS
    };
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs { epoch: AtomicU64::new(1), pins: PinSlots::new() }
    }

    /// Claims a slot, trying the thread's own first (E1).
    #[inline]
    pub(crate) fn pin(&self, reach: Reach) -> PinGuard<'_> {
        let value = self.epoch.load(Ordering::Acquire) << REACH_BITS | u64::from(reach.0);
        let first = FIRST_SLOT.with(|&slot| slot);
        claim(&self.pins.slots[first].0, value).unwrap_or_else(|| self.pin_elsewhere(value))
    }

    #[cold]
    fn pin_elsewhere(&self, value: u64) -> PinGuard<'_> {
        let mut slots = &self.pins;
        loop {
            for slot in &slots.slots {
                if let Some(guard) = claim(&slot.0, value) {
                    return guard;
                }
            }
            slots = slots.more.get_or_init(|| Box::new(PinSlots::new()));
        }
    }

    /// The stamp for a batch whose pieces are all unlinked (E2).
    pub(crate) fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::Release)
    }

    /// The oldest epoch that a pin holds; `u64::MAX` without pins (E3).
    pub(crate) fn oldest_pin(&self) -> u64 {
        let mut oldest = u64::MAX;
        self.scan_pins(|epoch, _| oldest = oldest.min(epoch));
        oldest
    }

    /// Whether a pin may read keys of this reach. A pin that starts later sees everything that was published before
    /// (E4).
    #[inline]
    pub(crate) fn is_read(&self, reach: Reach) -> bool {
        let mut is_read = false;
        self.scan_pins(|_, other| is_read |= other == reach || other == Reach::ALL);
        is_read
    }

    /// Passes every pin's epoch and reach to `see`, after a fence.
    #[inline]
    fn scan_pins(&self, mut see: impl FnMut(u64, Reach)) {
        fence(Ordering::SeqCst);
        let mut slots = Some(&self.pins);
        while let Some(group) = slots {
            for slot in &group.slots {
                let value = slot.0.load(Ordering::Acquire);
                if value != 0 {
                    see(value >> REACH_BITS, Reach(value as u16));
                }
            }
            slots = group.more.get().map(|more| &**more);
        }
    }
}

/// Claims the slot if it is free (E1).
#[inline]
fn claim(slot: &AtomicU64, value: u64) -> Option<PinGuard<'_>> {
    slot.compare_exchange(0, value, Ordering::SeqCst, Ordering::Relaxed).ok()?;
    fence_behind_lock();
    Some(PinGuard(slot))
}

/// Pieces that were unlinked together.
#[derive(Default)]
struct Batch {
    stamp: u64,
    pieces: Vec<Ptr>,
}

/// Blocks and blobs (as pointers) that wait until no reader can reach them. Empty batches are reused, so that nothing
/// is allocated in the long run.
#[derive(Default)]
pub(crate) struct Limbo {
    waiting: VecDeque<Batch>,
    spare: Vec<Vec<Ptr>>,
}

impl Limbo {
    /// Moves all of `pieces` into a batch, leaving it empty with some capacity.
    pub(crate) fn push(&mut self, stamp: u64, pieces: &mut Vec<Ptr>) {
        debug_assert!(self.waiting.back().is_none_or(|last| last.stamp < stamp), "E2");
        let fresh = self.spare.pop().unwrap_or_default();
        self.waiting.push_back(Batch { stamp, pieces: std::mem::replace(pieces, fresh) });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Passes every piece that no pin from epoch `oldest` on can reach to `reclaim`.
    pub(crate) fn drain(&mut self, oldest: u64, mut reclaim: impl FnMut(Ptr)) {
        while let Some(batch) = self.waiting.front_mut()
            && batch.stamp < oldest
        {
            let mut pieces = std::mem::take(&mut batch.pieces);
            pieces.drain(..).for_each(&mut reclaim);
            if self.spare.len() < 4 {
                self.spare.push(pieces);
            }
            self.waiting.pop_front();
        }
    }
}
