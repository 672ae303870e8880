//! Counter cells: their value is the sum of shards, one for each node that counted.

/// Bytes of a shard: counter id, clock, count.
const SHARD_LENGTH: usize = 32;

/// The shards' part of a counter context.
fn shards(context: &[u8]) -> &[u8] {
    let Some((count, rest)) = context.split_first_chunk::<2>() else { return &[] };
    let headers = usize::from(i16::from_be_bytes(*count).unsigned_abs());
    rest.get(2 * headers..).unwrap_or_default()
}

/// The value of a counter.
pub(crate) fn value(context: &[u8]) -> i64 {
    let (shards, _) = shards(context).as_chunks::<SHARD_LENGTH>();
    let count = |shard: &[u8; SHARD_LENGTH]| shard.last_chunk::<8>().map_or(0, |count| i64::from_be_bytes(*count));
    shards.iter().fold(0, |sum: i64, shard| sum.wrapping_add(count(shard)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_the_sum_of_its_shards() {
        let mut context = vec![0, 2, 0x80, 0, 0x80, 1];
        for count in [5_i64, -2] {
            context.extend_from_slice(&[7; 24]);
            context.extend_from_slice(&count.to_be_bytes());
        }
        assert_eq!(value(&context), 3);
        for length in 0..context.len() {
            let _ = value(&context[..length]);
        }
    }
}
