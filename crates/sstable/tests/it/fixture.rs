//! Tables written by Cassandra, and scratch directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockio::{Disk, SystemDisk};
use model::Table;
use sstable::{BlockCache, Descriptor, SSTableReader, Statistics, list_tables, read_statistics};

/// All fixtures.
pub const NAMES: [&str; 30] = [
    "colls",
    "cols63",
    "cols64",
    "cols80",
    "comp_deflate",
    "comp_lz4",
    "comp_lz4hc",
    "comp_none",
    "comp_pk",
    "comp_snappy",
    "comp_zstd",
    "counters",
    "crc_compacted",
    "desc_ck",
    "dropped",
    "kv",
    "many",
    "oddnames",
    "statics",
    "statics_only",
    "tombs",
    "ttl",
    "ttl_2046",
    "types",
    "types_empty",
    "vectors",
    "wide",
    "wide16k",
    "wide_blocks",
    "wide_rt",
];

/// One table written by Cassandra.
pub struct Fixture {
    pub dir: PathBuf,
    pub descriptor: Descriptor,
    pub statistics: Statistics,
    /// A schema made from the header, with the key columns' names from schema.cql.
    pub table: Arc<Table>,
}

pub fn disk() -> Arc<dyn Disk> {
    Arc::new(SystemDisk::new())
}

pub fn cache() -> BlockCache {
    BlockCache::new(4 << 20)
}

impl Fixture {
    pub fn load(name: &str) -> Fixture {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/from_cassandra/5.0.8").join(name);
        let disk = disk();
        let tables = list_tables(&*disk, &dir).unwrap();
        assert_eq!(tables.len(), 1, "{name}");
        let descriptor = tables[0].clone();
        let statistics = read_statistics(&*disk, &descriptor).unwrap();
        let cql = std::fs::read_to_string(dir.join("schema.cql")).unwrap();
        let table = Arc::new(statistics.to_table(name, "fx", name, &key_names(&cql)).unwrap());
        Fixture { dir, descriptor, statistics, table }
    }

    pub fn open(&self) -> SSTableReader {
        SSTableReader::open(&*disk(), &self.descriptor, &self.table, &cache()).unwrap()
    }

    /// The fixture's `expected.json`.
    pub fn expected(&self) -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(self.dir.join("expected.json")).unwrap()).unwrap()
    }
}

/// The names of partition key and clustering columns, from the only CREATE TABLE in a script as DESCRIBE prints it.
fn key_names(cql: &str) -> Vec<String> {
    let table = cql.split("CREATE TABLE").nth(1).unwrap();
    let body = table.split_once('(').unwrap().1;
    let body = body.split("\n)").next().unwrap();
    let unquote = |name: &str| name.trim().trim_matches('"').to_owned();
    if let Some((_, list)) = body.split_once("PRIMARY KEY (") {
        let list = list.replace(['(', ')'], "");
        return list.split(',').map(unquote).collect();
    }
    let line = body.lines().find(|line| line.contains("PRIMARY KEY")).unwrap();
    vec![unquote(line.trim().split(' ').next().unwrap())]
}
