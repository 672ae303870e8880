//! Sets of tokens, as the ranges of a ring of nodes.

use std::ops::RangeInclusive;

use crate::token::Token;

/// A set of tokens, for example those of which a node is a replica.
///
/// It is made of Cassandra's ranges `(start, end]`, which lie on a ring: a range whose start is not less than its end
/// continues from the greatest token to the least one, and one whose start is its end has all tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenRanges {
    /// Intervals with inclusive bounds. They ascend, none is empty, and at least one token is between two neighbours.
    parts: Vec<RangeInclusive<i64>>,
}

impl TokenRanges {
    /// The tokens that are in any of the ranges; none if there are no ranges. Each pair is a start, which is not in the
    /// range, and an end, which is.
    pub fn new(ranges: impl IntoIterator<Item = (Token, Token)>) -> TokenRanges {
        let mut parts = Vec::new();
        for (Token(start), Token(end)) in ranges {
            if start < end {
                parts.push(start + 1..=end);
                continue;
            }
            parts.push(i64::MIN..=end);
            parts.extend(start.checked_add(1).map(|first| first..=i64::MAX));
        }
        parts.sort_unstable_by_key(|part| *part.start());
        let mut merged: Vec<RangeInclusive<i64>> = Vec::with_capacity(parts.len());
        for part in parts {
            match merged.last_mut() {
                Some(last) if *part.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(part.end());
                }
                _ => merged.push(part),
            }
        }
        TokenRanges { parts: merged }
    }

    /// Whether it has all tokens.
    pub fn is_full(&self) -> bool {
        self.parts == [i64::MIN..=i64::MAX]
    }

    /// Whether a token is in it.
    pub fn contains(&self, token: Token) -> bool {
        let next = self.parts.partition_point(|part| *part.end() < token.0);
        self.parts.get(next).is_some_and(|part| part.contains(&token.0))
    }

    /// The maximal intervals of tokens that are in it, ascending, each as its first and last token.
    pub fn inside(&self) -> impl Iterator<Item = (Token, Token)> {
        self.parts.iter().map(|part| (Token(*part.start()), Token(*part.end())))
    }

    /// The maximal intervals of tokens that are not in it, ascending, each as its first and last token.
    pub fn outside(&self) -> impl Iterator<Item = (Token, Token)> {
        let before = self.parts.iter().map(|part| part.start().checked_sub(1)).chain([Some(i64::MAX)]);
        let after = [Some(i64::MIN)].into_iter().chain(self.parts.iter().map(|part| part.end().checked_add(1)));
        let gaps = after.zip(before).filter_map(|(first, last)| Some((first?, last?)));
        gaps.filter(|(first, last)| first <= last).map(|(first, last)| (Token(first), Token(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [i64; 9] = [i64::MIN, i64::MIN + 1, i64::MIN + 2, -1, 0, 1, i64::MAX - 2, i64::MAX - 1, i64::MAX];

    /// `Range.contains` of Cassandra 5.0.8.
    fn range_contains((start, end): (i64, i64), token: i64) -> bool {
        if start >= end { token > start || token <= end } else { token > start && token <= end }
    }

    fn check(ranges: &[(i64, i64)]) {
        let set = TokenRanges::new(ranges.iter().map(|(start, end)| (Token(*start), Token(*end))));
        let is_in = |token: i64| ranges.iter().any(|range| range_contains(*range, token));
        let within = |intervals: &[(Token, Token)], token: i64| {
            intervals.iter().filter(|(first, last)| (first.0..=last.0).contains(&token)).count()
        };
        let (inside, outside): (Vec<_>, Vec<_>) = (set.inside().collect(), set.outside().collect());
        for token in TOKENS {
            assert_eq!(set.contains(Token(token)), is_in(token), "{ranges:?} {token}");
            assert_eq!(within(&inside, token), usize::from(is_in(token)), "{ranges:?} {token}: {inside:?}");
            assert_eq!(within(&outside, token), usize::from(!is_in(token)), "{ranges:?} {token}: {outside:?}");
        }
        // Together the intervals are all tokens once, and neighbours are of different kinds.
        let mut all: Vec<_> = inside.iter().map(|part| (*part, true)).collect();
        all.extend(outside.iter().map(|part| (*part, false)));
        all.sort_unstable();
        assert_eq!((all[0].0.0, all[all.len() - 1].0.1), (Token::MINIMUM, Token::MAXIMUM), "{ranges:?}");
        for pair in all.windows(2) {
            assert_eq!(pair[0].0.1.0 + 1, pair[1].0.0.0, "{ranges:?}: {pair:?}");
            assert_ne!(pair[0].1, pair[1].1, "{ranges:?}: {pair:?}");
        }
        assert_eq!(set.is_full(), outside.is_empty(), "{ranges:?}");
    }

    #[test]
    fn all_sets_of_up_to_two_ranges_have_the_tokens_that_cassandras_ranges_contain() {
        check(&[]);
        let bounds = || TOKENS.into_iter().flat_map(|start| TOKENS.into_iter().map(move |end| (start, end)));
        for first in bounds() {
            check(&[first]);
            bounds().for_each(|second| check(&[first, second]));
        }
    }

    #[test]
    fn sets_of_three_ranges_are_merged_in_any_order() {
        let bounds = |tokens: &'static [i64]| {
            tokens.iter().flat_map(move |start| tokens.iter().map(move |end| (*start, *end))).collect::<Vec<_>>()
        };
        let few = bounds(&[i64::MIN, i64::MIN + 1, -1, 0, i64::MAX]);
        for first in &few {
            for second in &few {
                few.iter().for_each(|third| check(&[*first, *second, *third]));
            }
        }
    }
}
