use types::{CqlType, collection};

#[test]
fn built_collections_are_read_back() {
    let list = collection::list([b"a".as_slice(), b"", b"ccc"].into_iter());
    assert_eq!(collection::count(&list), Some(3));
    let elements: Vec<_> = collection::elements(&list).expect("a list").map(|part| part.expect("a part")).collect();
    assert_eq!(elements, [Some(b"a".as_slice()), Some(b""), Some(b"ccc")]);

    let map = collection::map([(b"k".as_slice(), b"v".as_slice()), (b"l", b"")].into_iter());
    let entries: Vec<_> =
        collection::entries(&map).expect("a map").entries().map(|entry| entry.expect("an entry")).collect();
    assert_eq!(entries, [(b"k".as_slice(), b"v".as_slice()), (b"l", b"")]);

    let tuple = collection::tuple([Some(b"a".as_slice()), None].into_iter());
    let fields: Vec<_> = collection::fields(&tuple).map(|part| part.expect("a part")).collect();
    assert_eq!(fields, [Some(b"a".as_slice()), None]);

    for element in [CqlType::Int, CqlType::Text] {
        let vector = collection::vector(&element, [b"abcd".as_slice(), b"efgh"].into_iter());
        let elements: Vec<_> =
            collection::vector_elements(&element, 2, &vector).map(|part| part.expect("a part")).collect();
        assert_eq!(elements, [b"abcd", b"efgh"]);
    }
}

#[test]
fn parts_cut_short_end_in_one_error() {
    let list = collection::list([b"abc".as_slice(), b"def"].into_iter());
    for cut in 4..list.len() {
        let parts: Vec<_> = collection::elements(&list[..cut]).expect("a count").collect();
        let errors = parts.iter().filter(|part| part.is_err()).count();
        assert_eq!(errors, 1, "cut at {cut}");
        assert!(parts.last().is_some_and(Result::is_err));
    }
    assert!(collection::elements(&list[..3]).is_err());
    // A count that exceeds the bytes must cause neither an allocation nor a loop.
    let huge = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'x'];
    assert_eq!(collection::elements(&huge).expect("a count").count(), 2);
    assert_eq!(collection::entries(&huge).expect("a count").entries().count(), 1);
}

#[test]
fn nulls_are_refused_where_none_may_be() {
    let mut map = collection::map([(b"k".as_slice(), b"v".as_slice())].into_iter());
    map.truncate(map.len() - 5);
    collection::write_part(None, &mut map);
    let entries: Vec<_> = collection::entries(&map).expect("a map").entries().collect();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].as_ref().expect_err("a null").message(), "Null value read when not allowed");
}
