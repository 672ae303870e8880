//! The division of tokens among shards.

use types::Token;

/// The shard of a token. Tokens are divided equally, in order.
pub(crate) fn shard_of(token: Token, shard_count: usize) -> usize {
    let position = token.0 as u64 ^ 1 << 63;
    let shard = ((u128::from(position) * shard_count as u128) >> 64) as usize;
    debug_assert!(shard < shard_count, "shard {shard} of {shard_count}");
    shard
}
