//! Modules of a crate that use one another in a circle cannot be understood one by one, so circles stay small.
//!
//! A use of a module counts where its name follows `crate::`. Re-exports are not followed: `use crate::Processor` is no
//! use of the module that defines `Processor`, so circles through names that `lib.rs` re-exports are not found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{files_below, is_test, manifests, product_text, root};

/// The most top modules of a crate that may use one another in a circle.
const CYCLE_MAX: usize = 4;

type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn few_modules_use_one_another_in_a_circle() {
    let mut broken = Vec::new();
    for (name, _) in manifests() {
        let largest = largest_circle(&uses_of(&root().join("crates").join(&name).join("src")));
        if largest.len() > CYCLE_MAX {
            broken.push(format!("{name}: {} modules, {CYCLE_MAX} at most: {}", largest.len(), largest.join(", ")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn circles_are_found_in_uses_of_every_form() {
    let uses = |text: &str| used_by(text).into_iter().collect::<Vec<_>>();
    assert_eq!(uses("use crate::{a::{b, c}, d};\nuse crate::e;\nfn f() { crate::g::h() }"), ["a", "d", "e", "g"]);
    let names = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    let uses: Uses = [("a", "b"), ("b", "c d"), ("c", "a"), ("d", "e"), ("e", "d")]
        .map(|(name, used)| (name.into(), names(used)))
        .into();
    assert_eq!(largest_circle(&uses), ["a", "b", "c"]);
}

/// What each top module of a crate uses of the others.
fn uses_of(source: &Path) -> Uses {
    let mut uses = Uses::new();
    for path in files_below(source, &["rs"]).iter().filter(|path| !is_test(path)) {
        let below = path.strip_prefix(source).expect("the file is below the folder");
        let top = below.iter().next().map(|part| part.to_string_lossy().replace(".rs", "")).unwrap_or_default();
        uses.entry(top).or_default().extend(used_by(&product_text(path)));
    }
    let modules: BTreeSet<_> = uses.keys().cloned().collect();
    uses.iter_mut().for_each(|(own, used)| used.retain(|other| other != own && modules.contains(other)));
    uses
}

/// The names that follow `crate::` in code.
fn used_by(text: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    code.split("crate::").skip(1).flat_map(first_names).collect()
}

/// The first name of a path, or those of each path in a group.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0_u32;
    let mut members = vec![String::new()];
    for character in group.chars() {
        match character {
            '}' if depth == 0 => break,
            ',' if depth == 0 => members.push(String::new()),
            _ => members.last_mut().expect("there is one").push(character),
        }
        depth = (depth + u32::from(character == '{')).saturating_sub(u32::from(character == '}'));
    }
    members.iter().map(|member| name(member)).filter(|name| !name.is_empty()).collect()
}

/// The largest set of modules each of which leads to all others.
fn largest_circle(uses: &Uses) -> Vec<String> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        uses.keys().map(|from| (from, reached_from(from, uses))).collect();
    let circle_of = |own: &String| {
        let meets = |other: &&&String| reached[own].contains(**other) && reached[**other].contains(own);
        uses.keys().collect::<Vec<_>>().iter().filter(meets).map(|name| (*name).clone()).collect::<Vec<_>>()
    };
    uses.keys().map(circle_of).max_by_key(Vec::len).unwrap_or_default()
}

/// The modules to which uses lead from one.
fn reached_from<'u>(from: &'u String, uses: &'u Uses) -> BTreeSet<&'u String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        next.extend(uses.get(name).into_iter().flatten().filter(|used| reached.insert(*used)));
    }
    reached
}
