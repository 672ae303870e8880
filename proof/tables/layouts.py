"""The layouts of the SSTables of random tables: each compressor, chunk length and threshold in turn, with all filters,
with fewer, and without filters."""

COMPRESSIONS = [
    "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4, 'min_compress_ratio': 2}",
    "{'class': 'SnappyCompressor', 'chunk_length_in_kb': 16}",
    "{'class': 'DeflateCompressor', 'chunk_length_in_kb': 64}",
    "{'class': 'ZstdCompressor', 'compression_level': 7, 'chunk_length_in_kb': 8, 'min_compress_ratio': 1.1}",
    "{'enabled': false}",
    "{'class': 'LZ4Compressor', 'lz4_compressor_type': 'high', 'chunk_length_in_kb': 16}",
    "{'class': 'NoopCompressor', 'chunk_length_in_kb': 4}",
]
FILTER_CHANCES = ("0.01", "1.0", "0.1")


def laid_out(table: str, number: int) -> str:
    """The statement that gives a table the `number`-th layout."""
    compression, chance = COMPRESSIONS[number % len(COMPRESSIONS)], FILTER_CHANCES[number % len(FILTER_CHANCES)]
    return f"ALTER TABLE {table} WITH compression = {compression} AND bloom_filter_fp_chance = {chance}"
