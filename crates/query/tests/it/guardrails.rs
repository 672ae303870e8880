//! Guardrails warn and refuse.

use query::{Guardrail, ProcessorOptions, QueryOptions};

use crate::node::TestNode;

#[test]
fn many_partitions_and_many_combinations_warn_and_then_fail() {
    let guardrail = Guardrail { warn: Some(1), fail: Some(2) };
    let options = ProcessorOptions { partition_keys_in_select: guardrail, ..ProcessorOptions::default() };
    let mut node = TestNode::with_options(options);
    node.create_keyspace();
    node.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))");
    let warnings = |statement: &str| node.try_run(statement, &QueryOptions::default()).unwrap().warnings;
    assert_eq!(warnings("SELECT * FROM t WHERE k = 1"), Vec::<String>::new());
    assert_eq!(
        warnings("SELECT * FROM t WHERE k IN (1, 2)"),
        [
            "Guardrail partition_keys_in_select violated: Query with partition keys in IN clause on table t, with number of partition keys 2 exceeds warning threshold of 1."
        ]
    );
    assert_eq!(
        node.failure("SELECT * FROM t WHERE k IN (1, 2, 3)"),
        "Guardrail partition_keys_in_select violated: Aborting query with partition keys in IN clause on table t, number of partition keys 3 exceeds fail threshold of 2."
    );

    let options = ProcessorOptions { in_select_cartesian_product: guardrail, ..ProcessorOptions::default() };
    let mut node = TestNode::with_options(options);
    node.create_keyspace();
    node.run("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))");
    assert_eq!(
        node.failure("SELECT * FROM t WHERE k = 1 AND c IN (1, 2, 3)"),
        "Guardrail in_select_cartesian_product violated: Aborting query because the cartesian product of the IN restrictions on clustering key produces 3 values, this exceeds fail threshold of 2."
    );
}
