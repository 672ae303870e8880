//! What recovery makes of each block: FORMAT.md's decision table, as data.

use crate::format::BlockState;

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

/// What recovery does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Replay its records.
    Take,
    /// The segment ends before it: it and all behind it was never acknowledged.
    End,
    /// Damage: refuse to start, or report the gap and go on behind it (salvage).
    Damage,
}

/// The table. Every pair of kind and place has one row.
pub const DECISIONS: [(BlockKind, Place, Decision); 10] = [
    (BlockKind::Live, Place::BelowHorizon, Decision::Take),
    (BlockKind::Live, Place::AboveHorizon, Decision::Take),
    (BlockKind::Blank, Place::BelowHorizon, Decision::Damage),
    (BlockKind::Blank, Place::AboveHorizon, Decision::End),
    (BlockKind::Stale, Place::BelowHorizon, Decision::Damage),
    (BlockKind::Stale, Place::AboveHorizon, Decision::End),
    (BlockKind::Torn, Place::BelowHorizon, Decision::Damage),
    (BlockKind::Torn, Place::AboveHorizon, Decision::End),
    (BlockKind::Misplaced, Place::BelowHorizon, Decision::Damage),
    (BlockKind::Misplaced, Place::AboveHorizon, Decision::Damage),
];

/// Looks the table up.
pub fn decide(kind: BlockKind, place: Place) -> Decision {
    let row = DECISIONS.iter().find(|(k, p, _)| (*k, *p) == (kind, place));
    row.map_or(Decision::Damage, |(_, _, decision)| *decision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_one_row_and_format_md_says_the_same() {
        let kinds = [BlockKind::Live, BlockKind::Blank, BlockKind::Stale, BlockKind::Torn, BlockKind::Misplaced];
        let word = |case: &dyn std::fmt::Debug| format!("{case:?}").to_lowercase();
        for kind in kinds {
            for place in [Place::BelowHorizon, Place::AboveHorizon] {
                assert_eq!(DECISIONS.iter().filter(|(k, p, _)| (*k, *p) == (kind, place)).count(), 1);
            }
            let [below, above] = [Place::BelowHorizon, Place::AboveHorizon].map(|place| word(&decide(kind, place)));
            let row = format!("| {} | {below} | {above} |", word(&kind));
            assert!(include_str!("../FORMAT.md").contains(&row), "{row}");
        }
    }
}
