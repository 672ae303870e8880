//! Tables of the format `big` are verified and salvaged, and after a rewrite as BTI they have the rows that Cassandra
//! wrote.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Table;
use serde_json::Value;
use sstable::{
    BlockCache, CommitLogPosition, Component, Descriptor, DumpLayout, DumpOptions, SSTableId, SSTableReader, Verified,
    adopt_table, dump_json, list_big_tables, list_foreign_tables, list_tables, missing_tocs, salvage, verify,
};
use testkit::TemporaryDirectory;

use crate::fixture::disk;

fn directory(version: &str, table: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/from_cassandra/5.0.8-big").join(version).join(table)
}

/// The rows of a fixture's tables after a rewrite, one JSON value each.
fn rewritten(version: &str, table: &str) -> Vec<Value> {
    let disk = disk();
    let scratch = TemporaryDirectory::create();
    let mut lines = Vec::new();
    let position = CommitLogPosition { segment: 7, offset: 9 };
    for (number, source) in list_big_tables(&*disk, &directory(version, table)).unwrap().iter().enumerate() {
        let statistics = sstable::read_statistics(&*disk, source).unwrap();
        let schema = Arc::new(statistics.to_table("Statistics.db", "up", table, &[]).unwrap());
        let target = Descriptor::new(&scratch.0, SSTableId::from_sequence(number as u32 + 1));
        let host_id = uuid::Uuid::from_u128(5);
        let mut adopted = adopt_table(&disk, source, &schema, &target).unwrap().unwrap();
        adopted.belong_to(host_id, position).unwrap();
        let written = adopted.commit().unwrap();
        verify(&*disk, &written, &schema, true).unwrap();
        let reader = SSTableReader::open(&*disk, &written, &schema, &BlockCache::new(1 << 20)).unwrap();
        let stats = &reader.statistics().stats;
        assert_eq!(
            (stats.originating_host_id, &stats.commit_log_intervals[..]),
            (Some(host_id), &[(position, position)][..])
        );
        assert_eq!(stats.total_rows, statistics.stats.total_rows);
        assert_eq!(
            (stats.min_timestamp, stats.max_timestamp),
            (statistics.stats.min_timestamp, statistics.stats.max_timestamp)
        );
        assert_eq!(stats.max_local_deletion_time, statistics.stats.max_local_deletion_time);
        let options = DumpOptions { now_seconds: 0, raw_timestamps: true, layout: DumpLayout::RowPerLine };
        let mut text = String::new();
        let write = &mut |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        dump_json(&reader, options, write).unwrap();
        lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    assert_eq!(list_tables(&*disk, &directory(version, table)).unwrap(), []);
    lines
}

#[test]
fn partitions_cells_and_their_deletions_come_along() {
    for version in ["nb", "oa"] {
        let rows = rewritten(version, "kv");
        assert_eq!(rows.len(), 200);
        for row in &rows {
            let k: i64 = row["partition"]["key"][0].as_str().unwrap().parse().unwrap();
            let deleted = &row["partition"]["deletion_info"]["marked_deleted"];
            if k % 7 == 0 {
                assert_eq!(*deleted, format!("{}", 1_700_000_000_001_000 + k), "{version} {k}");
                assert!(row.get("row").is_none(), "{row}");
                continue;
            }
            assert!(deleted.is_null(), "{row}");
            assert_eq!(row["row"]["liveness_info"]["tstamp"], format!("{}", 1_700_000_000_000_000 + k));
            let cells = row["row"]["cells"].as_array().unwrap();
            let cell = |name: &str| cells.iter().find(|cell| cell["name"] == name && cell.get("path").is_none());
            let v = cell("v").unwrap();
            match k % 7 {
                1 => assert!(v["deletion_info"]["local_delete_time"].is_string(), "{v}"),
                _ => assert_eq!(v["value"], format!("v{k}")),
            }
            let zip = cells.iter().find(|cell| cell["path"] == serde_json::json!(["zip"])).unwrap();
            assert_eq!(zip["value"], k);
        }
    }
}

#[test]
fn expiring_rows_of_uncompressed_tables_come_along() {
    for version in ["nb", "oa"] {
        let rows = rewritten(version, "ttl");
        assert_eq!(rows.len(), 200);
        for row in &rows {
            let k: i64 = row["partition"]["key"][0].as_str().unwrap().parse().unwrap();
            let liveness = &row["row"]["liveness_info"];
            assert_eq!(liveness["ttl"], 100_000_000 + k, "{version}");
            let number = |field: &str| liveness[field].as_str().unwrap().parse::<i64>().unwrap();
            let lived = number("expires_at") - number("tstamp") / 1_000_000;
            assert!((lived - 100_000_000 - k).abs() <= 1, "{row}");
        }
    }
}

#[test]
fn rows_markers_and_static_rows_of_wide_partitions_come_along() {
    for version in ["nb", "oa"] {
        let rows = rewritten(version, "wide");
        let of_kind = |kind: &str| rows.iter().filter(|row| row["row"]["type"] == kind).count();
        assert_eq!(of_kind("static_block"), 2, "{version}");
        assert_eq!(of_kind("range_tombstone_bound"), 2 * 2 * 12);
        // Of 600 rows of two partitions 12 ranges of 20 were deleted before the flush; one row came later.
        assert_eq!(of_kind("row"), 2 * (600 - 240) + 1);
        let deleted: Vec<_> = rows.iter().filter(|row| !row["partition"]["deletion_info"].is_null()).collect();
        assert_eq!(deleted.len(), 1);
        assert_eq!(deleted[0]["partition"]["key"][0], "2");
    }
}

/// A copy of a fixture's first table, and its schema.
fn copied(version: &str, table: &str, to: &TemporaryDirectory) -> (Descriptor, Arc<Table>) {
    for entry in std::fs::read_dir(directory(version, table)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.0.join(path.file_name().unwrap())).unwrap();
    }
    let source = list_big_tables(&*disk(), &to.0).unwrap().remove(0);
    let statistics = sstable::read_statistics(&*disk(), &source).unwrap();
    (source, Arc::new(statistics.to_table("Statistics.db", "up", table, &[]).unwrap()))
}

