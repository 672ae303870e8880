//! The promise of the engine over random histories on the simulated disk. Every acknowledged mutation is there after
//! any sequence of kills and power cuts. A mutation that was sent and not acknowledged is there as a whole or not at
//! all, in all its partitions. Nothing else is there. The schema is as acknowledged, truncated rows stay deleted, and
//! the engine continues to work. Some histories have damaged files of one table for a while (`damaged_files.rs`). Some
//! end with a damaged log: then little is lost, and the loss is reported.
//!
//! `ESPALIER_TORTURE_SEED` and `ESPALIER_TORTURE_CASES` choose the histories (`make torture`). A history follows from
//! its seed, but for when the log's own thread writes in `periodic` mode.

mod damaged_files;
mod damaged_log;
mod evidence;
mod model;
mod node;
mod parallel;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use blockio::{Fault, SimulatedDisk};

use self::node::{Node, prepared_disk};

/// The histories of an ordinary test run; `make torture` runs more.
const CASES: u64 = 200;

/// Histories that once failed. An ordinary run has them too.
const FAILED_ONCE: [u64; 1] = [
    // A bit flips in the only frame of a CREATE TABLE, of which a part was flushed.
    105_282,
];

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

/// The histories that are asked for.
fn seeds() -> Vec<u64> {
    let first = setting("ESPALIER_TORTURE_SEED", 1);
    let asked_for = first..first + setting("ESPALIER_TORTURE_CASES", CASES);
    if std::env::var_os("ESPALIER_TORTURE_SEED").is_some() {
        return asked_for.collect();
    }
    asked_for.chain(FAILED_ONCE).collect()
}

#[test]
fn acknowledged_writes_survive_every_crash() {
    let seeds = seeds();
    let prepared = prepared_disk();
    let next = AtomicUsize::new(0);
    let (damaged, reported) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match catch_unwind(AssertUnwindSafe(|| history(*seed, &prepared))) {
                        Ok(End::Sound) => {}
                        Ok(End::Damaged { is_reported }) => {
                            damaged.fetch_add(1, Ordering::Relaxed);
                            reported.fetch_add(u64::from(is_reported), Ordering::Relaxed);
                        }
                        Err(cause) => {
                            next.store(seeds.len(), Ordering::Relaxed);
                            eprintln!("seed {seed} failed: ESPALIER_TORTURE_SEED={seed} ESPALIER_TORTURE_CASES=1");
                            std::panic::resume_unwind(cause);
                        }
                    }
                }
            });
        }
    });
    let (damaged, reported) = (damaged.into_inner(), reported.into_inner());
    let are_enough = seeds.len() as u64 >= CASES;
    assert!(!are_enough || reported > damaged / 8, "{reported} of {damaged} damaged logs were reported");
}

/// The end of a history.
enum End {
    Sound,
    /// The log was damaged. A start that does not salvage reports it, unless the damage is harmless.
    Damaged {
        is_reported: bool,
    },
}

/// Several lives of one node, each of which ends with a kill, which keeps the page cache, or with a power cut.
fn history(seed: u64, prepared: &SimulatedDisk) -> End {
    let mut node = Node::new(seed, prepared);
    node.open().unwrap();
    for _ in 0..1 + node.choices.below(3) {
        match node.choices.below(24) {
            0..=2 => {
                live(&mut node, inject);
                let flips = 1 + node.choices.below(2) as usize;
                return End::Damaged { is_reported: node.check_flipped_bits(flips) };
            }
            3..=5 => {
                let mut astray = 0;
                live(&mut node, |node| {
                    astray = node.inject_silent_fault();
                    true
                });
                return End::Damaged { is_reported: node.check_damaged_log(astray) };
            }
            _ => live(&mut node, inject),
        }
        for _ in 0..node.choices.below(3) {
            node.die();
            node.open().unwrap();
            settle_after(&mut node, "a kill");
            if node.choices.one_in(4) {
                node.lose_definition();
                settle_after(&mut node, "a lost definition");
            }
            if node.choices.one_in(2) {
                node.live_with_damage();
            }
            if node.choices.one_in(2) {
                live(&mut node, inject);
            }
        }
        node.crash();
        recover(&mut node);
        settle_after(&mut node, "a power cut");
    }
    node.refusal = None;
    for _ in 0..10 {
        node.step();
    }
    assert_eq!(node.refusal, None, "the engine works after a crash");
    node.restart().unwrap();
    node.check_columns().unwrap();
    let found = node.read().unwrap();
    node.model.settle(&found, false).unwrap_or_else(|difference| panic!("after a clean stop: {difference}"));
    End::Sound
}

/// Everything that is found after an abrupt end is durable from now on.
fn settle_after(node: &mut Node, end: &str) {
    node.check_columns().unwrap();
    let found = node.read().unwrap();
    node.model.settle(&found, true).unwrap_or_else(|difference| panic!("after {end}: {difference}"));
    node.check_snapshots().unwrap();
}

/// Takes steps until one is refused, and a few more: reads continue, and writes may continue. `inject` returns whether
/// it caused a fault.
fn live(node: &mut Node, inject: impl FnOnce(&mut Node) -> bool) {
    let steps = 5 + node.choices.below(40);
    let cut = if inject(node) { steps } else { node.choices.below(steps + 1) };
    for _ in 0..cut {
        node.step();
        if node.model.refused() > 3 {
            break;
        }
        if node.choices.one_in(6) && !check(node) {
            return;
        }
    }
    check(node);
}

/// Compares the results of reads with the model, if the reads succeed. The fault may hit the read itself, or the power
/// may be off.
fn check(node: &mut Node) -> bool {
    let Ok(found) = node.read() else { return false };
    if node.check_columns().is_err() {
        return false;
    }
    if !node.shows_whole_batches() {
        return true;
    }
    node.model.settle(&found, false).unwrap_or_else(|difference| panic!("before a crash: {difference}"));
    true
}

/// Chooses a fault and its time. Returns false if it chooses none.
fn inject(node: &mut Node) -> bool {
    let (kind, skip) = (node.choices.below(10), node.choices.below(300));
    match kind {
        0..=1 => node.disk.inject(Fault::PowerCut, skip),
        // This happens while SSTables are created or removed.
        2..=3 => node.disk.inject_into("/data/ks/", Fault::PowerCutBeforeNames, skip / 20),
        4 => node.disk.inject(Fault::Fail, skip),
        5 => node.disk.inject(Fault::ShortWrite, skip / 2),
        6 => node.disk.inject(Fault::FailSync, skip / 8),
        7 => node.disk.inject(Fault::Full, skip / 2),
        _ => return false,
    }
    true
}

/// Opens the node. The power may fail again meanwhile, and an operation may fail.
fn recover(node: &mut Node) {
    for _ in 0..node.choices.below(3) {
        let fault = if node.choices.one_in(2) { Fault::PowerCut } else { Fault::Fail };
        let skip = node.choices.below(250);
        node.disk.inject(fault, skip);
        match node.open() {
            Ok(()) if fault == Fault::Fail => node.kill(),
            Ok(()) | Err(_) if fault == Fault::PowerCut => node.crash(),
            Ok(()) => unreachable!("there are two faults"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if !node.is_open() {
        // A fault that has not happened yet would hit this start.
        node.disk = node.disk.crash_image(node.choices.next());
        node.open().unwrap();
    }
}
