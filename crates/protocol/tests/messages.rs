//! Request bodies as drivers write them, response bodies as they read them.

use protocol::response::{write_prepared, write_supported};
use protocol::{
    BatchKind, BatchStatement, Body, ChangeKind, ColumnSpec, Consistency, ErrorKind, ErrorResponse, Event, EventType,
    FailureReason, Header, Opcode, PreparedMetadata, Request, ResultColumns, ResultMetadata, RowsWriter, SchemaChange,
    SchemaTarget, Value, Version, WriteType, flags,
};
use types::CqlType;

fn header(version: Version, opcode: Opcode, flags: u8) -> Header {
    Header { version, flags, stream: 1, opcode, body_size: 0 }
}

fn parse(version: Version, opcode: Opcode, body: &[u8]) -> Result<Body<'_>, String> {
    Body::parse(&header(version, opcode, 0), body).map_err(|error| error.message)
}

fn long_string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn a_query_with_everything() {
    let tail = [
        vec![0, 3],
        [string("a"), vec![0, 0, 0, 1, 9]].concat(),
        [string("b"), vec![255; 4]].concat(),
        [string("c"), vec![255, 255, 255, 254]].concat(),
        vec![0, 0, 0, 50],
        vec![0, 0, 0, 2, 1, 2],
        vec![0, 9],
        77_i64.to_be_bytes().to_vec(),
        string("ks"),
        vec![0, 0, 1, 0],
    ]
    .concat();
    let body = [long_string("SELECT"), vec![0, 10], vec![0, 0, 1, 0xFF], tail].concat();
    let body = parse(Version::V5, Opcode::Query, &body).unwrap();
    let Request::Query { query, options } = body.request else { panic!("{body:?}") };
    assert_eq!(query, "SELECT");
    assert_eq!(options.consistency, Consistency::LocalOne);
    let values: Vec<_> = options.values.iter().collect();
    assert_eq!(values, [(Some("a"), Value::Bytes(&[9])), (Some("b"), Value::Null), (Some("c"), Value::Unset),]);
    assert!(options.skip_metadata);
    assert_eq!(options.page_size, Some(50));
    assert_eq!(options.paging_state, Some(&[1, 2][..]));
    assert_eq!(options.serial_consistency, Consistency::LocalSerial);
    assert_eq!(options.timestamp, Some(77));
    assert_eq!(options.keyspace, Some("ks"));
    assert_eq!(options.now_in_seconds, Some(256));
}

#[test]
fn flags_are_a_byte_below_v5() {
    let body = [long_string("X"), vec![0, 1], vec![0x01], vec![0, 1, 0, 0, 0, 0]].concat();
    for version in [Version::V3, Version::V4] {
        let body = parse(version, Opcode::Query, &body).unwrap();
        let Request::Query { options, .. } = body.request else { panic!("{body:?}") };
        assert_eq!(options.values.iter().collect::<Vec<_>>(), [(None, Value::Bytes(&[]))]);
    }
}

#[test]
fn unset_came_with_v4() {
    let body = [long_string("X"), vec![0, 1], vec![0x01], vec![0, 1, 255, 255, 255, 254]].concat();
    for (version, value) in [(Version::V3, Value::Null), (Version::V4, Value::Unset)] {
        let body = parse(version, Opcode::Query, &body).unwrap();
        let Request::Query { options, .. } = body.request else { panic!("{body:?}") };
        assert_eq!(options.values.iter().collect::<Vec<_>>(), [(None, value)]);
    }
    let unknown = [long_string("X"), vec![0, 1], vec![0x01], vec![0, 1, 255, 255, 255, 253]].concat();
    assert_eq!(parse(Version::V4, Opcode::Query, &unknown).unwrap_err(), "Invalid ByteBuf length -3");
}

#[test]
fn execute_has_the_metadata_id_in_v5_only() {
    let plain = [vec![0, 2, 8, 9], vec![0, 1, 0]].concat();
    let body = parse(Version::V4, Opcode::Execute, &plain).unwrap();
    assert!(matches!(body.request, Request::Execute { id: [8, 9], result_metadata_id: None, .. }));
    let with_id = [vec![0, 2, 8, 9], vec![0, 1, 7], vec![0, 1, 0, 0, 0, 0]].concat();
    let body = parse(Version::V5, Opcode::Execute, &with_id).unwrap();
    assert!(matches!(body.request, Request::Execute { id: [8, 9], result_metadata_id: Some([7]), .. }));
}

