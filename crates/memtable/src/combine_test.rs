//! The counts of contended and uncontended writes, and wake-ups for others.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::PutCounts;
use crate::combine::{Combiner, Gate};

/// What was written, in order.
struct Written(Mutex<Vec<u32>>);

impl Gate for Written {
    type Guard<'g> = MutexGuard<'g, Vec<u32>>;

    fn try_acquire(&self) -> Option<MutexGuard<'_, Vec<u32>>> {
        self.0.try_lock().ok()
    }

    fn acquire(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().expect("no thread panics")
    }
}

fn make(written: &mut MutexGuard<'_, Vec<u32>>, change: &u32) {
    written.push(*change);
}

#[test]
fn a_contended_write_is_counted_with_its_waiting_time() {
    let (gate, writers) = (Written(Mutex::default()), Combiner::new());
    writers.write(&gate, &1, make);
    assert_eq!(writers.puts().counts(), PutCounts { uncontended: 1, contended: 0, waited: Duration::ZERO });
    std::thread::scope(|scope| {
        let hold = |_: &mut MutexGuard<'_, Vec<u32>>| {
            for change in 2..5 {
                let (gate, writers) = (&gate, &writers);
                scope.spawn(move || writers.write(gate, &change, make));
            }
            while writers.queued() < 3 {
                std::thread::yield_now();
            }
        };
        writers.with(&gate, hold, make);
    });
    let counts = writers.puts().counts();
    assert_eq!((counts.uncontended, counts.contended), (1, 3));
    assert!(counts.waited > Duration::ZERO);
    let mut written = gate.acquire().clone();
    written[1..].sort_unstable();
    assert_eq!(written, [1, 2, 3, 4]);
}

/// A thread has one token for all wake-ups, and one that waits for its change takes it.
#[test]
fn a_wake_up_that_comes_while_a_change_is_made_ends_the_next_sleep_of_its_thread() {
    const NEVER: Duration = Duration::from_secs(30);
    let (gate, writers) = (Written(Mutex::default()), Combiner::new());
    std::thread::scope(|scope| {
        let hold = |_: &mut MutexGuard<'_, Vec<u32>>| {
            let (gate, writers) = (&gate, &writers);
            let waiting = scope.spawn(move || {
                writers.write(gate, &1, make);
                let slept_from = Instant::now();
                std::thread::park_timeout(NEVER);
                assert!(slept_from.elapsed() < NEVER, "the wake-up was lost");
            });
            while writers.queued() < 1 {
                std::thread::yield_now();
            }
            waiting.thread().unpark();
            // By then it has most likely taken the token and sleeps again.
            std::thread::sleep(Duration::from_millis(20));
        };
        writers.with(&gate, hold, make);
    });
}
