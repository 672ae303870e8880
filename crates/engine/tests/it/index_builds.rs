//! Graphs of vectors are built in the background, while flushes, truncations, drops and a stop go on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use blockio::{Disk, SimulatedDisk};
use engine::{Engine, EngineOptions, IndexBuildNotice, IndexBuildNotices};
use model::{INDEX_SIMILARITY, Index, IndexPart, Keyspace, Table, TableBuilder, TableId};
use types::{CqlType, Similarity};
use uuid::Uuid;

use crate::fixture::{insert, open_with, rows, small_options};
use crate::gated_disk::{GIVE_UP, GatedDisk};

/// A value of `vector<float, 3>`. Each four letters are a number.
const VECTOR: &str = "AAAABBBBCCCC";

/// Holds the graphs that the indexer builds.
fn held_graphs(disk: &SimulatedDisk) -> GatedDisk {
    GatedDisk::new(disk, "-euclidean").only_of("indexer")
}

fn builder(name: &str) -> TableBuilder {
    let builder = TableBuilder::new("ks", name, TableId(Uuid::new_v4())).partition_key("k", CqlType::Int);
    builder.clustering("c", CqlType::Int, false)
}

/// A table with an index of the vectors in `v`.
fn with_vectors(name: &str) -> Arc<Table> {
    let table = builder(name).regular("v", CqlType::vector(CqlType::Float, 3)).build();
    let options = BTreeMap::from([(INDEX_SIMILARITY.to_owned(), "euclidean".to_owned())]);
    let part = IndexPart::Vectors(Similarity::Euclidean);
    let index = Index::storage_attached("by_v", table.column("v").unwrap(), part, "sai", options);
    Arc::new(table.to_builder().indexes([index]).build())
}

/// Makes these the only tables of the keyspace.
fn set_tables(engine: &Engine, tables: &[&Arc<Table>]) {
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables.extend(tables.iter().map(|table| (table.name.clone(), Arc::clone(table))));
    engine.set_keyspace(keyspace).unwrap();
}

/// The number of complete files with graphs of a table.
fn graph_count(disk: &SimulatedDisk, table: &Table) -> usize {
    let directory = Path::new("/node/index").join(table.id.0.simple().to_string());
    if !disk.exists(&directory).unwrap() {
        return 0;
    }
    let sstables = disk.list(&directory).unwrap().into_iter();
    let files = sstables.flat_map(|sstable| disk.list(&directory.join(sstable.name)).unwrap());
    files.filter(|file| file.name.ends_with("-euclidean.db")).count()
}

#[test]
fn flushes_truncations_and_drops_do_not_wait_for_graphs() {
    let disk = SimulatedDisk::new();
    let gated = held_graphs(&disk);
    let engine = open_with(&EngineOptions { disk: Arc::new(gated.clone()), ..small_options(&disk) });
    let (vectors, other) = (with_vectors("vectors"), Arc::new(builder("other").regular("v", CqlType::Text).build()));
    set_tables(&engine, &[&vectors, &other]);
    gated.close();
    for row in 0..2 {
        (0..50).for_each(|key| insert(&engine, &vectors, key, row, VECTOR, 10));
        engine.flush(&vectors).unwrap();
        assert_eq!(graph_count(&disk, &vectors), 0, "the indexer is to build them");
    }
    gated.wait_for(1);
    assert_eq!(rows(&engine, &vectors).len(), 100);
    insert(&engine, &other, 1, 1, "other", 10);
    engine.flush(&other).unwrap();
    engine.truncate(&vectors).unwrap();
    assert!(rows(&engine, &vectors).is_empty());
    set_tables(&engine, &[&other]);
    assert_eq!(rows(&engine, &other).len(), 1);
    gated.open_for_all();
    engine.shutdown().unwrap();
}

#[test]
fn a_flush_builds_graphs_itself_if_too_many_vectors_wait_for_them() {
    let disk = SimulatedDisk::new();
    let gated = held_graphs(&disk);
    let options = EngineOptions { memtable_space_bytes: 1 << 20, ..small_options(&disk) };
    let engine = open_with(&EngineOptions { disk: Arc::new(gated.clone()), ..options });
    let vectors = with_vectors("vectors");
    set_tables(&engine, &[&vectors]);
    gated.close();
    let mut flushes = 0;
    while graph_count(&disk, &vectors) == 0 {
        assert!(flushes < 100, "the vectors that wait take more and more memory");
        (0..100).for_each(|key| insert(&engine, &vectors, key, flushes, VECTOR, 10));
        engine.flush(&vectors).unwrap();
        flushes += 1;
    }
    assert!(flushes > 1, "the first graph is left to the indexer");
    gated.open_for_all();
    engine.shutdown().unwrap();
}

#[test]
fn the_build_of_a_new_index_is_reported_while_it_runs_and_when_it_ends() {
    let disk = SimulatedDisk::new();
    let gated = GatedDisk::new(&disk, "/index/").only_of("indexer");
    let (sender, notices) = mpsc::channel();
    let sender = Mutex::new(sender);
    let send = move |notice: &IndexBuildNotice| sender.lock().unwrap().send(notice.clone()).unwrap_or_default();
    let options = EngineOptions { disk: Arc::new(gated.clone()), ..small_options(&disk) };
    let index_build_notices = Some(IndexBuildNotices(Arc::new(send)));
    let engine = open_with(&EngineOptions { index_build_notices, concurrent_compactors: 0, ..options });
    let plain = Arc::new(builder("plain").regular("v", CqlType::Text).build());
    set_tables(&engine, &[&plain]);
    for row in 0..2 {
        (0..50).for_each(|key| insert(&engine, &plain, key, row, "value", 10));
        engine.flush(&plain).unwrap();
    }
    gated.close();
    let index = Index::plain("by_v", plain.column("v").unwrap(), IndexPart::Whole);
    set_tables(&engine, &[&Arc::new(plain.to_builder().indexes([index]).build())]);
    gated.wait_for(1);
    let stats = engine.all_index_stats();
    assert_eq!((stats[0].is_complete, stats[0].files.len(), stats[0].sstable_count), (false, 0, 2));
    gated.open_for_all();
    let remaining = [2, 1].map(|expected| match notices.recv_timeout(GIVE_UP).unwrap() {
        IndexBuildNotice::SSTable { remaining, data_bytes, .. } => (remaining == expected, data_bytes > 0),
        notice => panic!("{notice:?}"),
    });
    assert_eq!(remaining, [(true, true); 2]);
    let complete = IndexBuildNotice::Complete { keyspace: "ks".to_owned(), index: "by_v".to_owned() };
    assert_eq!(notices.recv_timeout(GIVE_UP).unwrap(), complete);
    assert!(engine.all_index_stats()[0].is_complete);
    engine.shutdown().unwrap();
}
