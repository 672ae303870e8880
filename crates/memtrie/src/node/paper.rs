//! The layout of *Trie Memtables in Cassandra*: nodes in blocks of 32 bytes.

pub(crate) mod check;
pub(crate) mod edit;
pub(crate) mod node;
mod remove;

/// Units of a blob with `length` bytes of content.
#[inline]
pub(crate) fn blob_units(length: u32) -> u32 {
    (length >> 3) + ((length & 7) + 4).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::blob_units;

    #[test]
    fn units_of_a_blob_count_its_length_word() {
        assert_eq!([0, 4, 5, 12, 13].map(blob_units), [1, 1, 2, 2, 3]);
        assert_eq!(blob_units(u32::MAX), (1 << 29) + 1);
    }
}
