//! Which liveness of a row wins.

use model::{Liveness, NO_DELETION_TIME, TTL_NONE};

#[test]
fn of_one_timestamp_the_liveness_that_ends_first_wins_if_cassandra_made_it_expired() {
    let of = |ttl, expiration| Liveness { timestamp: 7, ttl, expiration };
    // Weakest first. The last one has the TTL of a view's row that its base row left (`EXPIRED_LIVENESS_TTL`).
    let ranked = [of(TTL_NONE, NO_DELETION_TIME), of(100, 1_000), of(90, 2_000), of(i32::MAX, 500)];
    for (index, weaker) in ranked.iter().enumerate() {
        for stronger in &ranked[index + 1..] {
            assert!(stronger.supersedes(weaker) && !weaker.supersedes(stronger), "{stronger:?} over {weaker:?}");
        }
        assert!(Liveness::at(8).supersedes(weaker) && !weaker.supersedes(&Liveness::at(8)));
    }
}
