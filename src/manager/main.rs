//! `slipway-manager`: the process that runs the controllers.

mod api;
mod arguments;
mod client;
mod crds;
mod health;
mod keys;
mod logs;
mod preflight;
mod run;
mod state;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    logs::start(&arguments);
    let outcome = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
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
