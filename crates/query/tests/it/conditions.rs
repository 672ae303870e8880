//! Conditional modifications, compared with what Cassandra answered to the same statements in the same order.

use query::ResponseBody;
use serde_json::{Value as Json, json};

use crate::modify::{flush, is_ours, node, recorded, run};

fn fixture() -> Json {
    serde_json::from_str(include_str!("../from_cassandra/conditions.json")).unwrap()
}

/// What stands in no answer of ours, with the reason.
fn is_intended(step: &Json) -> bool {
    let text = step["cql"].as_str().unwrap_or_default();
    // No client writes to the keyspaces of the node itself.
    text.starts_with("INSERT INTO system")
        // There is no system_views.
        || text.starts_with("UPDATE system_views")
        // No counter tables.
        || text.contains("ks.cnt")
}

fn compare(between: impl Fn(&crate::node::TestNode, usize)) {
    let fixture = fixture();
    let node = node(&fixture, "CREATE TABLE ks.cnt");
    let mut count = 0;
    let mut differences = Vec::new();
    for case in fixture["cases"].as_array().unwrap() {
        for step in case["steps"].as_array().unwrap() {
            let answer = run(&node, step);
            let columns = match &answer {
                Ok(response) => match &response.body {
                    ResponseBody::Rows(rows) => {
                        let specs = rows.metadata.specs().iter();
                        json!(specs.map(|spec| json!([&*spec.keyspace, &*spec.table, &*spec.name])).collect::<Vec<_>>())
                    }
                    _ => Json::Null,
                },
                Err(_) => Json::Null,
            };
            let mut got = recorded(answer);
            got["columns"] = columns;
            count += 1;
            between(&node, count);
            let differs = ["code", "message", "warnings", "columns", "rows"].iter().any(|part| step[part] != got[part]);
            if differs && !is_ours(step, &got) && !is_intended(step) {
                let cut = |json: &Json| json.to_string().chars().take(500).collect::<String>();
                differences.push(format!("{}: {}\n   got {}", case["name"], cut(step), cut(&got)));
            }
        }
    }
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn conditional_modifications_do_what_they_do_in_cassandra() {
    compare(|_, _| {});
}

#[test]
fn conditional_modifications_do_so_over_memtables_and_sstables() {
    compare(|node, step| {
        if step % 4 == 0 {
            flush(node)
        }
    });
}
