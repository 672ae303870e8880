use super::*;
use tokio::sync::{mpsc, watch};

const OPTIONS: PoolOptions =
    PoolOptions { name: "test", niceness: 0, threads_max: 4, threads_per_line_max: 3, waiting_max: 100 };

fn in_runtime<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Work that says that it has begun, and ends when the gate is open.
async fn gated(name: &'static str, begun: mpsc::UnboundedSender<&'static str>, mut gate: watch::Receiver<bool>) {
    begun.send(name).unwrap();
    gate.wait_for(|open| *open).await.unwrap();
}

#[test]
fn lines_take_turns_and_none_has_all_threads() {
    in_runtime(async {
        let pool = BlockingPool::new(OPTIONS);
        let ((begun, mut names), (gate, opened)) = (mpsc::unbounded_channel(), watch::channel(false));
        let (one, other) = (Line::new(Pools::new()), Line::new(Pools::new()));
        let mut outcomes = Vec::new();
        for _ in 0..50 {
            outcomes.push(pool.run(&one, gated("one", begun.clone(), opened.clone())).unwrap());
        }
        for _ in 0..3 {
            assert_eq!(names.recv().await, Some("one"));
        }
        assert_eq!(one.waiting(), 47);
        for _ in 0..2 {
            outcomes.push(pool.run(&other, gated("other", begun.clone(), opened.clone())).unwrap());
        }
        assert_eq!(names.recv().await, Some("other"), "a thread is left for it");
        gate.send_replace(true);
        let mut rest = Vec::new();
        for _ in 0..48 {
            rest.push(names.recv().await.unwrap());
        }
        let place = rest.iter().position(|name| *name == "other").unwrap();
        assert!(place <= 4, "it is begun behind {place} of the other line");
        for outcome in outcomes {
            outcome.await;
        }
        assert_eq!((one.waiting(), other.waiting()), (0, 0));
        // A thread says that its work has ended after what came of it is known.
        while !pool.0.lock().lines.is_empty() {
            std::thread::yield_now();
        }
        assert!(pool.0.lock().turns.is_empty());
    });
}

#[test]
fn what_nobody_waits_for_is_not_begun_and_takes_no_place() {
    in_runtime(async {
        let pool = BlockingPool::new(PoolOptions { threads_max: 1, waiting_max: 2, ..OPTIONS });
        let ((begun, mut names), (gate, opened)) = (mpsc::unbounded_channel(), watch::channel(false));
        let line = Line::new(Pools::new());
        let work = |name| gated(name, begun.clone(), opened.clone());
        let first = pool.run(&line, work("first")).unwrap();
        assert_eq!(names.recv().await, Some("first"));
        let (second, third) = (pool.run(&line, work("second")).unwrap(), pool.run(&line, work("third")).unwrap());
        assert!(pool.run(&line, work("refused")).is_err());
        drop(second);
        let fourth = pool.run(&line, work("fourth")).unwrap();
        gate.send_replace(true);
        first.await;
        third.await;
        fourth.await;
        assert_eq!((names.recv().await, names.recv().await), (Some("third"), Some("fourth")));
    });
}

#[test]
fn a_line_whose_client_does_not_read_is_passed_over() {
    in_runtime(async {
        let pool = BlockingPool::new(OPTIONS);
        let ((begun, mut names), (_gate, opened)) = (mpsc::unbounded_channel(), watch::channel(true));
        let (clogged, other) = (Line::new(Pools::new()), Line::new(Pools::new()));
        assert!(clogged.set_clogged(true) && !clogged.set_clogged(true));
        let waits = pool.run(&clogged, gated("clogged", begun.clone(), opened.clone())).unwrap();
        pool.run(&other, gated("other", begun.clone(), opened.clone())).unwrap().await;
        assert_eq!((names.recv().await, clogged.waiting()), (Some("other"), 1));
        assert!(clogged.set_clogged(false));
        pool.poke();
        waits.await;
        assert_eq!(names.recv().await, Some("clogged"));
    });
}

#[test]
fn a_panic_is_the_works_own() {
    in_runtime(async {
        let pool = BlockingPool::new(PoolOptions { threads_max: 1, ..OPTIONS });
        let line = Line::new(Pools::new());
        let outcome = pool.run(&line, async { panic!("as it should") }).unwrap();
        assert!(tokio::spawn(outcome).await.unwrap_err().is_panic());
        assert_eq!(pool.run(&line, async { 7 }).unwrap().await, 7);
    });
}
