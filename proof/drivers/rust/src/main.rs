//! The Rust driver's script: `rust-driver-script HOST PORT`. Speaks protocol v4, the newest this driver knows. With
//! `tls DIRECTORY LOGIN` it makes a few checks over TLS: the directory has the certificates, and the login is
//! `certificate` or `password`.

mod tls;

use std::error::Error;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::TryStreamExt;
use scylla::client::Compression;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;
use scylla::value::{
    Counter, CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint, MaybeUnset,
    Row, Unset,
};

type Outcome = Result<(), Box<dyn Error>>;

struct Checks {
    name: String,
    passed: u32,
    failed: u32,
}

impl Checks {
    fn holds(&mut self, what: &str, right: bool, detail: impl std::fmt::Debug) {
        if right {
            self.passed += 1;
        } else {
            self.failed += 1;
            println!("rust driver {}: FAIL {what}: {detail:?}", self.name);
        }
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, got: T, expected: T) {
        let right = got == expected;
        self.holds(what, right, format!("got {got:?}, expected {expected:?}"));
    }

    fn part(&mut self, what: &str, outcome: Outcome) {
        if let Err(failure) = outcome {
            self.holds(what, false, failure);
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let node = format!("{}:{}", arguments[1], arguments[2]);
    let (mut passed, mut failed) = (0, 0);
    if let [_, _, _, _, directory, login] = &arguments[..] {
        let mut checks = Checks { name: "TLS".to_owned(), passed: 0, failed: 0 };
        let outcome = tls::script(&mut checks, &node, Path::new(directory), login == "certificate").await;
        checks.part("script", outcome);
        return ended(checks.passed, checks.failed);
    }
    for (name, compression) in [("plain", None), ("lz4", Some(Compression::Lz4)), ("snappy", Some(Compression::Snappy))]
    {
        let mut checks = Checks { name: name.to_owned(), passed: 0, failed: 0 };
        let outcome = script(&mut checks, &node, compression).await;
        checks.part("script", outcome);
        passed += checks.passed;
        failed += checks.failed;
    }
    ended(passed, failed)
}

fn ended(passed: u32, failed: u32) -> ExitCode {
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn script(checks: &mut Checks, node: &str, compression: Option<Compression>) -> Outcome {
    let session = SessionBuilder::new().known_node(node).compression(compression).build().await?;
    execute(&session, "DROP KEYSPACE IF EXISTS rust_script").await?;
    execute(
        &session,
        "CREATE KEYSPACE rust_script WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )
    .await?;
    session.use_keyspace("rust_script", false).await?;
    session.await_schema_agreement().await?;
    let outcome = scalars(checks, &session).await;
    checks.part("scalars", outcome);
    let outcome = collections(checks, &session).await;
    checks.part("collections", outcome);
    let outcome = statements(checks, &session).await;
    checks.part("statements", outcome);
    let outcome = conditions(checks, &session).await;
    checks.part("conditions", outcome);
    let outcome = counters(checks, &session).await;
    checks.part("counters", outcome);
    let outcome = paging(checks, &session).await;
    checks.part("paging", outcome);
    let outcome = indexes(checks, &session).await;
    checks.part("indexes", outcome);
    let outcome = metadata(checks, &session).await;
    checks.part("metadata", outcome);
    let outcome = bad_statements(checks, &session).await;
    checks.part("bad statements", outcome);
    let outcome = concurrency(checks, session).await;
    checks.part("concurrency", outcome);
    Ok(())
}

async fn execute(session: &Session, cql: &str) -> Outcome {
    session.query_unpaged(cql, ()).await?;
    Ok(())
}

fn scalar_values() -> Result<Vec<(&'static str, CqlValue)>, Box<dyn Error>> {
    let timeuuid: CqlTimeuuid = "50554d6e-29bb-11e5-b345-feff819cdc9f".parse()?;
    let address: IpAddr = "2001:db8::1".parse()?;
    Ok(vec![
        ("ascii", CqlValue::Ascii("plain".into())),
        ("bigint", CqlValue::BigInt(i64::MIN)),
        ("blob", CqlValue::Blob(vec![0, 255])),
        ("boolean", CqlValue::Boolean(true)),
        ("date", CqlValue::Date(CqlDate((1 << 31) + 19_782))),
        ("decimal", CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_and_exponent(vec![0x85, 0x01], 3))),
        ("double", CqlValue::Double(2.5)),
        ("duration", CqlValue::Duration(CqlDuration { months: 14, days: 3, nanoseconds: 14_400_000_000_000 })),
        ("float", CqlValue::Float(-0.5)),
        ("inet", CqlValue::Inet(address)),
        ("int", CqlValue::Int(i32::MIN)),
        ("smallint", CqlValue::SmallInt(i16::MIN)),
        ("text", CqlValue::Text("Grüße €𝄞".into())),
        ("time", CqlValue::Time(CqlTime(45_296_789_012_345))),
        ("timestamp", CqlValue::Timestamp(CqlTimestamp(1_709_209_815_123))),
        ("timeuuid", CqlValue::Timeuuid(timeuuid)),
        ("tinyint", CqlValue::TinyInt(i8::MIN)),
        ("uuid", CqlValue::Uuid("f47ac10b-58cc-4372-a567-0e02b2c3d479".parse()?)),
        (
            "varint",
            CqlValue::Varint(CqlVarint::from_signed_bytes_be(vec![
                0x85, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
            ])),
        ),
    ])
}

async fn scalars(checks: &mut Checks, session: &Session) -> Outcome {
    let values = scalar_values()?;
    let columns: Vec<String> = values.iter().enumerate().map(|(n, (kind, _))| format!("c{n:02} {kind}")).collect();
    execute(session, &format!("CREATE TABLE scalars (k int PRIMARY KEY, {})", columns.join(", "))).await?;
    let names: Vec<String> = (0..values.len()).map(|n| format!("c{n:02}")).collect();
    let markers = vec!["?"; values.len() + 1].join(", ");
    let insert = session.prepare(format!("INSERT INTO scalars (k, {}) VALUES ({markers})", names.join(", "))).await?;
    let mut row: Vec<Option<CqlValue>> = vec![Some(CqlValue::Int(1))];
    row.extend(values.iter().map(|(_, value)| Some(value.clone())));
    session.execute_unpaged(&insert, &row).await?;
    let mut nulls: Vec<Option<CqlValue>> = vec![Some(CqlValue::Int(2))];
    nulls.extend(values.iter().map(|_| None));
    session.execute_unpaged(&insert, &nulls).await?;
    let select = session.prepare("SELECT * FROM scalars WHERE k = ?").await?;
    for expected in [row, nulls] {
        let result = session.execute_unpaged(&select, (&expected[0],)).await?.into_rows_result()?;
        let got = result.single_row::<Row>()?.columns;
        for (at, expected) in expected.into_iter().enumerate().skip(1) {
            checks.equal(values[at - 1].0, got[at].clone(), expected);
        }
    }
    Ok(())
}

async fn collections(checks: &mut Checks, session: &Session) -> Outcome {
    execute(session, "CREATE TYPE address (street text, zip int)").await?;
    execute(
        session,
        "CREATE TABLE collections (k int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>, fl frozen<list<text>>,
         n map<int, frozen<list<frozen<set<int>>>>>, tp tuple<int, text>, ve vector<float, 3>, u address, us frozen<list<frozen<address>>>)",
    )
    .await?;
    let insert = session
        .prepare("INSERT INTO collections (k, l, s, m, fl, n, tp, ve, u, us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .await?;
    let address = |street: &str, zip: Option<i32>| CqlValue::UserDefinedType {
        keyspace: "rust_script".into(),
        name: "address".into(),
        fields: vec![("street".into(), Some(CqlValue::Text(street.into()))), ("zip".into(), zip.map(CqlValue::Int))],
    };
    let text = |t: &str| CqlValue::Text(t.into());
    let row = vec![
        CqlValue::Int(1),
        CqlValue::List(vec![CqlValue::Int(3), CqlValue::Int(1)]),
        CqlValue::Set(vec![text("a"), text("b")]),
        CqlValue::Map(vec![(text("one"), CqlValue::Int(1)), (text("two"), CqlValue::Int(2))]),
        CqlValue::List(vec![text("x"), text("y")]),
        CqlValue::Map(vec![(
            CqlValue::Int(5),
            CqlValue::List(vec![CqlValue::Set(vec![CqlValue::Int(1), CqlValue::Int(2)])]),
        )]),
        CqlValue::Tuple(vec![Some(CqlValue::Int(7)), Some(text("seven"))]),
        CqlValue::Vector(vec![CqlValue::Float(1.5), CqlValue::Float(-2.0), CqlValue::Float(0.25)]),
        address("Main St", Some(12_345)),
        CqlValue::List(vec![address("A", Some(1)), address("B", None)]),
    ];
    session.execute_unpaged(&insert, &row).await?;
    let result = session
        .query_unpaged("SELECT k, l, s, m, fl, n, tp, ve, u, us FROM collections", ())
        .await?
        .into_rows_result()?;
    let got: Vec<CqlValue> = result.single_row::<Row>()?.columns.into_iter().flatten().collect();
    for (name, (got, expected)) in
        ["k", "l", "s", "m", "fl", "n", "tp", "ve", "u", "us"].iter().zip(got.into_iter().zip(row))
    {
        checks.equal(name, got, expected);
    }
    execute(session, "UPDATE collections SET l = l + [9], s = s - {'a'}, m['three'] = 3, u.zip = 1 WHERE k = 1")
        .await?;
    let result = session.query_unpaged("SELECT l, s, m, u.zip FROM collections", ()).await?.into_rows_result()?;
    let (l, s, m, zip) =
        result.single_row::<(Vec<i32>, Vec<String>, std::collections::BTreeMap<String, i32>, i32)>()?;
    checks.equal("list append", l, vec![3, 1, 9]);
    checks.equal("set remove", s, vec!["b".to_owned()]);
    checks.equal(
        "map put",
        m.into_iter().collect(),
        vec![("one".to_owned(), 1), ("three".to_owned(), 3), ("two".to_owned(), 2)],
    );
    checks.equal("field", zip, 1);
    Ok(())
}

async fn statements(checks: &mut Checks, session: &Session) -> Outcome {
    execute(
        session,
        "CREATE TABLE wide (p int, c int, s text static, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
    )
    .await?;
    session.query_unpaged("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)", (1, 1, "static", "one")).await?;
    let insert = session.prepare("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)").await?;
    session.execute_unpaged(&insert, (1, 2, MaybeUnset::<&str>::Unset, "two")).await?;
    session.execute_unpaged(&insert, (1, 2, Unset, Unset)).await?;
    let mut batch = Batch::new(BatchType::Logged);
    batch.append_statement(insert);
    batch.append_statement("DELETE FROM wide WHERE p = 1 AND c = 1");
    session.batch(&batch, ((1, 4, Unset, "four"), ())).await?;
    let result = session.query_unpaged("SELECT c, s, v FROM wide WHERE p = 1", ()).await?.into_rows_result()?;
    let rows: Vec<(i32, String, String)> = result.rows()?.collect::<Result<_, _>>()?;
    checks.equal("rows", rows, vec![(4, "static".into(), "four".into()), (2, "static".into(), "two".into())]);
    let mut traced = Statement::new("SELECT * FROM wide");
    traced.set_tracing(true);
    let result = session.query_unpaged(traced, ()).await?;
    let id = result.tracing_id().ok_or("no tracing id")?;
    let info = session.get_tracing_info(&id).await?;
    checks.holds("trace", info.duration.is_some() && !info.events.is_empty(), &info);
    let _: Option<Counter> = None;
    Ok(())
}

async fn conditions(checks: &mut Checks, session: &Session) -> Outcome {
    execute(session, "CREATE TABLE jobs (n int PRIMARY KEY, owner text)").await?;
    let insert = session.prepare("INSERT INTO jobs (n, owner) VALUES (?, ?) IF NOT EXISTS").await?;
    let result = session.execute_unpaged(&insert, (1, "ada")).await?.into_rows_result()?;
    checks.equal("applied", result.single_row::<Row>()?.columns[0].clone(), Some(CqlValue::Boolean(true)));
    let result = session.execute_unpaged(&insert, (1, "bob")).await?.into_rows_result()?;
    checks.equal("refused", result.single_row::<(bool, i32, String)>()?, (false, 1, "ada".to_owned()));
    let update = session.prepare("UPDATE jobs SET owner = ? WHERE n = 1 IF owner = ?").await?;
    let result = session.execute_unpaged(&update, ("bob", "eve")).await?.into_rows_result()?;
    checks.equal("another owner", result.single_row::<(bool, String)>()?, (false, "ada".to_owned()));
    let result = session.execute_unpaged(&update, ("bob", "ada")).await?.into_rows_result()?;
    checks.equal("the owner", result.single_row::<Row>()?.columns[0].clone(), Some(CqlValue::Boolean(true)));
    let mut read = Statement::new("SELECT owner FROM jobs WHERE n = 1");
    read.set_consistency(Consistency::Serial);
    let result = session.query_unpaged(read, ()).await?.into_rows_result()?;
    checks.equal("serial read", result.single_row::<(String,)>()?, ("bob".to_owned(),));
    Ok(())
}

async fn counters(checks: &mut Checks, session: &Session) -> Outcome {
    let table = "CREATE TABLE hits (page text, day int, n counter, total counter static, PRIMARY KEY (page, day))";
    execute(session, table).await?;
    let add = session.prepare("UPDATE hits SET n = n + ? WHERE page = 'home' AND day = ?").await?;
    let increments = (0..60).map(|i| session.execute_unpaged(&add, (Counter(2), i % 3)));
    futures_util::future::try_join_all(increments).await?;
    // Of increments of a static counter at the same time, Cassandra loses some.
    for _ in 0..60 {
        execute(session, "UPDATE hits SET total = total + 1 WHERE page = 'home'").await?;
    }
    let mut batch = Batch::new(BatchType::Counter);
    batch.append_statement("UPDATE hits SET n = n - ? WHERE page = 'home' AND day = 0");
    session.batch(&batch, ((Counter(50),),)).await?;
    let result = session
        .query_unpaged("SELECT n, total FROM hits WHERE page = 'home' AND day = 0", ())
        .await?
        .into_rows_result()?;
    let (n, total) = result.single_row::<(Counter, Counter)>()?;
    checks.equal("sums", (n.0, total.0), (-10, 60));
    Ok(())
}

async fn paging(checks: &mut Checks, session: &Session) -> Outcome {
    execute(session, "CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))").await?;
    let insert = session.prepare("INSERT INTO pages (p, c) VALUES (?, ?)").await?;
    for p in 0..5 {
        for c in 0..11 {
            session.execute_unpaged(&insert, (p, c)).await?;
        }
    }
    let mut statement = Statement::new("SELECT p, c FROM pages");
    statement.set_page_size(4);
    let mut rows: Vec<(i32, i32)> =
        session.query_iter(statement.clone(), ()).await?.rows_stream::<(i32, i32)>()?.try_collect().await?;
    rows.sort_unstable();
    checks.equal("all rows", rows, (0..5).flat_map(|p| (0..11).map(move |c| (p, c))).collect());
    let (page, next) = session.query_single_page(statement, (), PagingState::start()).await?;
    checks.equal("first page", page.into_rows_result()?.rows_num(), 4);
    checks.holds("more pages", !next.finished(), "the first page says it is the last");
    let mut reversed = session.prepare("SELECT c FROM pages WHERE p = ? ORDER BY c DESC").await?;
    reversed.set_page_size(3);
    let rows: Vec<(i32,)> = session.execute_iter(reversed, (3,)).await?.rows_stream::<(i32,)>()?.try_collect().await?;
    checks.equal("reversed, prepared", rows, (0..11).rev().map(|c| (c,)).collect());
    Ok(())
}

async fn indexes(checks: &mut Checks, session: &Session) -> Outcome {
    execute(session, "CREATE TABLE animals (n int PRIMARY KEY, kind text, age int, place vector<float, 2>)").await?;
    execute(session, "CREATE INDEX by_kind ON animals (kind) USING 'sai'").await?;
    execute(session, "CREATE INDEX by_age ON animals (age) USING 'sai'").await?;
    let options = "{'similarity_function': 'euclidean'}";
    execute(session, &format!("CREATE INDEX by_place ON animals (place) USING 'sai' WITH OPTIONS = {options}")).await?;
    let insert = session.prepare("INSERT INTO animals (n, kind, age, place) VALUES (?, ?, ?, ?)").await?;
    for n in 0_u8..40 {
        let kind = if n % 3 == 0 { "owl" } else { "fox" };
        session.execute_unpaged(&insert, (i32::from(n), kind, i32::from(n), vec![f32::from(n), 0.0])).await?;
    }
    let mut by_kind = session.prepare("SELECT n FROM animals WHERE kind = ?").await?;
    by_kind.set_page_size(5);
    let rows = session.execute_iter(by_kind, ("owl",)).await?.rows_stream::<(i32,)>()?;
    let mut found: Vec<(i32,)> = rows.try_collect().await?;
    found.sort_unstable();
    checks.equal("equality, in pages", found, (0..40).step_by(3).map(|n| (n,)).collect());
    let both = session.prepare("SELECT n FROM animals WHERE kind = ? AND age > ? AND age <= ?").await?;
    let rows = session.execute_unpaged(&both, ("owl", 6, 15)).await?.into_rows_result()?;
    let mut found = rows.rows::<(i32,)>()?.collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    checks.equal("two columns", found, vec![(9,), (12,), (15,)]);
    let nearest = session.prepare("SELECT n FROM animals ORDER BY place ANN OF ? LIMIT 3").await?;
    let rows = session.execute_unpaged(&nearest, (vec![7.25_f32, 0.0],)).await?.into_rows_result()?;
    checks.equal("nearest vectors", rows.rows::<(i32,)>()?.collect::<Result<Vec<_>, _>>()?, vec![(7,), (8,), (6,)]);
    Ok(())
}

async fn metadata(checks: &mut Checks, session: &Session) -> Outcome {
    execute(
        session,
        "CREATE TABLE described (a int, b text, c timeuuid, d text static, e int, PRIMARY KEY ((a, b), c))",
    )
    .await?;
    session.await_schema_agreement().await?;
    session.refresh_metadata().await?;
    let state = session.get_cluster_state();
    let keyspace = state.get_keyspace("rust_script").ok_or("the keyspace is not in the metadata")?;
    let table = keyspace.tables.get("described").ok_or("the table is not in the metadata")?;
    checks.equal("partition key", table.partition_key.clone(), vec!["a".to_owned(), "b".to_owned()]);
    checks.equal("clustering key", table.clustering_key.clone(), vec!["c".to_owned()]);
    checks.equal("columns", table.columns.len(), 5);
    checks.holds("user type", keyspace.user_defined_types.contains_key("address"), "no type address");
    checks.equal("nodes", state.get_nodes_info().len(), 1);
    Ok(())
}

async fn bad_statements(checks: &mut Checks, session: &Session) -> Outcome {
    execute(session, "CREATE TABLE errors (k int PRIMARY KEY, v int)").await?;
    for (cql, expected) in [
        ("SELEC 1", "SyntaxError"),
        ("SELECT * FROM nosuch", "Invalid"),
        ("SELECT * FROM errors WHERE v = 1", "Invalid"),
        ("CREATE TABLE errors (k int PRIMARY KEY)", "AlreadyExists"),
        ("CREATE KEYSPACE x WITH replication = {'class': 'NoSuch'}", "ConfigError"),
    ] {
        let failure = session.query_unpaged(cql, ()).await.err();
        let Some(ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, message))) = failure else {
            checks.holds(cql, false, failure);
            continue;
        };
        checks.holds(cql, format!("{error:?}").starts_with(expected) && !message.is_empty(), (error, message));
    }
    let prepared = session.prepare("SELECT * FROM nosuch WHERE k = ?").await.err();
    checks.holds("prepare", matches!(prepared, Some(PrepareError::AllAttemptsFailed { .. })), &prepared);
    let mut statement = Statement::new("SELECT * FROM errors WHERE k = 1");
    statement.set_consistency(Consistency::Two);
    let failure = session.query_unpaged(statement, ()).await.err();
    let unavailable = matches!(
        failure,
        Some(ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Unavailable { required: 2, alive: 1, .. },
            _
        )))
    );
    checks.holds("unavailable", unavailable, &failure);
    Ok(())
}

