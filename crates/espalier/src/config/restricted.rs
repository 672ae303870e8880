//! Options whose other values would promise features that do not exist: these values are refused by name.

use super::options::Restricted;
use super::units::{boolean, class_name, scalar};
use serde_json::Value;

fn class_is(value: &Value, name: &str) -> bool {
    class_name(value).is_ok_and(|class| class == name)
}

/// A section such as `transparent_data_encryption_options` that is switched off.
fn disabled(value: &Value) -> bool {
    value.get("enabled").is_none_or(|enabled| boolean(enabled) == Ok(false))
}

fn is_false(value: &Value) -> bool {
    boolean(value) == Ok(false)
}

pub(super) const RESTRICTED: &[Restricted] = &[
    Restricted {
        name: "role_manager",
        accepted: "`CassandraRoleManager`",
        accepts: |value| class_is(value, "CassandraRoleManager"),
    },
    Restricted {
        name: "partitioner",
        accepted: "`Murmur3Partitioner`",
        accepts: |value| class_is(value, "Murmur3Partitioner"),
    },
    Restricted { name: "transparent_data_encryption_options", accepted: "`enabled: false`", accepts: disabled },
    Restricted { name: "cdc_enabled", accepted: "`false`", accepts: is_false },
    Restricted { name: "partition_denylist_enabled", accepted: "`false`", accepts: is_false },
    Restricted { name: "start_native_transport", accepted: "`true`", accepts: |value| boolean(value) == Ok(true) },
    Restricted { name: "rpc_interface", accepted: "no value: use `rpc_address`", accepts: |_| false },
    Restricted { name: "rpc_interface_prefer_ipv6", accepted: "`false`", accepts: is_false },
    Restricted {
        name: "local_system_data_file_directory",
        accepted: "no value: there is one directory",
        accepts: |_| false,
    },
    Restricted {
        name: "sstable",
        accepted: "`selected_format: bti`",
        accepts: |value| value.get("selected_format").is_none_or(|format| scalar(format).as_deref() == Some("bti")),
    },
    Restricted {
        name: "default_compaction",
        accepted: "`UnifiedCompactionStrategy`",
        accepts: |value| class_is(value, "UnifiedCompactionStrategy"),
    },
];
