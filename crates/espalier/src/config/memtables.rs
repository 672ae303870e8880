//! The `memtable` section: named configurations, which tables choose with `WITH memtable`.

use std::collections::BTreeMap;

use engine::{MemtableConfiguration, MemtableConfigurations};
use serde_json::Value;

use super::units::scalar;

/// A definition with everything that it inherits.
#[derive(Clone, Default)]
struct Definition {
    class_name: Option<String>,
    parameters: BTreeMap<String, String>,
}

/// Reads the section. A definition that cannot be used is an error for the tables that name it. For `default`, and for
/// definitions that contradict each other, it is an error of the section. The texts are Cassandra's.
pub(super) fn configurations(section: &Value) -> Result<MemtableConfigurations, String> {
    let mut all = MemtableConfigurations::new();
    if let Some(unknown) = section.as_object().and_then(|map| map.keys().find(|key| *key != "configurations")) {
        return Err(format!("{unknown} is no option of it"));
    }
    let definitions = match section.get("configurations") {
        None | Some(Value::Null) => &serde_json::Map::new(),
        Some(Value::Object(definitions)) => definitions,
        Some(other) => return Err(format!("expected configurations by name, got {other}")),
    };
    for name in definitions.keys() {
        let definition = resolve(name, definitions, &mut Vec::new())?;
        let class_name = definition.class_name.as_deref().unwrap_or_default();
        let parsed = MemtableConfiguration::parse(class_name, &definition.parameters);
        if name == "default" {
            parsed.clone()?;
        }
        all.insert(name.clone(), parsed);
    }
    all.entry("default".into()).or_insert(Ok(MemtableConfiguration::default()));
    Ok(all)
}

fn resolve(
    name: &str,
    definitions: &serde_json::Map<String, Value>,
    heirs: &mut Vec<String>,
) -> Result<Definition, String> {
    let Some(own) = definitions.get(name) else {
        let heir = heirs.last().map_or("", String::as_str);
        return Err(format!("Configuration entry {heir} inherits non-existing entry {name}."));
    };
    let text = |key: &str| own.get(key).and_then(scalar);
    let inherits = text("inherits");
    let mut definition = match inherits.as_deref() {
        None => Definition::default(),
        Some(inherited) if inherited == name => {
            return Err(format!("Configuration entry {name} can not inherit itself."));
        }
        Some(inherited) if heirs.iter().any(|heir| heir == inherited) => {
            return Err(format!("Detected loop when processing key {inherited}"));
        }
        // It may be missing: tables have a default one.
        Some("default") if !definitions.contains_key("default") => {
            Definition { class_name: Some("TrieMemtable".into()), parameters: BTreeMap::new() }
        }
        Some(inherited) => {
            heirs.push(name.to_owned());
            resolve(inherited, definitions, heirs)?
        }
    };
    definition.class_name = text("class_name").or(definition.class_name);
    match own.get("parameters") {
        None | Some(Value::Null) => {}
        Some(Value::Object(parameters)) => {
            for (key, value) in parameters {
                let value = scalar(value).ok_or_else(|| format!("{name}: expected a value of {key}, got {value}"))?;
                definition.parameters.insert(key.clone(), value);
            }
        }
        Some(other) => return Err(format!("{name}: expected parameters by name, got {other}")),
    }
    let known = ["class_name", "parameters", "inherits"];
    if let Some(unknown) = own.as_object().and_then(|map| map.keys().find(|key| !known.contains(&key.as_str()))) {
        return Err(format!("{name}: {unknown} is none of class_name, parameters and inherits"));
    }
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Result<MemtableConfigurations, String> {
        configurations(&serde_saphyr::from_str(yaml).unwrap())
    }

    #[test]
    fn configurations_inherit_class_and_parameters() {
        let all = parse(
            "configurations:\n  sharded: {class_name: ShardedSkipListMemtable, parameters: {shards: 3}}\n  \
             serialized: {inherits: sharded, parameters: {serialize_writes: true}}\n  \
             paper: {class_name: org.apache.cassandra.db.memtable.TrieMemtable, parameters: {layout: paper, shards: '2'}}\n  \
             default: {inherits: serialized}\n",
        )
        .unwrap();
        let serialized = MemtableConfiguration::ShardedSkipList { shards: Some(3), serialize_writes: true };
        assert_eq!(all["default"], Ok(serialized));
        assert_eq!(all["serialized"], Ok(serialized));
        let sharded = MemtableConfiguration::ShardedSkipList { shards: Some(3), serialize_writes: false };
        assert_eq!(all["sharded"], Ok(sharded));
        let paper = format!("{:?}", all["paper"]);
        assert!(paper.starts_with("Ok(Trie { shards: Some(2), options: TrieOptions { layout: Paper, "), "{paper}");
    }

    #[test]
    fn an_unusable_memtable_is_refused_when_a_table_names_it() {
        let all = parse(
            "configurations:\n  a: {class_name: PersistentMemoryMemtable}\n  b: {class_name: TrieMemtable, parameters: {size: 1}}\n  \
             c: {parameters: {}}\n  d: {class_name: TrieMemtable, parameters: {shards: 0}}\n",
        )
        .unwrap();
        let error = |name: &str| all[name].clone().unwrap_err();
        let class = "org.apache.cassandra.db.memtable.PersistentMemoryMemtable";
        assert_eq!(error("a"), format!("Could not create memtable factory for class {class}"));
        let rest = "Memtable class org.apache.cassandra.db.memtable.TrieMemtable does not accept any futher parameters";
        assert_eq!(error("b"), format!("{rest}, but {{size=1}} were given."));
        assert_eq!(error("c"), "The 'class_name' option must be specified.");
        assert!(error("d").contains("shards: expected a number from 1"));
        assert_eq!(all["default"], Ok(MemtableConfiguration::default()));
    }

    #[test]
    fn a_default_that_cannot_be_used_and_loops_stop_the_start() {
        let error = |yaml: &str| parse(yaml).unwrap_err();
        let unknown = error("configurations: {default: {class_name: Foo}}");
        assert!(unknown.starts_with("Could not create memtable factory for class"), "{unknown}");
        assert_eq!(error("configurations: {a: {inherits: b}}"), "Configuration entry a inherits non-existing entry b.");
        assert_eq!(error("configurations: {a: {inherits: a}}"), "Configuration entry a can not inherit itself.");
        let circle = error("configurations: {a: {inherits: b}, b: {inherits: a}}");
        assert_eq!(circle, "Detected loop when processing key a");
    }
}
