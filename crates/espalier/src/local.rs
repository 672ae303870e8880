//! The node's row of `system.local`: what clients ask first.

use crate::config::Config;
use engine::{Engine, EngineError};
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};
use types::collection;

/// The port that other nodes would use; clients show it.
const STORAGE_PORT: i32 = 7000;

/// The data center that the node is all of.
pub const DATA_CENTER: &str = "datacenter1";

/// The one token of the one node.
const TOKEN: &str = "0";

/// Writes the row for a node that listens here. Blocks on the log.
pub fn write(engine: &Engine, config: &Config, address: SocketAddr) -> Result<(), EngineError> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let int = |number: i32| Some(number.to_be_bytes().to_vec());
    let inet = Some(match address.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    });
    let generation = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i32);
    engine.write_local(&[
        ("bootstrapped", text("COMPLETED")),
        ("broadcast_address", inet.clone()),
        ("broadcast_port", int(STORAGE_PORT)),
        ("cluster_name", text(&config.cluster_name)),
        ("cql_version", text(server::CQL_VERSION)),
        ("data_center", text(DATA_CENTER)),
        ("gossip_generation", int(generation)),
        ("host_id", Some(engine.host_id().as_bytes().to_vec())),
        ("listen_address", inet.clone()),
        ("listen_port", int(STORAGE_PORT)),
        ("native_protocol_version", text("5")),
        ("partitioner", text("org.apache.cassandra.dht.Murmur3Partitioner")),
        ("rack", text("rack1")),
        ("release_version", text(server::RELEASE_VERSION)),
        ("rpc_address", inet),
        ("rpc_port", int(i32::from(address.port()))),
        ("tokens", Some(collection::list([TOKEN.as_bytes()].into_iter()))),
    ])
}
