//! The rules of the house that a machine can check. Each rule is a test that names every place which breaks it.
//!
//! The rules read the source tree as text, so they need nothing but the checkout.

#[path = "tidy/comments.rs"]
mod comments;
#[path = "tidy/cycles.rs"]
mod cycles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where unsafe code may stand, as `docs/ARCHITECTURE.md` says. Every other crate forbids it.
const MAY_BE_UNSAFE: [(&str, &str); 3] =
    [("memtrie", "crates/memtrie/src/raw/"), ("blockio", "crates/blockio/src/"), ("jni", "crates/jni/src/boundary.rs")];

/// The floor up to which no crate uses an async runtime.
const NO_RUNTIME_FLOOR: u32 = 4;

/// The purpose of a thread-local variable. Only `Behaviour` lets the same call do different things on different
/// threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadLocal {
    /// Memory that the thread uses again.
    Buffer,
    /// A result that the thread would compute again otherwise.
    Cache,
    /// A number that spreads threads over slots.
    Slot,
    /// Work that is counted for tests, in builds with debug assertions.
    Count,
    /// A call does something else than on another thread.
    Behaviour,
}

/// The files of the product that have thread-local variables.
const THREAD_LOCALS: [(&str, ThreadLocal); 13] = [
    ("crates/blockio/src/system.rs", ThreadLocal::Buffer),
    // Whether an append wakes the log's writer, or leaves that to the end of the thread's batch.
    ("crates/commitlog/src/hold.rs", ThreadLocal::Behaviour),
    ("crates/commitlog/src/last_mark.rs", ThreadLocal::Cache),
    ("crates/memtable/src/find.rs", ThreadLocal::Buffer),
    ("crates/memtable/src/shard.rs", ThreadLocal::Buffer),
    ("crates/memtrie/src/raw/epoch.rs", ThreadLocal::Slot),
    ("crates/query/src/consistency.rs", ThreadLocal::Cache),
    ("crates/query/src/modify/plan.rs", ThreadLocal::Buffer),
    ("crates/query/src/select/lookup.rs", ThreadLocal::Buffer),
    ("crates/server/src/metrics.rs", ThreadLocal::Slot),
    ("crates/sstable/src/compression.rs", ThreadLocal::Buffer),
    ("crates/sstable/src/reader/find.rs", ThreadLocal::Buffer),
    ("crates/types/src/steps.rs", ThreadLocal::Count),
];

/// How many thread-local variables may change behaviour.
const BEHAVIOURS_MAX: usize = 3;

/// The widest line, in characters. `rustfmt` narrows most code and leaves comments alone.
const WIDTH_MAX: usize = 120;

/// The places whose state everything else relies on, and how many assertions they have for each function.
const ASSERTED: [&str; 4] = [
    "crates/commitlog/src",
    "crates/memtable/src",
    "crates/engine/src/shared/groups.rs",
    "crates/engine/src/table/store.rs",
];
const ASSERTIONS_PER_FUNCTION_MIN: f64 = 0.3;

/// The most methods of a trait through which a server uses the query layer.
const TRAIT_METHODS_MAX: usize = 4;

/// The longest function of the product, in lines.
const FUNCTION_LINES_MAX: usize = 70;

/// The functions that may be longer: each is a list with a line or more for each item.
const LONG_FUNCTIONS: [(&str, &str); 1] = [("crates/espalier/src/config.rs", "default")];

/// The longest decision record, and all of them together with their table of contents, in words.
const RECORD_WORDS_MAX: usize = 300;
const RECORDS_WORDS_MAX: usize = 9_999;

/// Names of files that say nothing about their content.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "shared_utils"];

/// Folders that hold no sources of ours.
const NOT_OURS: [&str; 7] = ["target", ".git", ".cache", "data", "node_modules", "__pycache__", "corpus"];

