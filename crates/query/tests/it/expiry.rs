//! The visible content of expiring rows and cells, second by second, compared with Cassandra's.

use query::QueryOptions;
use serde_json::{Value as Json, json};

use crate::node::{TestNode, rows_of};
use crate::select::rows_in_hex;

#[test]
fn rows_and_cells_expire_when_they_do_in_cassandra() {
    let tables: Json = serde_json::from_str(include_str!("../from_cassandra/select.json")).unwrap();
    let fixture: Json = serde_json::from_str(include_str!("../from_cassandra/expiry.json")).unwrap();
    for flushed in [false, true] {
        let node = TestNode::new();
        tables["setup"].as_array().unwrap().iter().for_each(|statement| drop(node.run(statement.as_str().unwrap())));
        let mut differences = Vec::new();
        for step in fixture["steps"].as_array().unwrap() {
            let statement = step["cql"].as_str().unwrap();
            let options =
                QueryOptions { now_in_seconds: step["now"].as_i64().map(|now| now as i32), ..QueryOptions::default() };
            let response = node.try_run(statement, &options).unwrap_or_else(|error| panic!("{statement}: {error}"));
            if step["rows"].is_null() {
                if flushed {
                    node.processor.engine().flush_all().unwrap();
                }
                continue;
            }
            let got = rows_in_hex(&rows_of(response));
            if got != step["rows"] {
                differences
                    .push(format!("{statement} at {}\n  expected {}\n  got      {got}", step["now"], step["rows"]));
            }
        }
        assert_eq!(json!(differences), json!([]), "flushed: {flushed}");
    }
}
