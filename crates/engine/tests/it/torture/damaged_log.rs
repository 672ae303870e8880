//! A start with a damaged log either reports the damage, or loses nothing except the last frames, whose horizon no
//! later frame contains. A start that salvages loses no more than the damaged frames, and the
//! records that have a column which a damaged frame added. It counts those.

use std::path::Path;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use commitlog::SyncMode;
use engine::Engine;

use super::model::State;
use super::node::{KEYSPACE, Node, read_all};
use crate::fixture::{columns, stored_columns};

const LOG: &str = "/node/commitlog/commitlog.log";

impl Node {
    /// The device will write wrong bytes into the log, or to a wrong place, without an error. Returns how many frames
    /// this may cost: the misplaced one, and one that it overwrites.
    pub fn inject_silent_fault(&mut self) -> usize {
        let (fault, lost) = if self.choices.one_in(2) { (Fault::FlipBit, 1) } else { (Fault::Misdirect, 2) };
        let skip = self.choices.below(30);
        self.disk.inject_into(LOG, fault, skip);
        lost
    }

    /// Cuts the power and flips this number of bits of the log. Returns whether a start reports damage.
    pub fn check_flipped_bits(&mut self, flips: usize) -> bool {
        let image = self.disk.crash_image(self.choices.next());
        self.kill();
        let file = image.open(Path::new(LOG), OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        // Bits are flipped in superblocks, bookkeeping and the written parts of segments, because most of the file is
        // zeros.
        let used: Vec<usize> =
            (0..bytes.len()).step_by(512).filter(|at| bytes[*at..].iter().take(512).any(|b| *b != 0)).collect();
        for _ in 0..flips {
            let at = used[self.choices.below(used.len() as u64) as usize] as u64 + self.choices.below(512);
            image.flip_bit(Path::new(LOG), at, self.choices.below(8) as u8).unwrap();
        }
        self.check_image(&image, flips)
    }

    /// Cuts the power and damages up to `frames` of the log. Returns whether a start reports damage.
    pub fn check_damaged_log(&mut self, frames: usize) -> bool {
        let image = self.disk.crash_image(self.choices.next());
        self.kill();
        self.check_image(&image, frames)
    }

    /// The history does not continue from this image.
    fn check_image(&self, image: &SimulatedDisk, frames: usize) -> bool {
        match Engine::open(self.options(image)) {
            Ok(engine) => {
                let Some(found) = found_unless_reported(&engine) else { return false };
                self.check_values(&found);
                if self.is_accountable() {
                    let checked = self.model.check_but_for_the_last(&found);
                    checked.unwrap_or_else(|difference| panic!("lost without a word: {difference}"));
                }
                false
            }
            Err(error) => {
                let reported = error.to_string();
                assert!(reported.contains(LOG) && reported.contains("--commitlog-salvage"), "{reported}");
                self.check_salvage(&image.crash_image(0), frames, &reported);
                true
            }
        }
    }

    fn check_salvage(&self, image: &SimulatedDisk, frames: usize, reported: &str) {
        let mut salvaging = self.options(image);
        salvaging.commitlog.salvage = true;
        let engine = Engine::open(salvaging).expect("a salvage starts");
        let gaps = &engine.log_report().gaps;
        assert!(!gaps.is_empty(), "gaps are reported: {reported}");
        assert_eq!(stored_columns(&engine, KEYSPACE).unwrap(), columns(&engine, KEYSPACE), "{reported}");
        let Some(found) = found_unless_reported(&engine) else { return };
        self.check_values(&found);
        if self.is_accountable() {
            let lost = self.model.lost_writes(&found).into_iter();
            // A record cannot be read without the types of its columns.
            let (left_out, lost): (Vec<_>, Vec<_>) =
                lost.partition(|index| self.model.needs_lost_column(*index, &found));
            let reported = || lost.iter().map(|index| self.model.describe(*index)).collect::<Vec<_>>();
            assert!(lost.len() <= frames, "lost with {frames} frames, {gaps:?}: {:#?}", reported());
            assert!(
                left_out.len() as u64 <= engine.replay_summary().unreadable,
                "left out without a count: {left_out:?}"
            );
        }
    }

    /// Returns whether each acknowledged write is a frame of its own, and the state of every write is known.
    fn is_accountable(&self) -> bool {
        !matches!(self.sync, SyncMode::Periodic { .. }) && self.model.refused() == 0 && !self.has_large_batch
    }

    /// Checks that each value in the tables was written once.
    fn check_values(&self, found: &State) {
        for value in found.values().flat_map(|table| table.rows.values()).flat_map(|row| row.values()) {
            assert!(self.written.contains(value), "{value} was never written");
        }
    }
}

/// What the tables have; `None` if an SSTable lost its column with a schema change in the damaged part of the log, and
/// the error of the read names both.
fn found_unless_reported(engine: &Engine) -> Option<State> {
    match read_all(engine) {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(error.to_string().contains("which table"), "{error}");
            None
        }
    }
}
