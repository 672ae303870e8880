//! `bench-columns SECONDS DIRECTORY [WHAT...]`: rows of 10, 50 and 100 columns, plain and as a frozen UDT, written and
//! read through a server in this process. The program prints one line of JSON per figure: the processor time of the
//! process less the client's, per operation. It makes `DIRECTORY`, uses it and removes it. `WHAT` is `memory`,
//! `tables`, `writes`, `listed` or `*` (how columns are read), `10`, `UDT-10` and so on. Of each sort of which no word
//! is named, all run.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::{WireClient, mix};
use blockio::SystemDisk;
use engine::{Engine, EngineOptions};
use query::{Processor, ProcessorOptions};
use rustix::time::{ClockId, clock_gettime};
use server::{Listener, Server, ServerOptions};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PARTITIONS: u64 = 200;
const ROWS_EACH: u64 = 25;
const ROWS_READ: usize = 20;
/// The number of requests that are sent at once.
const BATCH: u64 = 16;
const FIGURES: [&str; 3] = ["memory", "writes", "tables"];
const FORMS: [&str; 2] = ["listed", "*"];
/// The number of columns and the characters of each. Rows of all shapes have about the same size.
const SHAPES: [(usize, usize); 3] = [(10, 150), (50, 30), (100, 15)];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(seconds), Some(directory)) = (arguments.next().and_then(|s| s.parse().ok()), arguments.next()) else {
        eprintln!("usage: bench-columns SECONDS DIRECTORY [memory|tables|writes|listed|*|10|UDT-10|...]...");
        return ExitCode::from(2);
    };
    let (directory, figures) = (PathBuf::from(directory), arguments.collect());
    let outcome = std::fs::create_dir(&directory)
        .map_err(Into::into)
        .and_then(|()| run(&directory, &Figures { seconds: Duration::from_secs_f64(seconds), wanted: figures }));
    if let Err(error) = std::fs::remove_dir_all(&directory) {
        eprintln!("{}: {error}", directory.display());
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Figures {
    seconds: Duration,
    wanted: Vec<String>,
}

impl Figures {
    /// Whether a word is named, or no word of its sort is.
    fn wants(&self, word: &str, sort: &[&str]) -> bool {
        let names = |word: &str| self.wanted.iter().any(|wanted| wanted == word);
        names(word) || !sort.iter().any(|word| names(word))
    }

    fn wants_kind(&self, kind: &Kind) -> bool {
        let is_kind = |wanted: &&String| ![&FIGURES[..], &FORMS].concat().contains(&wanted.as_str());
        let mut wanted = self.wanted.iter().filter(is_kind).peekable();
        wanted.peek().is_none() || wanted.any(|wanted| *wanted == kind.name())
    }
}

fn run(directory: &std::path::Path, figures: &Figures) -> Outcome<()> {
    let mut options = EngineOptions::new(Arc::new(SystemDisk::new()), directory);
    options.memtable_space_bytes = 4 << 30;
    options.memtable_cleanup_threshold = 0.9;
    let engine = Engine::open(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server_options = ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() };
    let listener = runtime.block_on(Listener::bind(server_options))?;
    let address = listener.local_addr();
    let processor = Processor::new(engine.clone(), ProcessorOptions::default());
    runtime.spawn(Server::new(listener, Arc::new(processor)).run(std::future::pending()));
    let mut client = WireClient::connect(address)?;
    client.query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")?;
    let all = SHAPES.iter().flat_map(|&(columns, size)| [false, true].map(|udt| Kind { columns, size, udt }));
    let kinds: Vec<Kind> = all.filter(|kind| figures.wants_kind(kind)).collect();
    for kind in &kinds {
        kind.create(&mut client)?;
        kind.write(&mut client, "reads", Bound::Operations(PARTITIONS * ROWS_EACH))?;
    }
    let read_all = |client: &mut WireClient, place: &str| -> Outcome<()> {
        for kind in &kinds {
            for form in FORMS.into_iter().filter(|form| figures.wants(form, &FORMS)) {
                kind.read(client, form == "listed", Bound::Time(figures.seconds / 4))?;
                let (nanos, bytes) = kind.read(client, form == "listed", Bound::Time(figures.seconds))?;
                say(&format!("{place}, {form}"), kind, nanos, bytes);
            }
        }
        Ok(())
    };
    if figures.wants("memory", &FIGURES) {
        read_all(&mut client, "read of 20 rows, memory")?;
    }
    if figures.wants("writes", &FIGURES) {
        for kind in &kinds {
            kind.write(&mut client, "writes", Bound::Time(figures.seconds / 4))?;
            let nanos = kind.write(&mut client, "writes", Bound::Time(figures.seconds))?;
            say("write of a row", kind, nanos, 0);
        }
    }
    if figures.wants("tables", &FIGURES) {
        engine.flush_all()?;
        read_all(&mut client, "read of 20 rows, tables")?;
    }
    drop(client);
    runtime.shutdown_timeout(Duration::from_secs(5));
    engine.shutdown()?;
    Ok(())
}

fn say(figure: &str, kind: &Kind, nanos: f64, bytes: usize) {
    let (columns, udt) = (kind.columns, if kind.udt { "UDT of " } else { "" });
    println!(
        "{{\"figure\": \"{figure}\", \"row\": \"{udt}{columns}\", \"cpu_ns\": {nanos:.0}, \"answer_bytes\": {bytes}}}"
    );
}

/// When a measurement ends.
#[derive(Clone, Copy)]
enum Bound {
    Operations(u64),
    Time(Duration),
}

struct Kind {
    columns: usize,
    size: usize,
    udt: bool,
}

impl Kind {
    fn name(&self) -> String {
        format!("{}{}", if self.udt { "UDT-" } else { "" }, self.columns)
    }

    fn table(&self, what: &str) -> String {
        format!("ks.{what}_{}_{}", if self.udt { "udt" } else { "plain" }, self.columns)
    }

    fn names(&self) -> String {
        match self.udt {
            true => "fields".to_owned(),
            false => (0..self.columns).map(|place| format!("c{place}")).collect::<Vec<_>>().join(", "),
        }
    }

    fn create(&self, client: &mut WireClient) -> Outcome<()> {
        let texts = (0..self.columns).map(|place| format!("c{place} text")).collect::<Vec<_>>().join(", ");
        let mut body = texts.clone();
        if self.udt {
            client.query(&format!("CREATE TYPE ks.fields_{} ({texts})", self.columns))?;
            body = format!("fields frozen<fields_{}>", self.columns);
        }
        for what in ["reads", "writes"] {
            client.query(&format!(
                "CREATE TABLE {} (key bigint, row bigint, {body}, PRIMARY KEY (key, row)) WITH CLUSTERING ORDER BY (row DESC)",
                self.table(what)
            ))?;
        }
        Ok(())
    }

    /// Nanoseconds of the server per operation.
    fn write(&self, client: &mut WireClient, what: &str, bound: Bound) -> Outcome<f64> {
        let marks = vec!["?"; if self.udt { 1 } else { self.columns }].join(", ");
        let table = self.table(what);
        let id = client.prepare(&format!("INSERT INTO {table} (key, row, {}) VALUES (?, ?, {marks})", self.names()))?;
        let text: Vec<u8> = (0..self.size + self.columns).map(|place| b'a' + (mix(place as u64) % 26) as u8).collect();
        let texts: Vec<&[u8]> = (0..self.columns).map(|column| &text[column..column + self.size]).collect();
        let fields: Vec<u8> =
            texts.iter().flat_map(|text| [&(text.len() as u32).to_be_bytes(), *text].concat()).collect();
        // The rows of a later call come before those of an earlier call.
        let base = Instant::now().elapsed().as_nanos() as u64
            + clock_gettime(ClockId::Monotonic).tv_sec.unsigned_abs() * 100_000;
        let mut batch = |client: &mut WireClient, first: u64| -> Outcome<usize> {
            for operation in first..first + BATCH {
                let key = (operation % PARTITIONS).to_be_bytes();
                let row = (base + operation / PARTITIONS).to_be_bytes();
                let mut values: Vec<&[u8]> = vec![&key, &row];
                if self.udt {
                    values.push(&fields)
                } else {
                    values.extend_from_slice(&texts)
                }
                client.execute(&id, &values);
            }
            client.send()?;
            for _ in 0..BATCH {
                client.result()?;
            }
            Ok(0)
        };
        Ok(timed(client, bound, &mut batch)?.0)
    }

    /// Nanoseconds of the server per operation, and the size of an answer in bytes.
    fn read(&self, client: &mut WireClient, listed: bool, bound: Bound) -> Outcome<(f64, usize)> {
        let names = if listed { format!("row, {}", self.names()) } else { "*".to_owned() };
        let table = self.table("reads");
        let id = client.prepare(&format!("SELECT {names} FROM {table} WHERE key = ? LIMIT {ROWS_READ}"))?;
        let mut batch = |client: &mut WireClient, first: u64| -> Outcome<usize> {
            for operation in first..first + BATCH {
                client.execute(&id, &[&(mix(operation) % PARTITIONS).to_be_bytes()]);
            }
            client.send()?;
            let mut size = 0;
            for _ in 0..BATCH {
                size = client.result()?.len();
                if size < ROWS_READ * self.columns * self.size {
                    return Err(format!("an answer of {size} bytes").into());
                }
            }
            Ok(size)
        };
        timed(client, bound, &mut batch)
    }
}

fn timed(
    client: &mut WireClient,
    bound: Bound,
    batch: &mut impl FnMut(&mut WireClient, u64) -> Outcome<usize>,
) -> Outcome<(f64, usize)> {
    let (start, before) = (Instant::now(), server_time());
    let (mut operations, mut size) = (0, 0);
    loop {
        match bound {
            Bound::Operations(count) if operations >= count => break,
            Bound::Time(duration) if start.elapsed() >= duration => break,
            _ => size = batch(client, operations)?,
        }
        operations += BATCH;
    }
    Ok(((server_time() - before).as_nanos() as f64 / operations as f64, size))
}

/// The processor time of the process without this thread.
fn server_time() -> Duration {
    let time = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    time(ClockId::ProcessCPUTime) - time(ClockId::ThreadCPUTime)
}
