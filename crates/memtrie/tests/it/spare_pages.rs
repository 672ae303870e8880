//! Memory that one trie leaves and another takes.

use std::sync::Arc;

use memtrie::{SparePages, Trie, TrieOptions};

use super::model::{Model, Random, check_all};

const HUGE_PAGE: usize = 2 << 20;

fn trie(spare: &Arc<SparePages>) -> Trie {
    Trie::with_spare_pages(TrieOptions { layout: super::LAYOUT, ..TrieOptions::default() }, spare.clone())
}

/// Fills a trie with contents of about this many MiB.
fn fill(trie: &Trie, mebibytes: usize) {
    (0..mebibytes * 4).for_each(|number| {
        trie.writer().put(&number.to_be_bytes(), &vec![number as u8; 250 << 10]).expect("room");
    });
}

/// The spare bytes that a trie leaves which had contents of about this many MiB.
fn left_by(spare: &Arc<SparePages>, mebibytes: usize) -> usize {
    let before = spare.bytes();
    let gone = trie(spare);
    fill(&gone, mebibytes);
    drop(gone);
    spare.bytes() - before.min(spare.bytes())
}

/// Adds pairs of keys with a long common prefix and contents of about as many bytes, so that both arenas fill.
fn grow(random: &mut Random, trie: &Trie, model: &mut Model, pairs: usize) {
    for _ in 0..pairs {
        let mut key = random.number().to_be_bytes().to_vec();
        key.resize(1000, b'~');
        for last in 0..2 {
            key.push(last);
            let content = vec![random.number() as u8; 100 + random.below(1900)];
            trie.writer().put(&key, &content).expect("room");
            model.insert(key.clone(), content);
            key.pop();
        }
    }
}

/// Debug builds overwrite the pages, and the first trie's own were in use.
#[test]
fn a_trie_on_spare_pages_answers_as_on_new_memory() {
    const PAIRS: usize = 6000;
    let spare = Arc::new(SparePages::new(1 << 30));
    let random = &mut Random(31);
    for round in 0..2 {
        let (found, trie) = (spare.bytes(), trie(&spare));
        let mut model = Model::new();
        grow(random, &trie, &mut model, PAIRS);
        let taken = found - spare.bytes();
        assert_eq!(taken > 3 * HUGE_PAGE, round > 0, "{taken} bytes taken in round {round}");
        // Some keys are removed, their memory partly returned to the system, and added again.
        let gone: Vec<_> = model.keys().filter(|key| key[0] < 200).cloned().collect();
        for key in &gone {
            trie.writer().remove(key).expect("room");
            model.remove(key);
        }
        trie.writer().reclaim();
        grow(random, &trie, &mut model, PAIRS / 4);
        check_all(&trie, &model);
        if round == 0 {
            grow(random, &trie, &mut model, PAIRS);
        }
        drop(trie);
    }
}

#[test]
fn tries_and_spare_pages_together_stay_within_the_limit() {
    const LIMIT: usize = 16 << 20;
    let spare = Arc::new(SparePages::new(LIMIT));
    let kept = left_by(&spare, 40);
    assert!((LIMIT - 2 * HUGE_PAGE..=LIMIT).contains(&kept), "{kept}");
    // New memory is taken from the spare pages.
    let small: Vec<Trie> = (0..6).map(|_| trie(&spare)).collect();
    for (index, trie) in small.iter().enumerate() {
        fill(trie, 1);
        let held = (index + 1) << 20;
        assert!(spare.bytes() + held <= LIMIT, "{} spare beside {held}", spare.bytes());
    }
    let left = spare.bytes();
    assert_eq!(left_by(&spare, 40), 0, "it takes all, and more than is allowed is in tries until it is gone");
    assert!(spare.bytes() <= left, "{} after {left}", spare.bytes());
    drop(small);
    assert!(left_by(&spare, 40) > 0);
    assert!(spare.bytes() <= LIMIT);
}

#[test]
fn unneeded_pages_return_to_the_system() {
    let spare = Arc::new(SparePages::new(1 << 30));
    let all = left_by(&spare, 30);
    assert!(all > 12 * HUGE_PAGE, "{all}");
    spare.give_back_unneeded();
    assert_eq!(spare.bytes(), all, "it has just come");
    // A third of it is taken and comes back.
    left_by(&spare, 10);
    assert_eq!(spare.bytes(), all);
    spare.give_back_unneeded();
    let needed = spare.bytes();
    assert!((3 * HUGE_PAGE..6 * HUGE_PAGE).contains(&needed), "{needed}");
    spare.give_back_unneeded();
    assert_eq!(spare.bytes(), 0);
}

#[test]
fn small_tries_and_tries_without_permission_leave_no_spare_pages() {
    let spare = Arc::new(SparePages::new(1 << 30));
    assert_eq!(left_by(&spare, 3), 0);
    assert_eq!(left_by(&Arc::new(SparePages::new(0)), 12), 0);
}

/// An emptied trie cannot leave memory that it has returned to the system.
#[test]
fn a_trie_that_became_empty_leaves_little() {
    let spare = Arc::new(SparePages::new(1 << 30));
    let emptied = trie(&spare);
    fill(&emptied, 30);
    (0..30_usize * 4).for_each(|number| {
        emptied.writer().remove(&number.to_be_bytes()).expect("room");
    });
    emptied.writer().reclaim();
    drop(emptied);
    assert!(spare.bytes() <= HUGE_PAGE, "{}", spare.bytes());
}

/// Several threads make and drop tries, which are read while they grow.
#[test]
fn threads_pass_pages_to_each_other() {
    let spare = Arc::new(SparePages::new(48 << 20));
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let spare = &spare;
            scope.spawn(move || {
                for round in 0..6_u8 {
                    let trie = trie(spare);
                    for number in 0..80_u8 {
                        let content = vec![thread ^ round ^ number; 150 << 10];
                        trie.writer().put(&[number], &content).expect("room");
                        let earlier = number / 2;
                        let pin = trie.pin();
                        let found = pin.get(&[earlier]).expect("it was put");
                        assert!(found.iter().all(|&byte| byte == thread ^ round ^ earlier));
                    }
                    spare.give_back_unneeded();
                }
            });
        }
    });
    assert!(spare.bytes() <= 48 << 20);
}
