//! Tests of the locks: examples, and random histories against a model.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use testkit::Random;
use uuid::Uuid;

use super::*;

/// A waker that notes that it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A taker of several locks, and whether it was woken since it was polled.
struct Client {
    future: Pin<Box<dyn Future<Output = HeldLocks>>>,
    woken: Arc<Flag>,
}

impl Client {
    fn new(locks: &Arc<PartitionLocks>, stripes: &[usize]) -> Client {
        let (locks, stripes) = (Arc::clone(locks), stripes.to_vec());
        let future = Box::pin(async move { locks.lock_stripes(&stripes).await });
        Client { future, woken: Arc::default() }
    }

    fn poll(&mut self) -> Option<HeldLocks> {
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(held) => Some(held),
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_lock_is_passed_on_in_the_order_of_arrival() {
    let locks = PartitionLocks::with_stripes(2);
    let mut first = Client::new(&locks, &[0]);
    let held = first.poll().expect("it is free");
    let mut waiting: Vec<Client> = (0..4).map(|_| Client::new(&locks, &[0])).collect();
    assert!(waiting.iter_mut().all(|client| client.poll().is_none()));
    let mut other = Client::new(&locks, &[1]);
    drop(other.poll().expect("another lock is free"));
    let mut held = Some(held);
    for place in 0..waiting.len() {
        assert!(waiting[place..].iter().all(|client| !client.is_woken()));
        drop(held.take());
        assert!(waiting[place].is_woken(), "the first in the queue");
        assert!(Client::new(&locks, &[0]).poll().is_none(), "no one takes a lock that was granted to another");
        held = waiting[place].poll();
        assert!(held.is_some());
    }
}

#[test]
fn a_waiter_that_leaves_is_forgotten_and_passes_on_what_it_was_granted() {
    let locks = PartitionLocks::with_stripes(1);
    let held = Client::new(&locks, &[0]).poll().expect("it is free");
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&locks, &[0])).collect();
    assert!(clients.iter_mut().all(|client| client.poll().is_none()));
    drop(clients.remove(1));
    drop(held);
    assert!(clients[0].is_woken());
    drop(clients.remove(0));
    assert!(clients[0].is_woken(), "the lock that was granted to the other");
    drop(clients.remove(0).poll().expect("the lock"));
    assert!(Client::new(&locks, &[0]).poll().is_some(), "the lock is free");
}

#[test]
fn a_lock_is_passed_on_at_a_place_unless_it_is_kept() {
    for keeps in [false, true] {
        let locks = PartitionLocks::with_stripes(1);
        let held = Client::new(&locks, &[0]).poll().expect("it is free");
        let mut next = Client::new(&locks, &[0]);
        assert!(next.poll().is_none());
        let place = held.into_place(None, keeps);
        assert_eq!(next.is_woken(), !keeps);
        drop(place);
        assert!(next.is_woken());
        let last = next.poll().expect("the lock");
        assert!(!last.follow_others());
    }
}

#[test]
fn a_partition_twice_is_one_lock() {
    let locks = PartitionLocks::new();
    let partition = (TableId(Uuid::from_u128(7)), Token(3));
    let held = crate::block_on(locks.lock(&[partition, partition]));
    assert_eq!(held.held.as_ref().map(|held| held.stripes.len()), Some(1));
}

#[test]
fn partitions_are_spread_over_all_locks() {
    let locks = PartitionLocks::new();
    let mut counts = vec![0; locks.stripes.len()];
    for number in 0..40_960_i64 {
        let token = Token(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        counts[locks.stripe_of(TableId(Uuid::from_u128(1)), token)] += 1;
    }
    assert!(counts.iter().all(|count| (1..40).contains(count)), "10 each on average");
}

/// Random clients take, hold, leave and give up in any order. Meanwhile each lock has one holder at most, every
/// waiter that could continue was woken, and holders follow each other in the order in which they asked.
#[test]
fn no_history_has_two_holders_of_a_lock_or_loses_a_wake_up() {
    for seed in testkit::seeds(0..200) {
        let mut random = Random(seed);
        let stripes = 1 + random.below(4).next_power_of_two();
        let locks = PartitionLocks::with_stripes(stripes.next_power_of_two());
        let mut waiting: Vec<(Vec<usize>, Client)> = Vec::new();
        let mut holding: Vec<(Vec<usize>, HeldLocks)> = Vec::new();
        for _ in 0..300 {
            match random.below(6) {
                0 | 1 => {
                    let mut wanted: Vec<usize> = (0..1 + random.below(3)).map(|_| random.below(stripes)).collect();
                    wanted.sort_unstable();
                    wanted.dedup();
                    let mut client = Client::new(&locks, &wanted);
                    match client.poll() {
                        Some(held) => holding.push((wanted, held)),
                        None => waiting.push((wanted, client)),
                    }
                }
                2 if !holding.is_empty() => drop(holding.swap_remove(random.below(holding.len()))),
                3 if !waiting.is_empty() && random.one_in(3) => {
                    drop(waiting.swap_remove(random.below(waiting.len())));
                }
                // A spurious poll.
                4 if !waiting.is_empty() => {
                    let place = random.below(waiting.len());
                    let was_woken = waiting[place].1.is_woken();
                    if let Some(held) = waiting[place].1.poll() {
                        assert!(was_woken, "seed {seed}: it could go on and was not woken");
                        holding.push((waiting.remove(place).0, held));
                    }
                }
                _ => poll_woken(&mut waiting, &mut holding),
            }
            let mut held: Vec<usize> = holding.iter().flat_map(|(stripes, _)| stripes.clone()).collect();
            held.sort_unstable();
            assert!(held.windows(2).all(|pair| pair[0] != pair[1]), "seed {seed}: two holders in {held:?}");
        }
        // The remaining waiters are served once the others leave.
        while !waiting.is_empty() || !holding.is_empty() {
            let before = waiting.len() + holding.len();
            holding.clear();
            poll_woken(&mut waiting, &mut holding);
            let moves = waiting.iter().any(|(_, client)| client.is_woken());
            assert!(moves || waiting.len() < before, "seed {seed}: {} wait for ever", waiting.len());
        }
        assert!(locks.stripes.iter().all(|stripe| !lock(stripe).is_held), "seed {seed}: a lock is left behind");
    }
}

fn poll_woken(waiting: &mut Vec<(Vec<usize>, Client)>, holding: &mut Vec<(Vec<usize>, HeldLocks)>) {
    let mut place = 0;
    while place < waiting.len() {
        match waiting[place].1.is_woken().then(|| waiting[place].1.poll()).flatten() {
            Some(held) => holding.push((waiting.remove(place).0, held)),
            None => place += 1,
        }
    }
}
