//! The log's promise, over random histories on the simulated disk with power cuts and kills. Every acknowledged record
//! is replayed or flushed; a record that was sent and not acknowledged is there whole or not at all; nothing is there
//! that was never sent. What one start has replayed, every later start replays too, whether the process was killed,
//! which keeps the page cache, or lost power.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use blockio::{Fault, SimulatedDisk};
use commitlog::{CommitLog, LogError, LogOptions, LogPosition, PositionInterval, Replay, SyncMode};
use testkit::Choices;
use uuid::Uuid;

const DIR: &str = "/data/commitlog";
const SEGMENT: u32 = 64 << 10;

/// A record of the model: its data follows from its number.
#[derive(Clone)]
struct Sent {
    tables: Vec<Uuid>,
    data: Vec<u8>,
    /// Its position in this life of the log, once appended or replayed.
    position: Option<LogPosition>,
    acknowledged: bool,
    /// The tables that have it in an SSTable.
    flushed: BTreeSet<Uuid>,
}

struct Node {
    choices: Choices,
    disk: SimulatedDisk,
    clock: Arc<AtomicI64>,
    sync: SyncMode,
    sent: Vec<Sent>,
    /// For each table, where its last flush ended in this life of the log.
    flushed_to: BTreeMap<Uuid, LogPosition>,
}

fn data_of(number: usize, length: usize) -> Vec<u8> {
    let mut data = number.to_be_bytes().to_vec();
    data.extend((0..length).map(|i| (number.wrapping_mul(31) ^ i.wrapping_mul(7)) as u8));
    data
}

fn sync_mode(name: &str) -> SyncMode {
    match name {
        "periodic" => SyncMode::Periodic { period: Duration::from_micros(300) },
        "group" => SyncMode::Group { window: Duration::from_micros(50) },
        "each" => SyncMode::Each,
        _ => SyncMode::Batch,
    }
}

impl Node {
    fn new(seed: u64) -> Node {
        let mut choices = Choices(seed);
        let sync = sync_mode(["periodic", "group", "each", "each", "batch", "batch"][choices.below(6) as usize]);
        let clock = Arc::new(AtomicI64::new(1000));
        Node { choices, disk: SimulatedDisk::new(), clock, sync, sent: Vec::new(), flushed_to: BTreeMap::new() }
    }

    fn options(&self) -> LogOptions {
        let clock = Arc::clone(&self.clock);
        LogOptions {
            segment_size_bytes: SEGMENT,
            total_space_bytes: 5 * u64::from(SEGMENT),
            sync: self.sync,
            log_id: Some(Uuid::from_u128(77)),
            append_timeout: Duration::from_millis(5),
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            ..LogOptions::new(DIR)
        }
    }

    fn open(&self) -> Result<(CommitLog, Replay), LogError> {
        CommitLog::open(Arc::new(self.disk.clone()), self.options())
    }

    /// Replays the log, and checks the promise for everything that was ever sent.
    fn replay(&mut self, mut replay: Replay) -> Result<(), LogError> {
        let mut last = LogPosition::NONE;
        for sent in &mut self.sent {
            sent.position = None;
        }
        while let Some(record) = replay.next_record()? {
            assert!(last <= record.start && record.start < record.position);
            last = record.position;
            let number = usize::from_be_bytes(record.data[..8].try_into().unwrap());
            let sent = self.sent.get_mut(number).expect("a record that was never sent");
            assert!(sent.data == record.data && sent.tables == record.tables, "record {number} is not whole");
            assert!(sent.position.is_none(), "record {number} twice");
            sent.position = Some(record.position);
        }
        for (number, sent) in self.sent.iter().enumerate().filter(|(_, sent)| sent.acknowledged) {
            let flushed = sent.tables.iter().all(|table| sent.flushed.contains(table));
            assert!(flushed || sent.position.is_some(), "acknowledged record {number} is lost");
        }
        assert_eq!(replay.report().gaps, []);
        Ok(())
    }

