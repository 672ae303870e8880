//! The hex examples of FORMAT.md are the contents of real files.

use sstable::Component;

use crate::fixture::Fixture;

/// The bytes of the first code block after `heading`: offsets are followed by two blanks, and comments preceded by
/// three.
fn example(heading: &str) -> Vec<u8> {
    let text = include_str!("../../FORMAT.md");
    let block = text.split(heading).nth(1).unwrap().split("```").nth(1).unwrap();
    let mut bytes = Vec::new();
    for line in block.lines().skip(1).filter(|line| !line.is_empty()) {
        let (_, rest) = line.split_once("  ").unwrap();
        let hex: String = rest.split("   ").next().unwrap().split_whitespace().collect();
        bytes.extend((0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()));
    }
    bytes
}

#[test]
fn examples_are_the_bytes_of_real_files() {
    let file = |name: &str, component| std::fs::read(Fixture::load(name).descriptor.path(component)).unwrap();
    assert_eq!(example("A whole `Partitions.db`"), file("ttl", Component::Partitions));
    let rows = file("desc_ck", Component::Rows);
    let end = example("The end of a `Rows.db`");
    assert_eq!(end, rows[rows.len() - end.len()..]);
}

#[test]
fn the_example_of_checksums_covers_the_example_of_an_index() {
    let example_bytes = example("## Checksums.db");
    sstable::decode::component(&blockio::SimulatedDisk::new(), Component::Checksums, &example_bytes).unwrap();
    let index = example("A whole `Partitions.db`");
    assert_eq!(example_bytes[9..17], (index.len() as u64).to_be_bytes());
    assert_eq!(example_bytes[21..25], crc32fast::hash(&index).to_be_bytes());
}
