//! The schema lives in the engine's own tables.

use crate::fixture::{Directory, create_table, insert, open, rows};

#[test]
fn a_table_takes_writes_and_gives_them_back() {
    let directory = Directory::new();
    let engine = open(&directory);
    let table = create_table(&engine);
    insert(&engine, &table, 1, 1, "one", 10);
    insert(&engine, &table, 1, 2, "two", 10);
    insert(&engine, &table, 1, 1, "older", 9);
    assert_eq!(rows(&engine, &table), [(1, 1, "one".into()), (1, 2, "two".into())]);
}