    /// Counts all replayed records as acknowledged, because clients may see them from now on.
    fn take_replayed_for_acknowledged(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.acknowledged |= sent.position.is_some());
    }

    /// Kills the process; the next one finds what is in the page cache.
    fn die(&mut self) {
        self.flushed_to.clear();
        self.disk = self.disk.after_process_death();
    }

    /// Cuts the machine's power.
    fn lose_power(&mut self) {
        self.flushed_to.clear();
        let image_seed = self.choices.next();
        self.disk = self.disk.crash_image(image_seed);
    }

    fn append(&mut self, log: &CommitLog) -> Result<LogPosition, LogError> {
        let number = self.sent.len();
        let length = match self.choices.below(20) {
            0 => self.choices.below(u64::from(SEGMENT) / 2 - 200),
            1..=4 => self.choices.below(9000),
            _ => self.choices.below(300),
        };
        let data = data_of(number, length as usize);
        let tables: Vec<Uuid> =
            (0..=self.choices.below(3)).map(|_| Uuid::from_u128(self.choices.below(4).into())).collect();
        self.sent.push(Sent {
            tables: tables.clone(),
            data,
            position: None,
            acknowledged: false,
            flushed: BTreeSet::new(),
        });
        loop {
            match log.append(&tables, &self.sent[number].data) {
                Ok(at) => {
                    self.sent[number].position = Some(at.position);
                    return Ok(at.position);
                }
                Err(LogError::NoFreeSegment) => {
                    for table in 0..4 {
                        self.flush(log, Uuid::from_u128(table))?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Flushes a table's records into an SSTable, which is durable before the log learns of it. The first flush of a
    /// life covers all that was found, so that the log always gets room.
    fn flush(&mut self, log: &CommitLog, table: Uuid) -> Result<(), LogError> {
        let start = self.flushed_to.get(&table).copied().unwrap_or(LogPosition::NONE);
        let interval = PositionInterval { start, end: log.position() };
        for sent in &mut self.sent {
            if sent.tables.contains(&table) && sent.position.is_some_and(|position| interval.contains(position)) {
                sent.flushed.insert(table);
            }
        }
        self.flushed_to.insert(table, interval.end);
        log.flushed(table, interval)
    }

    /// One life of the log, up to a power cut somewhere in it or at its end.
    fn live(&mut self) -> Result<(), LogError> {
        self.flushed_to.clear();
        let (log, replay) = self.open()?;
        self.replay(replay)?;
        self.take_replayed_for_acknowledged();
        if self.choices.below(3) == 0 {
            for sent in self.sent.iter_mut().filter(|sent| sent.position.is_some()) {
                sent.flushed.extend(sent.tables.iter().copied());
            }
            log.discard_replayed()?;
        }
        // The waiting thread then writes itself, if nothing is in flight.
        let _held = (self.choices.below(2) == 0).then(|| log.hold_wake_ups(Waker::noop()));
        let mut waiting = Vec::new();
        for _ in 0..20 + self.choices.below(60) {
            self.clock.fetch_add(self.choices.below(2000) as i64 - 1000, Ordering::Relaxed);
            waiting.push(self.append(&log)?);
            if self.choices.below(3) == 0 {
                let upto = waiting.remove(self.choices.below(waiting.len() as u64) as usize);
                if matches!(self.sync, SyncMode::Periodic { .. }) {
                    log.sync()?;
                } else {
                    log.durable(upto).wait()?;
                }
                let each = self.sync == SyncMode::Each;
                for sent in &mut self.sent {
                    sent.acknowledged |= match sent.position {
                        Some(position) => position == upto || position < upto && !each,
                        None => false,
                    };
                }
            }
            if self.choices.below(12) == 0 {
                let table = Uuid::from_u128(self.choices.below(4).into());
                self.flush(&log, table)?;
            }
        }
        if self.choices.below(4) == 0 {
            for table in 0..4 {
                self.flush(&log, Uuid::from_u128(table))?;
            }
            log.shutdown()?;
        }
        Ok(())
    }
}

/// Several lives of one log, each up to a kill or a power cut. Returns how many ended early.
fn history(seed: u64) -> u32 {
    let mut node = Node::new(seed);
    let mut cuts = 0;
    for life in 0..4 {
        let cut_after = node.choices.below(if life == 0 { 120 } else { 80 });
        node.disk.inject(Fault::PowerCut, cut_after);
        match node.live() {
            Ok(()) => {}
            Err(error @ LogError::Corrupt(_)) => panic!("seed {seed}, life {life}: {error}"),
            Err(_) => cuts += 1,
        }
        match node.choices.below(2) {
            0 => node.die(),
            _ => node.lose_power(),
        }
    }
    for _ in 0..2 {
        let (log, replay) = node.open().unwrap();
        node.replay(replay).unwrap();
        node.take_replayed_for_acknowledged();
        drop(log);
        node.lose_power();
    }
    cuts
}

/// Calls `case` with `usual` seeds, or with those that `SEED` and `CASES` choose (`make torture`). Of as many as usual,
/// or more, the results must add up to more than `least` for each case: few histories may miss what others find.
fn for_seeds(usual: u64, least: f64, case: impl Fn(u64) -> u64 + Sync) {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, cases) = (setting("SEED").unwrap_or(1).wrapping_mul(1_000_003), setting("CASES").unwrap_or(usual));
    let (next, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= cases {
                        return;
                    }
                    sum.fetch_add(case(first.wrapping_add(number)), Ordering::Relaxed);
                }
            });
        }
    });
    let sum = sum.into_inner();
    assert!(cases < usual || sum as f64 > least * cases as f64, "{sum} in {cases} cases");
}

