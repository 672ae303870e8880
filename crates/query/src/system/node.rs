//! The node's row of `system.local`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use engine::{Engine, EngineError};
use types::collection;

/// The version of Cassandra whose behaviour this node shows.
pub(crate) const RELEASE_VERSION: &str = "5.0.8";
/// The version of the query language.
pub(crate) const CQL_VERSION: &str = "3.4.7";

/// The node as its clients see it: the settings that `system.local` shows.
#[derive(Clone, Debug)]
pub struct Node {
    /// `cluster_name`.
    pub cluster_name: String,
    /// The data center, which consists of this node.
    pub data_center: Arc<str>,
    /// The rack.
    pub rack: String,
    /// `listen_address` and `broadcast_address`.
    pub broadcast_address: IpAddr,
    /// `storage_port`, on which nothing listens.
    pub storage_port: u16,
    /// `rpc_address`, to which clients connect.
    pub rpc_address: IpAddr,
    /// `native_transport_port`.
    pub rpc_port: u16,
    /// The node's tokens (`num_tokens`). It owns the whole ring, however many they are.
    pub tokens: Vec<i64>,
}

impl Default for Node {
    fn default() -> Self {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Node {
            cluster_name: "Test Cluster".into(),
            data_center: "datacenter1".into(),
            rack: "rack1".into(),
            broadcast_address: localhost,
            storage_port: 7000,
            rpc_address: localhost,
            rpc_port: 9042,
            tokens: Node::evenly_spaced_tokens(1),
        }
    }
}

impl Node {
    /// `count` tokens at equal distances. They depend on nothing else, so a node has the same tokens after each start.
    pub fn evenly_spaced_tokens(count: u32) -> Vec<i64> {
        let parts = i128::from(count);
        let token = |place: i128| (2 * place + 1) * (1 << 63) / parts - (1 << 63);
        (0..parts).filter_map(|place| i64::try_from(token(place)).ok()).collect()
    }

    /// Writes the row. The generation is the time of the start in seconds since the epoch.
    pub fn write_local(&self, engine: &Engine, generation: i32) -> Result<(), EngineError> {
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let inet = |address: IpAddr| {
            Some(match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            })
        };
        let int = |value: i32| Some(value.to_be_bytes().to_vec());
        let tokens = self.token_texts();
        engine.write_local(&[
            ("bootstrapped", text("COMPLETED")),
            ("broadcast_address", inet(self.broadcast_address)),
            ("broadcast_port", int(i32::from(self.storage_port))),
            ("cluster_name", text(&self.cluster_name)),
            ("cql_version", text(CQL_VERSION)),
            ("data_center", text(&self.data_center)),
            ("gossip_generation", int(generation)),
            ("host_id", Some(engine.host_id().as_bytes().to_vec())),
            ("listen_address", inet(self.broadcast_address)),
            ("listen_port", int(i32::from(self.storage_port))),
            ("native_protocol_version", text("5")),
            ("partitioner", text("org.apache.cassandra.dht.Murmur3Partitioner")),
            ("rack", text(&self.rack)),
            ("release_version", text(RELEASE_VERSION)),
            ("rpc_address", inet(self.rpc_address)),
            ("rpc_port", int(i32::from(self.rpc_port))),
            ("schema_version", Some(engine.schema().version.as_bytes().to_vec())),
            ("tokens", Some(collection::list(tokens.iter().map(String::as_bytes)))),
        ])
    }

    /// The tokens as texts, in the order of texts: the elements of a set, or keys of a map.
    pub(crate) fn token_texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.tokens.iter().map(i64::to_string).collect();
        texts.sort_unstable();
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::Node;

    #[test]
    fn tokens_are_different_and_divide_the_ring_evenly() {
        assert_eq!(Node::evenly_spaced_tokens(1), [0]);
        assert_eq!(Node::evenly_spaced_tokens(2), [-(1 << 62), 1 << 62]);
        for count in [3, 16, 256, 1_536] {
            let tokens = Node::evenly_spaced_tokens(count);
            assert_eq!(tokens.len(), count as usize);
            let step = (1_i128 << 64) / i128::from(count);
            let gaps = tokens.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0]));
            assert!(gaps.into_iter().all(|gap| (gap - step).abs() <= 1), "{count}");
        }
    }
}
