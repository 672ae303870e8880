//! `espalier sstable ...`: tools that work on files.

use crate::admin::client;
use crate::cli::{SSTable, SSTableCommand};
use crate::serve::open_engine;
use blockio::{Disk, SystemDisk};
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use tools::log::Output;
use tools::sstable::{self, SSTableToolError};

/// Executes `espalier sstable`. A table that is not sound is a failure without a message of its own, because the damage
/// was printed.
pub fn run(command: SSTable) -> Result<ExitCode, String> {
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = match command.command {
        SSTableCommand::Import { node, config, keyspace, table, directory } => {
            let directory = std::path::absolute(&directory).map_err(|error| error.to_string())?;
            if client::is_running(&node) {
                return client::import(&node, keyspace, table, directory).map(|()| ExitCode::SUCCESS);
            }
            let engine = open_engine(node.data, config)?;
            let imported = engine
                .schema()
                .table(&keyspace, &table)
                .cloned()
                .ok_or_else(|| format!("Unknown keyspace/table pair ({keyspace}.{table})"))
                .and_then(|table| engine.import(&table, &directory).map_err(|error| error.to_string()));
            engine.shutdown().map_err(|error| error.to_string())?;
            writeln!(out, "{}", client::imported(imported?)).map(|()| true).map_err(SSTableToolError::from)
        }
        SSTableCommand::Dump { lines, rows, raw_timestamps, paths } => {
            let layout = match (lines, rows) {
                (_, true) => ::sstable::DumpLayout::RowPerLine,
                (true, false) => ::sstable::DumpLayout::PartitionPerLine,
                (false, false) => ::sstable::DumpLayout::Array,
            };
            sstable::find(&*disk, &paths).and_then(|found| {
                found.iter().try_for_each(|table| sstable::dump(&*disk, table, layout, raw_timestamps, &mut out))?;
                Ok(true)
            })
        }
        SSTableCommand::Verify { extended, json, paths } => sstable::find(&*disk, &paths)
            .and_then(|found| sstable::verify(&*disk, &found, extended, output(json), &mut out)),
        SSTableCommand::Metadata { json, paths } => sstable::find(&*disk, &paths).and_then(|found| {
            found.iter().try_for_each(|table| sstable::metadata(&*disk, table, output(json), &mut out))?;
            Ok(true)
        }),
        SSTableCommand::Salvage { to, paths } => {
            sstable::find(&*disk, &paths).and_then(|found| sstable::salvage(&disk, &found, &to, &mut out))
        }
        SSTableCommand::Export { to, paths } => {
            sstable::find(&*disk, &paths).and_then(|found| sstable::export(&disk, &found, &to, &mut out))
        }
    };
    let all_well = done.and_then(|all_well| {
        out.flush()?;
        Ok(all_well)
    });
    match all_well {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // The reader has closed the pipe.
        Err(SSTableToolError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.to_string()),
    }
}

fn output(json: bool) -> Output {
    if json { Output::Json } else { Output::Text }
}
