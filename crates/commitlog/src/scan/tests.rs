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

const KINDS: [BlockKind; 5] =
    [BlockKind::Live, BlockKind::Blank, BlockKind::Stale, BlockKind::Torn, BlockKind::Misplaced];

/// Every row of the table, in every mode, at every block, beside every combination of kinds in the blocks before and
/// after.
#[test]
fn the_decision_table_holds_for_every_combination_in_every_mode() {
    const WALKED: u32 = 4;
    let mut met = [0; DECISIONS.len()];
    for mode in 0..=UNORDERED_MODE {
        for combination in 0..KINDS.len().pow(WALKED) {
            let kinds: Vec<BlockKind> =
                (0..WALKED).map(|at| KINDS[combination / KINDS.len().pow(at) % KINDS.len()]).collect();
            let image = image((0..).zip(&kinds).map(|(index, kind)| block_of(*kind, index, mode)).collect());
            // A segment without a sound block does not say its mode.
            let shows_order = kinds.contains(&BlockKind::Live);
            let order = if mode == UNORDERED_MODE && shows_order { Order::Unordered } else { Order::Ordered };
            for horizon in 0..=WALKED {
                let decisions: Vec<Decision> = (0..)
                    .zip(&kinds)
                    .map(|(at, kind)| {
                        let side = if at < horizon { HorizonSide::BelowHorizon } else { HorizonSide::AboveHorizon };
                        let row = DECISIONS.iter().position(|(k, p, o, _)| (*k, *p, *o) == (*kind, side, order));
                        met[row.unwrap()] += 1;
                        DECISIONS[row.unwrap()].3
                    })
                    .collect();
                check_verdict(&image.judge(horizon), &decisions, &format!("{kinds:?}, mode {mode}, horizon {horizon}"));
            }
        }
    }
    assert!(met.iter().all(|count| *count > 0), "{met:?}");
}

/// Checks the verdict on a segment against the decisions about its blocks.
fn check_verdict(verdict: &Verdict, decisions: &[Decision], case: &str) {
    let end = decisions.iter().position(|decision| *decision == Decision::End).unwrap_or(decisions.len());
    let of = |decision| (0..end as u32).filter(move |at| decisions[*at as usize] == decision);
    let taken: Vec<u32> = verdict.runs.iter().flat_map(|run| run.blocks.clone()).collect();
    assert_eq!(taken, Vec::from_iter(of(Decision::Take)), "{case}");
    let damaged: Vec<u32> = verdict.damaged.iter().cloned().flatten().collect();
    assert_eq!(damaged, Vec::from_iter(of(Decision::Damage)), "{case}");
    for run in &verdict.runs {
        let before = run.blocks.start.checked_sub(1).map(|at| decisions[at as usize]);
        assert_ne!(before, Some(Decision::Take), "{case}: a run begins where one can");
        assert_eq!(run.after_damage, before.is_some(), "{case}");
        // The blocks after those that are walked are blank.
        assert!(run.may_be_cut, "{case}");
    }
}

/// A segment that is full to its end ends with a record.
#[test]
fn a_run_to_the_segments_end_is_not_cut() {
    let full = image((0..BLOCKS).map(|index| block(&header(index))).collect());
    let verdict = full.judge(BLOCKS);
    assert_eq!(verdict.runs, [Run { blocks: 0..BLOCKS, after_damage: false, may_be_cut: false }]);
}

#[test]
fn a_segment_of_a_higher_id_is_misplaced_and_a_later_horizon_is_used() {
    let future = image(vec![block(&BlockHeader { segment_id: ID + 1, ..header(0) })]);
    assert_eq!(BlockKind::from(&future.state(0)), BlockKind::Misplaced);
    let lost = image(vec![block(&header(0)), vec![0; BLOCK_SIZE], block(&header(2))]);
    assert_eq!(lost.horizon_of(ID), 2);
    assert_eq!(lost.judge(lost.horizon_of(ID)).damaged, Vec::from_iter(Some(1..2)));
}

#[test]
fn an_unknown_sync_mode_is_reported() {
    assert_eq!(image(vec![block(&header(0))]).unknown_mode(), None);
    assert_eq!(image(vec![block(&BlockHeader { mode: 4, ..header(0) })]).unknown_mode(), Some(4));
}

/// Sound blocks with nonsense in them: the walk ends and reports it, whatever the numbers are.
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