#[test]
fn acknowledged_records_survive_kills_and_power_cuts_anywhere() {
    // One of its four lives ends early.
    for_seeds(500, 1.0, |seed| history(seed).into());
}

/// One life of a log, from before it is made, with the power cut at its first operation, its second, and so on to its
/// end.
#[test]
fn acknowledged_records_survive_a_power_cut_at_every_operation() {
    // One of each mode, `batch` and `each` twice.
    for (seed, sync) in (0..).zip(["periodic", "group", "batch", "each", "batch", "each"]) {
        for cut in 0.. {
            let mut node = Node::new(seed);
            node.sync = sync_mode(sync);
            node.disk.inject(Fault::PowerCut, cut);
            let ended = node.live();
            assert!(ended.is_ok() || cut < 1000, "{sync}: it never ends");
            for image_seed in [cut, cut + 1] {
                let disk = node.disk.crash_image(image_seed);
                let (log, replay) = CommitLog::open(Arc::new(disk), node.options())
                    .unwrap_or_else(|error| panic!("{sync}, cut {cut}: {error}"));
                node.replay(replay).unwrap_or_else(|error| panic!("{sync}, cut {cut}: {error}"));
                drop(log);
            }
            if ended.is_ok() {
                assert!(cut > 10, "{sync}: {cut} operations");
                break;
            }
        }
    }
}

/// A process is killed at its first operation, its second, and so on. The next process replays what it finds and
/// acknowledges one more record; then the power is cut.
#[test]
fn acknowledged_records_survive_a_kill_at_every_operation_and_a_power_cut_after_it() {
    for (seed, sync) in (0..).zip(["periodic", "group", "batch", "each"]) {
        for operation in 0.. {
            let mut node = Node::new(seed);
            node.sync = sync_mode(sync);
            node.disk.inject(Fault::PowerCut, operation);
            let ended = node.live();
            node.die();
            let (log, replay) = node.open().unwrap_or_else(|error| panic!("{sync}, operation {operation}: {error}"));
            node.replay(replay).unwrap();
            node.take_replayed_for_acknowledged();
            let at = node.append(&log).unwrap();
            log.sync().unwrap();
            assert!(at.segment > 0);
            node.sent.last_mut().unwrap().acknowledged = true;
            drop(log);
            node.lose_power();
            let (log, replay) = node.open().unwrap_or_else(|error| panic!("{sync}, operation {operation}: {error}"));
            node.replay(replay).unwrap();
            drop(log);
            if ended.is_ok() {
                assert!(operation > 10, "{sync}: {operation} operations");
                break;
            }
        }
    }
}

#[test]
fn a_log_is_made_whole_or_not_at_all() {
    for cut in 0..12 {
        for seed in 0..20 {
            let mut node = Node::new(seed);
            node.disk.inject(Fault::PowerCut, cut);
            let made = node.open().is_ok();
            node.disk = node.disk.crash_image(seed);
            let (log, replay) =
                node.open().unwrap_or_else(|error| panic!("cut {cut}, seed {seed}, made {made}: {error}"));
            node.replay(replay).unwrap();
            log.append(&[], b"12345678").unwrap();
        }
    }
}