#[test]
fn every_crate_depends_on_lower_floors_only() {
    let floors = floors();
    let mut broken = Vec::new();
    for (name, manifest) in manifests() {
        let Some(own) = floors.get(&name) else {
            broken.push(format!("crates/{name} has no floor: add it to docs/ARCHITECTURE.md"));
            continue;
        };
        for (used, floor) in dependencies(&manifest).filter_map(|used| floors.get_key_value(used)) {
            if floor >= own {
                broken.push(format!("{name} (floor {own}) depends on {used} (floor {floor})"));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn every_dependency_is_used() {
    let mut broken = Vec::new();
    for (name, manifest) in manifests() {
        let sources = files_below(&root().join("crates").join(&name), &["rs"]);
        let text: String = sources.iter().map(|path| read(path)).collect();
        // A package may name its library without the hyphens of its own name.
        let is_used = |used: &&str| {
            [used.replace('-', "_"), used.replace('-', "")].iter().any(|library| contains_word(&text, library))
        };
        let unused = dependencies(&manifest).filter(|used| !is_used(used));
        broken.extend(unused.map(|used| format!("crates/{name} does not use {used}")));
    }
    assert_none(broken);
}

#[test]
fn the_engine_and_the_floors_below_use_no_async_runtime() {
    let floors = floors();
    let low = manifests().into_iter().filter(|(name, _)| floors.get(name).is_some_and(|own| *own <= NO_RUNTIME_FLOOR));
    let with_runtime = low.filter(|(_, manifest)| dependencies(manifest).any(|used| used == "tokio"));
    assert_none(with_runtime.map(|(name, _)| format!("crates/{name} depends on tokio")));
}

#[test]
fn only_the_disk_opens_files() {
    let floors = floors();
    let is_low = |path: &PathBuf| {
        let name = shown(path).split('/').nth(1).map(str::to_owned).unwrap_or_default();
        name != "blockio" && floors.get(&name).is_some_and(|own| *own <= NO_RUNTIME_FLOOR)
    };
    let low = files(&["rs"]).into_iter().filter(|path| is_product(path) && !is_test(path)).filter(is_low);
    let broken = low.filter(|path| {
        ["std::fs", "TcpStream", "TcpListener", "UnixStream"].iter().any(|used| product_text(path).contains(used))
    });
    assert_none(broken.map(|path| shown(&path)));
}

#[test]
fn only_the_named_folders_contain_unsafe_code() {
    let mut broken = Vec::new();
    for (name, _) in manifests().into_iter().filter(|(name, _)| MAY_BE_UNSAFE.iter().all(|(may, _)| may != name)) {
        let source = root().join("crates").join(&name).join("src");
        let top = ["lib.rs", "main.rs"].map(|file| source.join(file)).into_iter().find(|file| file.exists());
        let text = top.map(|file| read(&file)).unwrap_or_default();
        if !text.contains("#![forbid(unsafe_code)]") {
            broken.push(format!("crates/{name} does not forbid unsafe code"));
        }
    }
    let is_unsafe = |line: &str| {
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|form| line.trim_start().contains(form))
            && !line.trim_start().starts_with("//")
    };
    for path in files(&["rs"]).into_iter().filter(|path| is_product(path)) {
        if MAY_BE_UNSAFE.iter().all(|(_, folder)| !shown(&path).starts_with(folder)) {
            let text = read(&path);
            let lines = text.lines().enumerate().filter(|(_, line)| is_unsafe(line));
            broken.extend(lines.map(|(number, _)| format!("{}:{}", shown(&path), number + 1)));
        }
    }
    assert_none(broken);
}

#[test]
fn thread_local_variables_are_listed_with_their_purpose() {
    let with_one = files(&["rs"]).into_iter().filter(|path| is_product(path) && !is_test(path));
    // Variables of tests do not count.
    let has_one =
        |path: &PathBuf| product_text(path).replace("#[cfg(test)]\nthread_local!", "").contains("thread_local!");
    let found: BTreeSet<_> = with_one.filter(has_one).map(|path| shown(&path)).collect();
    let listed = |path: &str| THREAD_LOCALS.iter().find(|(name, _)| *name == path).map(|(_, purpose)| *purpose);
    assert_none(found.iter().filter(|path| listed(path).is_none()).cloned());
    let behaviours: Vec<_> = found.iter().filter(|path| listed(path) == Some(ThreadLocal::Behaviour)).collect();
    assert!(behaviours.len() <= BEHAVIOURS_MAX, "{behaviours:?} change what a call does");
}

#[test]
fn product_code_does_not_unwrap() {
    let sources = files(&["rs"]).into_iter().filter(|path| is_product(path) && !is_test(path));
    let mut broken = Vec::new();
    for path in sources {
        let text = product_text(&path);
        let is_unwrap = |line: &str| {
            !line.trim_start().starts_with("//")
                && [".unwrap()", "clippy::unwrap_used"].iter().any(|form| line.contains(form))
        };
        let lines = text.lines().enumerate().filter(|(_, line)| is_unwrap(line));
        broken.extend(lines.map(|(number, _)| format!("{}:{}", shown(&path), number + 1)));
    }
    assert_none(broken);
}

#[test]
fn modules_with_children_stand_beside_their_folder() {
    assert_none(files(&["rs"]).into_iter().filter(|path| path.ends_with("mod.rs")).map(|path| shown(&path)));
}

#[test]
fn every_module_says_what_it_is_for() {
    let sources = files(&["rs"]).into_iter().filter(|path| is_product(path) && !is_test(path));
    let has_head =
        |text: &str| text.lines().any(|line| line.starts_with("//!") || line.starts_with("#![doc = include"));
    assert_none(sources.filter(|path| !has_head(&read(path))).map(|path| shown(&path)));
}

#[test]
fn every_crate_has_a_readme() {
    let crates = manifests().into_iter().map(|(name, _)| format!("crates/{name}/README.md"));
    assert_none(crates.filter(|readme| !root().join(readme).exists()));
}

#[test]
fn public_traits_of_the_query_layer_have_few_methods() {
    let mut broken = Vec::new();
    for path in files_below(&root().join("crates/query/src"), &["rs"]) {
        for declaration in product_text(&path).split("\npub trait ").skip(1) {
            let body = declaration.split("\n}").next().unwrap_or_default();
            let methods = body.lines().filter(|line| line.starts_with("    fn ")).count();
            if methods > TRAIT_METHODS_MAX {
                let name = declaration.split([' ', ':']).next().unwrap_or_default();
                broken.push(format!("{}: {name} has {methods} methods", shown(&path)));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn packages_come_from_the_registry_under_known_licences() {
    let lock = read(&root().join("Cargo.lock"));
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    assert_none(sources.filter(|source| !source.contains("github.com/rust-lang/crates.io-index")).map(str::to_owned));

    let (mut broken, allowed) = (Vec::new(), allowed_licences());
    for package in packages() {
        let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
        if !is_allowed(&text("license"), &allowed) {
            broken.push(format!("{} {}: {}", text("name"), text("version"), text("license")));
        }
    }
    assert_none(broken);
}

/// The licences of which every package must offer at least one, for each part of an expression that is joined by `AND`.
fn allowed_licences() -> Vec<String> {
    let rules = read(&root().join("deny.toml"));
    let list = rules.lines().find_map(|line| line.strip_prefix("allow = [")).expect("deny.toml allows licences");
    list.trim_end_matches(']').split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

/// Whether a package under this licence expression may be used.
fn is_allowed(licence: &str, allowed: &[String]) -> bool {
    let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|name| allowed.iter().any(|allowed| name.trim() == allowed)))
}

/// The packages that are built for Linux, ours and others'.
fn packages() -> Vec<serde_json::Value> {
    // `make advisories` runs cargo-deny, which downloads a database. This test needs no network.
    let arguments = ["metadata", "--format-version=1", "--offline", "--locked"];
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).args(platform).current_dir(root()).output();
    let output = output.expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("metadata lists packages").clone();
    assert!(packages.len() > 50, "only {} packages were found", packages.len());
    packages
}

#[test]
fn file_names_say_what_is_inside() {
    let named = files(&["rs", "py", "java", "go"]).into_iter();
    let empty = |path: &PathBuf| path.file_stem().is_some_and(|stem| EMPTY_NAMES.iter().any(|name| stem == *name));
    assert_none(named.filter(empty).map(|path| shown(&path)));
}

#[test]
fn lines_are_at_most_120_columns_wide() {
    let mut broken = Vec::new();
    for path in files(&["rs"]) {
        for (number, line) in read(&path).lines().enumerate() {
            if line.chars().count() > WIDTH_MAX && !is_text(line) {
                broken.push(format!("{}:{}", shown(&path), number + 1));
            }
        }
    }
    assert_none(broken);
}

/// Whether a line is wide because of a string, which `rustfmt` does not break.
fn is_text(line: &str) -> bool {
    !line.trim_start().starts_with("//") && (line.contains('"') || line.ends_with('\\'))
}

#[test]
fn where_state_changes_it_is_asserted() {
    let is_asserted = |place: &&str| {
        let within = root().join(place);
        let sources = files(&["rs"]).into_iter().filter(|path| path.starts_with(&within) && !is_test(path));
        let text: String = sources.map(|path| product_text(&path)).collect();
        let assertions = ["assert!(", "assert_eq!(", "assert_ne!("].map(|form| text.matches(form).count());
        let functions = functions(&text).len();
        assert!(functions > 0, "{place} has no functions");
        // An assertion at compile time is about layouts and limits.
        text.contains("const _: () =")
            && assertions.iter().sum::<usize>() as f64 >= ASSERTIONS_PER_FUNCTION_MIN * functions as f64
    };
    assert_none(ASSERTED.iter().filter(|place| !is_asserted(place)).map(|place| place.to_string()));
}

#[test]
fn functions_of_the_product_are_short() {
    let product = files(&["rs"]).into_iter().filter(|path| is_product(path) && !is_test(path));
    let mut broken = Vec::new();
    for path in product {
        for (name, lines) in functions(&product_text(&path)) {
            let file = shown(&path);
            if lines > FUNCTION_LINES_MAX && !LONG_FUNCTIONS.contains(&(&*file, &*name)) {
                broken.push(format!("{file}: {name} has {lines} lines"));
            }
        }
    }
    assert_none(broken);
}

/// The functions of a formatted text, each with the number of its lines. A function ends with a brace that is indented
/// as its first line is.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let function = |(first, line): (usize, &&str)| {
        let code = line.trim_start();
        let (head, rest) = code.split_once("fn ")?;
        let is_head = |word: &str| word.starts_with("pub") || ["const", "async", "unsafe", "extern"].contains(&word);
        if !head.split_whitespace().all(|word| is_head(word) || word.starts_with('"') || word.ends_with(')')) {
            return None;
        }
        let name: String = rest.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect();
        let last = format!("{}}}", &line[..line.len() - code.len()]);
        let ends = |line: &&str| {
            **line == last || (line.ends_with(';') && line.len() - line.trim_start().len() + 1 == last.len())
        };
        let count =
            if line.ends_with('}') || line.ends_with(';') { 1 } else { 1 + lines[first..].iter().position(ends)? };
        Some((name, count))
    };
    lines.iter().enumerate().filter_map(function).collect()
}

#[test]
fn the_lines_of_functions_are_counted() {
    let text =
        "impl A {\n    pub fn one(&self) -> u8 {\n        {\n        }\n    }\n    fn two();\n}\nfn three() {}\n";
    let expected = [("one", 4), ("two", 1), ("three", 1)].map(|(name, lines)| (name.to_owned(), lines));
    assert_eq!(functions(text), expected);
}

#[test]
fn decision_records_are_short() {
    let folder = root().join("docs/decisions");
    let records: Vec<_> = files(&["md"])
        .into_iter()
        .filter(|path| path.starts_with(&folder))
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
    let floors = floors.filter(|path| !is_test(path));
    let floors =
        floors.filter(|path| !["fuzz-corpus", "testkit"].iter().any(|name| path.iter().any(|part| part == *name)));
    let used = floors.filter(|path| {
        let text = read(path);
        let product = before_tests(&text);
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

#[test]
fn no_file_has_a_conflict_of_a_merge() {
    let files = files(&["rs", "toml", "md", "py", "java", "go", "yaml", "cql"]);
    assert_none(files.iter().filter(|path| read(path).lines().any(is_mark_of_a_conflict)).map(|path| shown(path)));
}

fn is_mark_of_a_conflict(line: &str) -> bool {
    ["<", ">"].iter().any(|sign| line.starts_with(&format!("{} ", sign.repeat(7))))
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

/// The floor of each crate, from the table in `docs/ARCHITECTURE.md`. Crates for tests stand above all floors.
fn floors() -> BTreeMap<String, u32> {
    let document = read(&root().join("docs/ARCHITECTURE.md"));
    let mut floors = BTreeMap::new();
    for line in document.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let &[_, floor, names, ..] = cells.as_slice() else { continue };
        let floor = if floor == "–" { Ok(u32::MAX) } else { floor.parse() };
        let Ok(floor) = floor else { continue };
        floors.extend(names.split(',').map(|name| (name.trim().trim_matches('`').to_owned(), floor)));
    }
    assert!(floors.len() > 10, "docs/ARCHITECTURE.md lists only {} crates", floors.len());
    floors
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

/// Whether a file of a crate's sources holds tests only.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    stem == "tests" || stem.ends_with("_test") || stem.ends_with("_tests") || path.iter().any(|part| part == "tests")
}

/// The text of a source file before its tests.
fn product_text(path: &Path) -> String {
    before_tests(&read(path)).to_owned()
}

/// The text before its module of tests. Single items that only tests have are left in.
fn before_tests(text: &str) -> &str {
    let marks = ["#[cfg(test)]\n", "#[cfg(all(test"];
    let is_of_module = |start: &usize| {
        let item = text[*start..].lines().find(|line| !line.starts_with('#'));
        item.is_some_and(|item| item.contains("mod ") && item.ends_with('{'))
    };
    let starts = marks.iter().flat_map(|mark| text.match_indices(mark)).map(|(start, _)| start);
    &text[..starts.filter(is_of_module).min().unwrap_or(text.len())]
}

#[test]
fn only_a_module_of_tests_ends_the_product_text() {
    let product = "#[cfg(test)]\nuse std::fs;\n\nfn open() {}\n";
    assert_eq!(before_tests(product), product);
    assert_eq!(before_tests(&format!("{product}#[cfg(all(test, unix))]\n#[path = \"x\"]\nmod tests {{\n")), product);
}

fn contains_word(text: &str, word: &str) -> bool {
    let is_part = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(start, _)| {
        !is_part(text[..start].chars().next_back()) && !is_part(text[start + word.len()..].chars().next())
    })
}

/// All files of the checkout with one of these endings.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    files_below(&root(), endings)
}

fn files_below(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
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

/// The root of the checkout that runs the test. It is asked for at run time, because build files may come from another
/// checkout.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the package stands");
    PathBuf::from(package).join("../..").canonicalize().expect("the root of the checkout exists")
}

fn assert_none(broken: impl IntoIterator<Item = String>) {
    let broken: Vec<_> = broken.into_iter().collect();
    assert!(broken.is_empty(), "{} places break this rule:\n{}", broken.len(), broken.join("\n"));
}
