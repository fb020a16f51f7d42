//! `slipway-runtime`: what an agent's pod runs. Reads its settings from `RUNTIME_*`, refuses what it
//! cannot do, serves chat on one port, and drains on SIGTERM. `docs/runtime-contract.md` is what it
//! promises to the operator and to those who bring an image of their own.

mod chat;
mod log;
mod metrics;
mod model;
mod server;
mod settings;
mod termination;

use std::env;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::Context;

use crate::settings::Settings;

/// The environment asks for something that a restart will not make possible.
const REFUSED: u8 = 2;

const HELP: &str = "\
slipway-runtime: one agent, served over HTTP

Usage: slipway-runtime [--help | --version]

All settings are environment variables, with these defaults:
  RUNTIME_CHANNEL=rest          RUNTIME_STRATEGY=simple
  RUNTIME_MODEL_TYPE=stub       RUNTIME_MODEL_ID=stub-echo
  RUNTIME_STORAGE=memory        RUNTIME_PORT=8000
  RUNTIME_LOG_LEVEL=info        RUNTIME_LOG_FORMAT=json
docs/runtime-contract.md describes each of them.
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(),
        ["--help" | "-h"] => said(&mut stdout(), HELP, ExitCode::SUCCESS),
        ["--version" | "-V"] => said(&mut stdout(), &format!("slipway-runtime {}\n", env!("CARGO_PKG_VERSION")), ExitCode::SUCCESS),
        _ => said(&mut stderr(), HELP, ExitCode::from(REFUSED)),
    }
}

fn run() -> ExitCode {
    let settings = match Settings::read(|name| env::var_os(name)) {
        Ok(settings) => settings,
        Err(refusal) => return ended(&refusal.to_string(), ExitCode::from(REFUSED)),
    };
    log::start(settings.log_level, settings.log_format);
    settings.announce();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.context("cannot start").and_then(|runtime| runtime.block_on(server::run(settings))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ended(&format!("slipway-runtime: {error:#}\n"), ExitCode::FAILURE),
    }
}

/// The last words go where a person looks: the log, and the pod's status.
fn ended(words: &str, code: ExitCode) -> ExitCode {
    termination::write(termination::LOG, words);
    said(&mut stderr(), words, code)
}

fn said(out: &mut impl Write, words: &str, code: ExitCode) -> ExitCode {
    // Nobody is left to tell if this fails.
    let _ = out.write_all(words.as_bytes());
    code
}
