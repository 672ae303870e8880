//! The trees of statements.

use cql::ast::*;
use cql::parse;

fn statement(text: &str) -> Statement {
    parse(text).unwrap_or_else(|error| panic!("{error}: {text}")).statement
}

fn name(text: &str) -> Identifier {
    Identifier::quoted(text)
}

fn table(text: &str) -> QualifiedName {
    QualifiedName { keyspace: None, name: name(text) }
}

fn integer(text: &str) -> Term {
    Term::Constant(Constant { kind: ConstantKind::Integer, text: text.to_string() })
}

fn string(text: &str) -> Term {
    Term::Constant(Constant { kind: ConstantKind::String, text: text.to_string() })
}

#[test]
fn markers_are_numbered_in_order_of_appearance() {
    let parsed = parse("UPDATE t USING TTL ? SET a = :x, b[?] = :\"Y\" WHERE k IN ? IF c = ?").unwrap();
    assert_eq!(parsed.markers, [None, Some(name("x")), None, Some(name("Y")), None, None]);
    let Statement::Update(update) = parsed.statement else { panic!() };
    assert_eq!(update.attributes.time_to_live, Some(Term::Marker(BindMarker { index: 0 })));
    assert_eq!(
        update.operations[1].1,
        Operation::SetElement {
            element: Term::Marker(BindMarker { index: 2 }),
            value: Term::Marker(BindMarker { index: 3 }),
        }
    );
    let values = InValues::Marker(BindMarker { index: 4 });
    assert_eq!(update.where_clause.relations, [Relation::SingleColumnIn { column: name("k"), values }]);
}

#[test]
fn markers_of_abandoned_readings_do_not_count() {
    // `json - ?` is first tried as JSON, and `(a) ...` as a type hint.
    let parsed = parse("SELECT json, ?, (a), ? FROM t").unwrap();
    assert_eq!(parsed.markers.len(), 2);
    let parsed = parse("SELECT distinct, f(?) FROM t LIMIT ?").unwrap();
    assert_eq!(parsed.markers.len(), 2);
    let Statement::Select(select) = parsed.statement else { panic!() };
    assert!(!select.is_distinct);
}

#[test]
fn identifiers_fold_case_unless_quoted() {
    let Statement::Select(select) = statement("SELECT Key, \"Key\" FROM Ks.\"T\"\"x\"") else { panic!() };
    assert_eq!(select.table, QualifiedName { keyspace: Some(name("ks")), name: name("T\"x") });
    assert_eq!(select.table.to_string(), "ks.\"T\"\"x\"");
    let SelectClause::Selectors(selectors) = select.selection else { panic!() };
    assert_eq!(selectors[0].selectable, Selectable::Column(name("key")));
    assert_eq!(selectors[1].selectable, Selectable::Column(name("Key")));
}

#[test]
fn every_unreserved_keyword_names_a_column() {
    let words = "ttl count writetime maxwritetime key cast json distinct keys as cluster clustering compact storage \
                 tables type types values map list filtering permission permissions keyspaces all user users role \
                 roles superuser nosuperuser login nologin options password hashed exists custom trigger contains \
                 internals only static frozen tuple function functions aggregate aggregates sfunc stype finalfunc \
                 initcond returns language called input like per partition group datacenters cidrs access default \
                 mbean mbeans replace unset masked unmask select_masked vector ann identity ascii bigint blob \
                 boolean counter date decimal double duration float inet int smallint text time timestamp timeuuid \
                 tinyint uuid varchar varint";
    for word in words.split_whitespace() {
        let Statement::Select(select) = statement(&format!("SELECT {word} FROM t WHERE {word} = 1")) else { panic!() };
        assert_eq!(select.where_clause.relations[0].to_string(), format!("{word} = 1"));
        statement(&format!("CREATE TABLE {word} ({word} int PRIMARY KEY)"));
        statement(&format!("INSERT INTO {word} ({word}) VALUES (1)"));
        statement(&format!("UPDATE t SET {word} = {word} + 1 WHERE k = 1"));
    }
    for word in ["select", "from", "where", "token", "order", "entries", "full", "nan"] {
        assert!(parse(&format!("SELECT a FROM t WHERE {word} = 1")).is_err());
        assert_eq!(name(word).to_string(), format!("\"{word}\""));
    }
}

