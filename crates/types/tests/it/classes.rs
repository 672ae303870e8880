use types::{CqlType, MarshalClass};

#[test]
fn key_classes_are_told_from_types() {
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
        assert!(CqlType::parse_marshal_class(class).is_err());
    }
}

#[test]
fn unknown_classes_are_kept_as_they_are() {
    let custom = |text: &str| CqlType::parse_marshal_class(text).expect("a class");
    assert_eq!(custom("com.example.Odd(a=>b,(c))"), CqlType::Custom("com.example.Odd(a=>b,(c))".into()));
    let dynamic = "org.apache.cassandra.db.marshal.DynamicCompositeType(b=>BytesType)";
    assert_eq!(custom("DynamicCompositeType(b=>BytesType)").to_marshal_class(), dynamic);
    assert_eq!(custom("DynamicCompositeType(b=>BytesType)").to_string(), format!("'{dynamic}'"));
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
