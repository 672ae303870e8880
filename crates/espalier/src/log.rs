//! `espalier log ...`: the commit log of a running or a stopped node.

use crate::cli::{Log, LogCommand, LogPlace};
use crate::serve;
use blockio::SystemDisk;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tools::log::{self, Output, ToolError};

/// Executes `espalier log`. A log that is not sound is a failure without a message of its own, because the damage was
/// printed.
pub fn run(command: Log) -> Result<ExitCode, String> {
    let disk = SystemDisk::new();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = match command.command {
        LogCommand::Describe(place) => {
            let (path, output) = resolve(place)?;
            log::describe(&disk, &path, output, &mut out).map(|()| true)
        }
        LogCommand::Verify(place) => {
            let (path, output) = resolve(place)?;
            log::verify(&disk, &path, output, &mut out)
        }
        LogCommand::Dump(place) => {
            let (path, output) = resolve(place)?;
            log::dump(&disk, &path, output, &mut out).map(|()| true)
        }
    };
    let done = done.and_then(|sound| out.flush().map(|()| sound).map_err(ToolError::from));
    done.map(|sound| if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }).map_err(|error| error.to_string())
}

fn resolve(place: LogPlace) -> Result<(PathBuf, Output), String> {
    let path = match place.file {
        Some(file) => file,
        None => serve::log_path(place.node.data, place.config)?,
    };
    Ok((path, if place.json { Output::Json } else { Output::Text }))
}
