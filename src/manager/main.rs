//! `slipway-manager`: the process that runs the controllers.

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
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Most of its work is waiting.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    logs::start(&arguments);
    // An import's process and git have the user of the process that starts them, and would otherwise read its environment
    // and memory through `/proc`. What is started is not concerned: `exec` sets this anew.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::error!("the environment cannot be kept from processes of the same user: {error}");
        return ExitCode::FAILURE;
    }
    // Two threads on one core would only take turns.
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS);
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