#[test]
fn constants_keep_their_kind_and_text() {
    let text = "INSERT INTO t (a) VALUES ('it''s', $$a'$b$$, -12, 1.50, 1e10, TrUe, 1H30m, P1Y2M, 0xAb, \
                123E4567-e89b-12d3-a456-426655440000, nan, -NAN, -Infinity, P0001-02-03T04:05:06, 12mo, 10us)";
    let Statement::Insert(insert) = statement(text) else { panic!() };
    let constants: Vec<(String, String)> = insert
        .values
        .iter()
        .map(|value| match value {
            Term::Constant(constant) => (constant.kind.to_string(), constant.text.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("STRING", "it's"),
        ("STRING", "a'$b"),
        ("INTEGER", "-12"),
        ("FLOAT", "1.50"),
        ("FLOAT", "1e10"),
        ("BOOLEAN", "TrUe"),
        ("DURATION", "1H30m"),
        ("DURATION", "P1Y2M"),
        ("HEX", "0xAb"),
        ("UUID", "123E4567-e89b-12d3-a456-426655440000"),
        ("FLOAT", "NaN"),
        ("FLOAT", "NaN"),
        ("FLOAT", "-Infinity"),
        ("DURATION", "P0001-02-03T04:05:06"),
        ("DURATION", "12mo"),
        ("DURATION", "10us"),
    ];
    assert_eq!(constants, expected.map(|(kind, text)| (kind.to_string(), text.to_string())));
}

#[test]
fn assignments_have_all_forms() {
    let text = "UPDATE t SET a = 1, b = b + {1}, c = c - {1}, d = [1] + d, e['x'] = 5, f.g = 2, h += 1, i -= 2, \
                j = j -3, k = f(1) + 2 WHERE p = 1";
    let Statement::Update(update) = statement(text) else { panic!() };
    let set = Term::Set(vec![integer("1")]);
    let sum = Term::Operation {
        operator: ArithmeticOperator::Add,
        left: Box::new(Term::Function { name: FunctionName::unqualified("f"), arguments: vec![integer("1")] }),
        right: Box::new(integer("2")),
    };
    let operations = [
        ("a", Operation::SetValue(integer("1"))),
        ("b", Operation::Addition(set.clone())),
        ("c", Operation::Subtraction(set)),
        ("d", Operation::Prepend(Term::List(vec![integer("1")]))),
        ("e", Operation::SetElement { element: string("x"), value: integer("5") }),
        ("f", Operation::SetField { field: name("g"), value: integer("2") }),
        ("h", Operation::Addition(integer("1"))),
        ("i", Operation::Subtraction(integer("2"))),
        ("j", Operation::Addition(integer("-3"))),
        ("k", Operation::SetValue(sum)),
    ];
    assert_eq!(update.operations, operations.map(|(column, operation)| (name(column), operation)));
}

#[test]
fn kinds_of_braces_are_distinguished() {
    let text = "INSERT INTO t (a) VALUES ({}, {1}, {1: 2}, {f: 2}, {f(1)}, {now(): 1}, {:x}, {:x : 1}, {int(1): 2})";
    let Statement::Insert(insert) = statement(text) else { panic!() };
    let kinds: Vec<&str> = insert
        .values
        .iter()
        .map(|value| match value {
            Term::Set(_) => "set",
            Term::Map(_) => "map",
            Term::UserType(_) => "udt",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["set", "set", "map", "udt", "set", "map", "set", "map", "map"]);
}

#[test]
fn kinds_of_parentheses_are_distinguished() {
    let text = "INSERT INTO t (a) VALUES ((1, 2), (int) 1, (ks.udt) {a: 1}, (f(1)), (frozen<list<int>>) [1], \
                ('x'), ('BytesType') 0x00, (ks.f(1), 2))";
    let Statement::Insert(insert) = statement(text) else { panic!() };
    let hints: Vec<bool> = insert.values.iter().map(|value| matches!(value, Term::TypeHint { .. })).collect();
    assert_eq!(hints, [false, true, true, false, true, false, true, false]);
}

#[test]
fn create_table_keeps_everything_written() {
    let text = "CREATE TABLE IF NOT EXISTS ks.t (a int, b text STATIC, c int MASKED WITH DEFAULT, d int PRIMARY KEY, \
                PRIMARY KEY ((a, b), c)) WITH COMPACT STORAGE AND CLUSTERING ORDER BY (c DESC) AND comment = 'x' \
                AND compaction = {'class': 'X', 'n': 1} AND id = 5a1c395e-b41f-11e5-9f22-ba0be0483c18;";
    let Statement::CreateTable(create) = statement(text) else { panic!() };
    assert!(create.if_not_exists && create.compact_storage);
    assert_eq!(create.columns.len(), 4);
    assert!(create.columns[1].is_static && create.columns[2].mask.is_some());
    assert_eq!(
        create.primary_keys,
        [
            PrimaryKey { partition_key: vec![name("d")], clustering: vec![] },
            PrimaryKey { partition_key: vec![name("a"), name("b")], clustering: vec![name("c")] },
        ]
    );
    assert_eq!(create.clustering_order, [(name("c"), Direction::Desc)]);
    let map = [("class", "X"), ("n", "1")].map(|(k, v)| (k.to_string(), v.to_string()));
    assert_eq!(create.properties.get("compaction"), Some(&PropertyValue::Map(map.to_vec())));
    let id = PropertyValue::Text("5a1c395e-b41f-11e5-9f22-ba0be0483c18".to_string());
    assert_eq!(create.properties.get("id"), Some(&id));
}

#[test]
fn batches_keep_their_statements() {
    let text = "BEGIN COUNTER BATCH USING TIMESTAMP 5 UPDATE t SET a = a + 1 WHERE k = ?; DELETE a FROM t WHERE k = ? \
                INSERT INTO t JSON ? DEFAULT UNSET; APPLY BATCH;";
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.markers.len(), 3);
    let Statement::Batch(batch) = parsed.statement else { panic!() };
    assert_eq!(batch.kind, BatchKind::Counter);
    assert_eq!(batch.attributes.timestamp, Some(integer("5")));
    assert_eq!(batch.statements.len(), 3);
    assert!(batch.statements.iter().all(|statement| *statement.table() == table("t")));
}

#[test]
fn comments_and_case_do_not_matter() {
    let plain = statement("SELECT a FROM t WHERE k = 1");
    let text = "sElEcT -- which\n a /* from ' where */ fRoM t // there\r wHeRe k = 1;;";
    assert_eq!(statement(text), plain);
}

#[test]
fn roles_have_their_options() {
    let text = "CREATE ROLE Bob WITH PASSWORD = 'x' AND LOGIN = true AND ACCESS TO DATACENTERS {'a', 'b'} \
                AND ACCESS FROM ALL CIDRS";
    let Statement::CreateRole(create) = statement(text) else { panic!() };
    assert_eq!(create.role, "bob");
    assert_eq!(create.options.login, Some(true));
    assert_eq!(create.options.superuser, Some(false));
    assert_eq!(create.options.datacenters, Some(AccessList::Only(vec!["a".to_string(), "b".to_string()])));
    assert_eq!(create.options.cidrs, Some(AccessList::All));
    // Several lists are one, and no list stands beside ALL.
    let text = "ALTER ROLE x WITH ACCESS FROM CIDRS {'a'} AND ACCESS FROM CIDRS {'b'} AND ACCESS TO ALL DATACENTERS \
                AND ACCESS TO ALL DATACENTERS";
    let Statement::AlterRole(alter) = statement(text) else { panic!() };
    assert_eq!(alter.options.cidrs, Some(AccessList::Only(vec!["a".to_string(), "b".to_string()])));
    assert_eq!(alter.options.datacenters, Some(AccessList::All));
    for (access, reason) in [
        ("ACCESS TO DATACENTERS {'a'} AND ACCESS TO ALL DATACENTERS", "DCs have already been set"),
        ("ACCESS FROM CIDRS {'a'} AND ACCESS FROM ALL CIDRS", "CIDR Groups have already been set"),
        ("ACCESS TO ALL DATACENTERS AND ACCESS TO DATACENTERS {'a'}", "All has been set"),
        ("ACCESS FROM ALL CIDRS AND ACCESS FROM CIDRS {'a'}", "All has been set"),
    ] {
        let text = format!("ALTER ROLE x WITH {access}");
        let expected = format!("Failed parsing statement: [{text}] reason: IllegalArgumentException {reason}");
        assert_eq!(parse(&text).unwrap_err().message, expected);
    }
    let Statement::GrantPermissions(grant) = statement("GRANT ALL ON ROLE 'Bob' TO x") else { panic!() };
    assert_eq!(grant.permissions, [Permission::Alter, Permission::Drop, Permission::Authorize, Permission::Describe]);
    assert_eq!(grant.resource, Resource::Role("Bob".to_string()));
}
