//! `slipway-worker`: the work of knowledge bases, in a team's namespace and with the team's login.
//!
//! `serve` answers REST: searches, documents, uploads; and the manager, for whom it connects to integrations. `ingest` reads one
//! source into one knowledge base, as a Job. `extract` is the subprocess in which it reads a document. `probe` looks at a
//! folder of the team's volume, as a Job, because `serve` mounts none.

mod documents;
mod embedders;
mod failure;
mod ingest;
mod integrations;
mod metrics;
mod probe;
mod search;
mod server;
mod settings;
mod store;
mod uploads;

use std::env;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use slipway_http::{log, process, termination};

use crate::settings::{Refusal, Settings};

/// The environment asks for something that a restart will not make possible.
const REFUSED: u8 = 2;

const HELP: &str = "\
slipway-worker: fills and searches the knowledge bases of a team, and connects to its integrations

Usage: slipway-worker serve     answers searches, takes uploads and connects to integrations, over HTTP
       slipway-worker ingest    reads one source into one knowledge base
       slipway-worker probe     looks at a folder of the team's volume
       slipway-worker extract   reads one document; `ingest` starts it
       slipway-worker [--help | --version]

All settings are environment variables; docs/knowledge.md describes them.
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    match words.iter().map(AsRef::as_ref).collect::<Vec<_>>()[..] {
        ["serve"] => run(server::main),
        ["ingest"] => run(ingest::main),
        ["probe"] => run(probe::main),
        ["extract", ..] => ingest::extract(&arguments[1..]),
        ["--help" | "-h"] => said(&mut stdout(), HELP, ExitCode::SUCCESS),
        ["--version" | "-V"] => said(&mut stdout(), &format!("slipway-worker {}\n", env!("CARGO_PKG_VERSION")), ExitCode::SUCCESS),
        _ => said(&mut stderr(), HELP, ExitCode::from(REFUSED)),
    }
}

/// Runs a role with what both roles share.
fn run<F>(role: fn(Settings) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    if let Err(error) = process::seal() {
        return ended(
            &format!("slipway-worker: its environment cannot be kept from the programs that it runs: {error}\n"),
            ExitCode::FAILURE,
        );
    }
    let (settings, refusal) = Settings::read(|name| env::var_os(name));
    log::start(settings.log_level, settings.log_format);
    if !refusal.is_empty() {
        return ended(&refusal.to_string(), ExitCode::from(REFUSED));
    }
    // The one TLS stack of the process; it can be installed once, and is.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(&format!("slipway-worker: cannot start: {error}\n"), ExitCode::FAILURE),
    };
    match runtime.block_on(role(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(refusal) = error.downcast_ref::<Refusal>() {
                return ended(&refusal.to_string(), ExitCode::from(REFUSED));
            }
            let code = if error.is::<ingest::FinalFailure>() { ExitCode::from(REFUSED) } else { ExitCode::FAILURE };
            ended(&format!("slipway-worker: {error:#}\n"), code)
        }
    }
}

/// The last words go to the log and to the pod's status.
fn ended(words: &str, code: ExitCode) -> ExitCode {
    termination::write(termination::LOG, words);
    said(&mut stderr(), words, code)
}

fn said(out: &mut impl Write, words: &str, code: ExitCode) -> ExitCode {
    // Nobody is left to tell if this fails.
    let _ = out.write_all(words.as_bytes());
    code
}
