//! Combining under every schedule and every order of memory that the language allows (loom):
//! `RUSTFLAGS="--cfg loom" cargo test -p memtable --lib --release loom`.

use std::sync::Arc;

use loom::model::Builder;

use crate::combine::Combiner;

/// Three threads with a change each: all are made, each once, whoever makes it, and each thread is told of its own.
fn every_change_is_made_once(with_visitor: bool) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let combiner: Arc<Combiner<Vec<u32>, u32, u32>> = Arc::new(Combiner::new(Vec::new()));
        let make = |made: &mut Vec<u32>, change: &u32| {
            made.push(*change);
            *change * 10
        };
        let threads: Vec<_> = (1..=2)
            .map(|change| {
                let combiner = combiner.clone();
                loom::thread::spawn(move || assert_eq!(combiner.write(&change, make), change * 10))
            })
            .collect();
        if with_visitor {
            combiner.write_here(|made| made.push(3), make);
        } else {
            assert_eq!(combiner.write(&3, make), 30);
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no assertion failed"));
        let mut made = combiner.with(|made| made.clone(), make);
        made.sort_unstable();
        assert_eq!(made, [1, 2, 3]);
        let counts = combiner.puts().counts();
        assert_eq!(counts.uncontended + counts.contended, 3);
    });
}

#[test]
fn loom_every_change_is_made_once_and_nobody_waits_for_ever() {
    every_change_is_made_once(false);
}

#[test]
fn loom_a_change_that_stays_on_its_thread_serves_those_that_wait() {
    every_change_is_made_once(true);
}
