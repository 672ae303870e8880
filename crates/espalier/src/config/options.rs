//! The table of options: what each key of the configuration does here. Parsing, checking and `docs/options.md` use it.

use super::Config;
use super::guardrails::GUARDRAILS;
use super::honoured::HONOURED;
use super::inert::INERT;
use super::restricted::RESTRICTED;
use super::{encryption, request_logs, sai};
use serde_json::Value;

/// The outcome of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It has an effect.
    Applied,
    /// It has no effect, for this reason.
    Inert(&'static str),
}

/// An option that has an effect.
pub(super) struct Honoured {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) note: &'static str,
    pub(super) apply: fn(&mut Config, &Value) -> Result<(), String>,
}

/// An option of which only some values are accepted.
pub(super) struct Restricted {
    pub(super) name: &'static str,
    /// The values that are accepted, in words.
    pub(super) accepted: &'static str,
    pub(super) accepts: fn(&Value) -> bool,
}

/// The options that have an effect.
fn honoured() -> impl Iterator<Item = &'static Honoured> {
    HONOURED.iter().chain(GUARDRAILS)
}

/// The options that are sections, with the lists of their keys.
const SECTIONS: [(&str, [&[&str]; 2]); 4] = [
    ("client_encryption_options", [encryption::KEYS, &[]]),
    ("audit_logging_options", [request_logs::AUDIT_KEYS, request_logs::FILE_KEYS]),
    ("full_query_logging_options", [request_logs::FULL_QUERY_KEYS, request_logs::FILE_KEYS]),
    ("sai_options", [sai::KEYS, &[]]),
];

/// Applies one setting. The error says what is wrong with it, without its name.
pub(super) fn apply(config: &mut Config, name: &str, value: &Value) -> Result<Effect, String> {
    if let Some(option) = honoured().find(|option| option.name == name) {
        return if value.is_null() {
            Ok(Effect::Applied)
        } else {
            (option.apply)(config, value).map(|()| Effect::Applied)
        };
    }
    if let Some(option) = RESTRICTED.iter().find(|option| option.name == name) {
        if value.is_null() || (option.accepts)(value) {
            return Ok(Effect::Applied);
        }
        return Err(format!("is not supported with the value {value}; accepted: {}", option.accepted));
    }
    match INERT.iter().find(|(_, names)| names.contains(&name)) {
        Some((reason, _)) => Ok(Effect::Inert(reason)),
        None => Err("is no option of Espalier or of Cassandra 5.0".to_owned()),
    }
}

/// The table as a page: `docs/options.md`.
pub(super) fn document() -> String {
    let mut out = String::from(
        "# Options\n\nThe keys of `espalier.yaml` are those of Cassandra 5.0's `cassandra.yaml`, and have the same meaning. An \
         unknown key is an error. The\nenvironment can set every key and overrides the file (`ESPALIER_COMMITLOG_SYNC=batch`). Flags \
         of `espalier serve` override both. This file\nis generated from the table in `crates/espalier/src/config/`: \
         `UPDATE_DOCS=1 cargo test -p espalier options` writes it.\n\n## In force\n\n| option | default | effect |\n|---|---|---|\n",
    );
    for option in honoured() {
        out += &format!("| `{}` | `{}` | {} |\n", option.name, option.default, option.note);
    }
    out += "\n## Keys of sections\n\n| option | keys |\n|---|---|\n";
    for (name, keys) in SECTIONS {
        let keys: Vec<_> = keys.concat().iter().map(|key| format!("`{name}.{key}`")).collect();
        out += &format!("| `{name}` | {} |\n", keys.join(", "));
    }
    out += "\n## Accepted with some values only\n\nAny other value stops the start with an error that names the option.\n\n| option | \
            accepted |\n|---|---|\n";
    for option in RESTRICTED {
        out += &format!("| `{}` | {} |\n", option.name, option.accepted);
    }
    out += "\n## Accepted without effect\n\nThe log of the node names those that are set.\n\n| reason | options |\n|---|---|\n";
    for (reason, names) in INERT {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        out += &format!("| {reason} | {} |\n", names.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_option_of_cassandra_5_is_in_the_table_once() {
        let mut seen = HashSet::new();
        let names = honoured().map(|option| option.name);
        let names = names.chain(RESTRICTED.iter().map(|option| option.name));
        for name in names.chain(INERT.iter().flat_map(|(_, names)| names.iter().copied())) {
            assert!(seen.insert(name), "{name} is there twice");
        }
        for name in include_str!("../../tests/from_cassandra/5.0.8/option-names.txt").lines() {
            assert!(seen.contains(name), "{name} is missing");
        }
    }

    #[test]
    fn the_options_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        assert!(std::fs::read_to_string(path).unwrap() == document(), "docs/options.md: UPDATE_DOCS=1 rewrites it");
    }
}