#[test]
fn prepare_has_a_keyspace_in_v5_only() {
    let body = [long_string("Q"), vec![0, 0, 0, 1], string("ks")].concat();
    let v5 = parse(Version::V5, Opcode::Prepare, &body).unwrap();
    assert!(matches!(v5.request, Request::Prepare { query: "Q", keyspace: Some("ks") }));
    let v4 = parse(Version::V4, Opcode::Prepare, &body).unwrap();
    assert!(matches!(v4.request, Request::Prepare { query: "Q", keyspace: None }));
}

#[test]
fn a_batch_mixes_text_and_ids() {
    let body = [
        vec![1, 0, 2, 0],
        long_string("INSERT"),
        vec![0, 0, 1, 0, 2, 5, 6, 0, 1, 0, 0, 0, 1, 3],
        vec![0, 4, 0x20],
        5_i64.to_be_bytes().to_vec(),
    ]
    .concat();
    let body = parse(Version::V4, Opcode::Batch, &body).unwrap();
    let Request::Batch(batch) = body.request else { panic!("{body:?}") };
    assert_eq!(batch.kind, BatchKind::Unlogged);
    assert_eq!(batch.queries[0].statement, BatchStatement::Text("INSERT"));
    assert_eq!(batch.queries[1].statement, BatchStatement::Prepared(&[5, 6][..]));
    assert_eq!(batch.queries[1].values.len(), 1);
    assert_eq!((batch.options.consistency, batch.options.timestamp), (Consistency::Quorum, Some(5)));
    let bad = [9, 0, 0, 0, 1, 0];
    assert_eq!(parse(Version::V4, Opcode::Batch, &bad).unwrap_err(), "Invalid BATCH message type 9");
    let bad = [0, 0, 1, 2];
    assert_eq!(
        parse(Version::V4, Opcode::Batch, &bad).unwrap_err(),
        "Invalid query kind in BATCH messages. Must be 0 or 1 but got 2"
    );
}

#[test]
fn startup_options_are_found_whatever_their_case() {
    let body = [vec![0, 2], string("cql_version"), string("3.0.0"), string("COMPRESSION"), string("LZ4")].concat();
    let body = parse(Version::V4, Opcode::Startup, &body).unwrap();
    let Request::Startup(startup) = body.request else { panic!("{body:?}") };
    assert_eq!((startup.get("CQL_VERSION"), startup.get("compression")), (Some("3.0.0"), Some("LZ4")));
    assert_eq!(startup.get("NO_COMPACT"), None);
}

#[test]
fn register_accepts_known_events_only() {
    let body = [vec![0, 1], string("SCHEMA_CHANGE")].concat();
    let body = parse(Version::V4, Opcode::Register, &body).unwrap();
    assert!(matches!(&body.request, Request::Register(types) if types[..] == [EventType::SchemaChange]));
    let body = [vec![0, 1], string("NOSUCH_EVENT")].concat();
    assert_eq!(parse(Version::V4, Opcode::Register, &body).unwrap_err(), "Invalid value 'NOSUCH_EVENT' for Type");
}

#[test]
fn a_custom_payload_precedes_the_message_from_v4_on() {
    let body = [vec![0, 1], string("k"), vec![0, 0, 0, 1, 7], long_string("Q"), vec![0, 1, 0]].concat();
    let head = header(Version::V4, Opcode::Query, flags::CUSTOM_PAYLOAD);
    let parsed = Body::parse(&head, &body).unwrap();
    assert_eq!(parsed.custom_payload, [("k", Some(&[7][..]))]);
    let head = header(Version::V3, Opcode::Query, flags::CUSTOM_PAYLOAD);
    assert_eq!(
        Body::parse(&head, &body).unwrap_err().message,
        "Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4"
    );
}