/// A life in which the device once writes wrong bytes, or to the wrong place, and reports success. Every record is
/// acknowledged before the next is sent, so each is a frame, and a later horizon covers all but the last. A salvage
/// loses the frame that went wrong, and a frame that it overwrote. Returns whether damage was reported.
fn silent_fault(seed: u64) -> bool {
    let mut node = Node::new(seed);
    if matches!(node.sync, SyncMode::Periodic { .. }) {
        node.sync = SyncMode::Batch;
    }
    let (log, replay) = node.open().unwrap();
    node.replay(replay).unwrap();
    let (fault, frames) = if node.choices.below(2) == 0 { (Fault::FlipBit, 1) } else { (Fault::Misdirect, 2) };
    let skip = node.choices.below(60);
    node.disk.inject(fault, skip);
    for _ in 0..60 {
        node.clock.fetch_add(node.choices.below(2000) as i64 - 1000, Ordering::Relaxed);
        let at = node.append(&log).unwrap();
        log.durable(at).wait().unwrap();
        node.sent.last_mut().unwrap().acknowledged = true;
        if node.choices.below(8) == 0 {
            let table = Uuid::from_u128(node.choices.below(4).into());
            node.flush(&log, table).unwrap();
        }
    }
    drop(log);
    node.disk = node.disk.crash_image(seed);
    let reported = match node.open().and_then(|(_, mut replay)| {
        while replay.next_record()?.is_some() {}
        Ok(())
    }) {
        Ok(()) => false,
        Err(LogError::Corrupt(damage)) => {
            assert!(damage.path.ends_with("commitlog.log") && !damage.expected.is_empty(), "seed {seed}: {damage:?}");
            true
        }
        Err(error) => panic!("seed {seed}: {error}"),
    };
    let options = LogOptions { salvage: true, ..node.options() };
    let (_log, mut replay) = CommitLog::open(Arc::new(node.disk.clone()), options).unwrap();
    let mut found = BTreeSet::new();
    while let Some(record) = replay.next_record().unwrap() {
        let number = usize::from_be_bytes(record.data[..8].try_into().unwrap());
        assert!(node.sent[number].data == record.data, "seed {seed}: record {number} is not whole");
        found.insert(number);
    }
    assert_eq!(!replay.report().gaps.is_empty(), reported, "seed {seed}");
    let last = node.sent.len() - 1;
    let is_lost = |(number, sent): &(usize, &Sent)| {
        !found.contains(number) && !sent.tables.iter().all(|table| sent.flushed.contains(table))
    };
    let lost: Vec<usize> = node.sent.iter().enumerate().take(last).filter(is_lost).map(|(number, _)| number).collect();
    assert!(reported || lost.is_empty(), "seed {seed}: records {lost:?} were lost without a word");
    assert!(lost.len() <= frames, "seed {seed}: {fault:?} cost records {lost:?}");
    reported
}

#[test]
fn silent_faults_of_the_device_are_reported() {
    for_seeds(400, 0.25, |seed| silent_fault(seed).into());
}

/// A history in which an operation fails. What was acknowledged before and after still holds, and nothing is
/// acknowledged after the log has closed. Returns whether it has closed.
fn failed_operation(seed: u64) -> bool {
    let mut node = Node::new(seed);
    let (log, _) = node.open().unwrap();
    let fault = [Fault::Fail, Fault::ShortWrite, Fault::FailSync, Fault::Full][seed as usize % 4];
    let skip = seed / 4 % 60;
    node.disk.inject(fault, skip);
    let held = (node.choices.below(2) == 0).then(|| log.hold_wake_ups(Waker::noop()));
    let mut outcome = Ok(());
    for _ in 0..60 {
        outcome = node.append(&log).and_then(|at| {
            log.sync()?;
            for sent in node.sent.iter_mut().filter(|sent| sent.position.is_some_and(|position| position <= at)) {
                sent.acknowledged = true;
            }
            node.flush(&log, Uuid::from_u128(1))
        });
        if outcome.is_err() {
            break;
        }
    }
    let closed = log.closed();
    if let Some(error) = &closed {
        assert!(outcome.is_err(), "seed {seed}: {fault:?} {skip}");
        assert!(log.append(&[], b"x").is_err(), "seed {seed}: {error}");
    }
    drop((held, log));
    for image_seed in 0..3 {
        let disk = node.disk.crash_image(image_seed);
        let (log, replay) = CommitLog::open(Arc::new(disk), node.options()).unwrap();
        node.replay(replay).unwrap_or_else(|error| panic!("seed {seed}: {fault:?} {skip}: {error}"));
        drop(log);
    }
    closed.is_some()
}

