//! `slipway-manager`: the process for the roles operator, rest and state.

mod api;
mod arguments;
mod client;
mod crds;
mod health;
mod keys;
mod lease;
mod logs;
mod preflight;
mod run;
mod state;

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::Parser;
use slipway_http::process;

/// The most worker threads: most of the work is waiting for I/O.
const MAX_WORKER_THREADS: usize = 2;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    logs::start(&arguments);
    // Import subprocesses and git run as the same user.
    if let Err(error) = process::seal() {
        tracing::error!("the process cannot be made undumpable: {error}");
        return ExitCode::FAILURE;
    }
    let threads = available_parallelism().map_or(1, NonZero::get).min(MAX_WORKER_THREADS);
    let outcome = match tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime.block_on(run::run(arguments)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
