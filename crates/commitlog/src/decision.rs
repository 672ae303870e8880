//! What recovery makes of each bookkeeping entry and of each block: FORMAT.md's decision tables, as data.

use crate::format::{BlockState, BookkeepingEntry, EntryFault, SegmentState};

/// What a block turned out to be, without its particulars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Sound, and the one expected.
    Live,
    /// Zeros, or past the end of the file.
    Blank,
    /// Sound, of an earlier use of the segment.
    Stale,
    /// Unsound.
    Torn,
    /// Sound, but it belongs elsewhere.
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
pub enum Place {
    /// Below a durable horizon that some sound block states: it was on the device once.
    BelowHorizon,
    /// At or above all horizons known: what is here may never have been acknowledged.
    AboveHorizon,
}

/// In what order the blocks of a segment were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Gapless, from the first (`periodic`, `batch`, `group`).
    Ordered,
    /// Each frame by itself (`each`).
    Unordered,
}

/// What recovery does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Replay its records.
    Take,
    /// The segment ends before it: it and all behind it was never acknowledged.
    End,
    /// It was never acknowledged; what is behind it counts.
    Skip,
    /// Damage: refuse to start, or report the gap and go on behind it (salvage).
    Damage,
}

/// The table. Every kind, place and order has one row.
pub const DECISIONS: [(BlockKind, Place, Order, Decision); 20] = [
    (BlockKind::Live, Place::BelowHorizon, Order::Ordered, Decision::Take),
    (BlockKind::Live, Place::AboveHorizon, Order::Ordered, Decision::Take),
    (BlockKind::Live, Place::BelowHorizon, Order::Unordered, Decision::Take),
    (BlockKind::Live, Place::AboveHorizon, Order::Unordered, Decision::Take),
    (BlockKind::Blank, Place::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Blank, Place::AboveHorizon, Order::Ordered, Decision::End),
    (BlockKind::Blank, Place::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Blank, Place::AboveHorizon, Order::Unordered, Decision::Skip),
    (BlockKind::Stale, Place::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Stale, Place::AboveHorizon, Order::Ordered, Decision::End),
    (BlockKind::Stale, Place::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Stale, Place::AboveHorizon, Order::Unordered, Decision::Skip),
    (BlockKind::Torn, Place::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Torn, Place::AboveHorizon, Order::Ordered, Decision::End),
    (BlockKind::Torn, Place::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Torn, Place::AboveHorizon, Order::Unordered, Decision::Skip),
    (BlockKind::Misplaced, Place::BelowHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Misplaced, Place::AboveHorizon, Order::Ordered, Decision::Damage),
    (BlockKind::Misplaced, Place::BelowHorizon, Order::Unordered, Decision::Damage),
    (BlockKind::Misplaced, Place::AboveHorizon, Order::Unordered, Decision::Damage),
];

/// Looks the table up.
pub fn decide(kind: BlockKind, place: Place, order: Order) -> Decision {
    let row = DECISIONS.iter().find(|(k, p, o, _)| (*k, *p, *o) == (kind, place, order));
    row.map_or(Decision::Damage, |(.., decision)| *decision)
}

/// What a bookkeeping entry turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Sound: the segment is free.
    Free,
    /// Sound: the segment is in use.
    Live,
    /// Sound, of another segment.
    Elsewhere,
    /// Never written.
    Zeros,
    /// Neither.
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

/// What the first block of a segment says of the segment's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBlock {
    /// Nothing, or that the entry tells of its use or of a later one.
    Older,
    /// It is sound, and of a use after the one that the entry tells of.
    Newer,
}

/// What recovery does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDecision {
    /// The segment holds nothing.
    Skip,
    /// Read the segment.
    Read,
    /// Damage: refuse to start, or ask the segment's blocks (salvage).
    Damage,
}

/// The table. Every kind, beside every first block, has one row.
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

/// Looks that table up.
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
    fn every_entry_has_one_row_and_format_md_says_the_same() {
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
    fn every_case_has_one_row_and_format_md_says_the_same() {
        let kinds = [BlockKind::Live, BlockKind::Blank, BlockKind::Stale, BlockKind::Torn, BlockKind::Misplaced];
        for kind in kinds {
            let mut row = format!("| {} |", word(&kind));
            for place in [Place::BelowHorizon, Place::AboveHorizon] {
                for order in [Order::Ordered, Order::Unordered] {
                    let rows = DECISIONS.iter().filter(|(k, p, o, _)| (*k, *p, *o) == (kind, place, order));
                    assert_eq!(rows.count(), 1);
                    row += &format!(" {} |", word(&decide(kind, place, order)));
                }
            }
            assert!(include_str!("../FORMAT.md").contains(&row), "{row}");
        }
    }
}
