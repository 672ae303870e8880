//! Every key of `docs/options.md` is set to another value than its default, and an effect is seen that the default does
//! not have. A key of the document that no table here has is a failure.

mod logs;
mod statements;
mod tls;
mod values;

use super::*;
use blockio::SimulatedDisk;
use protocol::Version;
use query::{ClientState, QueryHandler, QueryOptions, Request, Response, ResponseBody, Statement, Turn};
use std::collections::BTreeSet;

/// A key with another value than its default, and how that is seen.
struct Case {
    key: &'static str,
    value: &'static str,
    /// Other keys, which are set with and without this one.
    also: &'static [(&'static str, &'static str)],
    seen: Seen,
}

/// The effect that is seen with the key and not by default.
enum Seen {
    /// The last of the statements is answered with this text.
    Answer(&'static [&'static str], &'static str),
    /// The parts of the node, or the files that they read and write, have this value.
    Value(fn(&Parts) -> String, &'static str),
    /// The start is refused with this text.
    Refused(&'static str),
}

impl Case {
    const fn answer(
        key: &'static str,
        value: &'static str,
        statements: &'static [&'static str],
        text: &'static str,
    ) -> Case {
        Case { key, value, also: &[], seen: Seen::Answer(statements, text) }
    }

    const fn value(key: &'static str, value: &'static str, of: fn(&Parts) -> String, expected: &'static str) -> Case {
        Case { key, value, also: &[], seen: Seen::Value(of, expected) }
    }

    const fn refused(key: &'static str, value: &'static str, text: &'static str) -> Case {
        Case { key, value, also: &[], seen: Seen::Refused(text) }
    }

    const fn with(mut self, also: &'static [(&'static str, &'static str)]) -> Case {
        self.also = also;
        self
    }

    /// The configuration by default, and the one with the key.
    fn configurations(&self) -> [Result<Config, String>; 2] {
        [self.also.to_vec(), [self.also, &[(self.key, self.value)]].concat()].map(|settings| configuration(&settings))
    }

    /// Checks that the default and the value of the key differ as the case expects.
    fn check(&self) -> Result<(), String> {
        let Case { key, value, .. } = self;
        let [default, set] = self.configurations();
        let default = default.map_err(|error| format!("{key} by default: {error}"))?;
        let set = match &self.seen {
            Seen::Refused(text) => {
                let error = set.err().unwrap_or_default();
                return hold(error.contains(text), || format!("{key}: {value} is not refused: {error}"));
            }
            _ => set.map_err(|error| format!("{key}: {value}: {error}"))?,
        };
        let parts = [default, set].map(Parts::of);
        let (is_seen, [default, set]) = match &self.seen {
            Seen::Value(of, expected) => {
                let values = parts.map(|parts| of(&parts));
                (values.each_ref().map(|value| value == expected), values)
            }
            Seen::Answer(statements, text) => {
                let answers = parts.map(|parts| last_answer(&parts, statements));
                (answers.each_ref().map(|answer| answer.contains(text)), answers)
            }
            Seen::Refused(_) => return Ok(()),
        };
        hold(is_seen == [false, true], || format!("{key}: {value}: by default: {default}; with it: {set}"))
    }
}

fn hold(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// The configuration with these keys, as the start reads it. A key of a section is `section.key`.
fn configuration(settings: &[(&str, &str)]) -> Result<Config, String> {
    let small = [("commitlog_segment_size", "1MiB"), ("commitlog_total_space", "4MiB")];
    let mut top: Vec<(String, String)> = Vec::new();
    for (key, value) in small.iter().filter(|(key, _)| settings.iter().all(|(set, _)| set != key)).chain(settings) {
        let Some((section, key)) = key.split_once('.') else {
            top.push(((*key).to_owned(), (*value).to_owned()));
            continue;
        };
        match top.iter_mut().find(|(name, _)| name == section) {
            Some((_, keys)) => {
                keys.pop();
                *keys += &format!(", {key}: {value}}}");
            }
            None => top.push((section.to_owned(), format!("{{{key}: {value}}}"))),
        }
    }
    let environment = top.into_iter().map(|(key, value)| (format!("ESPALIER_{}", key.to_uppercase()), value));
    Config::load(None, environment)
}

/// The parts that a start makes of a configuration.
struct Parts {
    config: Config,
    engine: EngineOptions,
    processor: ProcessorOptions,
    server: ServerOptions,
}

impl Parts {
    fn of(config: Config) -> Parts {
        let mut engine = engine_options(&config);
        let processor = processor_options(&config, SocketAddr::new(config.listen, config.port), None);
        let request_memory = request_memory(&config, &mut engine);
        Parts { engine, processor, server: server_options(&config, request_memory), config }
    }

    /// A processor over an engine on a simulated disk.
    fn processor(&self) -> Arc<Processor> {
        let mut engine = engine_options(&self.config);
        engine.disk = Arc::new(SimulatedDisk::new());
        let options = processor_options(&self.config, SocketAddr::new(self.config.listen, self.config.port), None);
        Arc::new(Processor::new(Engine::open(engine).unwrap(), options))
    }
}

/// The statements that create the tables of the cases.
const SETUP: [&str; 3] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
    "CREATE TABLE ks.t (k int, c int, v text, l list<int>, PRIMARY KEY (k, c))",
    "CREATE TABLE ks.u (k int PRIMARY KEY, f frozen<list<text>>, e vector<float, 3>)",
];

/// Carries out statements on a new node. Returns the answer to the last one.
fn last_answer(parts: &Parts, statements: &[&str]) -> String {
    let processor = parts.processor();
    SETUP.iter().chain(statements).fold(String::new(), |_, statement| answer(&processor, statement))
}

/// The answer to a statement, as text. `FLUSH` is one of its own, and `{300}` stands for a text of 300 characters.
fn answer(processor: &Arc<Processor>, statement: &str) -> String {
    if statement == "FLUSH" {
        processor.engine().flush_all().unwrap();
        return String::new();
    }
    let text = match statement.split_once("{300") {
        Some((before, after)) => {
            let (thousands, after) = after.split_once('}').unwrap();
            format!("{before}{}{after}", "x".repeat(300 * if thousands == "k" { 1000 } else { 1 }))
        }
        None => statement.to_owned(),
    };
    let options = QueryOptions { page_size: Some(20), ..QueryOptions::default() };
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 4242)));
    let client = Arc::new(ClientState { address, ..ClientState::default() });
    let statement = Statement::Text(&text);
    let request = Request { statement, client: &client, options: &options, version: Version::V5, trace: None };
    shown(processor.begin(&request, Turn::BLOCKING, None).into_response())
}

