//! The fuzzing corpus on stable Rust: every file, and every file with a few bytes changed.

#![allow(clippy::unwrap_used)]

use protocol::exercise;

fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/frames");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn the_corpus_reaches_every_kind_of_request() {
    let parsed: usize = corpus().iter().map(|(_, bytes)| exercise(bytes)).sum();
    assert_eq!(parsed, 15, "well-formed requests in the corpus");
}

#[test]
fn a_changed_corpus_never_panics() {
    let mut state = 7;
    for (_, bytes) in corpus() {
        for _ in 0..2000 {
            let mut changed = bytes.clone();
            for _ in 0..1 + random(&mut state) % 4 {
                let (at, from) = (random(&mut state) % changed.len(), random(&mut state) % changed.len());
                match random(&mut state) % 5 {
                    0 => changed.truncate(at.max(1)),
                    1 => changed[at] = random(&mut state) as u8,
                    2 => changed[at] = 0xFF,
                    3 => changed[at] ^= 1 << (random(&mut state) % 8),
                    _ => {
                        let length = (1 + random(&mut state) % 16).min(changed.len() - at.max(from));
                        changed.copy_within(from..from + length, at);
                    }
                }
            }
            exercise(&changed);
        }
    }
}
