//! The decisions of recovery for each bookkeeping entry and each block: FORMAT.md's decision tables, as data.

use crate::format::{BlockState, BookkeepingEntry, EntryFault, SegmentState};

/// The kind of a block, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Sound, and the block that is expected here.
    Live,
    /// Zeros, or past the end of the file.
    Blank,
    /// Sound, of an earlier use of the segment.
    Stale,
    /// Unsound.
    Torn,
    /// Sound, but it belongs to another place: a misdirected write.
    Misplaced,
}

impl From<&BlockState> for BlockKind {
    fn from(state: &BlockState) -> BlockKind {
        match state {
            BlockState::Live(_) => BlockKind::Live,
            BlockState::Blank => BlockKind::Blank,
            BlockState::Stale(_) => BlockKind::Stale,
            BlockState::Torn { .. } => BlockKind::Torn,
            BlockState::Misplaced(_) => BlockKind::Misplaced,
        }
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HorizonSide {
    /// Below a durable horizon that some sound block states: the block was once on the device.
    BelowHorizon,
    /// At or above every known horizon: what is here may never have been acknowledged.
    AboveHorizon,
}

/// The order in which the blocks of a segment were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Without gaps, from the first block on (`periodic`, `batch`, `group`).
    Ordered,
    /// Each frame independently (`each`).
    Unordered,
}

/// Recovery's decision about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Replay the block's records.
    Take,
    /// The segment ends before this block: neither it nor anything after it was acknowledged.
    End,
    /// The block was never acknowledged, but blocks after it may have been.
    Skip,
    /// The block is damaged: refuse to start, or (in salvage) report the gap and continue after it.
    Damage,
}

/// The table of block decisions. Every combination of kind, side and order has one row.
pub const DECISIONS: [(BlockKind, HorizonSide, Order, Decision); 20] = [
    (BlockKind::Live, HorizonSide::BelowHorizon, Order::Ordered, Decision::Take),
    (BlockKind::Live, HorizonSide::AboveHorizon, Order::Ordered, Decision::Take),
    (BlockKind::Live, HorizonSide::BelowHorizon, Order::Unordered, Decision::Take),
    (BlockKind::Live, HorizonSide::AboveHorizon, Order::Unordered, Decision::Take),
    (BlockKind::Blank, HorizonSide::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Blank, HorizonSide::AboveHorizon, Order::Ordered, Decision::End),
    (BlockKind::Blank, HorizonSide::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Blank, HorizonSide::AboveHorizon, Order::Unordered, Decision::Skip),
    (BlockKind::Stale, HorizonSide::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Stale, HorizonSide::AboveHorizon, Order::Ordered, Decision::End),
    (BlockKind::Stale, HorizonSide::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Stale, HorizonSide::AboveHorizon, Order::Unordered, Decision::Skip),
    (BlockKind::Torn, HorizonSide::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Torn, HorizonSide::AboveHorizon, Order::Ordered, Decision::End),
    (BlockKind::Torn, HorizonSide::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Torn, HorizonSide::AboveHorizon, Order::Unordered, Decision::Skip),
    (BlockKind::Misplaced, HorizonSide::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Misplaced, HorizonSide::AboveHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Misplaced, HorizonSide::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Misplaced, HorizonSide::AboveHorizon, Order::Unordered, Decision::Damage),
];

/// Looks up [`DECISIONS`].
pub fn decide(kind: BlockKind, side: HorizonSide, order: Order) -> Decision {
    let row = DECISIONS.iter().find(|(k, p, o, _)| (*k, *p, *o) == (kind, side, order));
    row.map_or(Decision::Damage, |(.., decision)| *decision)
}

/// The kind of a bookkeeping entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Sound: the segment is free.
    Free,
    /// Sound: the segment is in use.
    Live,
    /// Sound, but of another segment.
    Elsewhere,
    /// Never written.
    Zeros,
    /// None of the above.
    Unsound,
}