fn shown(answer: Result<Response, query::QueryError>) -> String {
    match answer {
        Err(error) => format!("error: {}", error.message),
        Ok(Response { body: ResponseBody::Rows(rows), warnings }) => {
            let more = if rows.paging_state.is_some() { " and more" } else { "" };
            let cells = String::from_utf8_lossy(&rows.cells);
            format!("{} rows{more}: {cells}\n{}", rows.row_count, warnings.join("\n"))
        }
        Ok(Response { body, warnings }) => format!("{body:?}\n{}", warnings.join("\n")),
    }
}

/// Keys whose effect is not seen here, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("memtable_allocation_type", "all its values mean the same, and wrong ones are refused: config::tests"),
    ("client_encryption_options", "its keys are tested one by one"),
    ("audit_logging_options", "its keys are tested one by one"),
    ("full_query_logging_options", "its keys are tested one by one"),
    ("sai_options", "its keys are tested one by one"),
    ("client_encryption_options.algorithm", "it names an algorithm of Java, which is not used"),
    ("sai_options.segment_write_buffer_size", "it has no effect, which the log says: config::sai"),
    ("audit_logging_options.max_archive_retries", "it is about the command that is refused"),
    ("full_query_logging_options.max_archive_retries", "it is about the command that is refused"),
];

/// The names in the first column of the tables below this head of the document, or in the last column.
fn documented(head: &str, is_last_column: bool) -> BTreeSet<String> {
    let document = crate::config::options_page();
    let section = document.split(head).nth(1).unwrap_or_else(|| panic!("no {head}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| option"));
    let rows = rows.filter(|line| !line.starts_with("| reason"));
    let cells = rows.map(|row| row.split(" | ").nth(usize::from(is_last_column)).unwrap_or_default());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn every_key_in_force_has_an_effect_that_its_default_does_not_have() {
    let tables: [&[Case]; 4] = [statements::CASES, values::CASES, tls::CASES, logs::CASES];
    let mut documented_keys = documented("\n## In force\n", false);
    documented_keys.extend(documented("\n## Keys of sections\n", true));
    let mut seen: BTreeSet<String> = EXCEPTIONS.iter().map(|(key, _)| (*key).to_owned()).collect();
    let mut failures = Vec::new();
    for case in tables.into_iter().flatten() {
        assert!(documented_keys.contains(case.key), "{} is not in docs/options.md", case.key);
        failures.extend(case.check().err());
        seen.insert(case.key.to_owned());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let missing: Vec<_> = documented_keys.difference(&seen).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
    let stale: Vec<_> = seen.difference(&documented_keys).collect();
    assert!(stale.is_empty(), "docs/options.md does not have {stale:?}");
}

#[test]
fn keys_without_effect_are_named_with_the_reason_and_restricted_ones_are_refused() {
    let inert = documented("\n## Accepted without effect\n", true);
    assert!(inert.len() > 100, "{}", inert.len());
    for key in &inert {
        let config = configuration(&[(key, "1")]).unwrap();
        assert_eq!(config.inert.iter().map(|(name, _)| name).collect::<Vec<_>>(), [key]);
    }
    let restricted = documented("\n## Accepted with some values only\n", false);
    assert!(restricted.len() > 5, "{}", restricted.len());
    for key in &restricted {
        let value = match &**key {
            "transparent_data_encryption_options" => "{enabled: true}",
            "sstable" => "{selected_format: big}",
            _ => "something",
        };
        let error = configuration(&[(key, value)]).unwrap_err();
        assert!(error.contains("is not supported with the value") && error.contains(&key.to_uppercase()), "{error}");
    }
}

#[test]
fn copies_of_large_rows_in_the_background_count_as_memory_of_requests() {
    let config = configuration(&[]).unwrap();
    let mut options = engine_options(&config);
    let memory = request_memory(&config, &mut options);
    let background = options.background_rows.expect("flushes and compactions count their copies");
    assert!(background.take(1000));
    assert_eq!(memory.taken_bytes(), 1000);
    background.give_back(1000);
    assert_eq!(memory.taken_bytes(), 0);
    assert_eq!(memory.limit_bytes(), config.request_bytes_in_flight_max().0);
}
