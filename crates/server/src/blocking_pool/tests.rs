use super::*;
use tokio::sync::{mpsc, watch};

const OPTIONS: PoolOptions =
    PoolOptions { name: "test", niceness: 0, threads_max: 4, threads_per_source_max: 3, waiting_max: 100 };

fn in_runtime<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Work that says that it has begun, and ends when the gate is open.
async fn gated(name: &'static str, started: mpsc::UnboundedSender<&'static str>, mut gate: watch::Receiver<bool>) {
    started.send(name).unwrap();
    gate.wait_for(|open| *open).await.unwrap();
}

#[test]
fn sources_take_turns_and_none_has_all_threads() {
    in_runtime(async {
        let pool = BlockingPool::new(OPTIONS);
        let ((started, mut names), (gate, opened)) = (mpsc::unbounded_channel(), watch::channel(false));
        let (one, other) = (WorkSource::new(Pools::new()), WorkSource::new(Pools::new()));
        let mut outcomes = Vec::new();
        for _ in 0..50 {
            outcomes.push(pool.run(&one, gated("one", started.clone(), opened.clone())).unwrap());
        }
        for _ in 0..3 {
            assert_eq!(names.recv().await, Some("one"));
        }
        assert_eq!(one.waiting(), 47);
        for _ in 0..2 {
            outcomes.push(pool.run(&other, gated("other", started.clone(), opened.clone())).unwrap());
        }
        assert_eq!(names.recv().await, Some("other"), "a thread is left for it");
        gate.send_replace(true);
        let mut rest = Vec::new();
        for _ in 0..48 {
            rest.push(names.recv().await.unwrap());
        }
        let place = rest.iter().position(|name| *name == "other").unwrap();
        assert!(place <= 4, "it is begun behind {place} of the other source");
        for outcome in outcomes {
            outcome.await;
        }
        assert_eq!((one.waiting(), other.waiting()), (0, 0));
        // A thread counts its work as done only after the outcome of the work was sent.
        while !pool.0.lock().sources.is_empty() {
            std::thread::yield_now();
        }
        assert!(pool.0.lock().turns.is_empty());
    });
}

#[test]
fn abandoned_work_is_not_started_and_takes_no_place() {
    in_runtime(async {
        let pool = BlockingPool::new(PoolOptions { threads_max: 1, waiting_max: 2, ..OPTIONS });
        let ((started, mut names), (gate, opened)) = (mpsc::unbounded_channel(), watch::channel(false));
        let source = WorkSource::new(Pools::new());
        let work = |name| gated(name, started.clone(), opened.clone());
        let first = pool.run(&source, work("first")).unwrap();
        assert_eq!(names.recv().await, Some("first"));
        let (second, third) = (pool.run(&source, work("second")).unwrap(), pool.run(&source, work("third")).unwrap());
        assert!(pool.run(&source, work("refused")).is_err());
        drop(second);
        let fourth = pool.run(&source, work("fourth")).unwrap();
        gate.send_replace(true);
        first.await;
        third.await;
        fourth.await;
        assert_eq!((names.recv().await, names.recv().await), (Some("third"), Some("fourth")));
    });
}

#[test]
fn a_paused_source_is_passed_over() {
    in_runtime(async {
        let pool = BlockingPool::new(OPTIONS);
        let ((started, mut names), (_gate, opened)) = (mpsc::unbounded_channel(), watch::channel(true));
        let (paused, other) = (WorkSource::new(Pools::new()), WorkSource::new(Pools::new()));
        assert!(paused.set_paused(true) && !paused.set_paused(true));
        let waits = pool.run(&paused, gated("paused", started.clone(), opened.clone())).unwrap();
        pool.run(&other, gated("other", started.clone(), opened.clone())).unwrap().await;
        assert_eq!((names.recv().await, paused.waiting()), (Some("other"), 1));
        assert!(paused.set_paused(false));
        pool.wake();
        waits.await;
        assert_eq!(names.recv().await, Some("paused"));
    });
}

#[test]
fn a_panic_reaches_the_future_of_its_work_only() {
    in_runtime(async {
        let pool = BlockingPool::new(PoolOptions { threads_max: 1, ..OPTIONS });
        let source = WorkSource::new(Pools::new());
        let outcome = pool.run(&source, async { panic!("as it should") }).unwrap();
        assert!(tokio::spawn(outcome).await.unwrap_err().is_panic());
        assert_eq!(pool.run(&source, async { 7 }).unwrap().await, 7);
    });
}