impl From<&Result<BookkeepingEntry, EntryFault>> for EntryKind {
    fn from(found: &Result<BookkeepingEntry, EntryFault>) -> EntryKind {
        match found {
            Ok(entry) => EntryKind::from(entry.state),
            Err(EntryFault::Misplaced(_)) => EntryKind::Elsewhere,
            Err(EntryFault::Zero) => EntryKind::Zeros,
            Err(EntryFault::Damaged(_)) => EntryKind::Unsound,
        }
    }
}

impl From<SegmentState> for EntryKind {
    fn from(state: SegmentState) -> EntryKind {
        match state {
            SegmentState::Free => EntryKind::Free,
            SegmentState::Live => EntryKind::Live,
        }
    }
}

/// The evidence in the first block of a segment about the segment's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBlock {
    /// The block is unusable, or it belongs to the entry's use or to an earlier one.
    Older,
    /// The block is sound, and belongs to a later use than the entry describes.
    Newer,
}

/// Recovery's decision about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDecision {
    /// Skip the segment: it holds nothing.
    Skip,
    /// Read the segment.
    Read,
    /// The entry is damaged: refuse to start, or (in salvage) rebuild it from the segment's blocks.
    Damage,
}

/// The table of entry decisions. Every combination of entry and first block has one row.
pub const ENTRY_DECISIONS: [(EntryKind, FirstBlock, EntryDecision); 10] = [
    (EntryKind::Free, FirstBlock::Older, EntryDecision::Skip),
    (EntryKind::Free, FirstBlock::Newer, EntryDecision::Damage),
    (EntryKind::Live, FirstBlock::Older, EntryDecision::Read),
    (EntryKind::Live, FirstBlock::Newer, EntryDecision::Damage),
    (EntryKind::Elsewhere, FirstBlock::Older, EntryDecision::Damage),
    (EntryKind::Elsewhere, FirstBlock::Newer, EntryDecision::Damage),
    (EntryKind::Zeros, FirstBlock::Older, EntryDecision::Damage),
    (EntryKind::Zeros, FirstBlock::Newer, EntryDecision::Damage),
    (EntryKind::Unsound, FirstBlock::Older, EntryDecision::Damage),
    (EntryKind::Unsound, FirstBlock::Newer, EntryDecision::Damage),
];

/// Looks up [`ENTRY_DECISIONS`].
pub fn decide_entry(kind: EntryKind, first: FirstBlock) -> EntryDecision {
    let row = ENTRY_DECISIONS.iter().find(|(k, f, _)| (*k, *f) == (kind, first));
    row.map_or(EntryDecision::Damage, |(.., decision)| *decision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(case: &dyn std::fmt::Debug) -> String {
        format!("{case:?}").to_lowercase()
    }

    #[test]
    fn every_entry_has_one_row_as_in_format_md() {
        for kind in [EntryKind::Free, EntryKind::Live, EntryKind::Elsewhere, EntryKind::Zeros, EntryKind::Unsound] {
            let mut row = format!("| {} |", word(&kind));
            for first in [FirstBlock::Older, FirstBlock::Newer] {
                assert_eq!(ENTRY_DECISIONS.iter().filter(|(k, f, _)| (*k, *f) == (kind, first)).count(), 1);
                row += &format!(" {} |", word(&decide_entry(kind, first)));
            }
            assert!(include_str!("../FORMAT.md").contains(&row), "{row}");
        }
    }

    #[test]
    fn every_case_has_one_row_as_in_format_md() {
        let kinds = [BlockKind::Live, BlockKind::Blank, BlockKind::Stale, BlockKind::Torn, BlockKind::Misplaced];
        for kind in kinds {
            let mut row = format!("| {} |", word(&kind));
            for side in [HorizonSide::BelowHorizon, HorizonSide::AboveHorizon] {
                for order in [Order::Ordered, Order::Unordered] {
                    let rows = DECISIONS.iter().filter(|(k, p, o, _)| (*k, *p, *o) == (kind, side, order));
                    assert_eq!(rows.count(), 1);
                    row += &format!(" {} |", word(&decide(kind, side, order)));
                }
            }
            assert!(include_str!("../FORMAT.md").contains(&row), "{row}");
        }
    }
}
