//! The Espalier binary: a node, and the tool that administers a running one.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod config;
mod disk_usage;
mod free_pages;
mod log;
mod request_logs;
mod serve;
mod sstable;
mod tls;
mod upgrade;

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let outcome = match cli.command {
        cli::Command::Serve(options) => serve::serve(options).map(|()| ExitCode::SUCCESS),
        cli::Command::Options => {
            print!("{}", config::options_page());
            Ok(ExitCode::SUCCESS)
        }
        cli::Command::Log(command) => log::run(command),
        cli::Command::Sstable(command) => sstable::run(command),
        cli::Command::UpgradeFrom(options) => upgrade::upgrade_from(options).map(|()| ExitCode::SUCCESS),
        cli::Command::Export(options) => upgrade::export(options).map(|()| ExitCode::SUCCESS),
        command => admin::client::run(command).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(message) => {
            eprintln!("espalier: {message}");
            ExitCode::FAILURE
        }
    }
}