#[test]
fn a_failed_operation_closes_the_log_and_loses_nothing_acknowledged() {
    for_seeds(240, 0.25, |seed| failed_operation(seed).into());
}

#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let mut node = Node::new(3);
    let mut last = 0;
    for time in [5000, 4000, 10, -7, 6000] {
        node.clock.store(time, Ordering::Relaxed);
        let (log, replay) = node.open().unwrap();
        let id = log.position().segment;
        assert!(id > last && id >= time, "{id} after {last} at {time}");
        last = id;
        node.replay(replay).unwrap();
        node.append(&log).unwrap();
    }
    node.open().unwrap().0.discard_replayed().unwrap();
    // SSTables may belong to a log that was lost.
    let (log, _) = node.open().unwrap();
    log.raise_segment_ids(90_000).unwrap();
    assert_eq!(log.position().segment, 90_001);
    log.raise_segment_ids(80_000).unwrap();
    assert_eq!(log.position().segment, 90_001);
}

/// All segments but the one to be filled hold records, so there is no other one to move on to.
#[test]
fn ids_are_raised_where_no_other_segment_is_free_and_records_are_found_under_them() {
    let disk = SimulatedDisk::new();
    let options = LogOptions {
        segment_size_bytes: SEGMENT,
        total_space_bytes: 2 * u64::from(SEGMENT),
        clock: Arc::new(|| 10),
        ..LogOptions::new(DIR)
    };
    let open = |disk: &SimulatedDisk| CommitLog::open(Arc::new(disk.clone()), options.clone()).unwrap();
    let (log, _) = open(&disk);
    let before = log.append(&[], b"before").unwrap().position;
    log.durable(before).wait().unwrap();
    drop(log);
    let (log, _) = open(&disk);
    log.raise_segment_ids(5000).unwrap();
    let after = log.append(&[], b"after").unwrap().position;
    log.durable(after).wait().unwrap();
    assert_eq!((before.segment, after.segment), (10, 5001));
    // An id never changes once its segment has a record.
    log.raise_segment_ids(6000).unwrap();
    assert_eq!(log.append(&[], b"not durable").unwrap().position.segment, 5001);
    let image = disk.crash_image(1);
    let (_log, mut replay) = open(&image);
    for (position, data) in [(before, b"before".as_slice()), (after, b"after")] {
        let record = replay.next_record().unwrap().unwrap();
        assert_eq!((record.position, record.data), (position, data));
    }
}

/// The clock has stepped back when the log gets another layout, and the power is cut before a segment of the new layout
/// is used.
#[test]
fn a_log_of_another_layout_continues_the_segment_ids() {
    let mut cuts = 0;
    for skip in 0..30 {
        let node = Node::new(3);
        node.clock.store(5000, Ordering::Relaxed);
        node.open().unwrap().0.shutdown().unwrap();
        node.clock.store(10, Ordering::Relaxed);
        let options = LogOptions { segment_size_bytes: SEGMENT / 2, ..node.options() };
        node.disk.inject(Fault::PowerCut, skip);
        cuts += u32::from(CommitLog::open(Arc::new(node.disk.clone()), options.clone()).is_err());
        let image = node.disk.crash_image(skip);
        let (log, _) = CommitLog::open(Arc::new(image), options).unwrap();
        assert_eq!(log.geometry().segment_size_bytes, SEGMENT / 2);
        assert!(log.position().segment > 5000, "{} after {skip} operations", log.position());
    }
    assert!(cuts > 5, "{cuts}");
}

#[test]
fn a_full_disk_stops_appends_and_nothing_else() {
    let mut node = Node::new(5);
    node.sync = SyncMode::Batch;
    node.disk.set_capacity(u64::from(SEGMENT) + 7 * 4096 + 20_000);
    let (log, _) = node.open().unwrap();
    let table = [Uuid::from_u128(9)];
    let refused = loop {
        match log.append(&table, &[1; 9000]) {
            Ok(at) => log.durable(at.position).wait().unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LogError::DiskFull(_)), "{refused}");
    assert!(log.closed().is_none());
    node.disk.set_capacity(1 << 30);
    let at = log.append(&table, &[1; 9000]).unwrap();
    log.durable(at.position).wait().unwrap();
}
