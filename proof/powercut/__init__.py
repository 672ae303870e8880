"""Power cuts under the unmodified binary."""