async fn concurrency(checks: &mut Checks, session: Session) -> Outcome {
    execute(&session, "CREATE TABLE many (k int PRIMARY KEY, v text)").await?;
    let insert = session.prepare("INSERT INTO many (k, v) VALUES (?, ?)").await?;
    let select = session.prepare("SELECT v FROM many WHERE k = ?").await?;
    let session = Arc::new(session);
    let tasks: Vec<_> = (0..1000)
        .map(|k| {
            let (session, insert, select) = (session.clone(), insert.clone(), select.clone());
            tokio::spawn(async move {
                session.execute_unpaged(&insert, (k, format!("value {k}"))).await.map_err(|e| e.to_string())?;
                let result = session.execute_unpaged(&select, (k,)).await.map_err(|e| e.to_string())?;
                let rows = result.into_rows_result().map_err(|e| e.to_string())?;
                rows.single_row::<(String,)>().map(|row| row.0).map_err(|e| e.to_string())
            })
        })
        .collect();
    let mut wrong = Vec::new();
    for (k, task) in tasks.into_iter().enumerate() {
        let got = task.await?;
        if got.as_deref() != Ok(format!("value {k}").as_str()) {
            wrong.push(got);
        }
    }
    checks.holds("1000 tasks at once", wrong.is_empty(), wrong);
    Ok(())
}
