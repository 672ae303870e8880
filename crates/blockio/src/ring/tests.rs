use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{BLOCK_SIZE, BlockRing, ReserveError, Seal};

const BLOCK: u64 = BLOCK_SIZE as u64;

fn up(position: u64) -> u64 {
    position.next_multiple_of(BLOCK)
}

fn fill(ring: &BlockRing, length: u64, byte: u8) -> Result<(), ReserveError> {
    let mut reservation = ring.reserve(|at| Some(at..at + length))?;
    let mut at = reservation.range().start;
    while at < reservation.range().end {
        let end = (at + 1).next_multiple_of(BLOCK).min(reservation.range().end);
        reservation.bytes(at..end).fill(byte);
        at = end;
    }
    Ok(())
}

#[test]
fn a_batch_is_handed_over_when_its_last_reservation_drops() {
    let ring = Arc::new(BlockRing::new(4 * BLOCK_SIZE));
    assert_eq!(ring.seal(up), Seal::Empty);
    let first = ring.reserve(|at| Some(at..at + 10)).unwrap();
    let second = ring.reserve(|at| Some(at + 5..at + 20)).unwrap();
    assert_eq!(second.range(), 15..30);
    assert!(ring.has_untaken());
    assert_eq!(ring.seal(up), Seal::Sealed);
    let sealed = ring.take_sealed().unwrap();
    assert!(!ring.has_untaken() && ring.take_sealed().is_none());
    assert_eq!(ring.tail(), BLOCK);
    drop(second);
    let sealed = sealed.filled().unwrap_err();
    drop(first);
    let batch = sealed.filled().unwrap();
    assert_eq!((batch.start(), batch.filled(), batch.end()), (0, 30, BLOCK));
    assert_eq!(batch.blocks(0..BLOCK).len(), BLOCK_SIZE);
    drop(batch);
    assert_eq!(ring.released(), BLOCK);
}

#[test]
fn memory_comes_back_in_order_only() {
    let ring = Arc::new(BlockRing::new(3 * BLOCK_SIZE));
    let mut batches = Vec::new();
    for byte in 0..3 {
        fill(&ring, 100, byte).unwrap();
        ring.seal(up);
        batches.push(ring.take_sealed().unwrap().filled().unwrap());
    }
    assert_eq!(fill(&ring, 1, 9), Err(ReserveError::Full));
    drop(batches.pop().unwrap());
    drop(batches.remove(0));
    assert_eq!(ring.released(), BLOCK);
    fill(&ring, BLOCK, 9).unwrap();
    assert_eq!(fill(&ring, 1, 9), Err(ReserveError::Full));
    let kept = batches.pop().unwrap();
    assert_eq!(kept.blocks(BLOCK..2 * BLOCK)[..100], [1; 100]);
    drop(kept);
    assert_eq!(ring.released(), 3 * BLOCK);
}

#[test]
fn a_batch_lives_as_long_as_any_of_its_frames() {
    let ring = Arc::new(BlockRing::new(3 * BLOCK_SIZE));
    fill(&ring, 2 * BLOCK, 7).unwrap();
    ring.seal(up);
    let batch = Arc::new(ring.take_sealed().unwrap().filled().unwrap());
    let (first, second) = (batch.frame(0..BLOCK), batch.frame(BLOCK..2 * BLOCK));
    drop(batch);
    drop(first);
    assert_eq!(ring.released(), 0);
    drop(ring);
    assert_eq!((second.range(), &second.blocks()[..]), (BLOCK..2 * BLOCK, &[7; BLOCK_SIZE][..]));
}

#[test]
fn an_empty_batch_only_moves_the_tail() {
    let ring = Arc::new(BlockRing::new(4 * BLOCK_SIZE));
    assert_eq!(ring.seal(|_| 2 * BLOCK), Seal::Empty);
    assert_eq!((ring.tail(), ring.released()), (2 * BLOCK, 2 * BLOCK));
    fill(&ring, 3 * BLOCK, 1).unwrap();
    ring.seal(up);
    let batch = ring.take_sealed().unwrap().filled().unwrap();
    assert_eq!(batch.run(2 * BLOCK, u64::MAX), 2 * BLOCK..4 * BLOCK);
    assert_eq!(batch.run(4 * BLOCK, u64::MAX), 4 * BLOCK..5 * BLOCK);
    assert_eq!(ring.seal(|at| at + 7 * BLOCK), Seal::Empty);
    drop(batch);
    assert_eq!(ring.released(), 12 * BLOCK);
    assert!(matches!(ring.reserve(|_| None), Err(ReserveError::Refused)));
}

/// Several threads fill records of one byte value each; the sealing side checks that the batches it takes are complete.
#[test]
fn records_of_many_threads_are_not_torn() {
    const RECORDS: u64 = 20_000;
    let ring = Arc::new(BlockRing::new(8 * BLOCK_SIZE));
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|thread| {
                let ring = &ring;
                scope.spawn(move || {
                    for i in 0..RECORDS / 4 {
                        let length = 2 + (i * 37 + thread * 11) % 300;
                        let byte = (1 + (i + thread) % 255) as u8;
                        loop {
                            let place = |at: u64| {
                                let at = if at % BLOCK + length > BLOCK { up(at) } else { at };
                                Some(at..at + length)
                            };
                            match ring.reserve(place) {
                                Ok(mut reservation) => {
                                    let range = reservation.range();
                                    let bytes = reservation.bytes(range);
                                    bytes.fill(byte);
                                    bytes[..2].copy_from_slice(&(length as u16).to_le_bytes());
                                    break;
                                }
                                Err(_) => std::thread::yield_now(),
                            }
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut seen = 0;
            loop {
                let last = finished.load(Ordering::SeqCst);
                ring.seal(up);
                let Some(mut sealed) = ring.take_sealed() else {
                    if last {
                        return seen;
                    }
                    std::thread::yield_now();
                    continue;
                };
                let mut batch = loop {
                    match sealed.filled() {
                        Ok(batch) => break batch,
                        Err(again) => sealed = again,
                    }
                };
                let mut block = batch.start();
                while block < batch.end() {
                    let bytes = batch.bytes_mut(block..block + BLOCK);
                    let mut at = 0;
                    while at + 2 <= bytes.len() {
                        let length = u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
                        if length == 0 {
                            break;
                        }
                        let body = &bytes[at + 2..at + length];
                        assert!(
                            body.iter().all(|b| Some(b) == body.first() && *b != 0),
                            "a torn record at {block}+{at}"
                        );
                        seen += 1;
                        at += length;
                    }
                    bytes.fill(0);
                    block += BLOCK;
                }
                drop(batch);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        finished.store(true, Ordering::SeqCst);
        assert_eq!(reader.join().unwrap(), RECORDS);
    });
}