#[test]
fn sound_tables_verify_with_their_index() {
    for version in ["nb", "oa"] {
        for (table, verified) in [
            ("kv", Verified { partitions: 200, rows: 171, markers: 0 }),
            ("ttl", Verified { partitions: 200, rows: 200, markers: 0 }),
            ("wide", Verified { partitions: 2, rows: 720, markers: 48 }),
        ] {
            let scratch = TemporaryDirectory::create();
            let (source, schema) = copied(version, table, &scratch);
            for extended in [false, true] {
                assert_eq!(verify(&*disk(), &source, &schema, extended).unwrap(), verified, "{version} {table}");
            }
        }
    }
}

#[test]
fn damage_of_rows_statistics_and_index_is_found() {
    for version in ["nb", "oa"] {
        let scratch = TemporaryDirectory::create();
        let (source, schema) = copied(version, "kv", &scratch);
        for (file, step) in [("Data.db", 97), ("Statistics.db", 97), ("Index.db", 3)] {
            let path = scratch.0.join(format!("{}-{file}", source.name()));
            let bytes = std::fs::read(&path).unwrap();
            for at in (0..bytes.len()).step_by(step) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                std::fs::write(&path, &damaged).unwrap();
                let error = verify(&*disk(), &source, &schema, false).unwrap_err().to_string();
                assert!(error.contains(&format!("-big-{file} is corrupt")), "byte {at} of {file}: {error}");
                std::fs::write(&path, &bytes[..at]).unwrap();
                let error = verify(&*disk(), &source, &schema, false).unwrap_err().to_string();
                assert!(error.contains("-big-"), "{file} cut to {at}: {error}");
            }
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn partitions_behind_damage_are_saved_by_the_index() {
    for version in ["nb", "oa"] {
        let (scratch, saved) = (TemporaryDirectory::create(), TemporaryDirectory::create());
        let (source, schema) = copied(version, "wide", &scratch);
        let path = source.path(Component::Data);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 4;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let target = Descriptor::new(&saved.0, source.id.clone());
        let salvaged = salvage(&disk(), &source, &schema, &target).unwrap();
        assert_eq!((salvaged.losses.len(), salvaged.partitions), (1, 2), "{:?}", salvaged.losses);
        assert!(salvaged.losses[0].key.is_some());
        // All rows of the second partition, and those of the first before the damage.
        assert!(salvaged.rows > 360 && salvaged.rows < 720, "{} rows", salvaged.rows);
        let verified = verify(&*disk(), &target, &schema, true).unwrap();
        assert_eq!((verified.partitions, verified.rows), (2, salvaged.rows));
    }
}

#[test]
fn tables_of_another_node_without_a_toc_are_named() {
    let scratch = TemporaryDirectory::create();
    let (source, _) = copied("nb", "wide", &scratch);
    assert_eq!(list_foreign_tables(&*disk(), &scratch.0).unwrap().len(), 2);
    std::fs::remove_file(source.path(Component::Toc)).unwrap();
    let error = list_foreign_tables(&*disk(), &scratch.0).unwrap_err().to_string();
    assert!(error.contains(&format!("{}-TOC.txt", source.name())), "{error}");
    let [damage] = &missing_tocs(&*disk(), &scratch.0).unwrap()[..] else { panic!("one table is damaged") };
    assert!(damage.to_string().starts_with(&format!("{}-TOC.txt is corrupt at offset 0", source.name())), "{damage}");
}

#[test]
fn unknown_versions_are_refused_by_name() {
    let scratch = TemporaryDirectory::create();
    for (version, format) in [("mc", "big"), ("db", "bti")] {
        let toc = scratch.0.join(format!("{version}-1-{format}-TOC.txt"));
        std::fs::write(&toc, "").unwrap();
        for error in [list_big_tables(&*disk(), &scratch.0).err(), list_foreign_tables(&*disk(), &scratch.0).err()] {
            let (error, named) = (error.unwrap().to_string(), format!("version {version} of the format {format}"));
            assert!(error.contains(&named), "{error}");
        }
        std::fs::remove_file(&toc).unwrap();
    }
}
