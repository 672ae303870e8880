//! The division of tokens among shards.

use types::Token;

/// The division of tokens among shards, in order.
pub(crate) enum Division {
    /// Equal parts for this many shards, at least one.
    Equal(usize),
    /// Parts that begin at these tokens, which ascend. An additional first shard has the smaller tokens.
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
