//! Reclamation: which readers are active, and what waits until they have finished (E1 to E3 of `FORMAT.md`).

use std::collections::VecDeque;
use std::sync::OnceLock;

use super::memory::Ptr;
use crate::sync::{AtomicU64, Ordering, PIN_SLOTS, fence, fence_behind_lock};

/// A slot on its own pair of cache lines. 0 = free.
#[repr(align(128))]
struct PinSlot(AtomicU64);

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
    pub(crate) fn pin(&self) -> PinGuard<'_> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let first = FIRST_SLOT.with(|&slot| slot);
        claim(&self.pins.slots[first].0, epoch).unwrap_or_else(|| self.pin_elsewhere(epoch))
    }

    #[cold]
    fn pin_elsewhere(&self, epoch: u64) -> PinGuard<'_> {
        let mut slots = &self.pins;
        loop {
            for slot in &slots.slots {
                if let Some(guard) = claim(&slot.0, epoch) {
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
        fence(Ordering::SeqCst);
        let mut oldest = u64::MAX;
        let mut slots = Some(&self.pins);
        while let Some(group) = slots {
            for slot in &group.slots {
                let epoch = slot.0.load(Ordering::Acquire);
                if epoch != 0 {
                    oldest = oldest.min(epoch);
                }
            }
            slots = group.more.get().map(|more| &**more);
        }
        oldest
    }
}

/// Claims the slot if it is free (E1).
#[inline]
fn claim(slot: &AtomicU64, epoch: u64) -> Option<PinGuard<'_>> {
    slot.compare_exchange(0, epoch, Ordering::SeqCst, Ordering::Relaxed).ok()?;
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
