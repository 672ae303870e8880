//! Compares the memory that a trie reports with what the system reports.

use crate::{Layout, Trie, TrieOptions};

const KEYS: u32 = 3000;

/// The resident bytes of the mappings that begin at these addresses, or just before them.
fn resident_bytes(starts: [usize; 2]) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let (mut is_ours, mut kilobytes) = (false, 0);
    for line in smaps.lines() {
        let word = |number| line.split_whitespace().nth(number).unwrap_or_default();
        if let Some((from, to)) = word(0).split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).expect("an address");
            is_ours = starts.iter().any(|start| (address(from)..address(to)).contains(start));
        } else if is_ours && word(0) == "Rss:" {
            kilobytes += word(1).parse::<usize>().expect("a number");
        }
    }
    kilobytes << 10
}

/// Uses so little that there is no huge page, all of which would be resident at once.
#[test]
fn counted_memory_equals_the_memory_of_the_system() {
    for layout in [Layout::Adaptive, Layout::Paper] {
        let trie = Trie::new(TrieOptions { layout, ..TrieOptions::default() });
        let check = |when: &str| {
            let mut writer = trie.writer();
            writer.reclaim();
            let (blocks, blobs) = writer.raw_parts().1.expect("written").bases();
            let resident = resident_bytes([blocks, blobs].map(|base| base.addr().get()));
            let held = trie.memory().reserved;
            println!("{layout:?}, {when}: {resident} resident, {held} held");
            // The difference is free room in spans.
            assert!(resident <= held && held <= resident + (128 << 10), "{layout:?}, {when}: {resident}, {held} held");
        };
        let put = |number: u32, length: usize| {
            trie.writer().put(&number.wrapping_mul(0x9E37_79B1).to_be_bytes(), &vec![7; length]).expect("room");
        };
        (0..KEYS).for_each(|number| put(number, 150));
        check("loaded");
        (0..KEYS).for_each(|number| put(number, 20));
        check("overwritten by less");
        (0..KEYS).filter(|number| number % 3 > 0).for_each(|number| {
            assert!(trie.writer().remove(&number.wrapping_mul(0x9E37_79B1).to_be_bytes()).expect("room"));
        });
        check("most of it removed");
    }
}
