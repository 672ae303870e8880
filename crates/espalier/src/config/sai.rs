//! `sai_options`: storage-attached indexes.

use super::Config;
use super::units::{boolean, size_bytes};
use serde_json::Value;

/// The keys of the section.
pub(super) const KEYS: &[&str] = &["prioritize_over_legacy_index", "segment_write_buffer_size"];

/// Cassandra's bound of `segment_write_buffer_size`.
const BUFFER_BYTES_MAX: u64 = 32_768 << 20;

const BUFFER_IS_FIXED: &str = "a build holds 32 MiB of entries for each index, and then writes them";

pub(super) fn sai_options(config: &mut Config, value: &Value) -> Result<(), String> {
    let section = value.as_object().ok_or_else(|| format!("expected keys and values, got {value}"))?;
    for (key, value) in section.iter().filter(|(_, value)| !value.is_null()) {
        apply(config, key, value).map_err(|error| format!("{key}: {error}"))?;
    }
    Ok(())
}

fn apply(config: &mut Config, key: &str, value: &Value) -> Result<(), String> {
    match key {
        "prioritize_over_legacy_index" => config.prefers_attached_indexes = boolean(value)?,
        "segment_write_buffer_size" => {
            if size_bytes(value)? > BUFFER_BYTES_MAX {
                return Err(format!("expected a size up to 32768MiB, got {value}"));
            }
            config.inert.push(("sai_options.segment_write_buffer_size".to_owned(), BUFFER_IS_FIXED));
        }
        _ => return Err("is no key of sai_options".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        config.apply_file(text).map(|()| config)
    }

    #[test]
    fn one_key_is_in_force_and_the_log_names_the_other() {
        let config = load("sai_options:\n  prioritize_over_legacy_index: true\n  segment_write_buffer_size: 1GiB\n");
        let config = config.unwrap();
        assert!(config.prefers_attached_indexes);
        assert_eq!(config.inert, [("sai_options.segment_write_buffer_size".to_owned(), BUFFER_IS_FIXED)]);
        let refused = |text: &str| load(&format!("sai_options: {{{text}}}\n")).unwrap_err();
        assert!(refused("segment_write_buffer_size: 32769MiB").contains("expected a size up to 32768MiB"));
        assert!(refused("prioritise: true").contains("prioritise: is no key of sai_options"));
    }
}
