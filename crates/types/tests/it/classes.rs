use types::{CqlType, MarshalClass};

#[test]
fn key_classes_are_distinguished_from_types() {
    let parse = |text| MarshalClass::parse(text);
    assert_eq!(parse("ReversedType(UTF8Type)"), Ok(MarshalClass::Reversed(CqlType::Text)));
    assert_eq!(
        parse("CompositeType(Int32Type, UTF8Type)"),
        Ok(MarshalClass::Composite(vec![CqlType::Int, CqlType::Text]))
    );
    assert_eq!(parse("org.apache.cassandra.db.marshal.UUIDType"), Ok(MarshalClass::Plain(CqlType::Uuid)));
    for class in ["ReversedType(FrozenType(ListType(Int32Type)))", "CompositeType(UUIDType,VectorType(FloatType , 2))"]
    {
        let parsed = parse(class).expect("a class");
        assert_eq!(parsed.name().replace("org.apache.cassandra.db.marshal.", ""), class);
    }
}

/// These are Cassandra 5.0.8's answers.
#[test]
fn key_classes_are_classes_of_values_too() {
    let shown = |class: &str| CqlType::parse_marshal_class(class).expect("a class").to_marshal_class();
    let shown = |class: &str| shown(class).replace("org.apache.cassandra.db.marshal.", "");
    assert_eq!(shown("ReversedType(Int32Type)"), "Int32Type");
    assert_eq!(shown("TupleType(ReversedType(Int32Type))"), "TupleType(Int32Type)");
    assert_eq!(shown("DateType"), "TimestampType");
    for class in
        ["CompositeType(UTF8Type,Int32Type)", "CompositeType(CompositeType(Int32Type),ReversedType(Int32Type))"]
    {
        assert_eq!(shown(class), class);
        assert_eq!(shown(&format!("ListType({class})")), format!("ListType({class})"));
    }
    assert_eq!(
        CqlType::parse_marshal_class("DynamicCompositeType(s => UTF8Type, i => Int32Type)").unwrap().to_string(),
        "'org.apache.cassandra.db.marshal.DynamicCompositeType(s=>org.apache.cassandra.db.marshal.UTF8Type,\
         i=>org.apache.cassandra.db.marshal.Int32Type)'"
    );
}

#[test]
fn the_element_of_a_vector_stays_as_declared() {
    let vector = CqlType::vector(CqlType::list(CqlType::Int), 2);
    assert_eq!(vector.to_string(), "vector<list<int>, 2>");
    assert_eq!(vector.freeze(), vector);
    let class = "VectorType(ListType(Int32Type) , 2)";
    assert_eq!(vector.to_marshal_class().replace("org.apache.cassandra.db.marshal.", ""), class);
    assert_eq!(CqlType::list(vector).freeze().to_string(), "frozen<list<vector<list<int>, 2>>>");
    assert_eq!(CqlType::parse_marshal_class(class).unwrap().to_string(), "vector<frozen<list<int>>, 2>");
}

#[test]
fn unknown_classes_are_kept_as_they_are() {
    let custom = |text: &str| CqlType::parse_marshal_class(text).expect("a class");
    assert_eq!(custom("com.example.Odd(a=>b,(c))"), CqlType::Custom("com.example.Odd(a=>b,(c))".into()));
    assert_eq!(custom("com.example.Odd(a=>b)").to_string(), "'com.example.Odd(a=>b)'");
}

#[test]
fn broken_classes_are_refused() {
    for class in [
        "",
        "(",
        "ListType",
        "ListType(",
        "ListType()",
        "ListType(Int32Type",
        "ListType(Int32Type,UTF8Type)",
        "MapType(Int32Type)",
        "Int32Type)",
        "Int32Type x",
        "VectorType(FloatType , 0)",
        "VectorType(FloatType , x)",
        "VectorType(FloatType , 99999999999)",
        "UserType(ks)",
        "UserType(ks,zz)",
        "UserType(ks,61,62)",
        "UserType(ks,61,ff:Int32Type)",
        "Odd((a)",
        "FrozenType",
    ] {
        assert!(CqlType::parse_marshal_class(class).is_err(), "{class}");
    }
    let deep = format!("{}Int32Type{}", "ListType(".repeat(100_000), ")".repeat(100_000));
    assert!(CqlType::parse_marshal_class(&deep).is_err());
}