#[test]
fn truncated_messages_are_named() {
    assert_eq!(
        parse(Version::V4, Opcode::Query, &[0, 0, 0, 9, b'S']).unwrap_err(),
        "Not enough bytes to read an UTF8 serialized string preceded by its 4 bytes length"
    );
    let body = [long_string("Q"), vec![0, 99, 0]].concat();
    assert_eq!(parse(Version::V4, Opcode::Query, &body).unwrap_err(), "Unknown code 99 for a consistency level");
    let body = [long_string("Q"), vec![0, 1, 0x20], i64::MIN.to_be_bytes().to_vec()].concat();
    assert_eq!(
        parse(Version::V4, Opcode::Query, &body).unwrap_err(),
        "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] (got -9223372036854775808)"
    );
}

#[test]
fn every_prefix_of_a_good_body_is_an_error_not_a_panic() {
    let query = [
        long_string("SELECT"),
        vec![0, 1, 0, 0, 0, 0x7D, 0, 2, 0, 0, 0, 1, 9, 255, 255, 255, 255],
        vec![0, 0, 0, 9, 0, 0, 0, 1, 1, 0, 8],
        vec![0; 8],
    ]
    .concat();
    assert!(parse(Version::V5, Opcode::Query, &[&query[..9], &[0, 1, 0, 0, 0, 0]].concat()).is_err());
    for size in 0..query.len() {
        let _ = parse(Version::V5, Opcode::Query, &query[..size]);
    }
}

