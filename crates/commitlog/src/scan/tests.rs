use super::*;
use crate::decision::DECISIONS;
use crate::format::write_block_header;

const ID: i64 = 50;
const BLOCKS: u32 = 8;

fn log_id() -> Uuid {
    Uuid::from_u128(3)
}

fn header(index: u32) -> BlockHeader {
    BlockHeader {
        mode: 1,
        used: 100,
        segment_id: ID,
        index,
        frame_index: 0,
        frame_blocks: 1,
        horizon_segment: ID,
        horizon_blocks: index,
        first_record: 0,
    }
}

fn block(header: &BlockHeader) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    write_block_header(header, seed_of(log_id()), &mut bytes);
    bytes
}

/// A block of that kind, in place of block `index`.
fn block_of(kind: BlockKind, index: u32, mode: u8) -> Vec<u8> {
    let header = |index| BlockHeader { mode, ..header(index) };
    match kind {
        BlockKind::Live => block(&header(index)),
        BlockKind::Blank => vec![0; BLOCK_SIZE],
        BlockKind::Stale => block(&BlockHeader { segment_id: ID - 1, ..header(index) }),
        BlockKind::Misplaced => block(&BlockHeader { index: index + 1, ..header(index) }),
        BlockKind::Torn => {
            let mut bytes = block(&header(index));
            bytes[600] ^= 1;
            bytes
        }
    }
}

fn image(bytes: Vec<Vec<u8>>) -> SegmentImage {
    SegmentImage::new(log_id(), ID, &bytes.concat(), BLOCKS * BLOCK_SIZE as u32)
}

/// Every row of the table, at every block, with and without sound blocks behind.
#[test]
fn the_decision_table_holds_at_every_block() {
    for (kind, place, order, decision) in DECISIONS {
        let mode = if order == Order::Ordered { 1 } else { UNORDERED_MODE };
        // Nothing tells the mode of a segment without a sound block.
        for at in u32::from(order == Order::Unordered)..BLOCKS {
            for behind in [at + 1, BLOCKS] {
                let blocks =
                    (0..behind).map(|index| block_of(if index == at { kind } else { BlockKind::Live }, index, mode));
                let image = image(blocks.collect());
                assert_eq!(BlockKind::from(&image.state(at)), kind);
                let horizon = if place == Place::BelowHorizon { at + 1 } else { at };
                let verdict = image.judge(horizon);
                let runs: Vec<_> = verdict.runs.iter().map(|run| run.blocks.clone()).collect();
                let before = (at > 0).then_some(0..at);
                let after = (behind > at + 1).then_some(at + 1..behind);
                let expected: Vec<_> = match decision {
                    Decision::Take => Vec::from_iter(Some(0..behind)),
                    Decision::End => Vec::from_iter(before),
                    Decision::Damage | Decision::Skip => Vec::from_iter(before.into_iter().chain(after)),
                };
                assert_eq!(runs, expected, "{kind:?} {place:?} at {at} of {behind}");
                let damaged = (decision == Decision::Damage).then_some(at..at + 1);
                assert_eq!(verdict.damaged, Vec::from_iter(damaged), "{kind:?} {place:?} at {at} of {behind}");
            }
        }
    }
}

#[test]
fn a_segment_of_a_higher_id_is_misplaced_and_a_later_horizon_is_heard() {
    let future = image(vec![block(&BlockHeader { segment_id: ID + 1, ..header(0) })]);
    assert_eq!(BlockKind::from(&future.state(0)), BlockKind::Misplaced);
    let lost = image(vec![block(&header(0)), vec![0; BLOCK_SIZE], block(&header(2))]);
    assert_eq!(lost.horizon_of(ID), 2);
    assert_eq!(lost.judge(lost.horizon_of(ID)).damaged, Vec::from_iter(Some(1..2)));
}

#[test]
fn an_unknown_sync_mode_is_told() {
    assert_eq!(image(vec![block(&header(0))]).unknown_mode(), None);
    assert_eq!(image(vec![block(&BlockHeader { mode: 4, ..header(0) })]).unknown_mode(), Some(4));
}

/// Sound blocks with nonsense in them: the walk ends and reports, whatever the numbers are.
#[test]
fn nonsense_in_sound_blocks_is_walked_to_the_end() {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut faults = 0;
    for _ in 0..2000 {
        let blocks = (0..BLOCKS).map(|index| {
            let mut bytes: Vec<u8> = (0..BLOCK_SIZE).map(|_| next() as u8).collect();
            if next() % 2 == 0 {
                let head = RecordHead { data_size: next() as u32 >> (next() % 32), tables: (next() % 4) as u16 };
                bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + RecordHead::SIZE].copy_from_slice(&head.encode());
            }
            let nonsense =
                BlockHeader { used: next() as u16, first_record: next() as u16 >> (next() % 16), ..header(index) };
            write_block_header(&nonsense, seed_of(log_id()), &mut bytes);
            bytes
        });
        let image = image(blocks.collect());
        for run in image.judge(0).runs {
            for after_damage in [false, true] {
                let mut cursor = RecordCursor::new(&image, Run { after_damage, ..run.clone() });
                let mut scratch = Vec::new();
                while let step @ (Step::Record(_) | Step::Cut(_) | Step::Fault(..)) = cursor.next(&image, &mut scratch)
                {
                    faults += usize::from(matches!(step, Step::Fault(..)));
                }
            }
        }
    }
    assert!(faults > 1000, "{faults}");
}
