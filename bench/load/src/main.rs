//! A load on one CQL node: `load SPEC`, where SPEC is the JSON of [`spec::Spec`]. The program prints its measurements
//! to standard output, as JSON, and the orchestrator (`python -m bench`) reads them.
//!
//! `load lz4 FILE CHUNK_LENGTH` prints the processor time that LZ4 alone needs for a file.
//!
//! Every worker owns its keys and has one operation in flight, so that the right answer of every read is known. Workers
//! check answers while the load runs, and read a sample of everything that was written back at the end.

mod columns;
mod conditions;
mod counters;
mod indexed;
mod key_value;
mod lz4;
mod measure;
mod partition;
mod process;
mod random;
mod run;
mod session;
mod spec;
mod vectors;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["lz4", file, chunk_length] => lz4::measure(file, chunk_length),
        [text] => serde_json::from_str::<spec::Spec>(text).map_err(|error| error.to_string()).and_then(run_spec),
        _ => {
            eprintln!("usage: load SPEC (see bench/load/src/spec.rs), or load lz4 FILE CHUNK_LENGTH");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("load: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run_spec(spec: spec::Spec) -> Result<String, String> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(spec.threads).enable_all();
    if spec.rate.is_some() {
        runtime.on_thread_start(blockio::request_short_slices);
    }
    let runtime = runtime.build().map_err(|error| error.to_string())?;
    let report = runtime.block_on(run::run(spec))?;
    serde_json::to_string(&report).map_err(|error| error.to_string())
}
