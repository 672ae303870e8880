//! Parts of statements print themselves as in Cassandra's messages.

use cql::ast::{SelectClause, Statement};
use cql::parse;

fn relation(text: &str) -> String {
    match parse(&format!("SELECT a FROM t WHERE {text}")).unwrap().statement {
        Statement::Select(select) => select.where_clause.relations[0].to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn relations_print_as_in_cassandra() {
    for same in [
        "d IN ()",
        "(e, \"F\") = (1, 2)",
        "(e, f) > ?",
        "(e, f) IN ((1, 2), (3, 4))",
        "(e, f) IN ?",
        "(e, f) IN ()",
        "token(a, \"B\") > token(1, 2)",
        "m['k'] = 5",
        "s CONTAINS KEY 'x'",
        "n LIKE 'a%'",
        "n IS NOT NULL",
        "a = {'a': 1, 'b': 2}",
        "a = {1, 2}",
        "a = (1, 'b')",
        "a = f(1, ?)",
        "a = \"Ks\".\"F\"(1)",
        "a = (frozen<list<int>>)[1]",
        "a = 0xAb",
        "a = TRUE",
        "a = 1H",
    ] {
        assert_eq!(relation(same), same);
    }
    for (written, printed) in [
        ("A IN (?, :x)", "a IN (?, ?)"),
        ("a = {F: 1, \"G\": 2}", "a = {f: 1, G: 2}"),
        ("a = 1 + 2 * 3", "a = system.\"_add\"(1, system.\"_multiply\"(2, 3))"),
        ("a = -f(1)", "a = system.\"_negate\"(f(1))"),
        ("a = CAST(1 AS int)", "a = system.cast_as_int(1)"),
        ("a = VALUES(1)", "a = \"VALUES\"(1)"),
        ("a = 'it''s'", "a = 'it's'"),
        ("a = $$it's$$", "a = 'it's'"),
        ("a = -NaN", "a = NaN"),
        ("a = INFINITY", "a = Infinity"),
        ("a = null", "a = NULL"),
        ("(a = 1)", "a = 1"),
    ] {
        assert_eq!(relation(written), printed);
    }
}

#[test]
fn types_print_as_in_cassandra() {
    let text = "CREATE TABLE t (a varchar, b frozen<list<list<int>>>, c tuple<int, list<int>>, d vector<float, 3>, \
                e frozen<ks.\"Udt\">, f map<int, frozen<set<text>>>)";
    let Statement::CreateTable(create) = parse(text).unwrap().statement else { panic!() };
    let types: Vec<String> = create.columns.iter().map(|column| column.type_name.to_string()).collect();
    assert_eq!(
        types,
        [
            "varchar",
            "frozen<list<frozen<list<int>>>>",
            "tuple<int, frozen<list<int>>>",
            "vector<float, 3>",
            "frozen<ks.Udt>",
            "map<int, frozen<set<text>>>"
        ]
    );
}

#[test]
fn selected_expressions_print_their_text() {
    let text = "SELECT m['k'], l[1..2], l[..2], l[1..], \"A\".b, count(*), writetime(a), (int)1, [1, a] FROM t";
    let Statement::Select(select) = parse(text).unwrap().statement else { panic!() };
    let SelectClause::Selectors(selectors) = select.selection else { panic!() };
    let printed: Vec<String> = selectors.iter().map(|selector| selector.selectable.to_string()).collect();
    assert_eq!(format!("SELECT {} FROM t", printed.join(", ")), text);
}
