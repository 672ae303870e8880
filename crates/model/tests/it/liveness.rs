//! Which liveness of a row wins, and which cell.

use model::{Cell, Liveness, NO_DELETION_TIME, TTL_NONE, reconcile_cells};

#[test]
fn of_one_timestamp_the_liveness_that_ends_first_wins_if_cassandra_made_it_expired() {
    let of = |ttl, expiration| Liveness { timestamp: 7, ttl, expiration };
    // Weakest first. The last one has the TTL of a view's row that its base row left (`EXPIRED_LIVENESS_TTL`).
    let ranked = [of(TTL_NONE, NO_DELETION_TIME), of(100, 1_000), of(91, 2_000), of(90, 2_000), of(i32::MAX, 500)];
    for (index, weaker) in ranked.iter().enumerate() {
        for stronger in &ranked[index + 1..] {
            assert!(stronger.supersedes(weaker) && !weaker.supersedes(stronger), "{stronger:?} over {weaker:?}");
        }
        assert!(Liveness::at(8).supersedes(weaker) && !weaker.supersedes(&Liveness::at(8)));
    }
}

#[test]
fn of_cells_that_expire_at_once_the_one_with_the_smaller_ttl_wins_whatever_its_value() {
    let of =
        |timestamp, ttl, local_deletion_time, value| Cell { timestamp, ttl, local_deletion_time, path: &[], value };
    // Weakest first.
    let ranked: [Cell<'_>; 8] = [
        of(7, TTL_NONE, NO_DELETION_TIME, b"a"),
        of(7, TTL_NONE, NO_DELETION_TIME, b"b"),
        of(7, 90, 2_000, b"b"),
        of(7, 91, 2_001, b"b"),
        of(7, 90, 2_001, b"a"),
        of(7, 90, 2_001, b"b"),
        of(7, TTL_NONE, 1_000, b""),
        of(8, TTL_NONE, NO_DELETION_TIME, b""),
    ];
    for (index, weaker) in ranked.iter().enumerate() {
        for stronger in &ranked[index + 1..] {
            assert_eq!(reconcile_cells(*weaker, *stronger), *stronger);
            assert_eq!(reconcile_cells(*stronger, *weaker), *stronger);
        }
    }
}
