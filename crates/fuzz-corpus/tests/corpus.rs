//! The corpora on stable Rust: every file, and every file with a few changes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::path::PathBuf;

use fuzz_corpus::{Mutator, TARGETS};

/// The number of mutations for the corpus of each target, unless `ESPALIER_FUZZ_MUTATIONS` sets another.
const MUTATIONS: usize = 3000;
/// The most memory that they may take, bytes.
const MUTATED_BYTES_MAX: usize = 8 << 20;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn every_target_accepts_its_corpus_and_mutations_of_it() {
    let wanted = std::env::var("ESPALIER_FUZZ_MUTATIONS").ok().map(|text| text.parse().expect("a number"));
    let (mutations, bytes_max) = wanted.map_or((MUTATIONS, MUTATED_BYTES_MAX), |wanted| (wanted, usize::MAX));
    std::thread::scope(|scope| {
        for half in [0, 1] {
            scope.spawn(move || {
                for target in TARGETS.iter().skip(half).step_by(2) {
                    let files = corpus(target.name);
                    assert!(!files.is_empty(), "{} has no corpus", target.name);
                    files.iter().for_each(|(_, bytes)| (target.run)(bytes));
                    let mut mutator = Mutator::new(1);
                    let mut mutated_bytes = 0;
                    for round in 0..mutations {
                        let (path, bytes) = &files[round % files.len()];
                        let mutated = mutator.mutate(bytes);
                        mutated_bytes += mutated.len();
                        let run = std::panic::catch_unwind(|| (target.run)(&mutated));
                        assert!(run.is_ok(), "{}: round {round}, from {}", target.name, path.display());
                        if mutated_bytes > bytes_max {
                            break;
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn fuzz_has_a_binary_for_every_target() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "fuzz/Cargo.toml lacks {}", target.name);
        let binary = format!("{}/../../fuzz/fuzz_targets/{}.rs", env!("CARGO_MANIFEST_DIR"), target.name);
        assert!(PathBuf::from(binary).exists(), "{} has no binary", target.name);
    }
}
