//! The counts of contended and uncontended writes.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

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
