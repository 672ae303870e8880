//! The Espalier binary: a node, and the tool that steers a running one.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod config;
mod serve;

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let outcome = match cli.command {
        cli::Command::Serve(options) => serve::serve(options),
        cli::Command::Options => {
            print!("{}", config::options_page());
            Ok(())
        }
        command => admin::client::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("espalier: {message}");
            ExitCode::FAILURE
        }
    }
}