#[test]
fn supported_is_cassandras() {
    let hex = "0003001150524f544f434f4c5f56455253494f4e5300040004332f76330004342f76340004352f76350009362f76362d62657461000b43\
               4f4d5052455353494f4e00020006736e6170707900036c7a34000b43514c5f56455253494f4e00010005332e342e37";
    let mut out = Vec::new();
    write_supported(&mut out, "3.4.7");
    assert_eq!(out.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
}

fn columns() -> Vec<ColumnSpec> {
    let column = |name: &str| ColumnSpec {
        keyspace: "system".into(),
        table: "local".into(),
        name: name.into(),
        ty: CqlType::Text,
    };
    vec![column("key"), column("cql_version")]
}

#[test]
fn rows_are_cassandras_bytes() {
    let hex = "000000020000000100000002000673797374656d00056c6f63616c00036b6579000d000b63716c5f76657273696f6e000d000000010000\
               00056c6f63616c00000005332e342e37";
    let columns = ResultColumns::new(columns());
    let metadata = ResultMetadata { columns: &columns, ..ResultMetadata::default() };
    let mut out = Vec::new();
    let mut rows = RowsWriter::new(&mut out, Version::V5, &metadata);
    rows.cell(Some(b"local"));
    rows.cell_with(|cell| cell.extend_from_slice(b"3.4.7"));
    assert_eq!(rows.rows(), 1);
    rows.finish();
    assert_eq!(out.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
}

#[test]
fn metadata_flags_say_what_follows() {
    let columns = ResultColumns::new(columns());
    let skipped = ResultMetadata { columns: &columns, paging_state: Some(&[7]), skip: true, changed_id: None };
    let mut out = Vec::new();
    RowsWriter::new(&mut out, Version::V4, &skipped).finish();
    assert_eq!(out, [0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 1, 7, 0, 0, 0, 0]);
    let changed = ResultMetadata { changed_id: Some(&[1, 2]), ..ResultMetadata::default() };
    let mut out = Vec::new();
    RowsWriter::new(&mut out, Version::V5, &changed).finish();
    assert_eq!(out, [0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 2, 1, 2, 0, 0, 0, 0]);
    let mut out = Vec::new();
    RowsWriter::new(&mut out, Version::V4, &changed).finish();
    assert_eq!(out, [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn prepared_grows_with_the_version() {
    let columns = columns();
    let markers = PreparedMetadata { markers: &columns[..1], partition_key: &[0] };
    let body = |version| {
        let mut out = Vec::new();
        write_prepared(&mut out, version, &[9], &[8], &markers, None);
        out
    };
    let marker = b"\0\x06system\0\x05local\0\x03key\0\x0d";
    let none = [0, 0, 0, 4, 0, 0, 0, 0];
    let v3 = [&[0, 0, 0, 4, 0, 1, 9, 0, 0, 0, 1, 0, 0, 0, 1][..], marker, &none].concat();
    assert_eq!(body(Version::V3), v3);
    let v4 = [&[0, 0, 0, 4, 0, 1, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0][..], marker, &none].concat();
    assert_eq!(body(Version::V4), v4);
    assert_eq!(body(Version::V5)[..10], [0, 0, 0, 4, 0, 1, 9, 0, 1, 8]);
}

fn error(kind: ErrorKind, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    ErrorResponse::new(kind, "m").write(&mut out, version);
    out
}

#[test]
fn errors_carry_their_fields() {
    let unavailable = ErrorKind::Unavailable { consistency: Consistency::Two, required: 2, alive: 1 };
    assert_eq!(error(unavailable, Version::V4), [0, 0, 0x10, 0, 0, 1, b'm', 0, 2, 0, 0, 0, 2, 0, 0, 0, 1]);
    let exists = ErrorKind::AlreadyExists { keyspace: "vec_err".into(), table: String::new() };
    assert_eq!(error(exists, Version::V4)[7..], *b"\0\x07vec_err\0\0");
    let cas = ErrorKind::WriteTimeout {
        consistency: Consistency::Serial,
        received: 0,
        block_for: 1,
        write_type: WriteType::Cas,
        contentions: 3,
    };
    assert_eq!(error(cas.clone(), Version::V5)[7..], *b"\0\x08\0\0\0\0\0\0\0\x01\0\x03CAS\0\x03");
    assert!(error(cas, Version::V4).ends_with(b"\0\x03CAS"));
}

#[test]
fn older_versions_get_older_errors() {
    let failures = vec![([127, 0, 0, 1].into(), FailureReason::ReadTooManyTombstones)];
    let failure = ErrorKind::ReadFailure {
        consistency: Consistency::One,
        received: 0,
        block_for: 1,
        failures,
        data_present: true,
    };
    let fields = [0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(error(failure.clone(), Version::V5)[7..], [&fields[..], &[4, 127, 0, 0, 1, 0, 1, 1]].concat());
    assert_eq!(error(failure.clone(), Version::V4)[7..], [&fields[..], &[1]].concat());
    let text = b"\0\x33Operation timed out - received only 0 responses.";
    let mut expected = vec![0, 0, 0x12, 0, 0, text.len() as u8 - 2];
    expected.extend_from_slice(&text[2..]);
    expected.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(error(failure, Version::V3), expected);
    assert_eq!(error(ErrorKind::CdcWriteFailure, Version::V4)[..4], [0, 0, 0x16, 0]);
    assert_eq!(error(ErrorKind::CdcWriteFailure, Version::V3)[..4], [0, 0, 0x22, 0]);
    let unknown = ErrorKind::CasWriteUnknown { consistency: Consistency::Serial, received: 0, block_for: 1 };
    assert_eq!(error(unknown.clone(), Version::V5)[..4], [0, 0, 0x17, 0]);
    assert_eq!(error(unknown, Version::V4)[..4], [0, 0, 0x11, 0]);
}

#[test]
fn events_name_what_changed() {
    let change = |target| SchemaChange { kind: ChangeKind::Created, keyspace: "ks".into(), target };
    let body = |event: Event, version| {
        let mut out = Vec::new();
        event.write(&mut out, version);
        out
    };
    let table = Event::Schema(change(SchemaTarget::Table("t".into())));
    assert_eq!(body(table, Version::V4), b"\0\x0dSCHEMA_CHANGE\0\x07CREATED\0\x05TABLE\0\x02ks\0\x01t");
    let function = Event::Schema(change(SchemaTarget::Function("f".into(), vec!["int".into()])));
    assert_eq!(
        body(function.clone(), Version::V4),
        b"\0\x0dSCHEMA_CHANGE\0\x07CREATED\0\x08FUNCTION\0\x02ks\0\x01f\0\x01\0\x03int"
    );
    assert_eq!(body(function, Version::V3), b"\0\x0dSCHEMA_CHANGE\0\x07UPDATED\0\x08KEYSPACE\0\x02ks");
    let up = Event::Status { up: true, node: ([127, 0, 0, 1], 9042).into() };
    assert_eq!(body(up, Version::V4), b"\0\x0dSTATUS_CHANGE\0\x02UP\x04\x7f\0\0\x01\0\0\x23\x52");
}
