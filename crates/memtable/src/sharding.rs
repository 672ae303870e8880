//! The division of tokens among shards.

use types::Token;

/// How tokens are divided among shards, in order.
pub(crate) enum Division {
    /// Equally, among this many shards, at least one.
    Equal(usize),
    /// At these tokens, which rise: each is the first of a shard, and the shard before them has what is smaller.
    At(Box<[Token]>),
}

impl Division {
    pub(crate) fn shard_count(&self) -> usize {
        match self {
            Division::Equal(shard_count) => *shard_count,
            Division::At(firsts) => firsts.len() + 1,
        }
    }

    /// The shard of a token.
    pub(crate) fn shard_of(&self, token: Token) -> usize {
        match self {
            Division::Equal(shard_count) => shard_of(token, *shard_count),
            Division::At(firsts) => firsts.partition_point(|first| *first <= token),
        }
    }
}

/// The shard of a token. Tokens are divided equally, in order.
pub(crate) fn shard_of(token: Token, shard_count: usize) -> usize {
    let position = token.0 as u64 ^ 1 << 63;
    let shard = ((u128::from(position) * shard_count as u128) >> 64) as usize;
    debug_assert!(shard < shard_count, "shard {shard} of {shard_count}");
    shard
}
