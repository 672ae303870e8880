//! The rules of the house that a machine can check. Each rule is a test that names every place which breaks it.
//!
//! The rules read the source tree as text, so they need nothing but the checkout.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The floor of each crate, from `docs/ARCHITECTURE.md`. A crate may use crates on lower floors only.
const FLOORS: [(&str, u32); 18] = [
    ("types", 0),
    ("memtrie", 0),
    ("blockio", 0),
    ("bytecomp", 1),
    ("model", 1),
    ("protocol", 1),
    ("commitlog", 1),
    ("memtable", 2),
    ("sstable", 2),
    ("cql", 2),
    ("compaction", 3),
    ("engine", 4),
    ("query", 5),
    ("server", 6),
    ("tools", 6),
    ("espalier", 7),
    ("fuzz-corpus", 8),
    ("testkit", 8),
];

/// The crates that may contain unsafe code, as `docs/ARCHITECTURE.md` lists them.
const MAY_BE_UNSAFE: [&str; 2] = ["memtrie", "blockio"];

/// The widest comment line, in characters. `rustfmt` keeps code as narrow and leaves comments alone.
const COMMENT_WIDTH_MAX: usize = 120;

/// The longest decision record, and all of them together, in words.
const RECORD_WORDS_MAX: usize = 300;
const RECORDS_WORDS_MAX: usize = 10_000;

/// Names of files that say nothing about their content.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "shared_utils"];

/// Folders that hold no sources of ours.
const NOT_OURS: [&str; 7] = ["target", ".git", ".cache", "data", "node_modules", "__pycache__", "corpus"];

#[test]
fn every_crate_depends_on_lower_floors_only() {
    let floors: BTreeMap<_, _> = FLOORS.into_iter().collect();
    let mut broken = Vec::new();
    for (name, manifest) in manifests() {
        let Some(own) = floors.get(name.as_str()) else {
            broken.push(format!("crates/{name} has no floor: add it to docs/ARCHITECTURE.md and to this test"));
            continue;
        };
        for used in dependencies(&manifest).filter(|used| floors.contains_key(used)) {
            if floors[used] >= *own {
                broken.push(format!("{name} (floor {own}) depends on {used} (floor {})", floors[used]));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn only_the_named_crates_contain_unsafe_code() {
    let mut broken = Vec::new();
    for (name, _) in manifests().into_iter().filter(|(name, _)| !MAY_BE_UNSAFE.contains(&name.as_str())) {
        let source = root().join("crates").join(&name).join("src");
        let top = ["lib.rs", "main.rs"].map(|file| source.join(file)).into_iter().find(|file| file.exists());
        let text = top.map(|file| read(&file)).unwrap_or_default();
        if !text.contains("#![forbid(unsafe_code)]") {
            broken.push(format!("crates/{name} does not forbid unsafe code"));
        }
    }
    assert_none(broken);
}

#[test]
fn modules_with_children_stand_beside_their_folder() {
    let sources = files(&["rs"]).into_iter().filter(|path| is_product(path));
    assert_none(sources.filter(|path| path.ends_with("mod.rs")).map(|path| shown(&path)));
}

#[test]
fn file_names_say_what_is_inside() {
    let named = files(&["rs", "py", "java", "go"]).into_iter();
    let empty = |path: &PathBuf| path.file_stem().is_some_and(|stem| EMPTY_NAMES.iter().any(|name| stem == *name));
    assert_none(named.filter(empty).map(|path| shown(&path)));
}

#[test]
fn comment_lines_are_no_wider_than_the_code() {
    let mut broken = Vec::new();
    for path in files(&["rs"]) {
        for (number, line) in read(&path).lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > COMMENT_WIDTH_MAX {
                broken.push(format!("{}:{}", shown(&path), number + 1));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn decision_records_are_short() {
    let folder = root().join("docs/decisions");
    let records: Vec<_> = files(&["md"])
        .into_iter()
        .filter(|path| path.starts_with(&folder) && !path.ends_with("README.md"))
        .map(|path| (read(&path).split_whitespace().count(), path))
        .collect();
    assert!(!records.is_empty(), "no decision record was found in {}", shown(&folder));
    let total: usize = records.iter().map(|(words, _)| words).sum();
    assert!(total <= RECORDS_WORDS_MAX, "the decision records have {total} words, {RECORDS_WORDS_MAX} at most");
    let long = records.into_iter().filter(|(words, _)| *words > RECORD_WORDS_MAX);
    assert_none(long.map(|(words, path)| format!("{}: {words} words", shown(&path))));
}

#[test]
fn product_code_does_not_use_the_simulated_disk() {
    let floors =
        files(&["rs"]).into_iter().filter(|path| is_product(path) && !shown(path).starts_with("crates/blockio/"));
    let floors =
        floors.filter(|path| !["fuzz-corpus", "testkit"].iter().any(|name| path.iter().any(|part| part == *name)));
    let used = floors.filter(|path| {
        let text = read(path);
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        product.contains("blockio::simulated") || product.contains("SimulatedDisk")
    });
    assert_none(used.map(|path| shown(&path)));
}

#[test]
fn nothing_names_a_path_of_a_machine() {
    // The marks are put together here, so that this file does not contain them.
    let marks = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    let mut broken = Vec::new();
    for path in files(&["rs", "py", "md", "toml", "yaml", "yml", "sh", "java", "go", "json", "txt"]) {
        let text = read(&path);
        let hit =
            |line: &str| marks.iter().any(|mark| line.contains(mark.as_str()) && !is_part_of_a_longer_path(line, mark));
        let lines = text.lines().enumerate().filter(|(_, line)| hit(line));
        broken.extend(lines.map(|(number, _)| format!("{}:{}", shown(&path), number + 1)));
    }
    assert_none(broken);
}

/// Whether every occurrence of `mark` continues a name before it, as in `src/work/order.rs`.
fn is_part_of_a_longer_path(line: &str, mark: &str) -> bool {
    line.match_indices(mark).all(|(start, _)| {
        line[..start].chars().next_back().is_some_and(|before| before.is_alphanumeric() || "._-}>*".contains(before))
    })
}

/// The crates' names with the text of their manifests.
fn manifests() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates' folder can be listed").flatten() {
        let manifest = entry.path().join("Cargo.toml");
        if manifest.exists() {
            found.push((entry.file_name().to_string_lossy().into_owned(), read(&manifest)));
        }
    }
    assert!(found.len() > 10, "only {} crates were found", found.len());
    found
}

/// The names in the section `[dependencies]` of a manifest. Dependencies of tests may be on any floor.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split(['.', '=', ' ']).next())
}

/// Whether a file belongs to what a crate ships.
fn is_product(path: &Path) -> bool {
    path.starts_with(root().join("crates")) && path.iter().any(|part| part == "src")
}

/// All files of the checkout with one of these endings.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !NOT_OURS.iter().any(|other| name == *other) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no file ends in one of {endings:?}");
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path as it is from the root of the checkout.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root of the checkout exists")
}

fn assert_none(broken: impl IntoIterator<Item = String>) {
    let broken: Vec<_> = broken.into_iter().collect();
    assert!(broken.is_empty(), "{} places break this rule:\n{}", broken.len(), broken.join("\n"));
}
